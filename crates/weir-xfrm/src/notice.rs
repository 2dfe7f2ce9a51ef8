//! What front ends hear without having asked: limits that are reached, packets that want an
//! association, peers that moved.

use std::collections::HashMap;
use std::net::IpAddr;

use weir_engine::pipeline::{Usage, UsageDirection};
use weir_engine::policy::mapped;
use zerocopy::IntoBytes;

use crate::database::{Answer, Notice, STATES_MAX, Xfrm};
use crate::netlink::Writer;
use crate::plan::Role;
use crate::policy::Policy;
use crate::state::{Stage, State, address};
use crate::uapi::*;

/// Seconds that an association may stay without keys (the kernel's `net.core.xfrm_acq_expires`).
pub(crate) const LARVAL_SECONDS: u64 = 30;

/// What has become of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    Within,
    Soft,
    Hard,
}

impl Xfrm {
    /// Takes in what the worker counted, and tells what follows by `now`. Call it ten times a
    /// second: limits by bytes and packets are exact to what passes in between.
    pub fn tick(&mut self, now: u64, usage: &[Usage]) -> Answer {
        let mut answer = Answer::default();
        self.take_usage(now, usage, &mut answer);
        let mut kept = Vec::with_capacity(self.states.len());
        for mut state in std::mem::take(&mut self.states) {
            let limit = limit(&state.info.limits, &state.info.used, now);
            if limit == Limit::Hard {
                answer.notices.push(expire(&state, true));
                answer.changed = true;
                self.note_removed(&state);
                continue;
            }
            if limit == Limit::Soft && state.stage == Stage::Valid {
                answer.notices.push(expire(&state, false));
                answer.changed = true;
                state.stage = Stage::Dying;
            }
            kept.push(state);
        }
        self.states = kept;
        self.policies.retain_mut(|policy| {
            let limit = limit(&policy.info.limits, &policy.info.used, now);
            let is_news = limit == Limit::Hard || limit == Limit::Soft && !policy.is_dying;
            if is_news {
                answer.notices.push(policy_expire(policy, limit == Limit::Hard));
                answer.changed |= limit == Limit::Hard;
                policy.is_dying = true;
            }
            limit != Limit::Hard
        });
        answer
    }

    fn take_usage(&mut self, now: u64, usage: &[Usage], answer: &mut Answer) {
        let states = self.states.iter_mut().filter(|it| it.role != Role::Idle);
        let mut states: HashMap<_, _> = states.map(|it| ((it.role, it.spi()), it)).collect();
        for used in usage {
            let role = match used.direction {
                UsageDirection::Sealing => Role::Sealing,
                UsageDirection::Opening { .. } => Role::Opening,
            };
            let Some(state) = states.get_mut(&(role, used.spi.value())) else { continue };
            let current = &mut state.info.used;
            if used.packets > current.packets {
                state.last_used = now;
                if current.use_time == 0 {
                    current.use_time = now;
                }
            }
            (current.packets, current.bytes) = (used.packets, used.bytes);
            match used.direction {
                UsageDirection::Sealing => state.sealed = used.sequence,
                UsageDirection::Opening { came_from } => {
                    state.opened = used.sequence;
                    answer.notices.extend(came_from.and_then(|from| mapping(state, from)));
                }
            }
        }
    }

    /// A packet from `source` to `destination` wants an association that the policy of this index
    /// asks for. Tells it once, until an association comes or half a minute has passed.
    pub fn acquire(
        &mut self,
        now: u64,
        policy: u32,
        source: IpAddr,
        destination: IpAddr,
    ) -> Option<Notice> {
        let policy = self.policies.iter().find(|it| it.info.index == policy)?;
        let template = policy.template?;
        let (to, family) = address(destination);
        let (from, _) = address(source);
        let outer_to = match template.mode {
            MODE_TUNNEL => template.id.destination,
            _ => to,
        };
        let asked = |it: &State| {
            it.acquired_for == Some(policy.info.index) && it.info.id.destination == outer_to
        };
        if self.states.iter().any(asked) || self.states.len() >= STATES_MAX {
            return None;
        }
        let own = self.place.own.iter().find(|own| own.is_ipv4() == (template.family == FAMILY_V4));
        let outer_from = match (template.mode, own) {
            (MODE_TUNNEL, Some(own)) if template.source == [0; 16] => address(*own).0,
            (MODE_TUNNEL, _) => template.source,
            _ => from,
        };
        let whole = if family == FAMILY_V4 { 32 } else { 128 };
        let selector = Selector {
            destination: to,
            source: from,
            family,
            destination_len: whole,
            source_len: whole,
            ..Selector::default()
        };
        let id = Id { destination: outer_to, spi: [0; 4], ..template.id };
        let sequence = self.next_acquire;
        self.next_acquire = self.next_acquire.wrapping_add(1).max(1);
        let limits =
            LifetimeLimits { hard_add_seconds: LARVAL_SECONDS, ..LifetimeLimits::unlimited() };
        let info = SaInfo {
            selector,
            id,
            source: outer_from,
            limits,
            sequence,
            request: template.request,
            family: template.family,
            mode: template.mode,
            ..SaInfo::default()
        };
        let acquire = Acquire {
            id,
            source: outer_from,
            selector,
            policy: policy.info,
            authentication: template.authentication,
            encryption: template.encryption,
            compression: template.compression,
            sequence,
        };
        let datagram = policy.write_attributes(Writer::new(header(kind::ACQUIRE), &acquire));
        let mut larval = State::larval(info, now);
        larval.acquired_for = Some(policy.info.index);
        self.states.push(larval);
        Some(Notice { group: group::ACQUIRE, datagram })
    }
}

impl LifetimeLimits {
    /// No limit by bytes or packets; times of 0 are none.
    pub fn unlimited() -> Self {
        Self {
            soft_bytes: UNLIMITED,
            hard_bytes: UNLIMITED,
            soft_packets: UNLIMITED,
            hard_packets: UNLIMITED,
            ..Self::default()
        }
    }
}

fn header(kind: u16) -> Header {
    Header { kind, ..Header::default() }
}

/// As the kernel's `xfrm_timer_handler` and `xfrm_state_check_expire` have it: seconds of 0 are no
/// limit, and bytes and packets count from the first packet.
fn limit(limits: &LifetimeLimits, used: &LifetimeUsed, now: u64) -> Limit {
    let passed = |seconds: u64, since: u64| {
        seconds != 0 && since != 0 && now >= since.saturating_add(seconds)
    };
    let counted = |bytes: u64, packets: u64| {
        used.packets > 0 && (used.bytes >= bytes || used.packets >= packets)
    };
    if passed(limits.hard_add_seconds, used.add_time)
        || passed(limits.hard_use_seconds, used.use_time)
        || counted(limits.hard_bytes, limits.hard_packets)
    {
        Limit::Hard
    } else if passed(limits.soft_add_seconds, used.add_time)
        || passed(limits.soft_use_seconds, used.use_time)
        || counted(limits.soft_bytes, limits.soft_packets)
    {
        Limit::Soft
    } else {
        Limit::Within
    }
}

fn expire(state: &State, hard: bool) -> Notice {
    let body = Expire { info: state.told(), hard: hard.into(), ..Expire::default() };
    let datagram = Writer::new(header(kind::EXPIRE), &body).finish();
    Notice { group: group::EXPIRE, datagram }
}

fn policy_expire(policy: &Policy, hard: bool) -> Notice {
    let body = PolicyExpire { policy: policy.info, hard: hard.into(), ..PolicyExpire::default() };
    let datagram = policy.write_attributes(Writer::new(header(kind::POL_EXPIRE), &body));
    Notice { group: group::EXPIRE, datagram }
}

/// The peer of an association in UDP came from elsewhere than its association says. Told once for
/// each place; the daemon that owns the association decides.
fn mapping(state: &mut State, from: ([u8; 16], u16)) -> Option<Notice> {
    let encapsulation = state.encapsulation?;
    let known = (mapped(state.source()), u16::from_be_bytes(encapsulation.source_port));
    if from == known || state.moved_to == Some(from) {
        return None;
    }
    state.moved_to = Some(from);
    let new_source = match weir_wire::ip::unmapped(&from.0) {
        Some(v4) => address(IpAddr::from(v4)).0,
        None => from.0,
    };
    let body = Mapping {
        id: SaId {
            destination: state.info.id.destination,
            spi: state.info.id.spi,
            family: state.info.family,
            protocol: state.info.id.protocol,
            ..SaId::default()
        },
        request: state.info.request,
        old_source: state.info.source,
        new_source,
        old_port: encapsulation.source_port,
        new_port: from.1.to_be_bytes(),
    };
    let datagram = Writer::new(header(kind::MAPPING), body.as_bytes()).finish();
    Some(Notice { group: group::MAPPING, datagram })
}
