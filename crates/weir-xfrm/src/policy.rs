//! One policy as a front end describes it: which packets, and what is to happen to them.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use weir_engine::policy::Prefix;
use zerocopy::{FromBytes, IntoBytes};

use crate::netlink::{Writer, attributes};
use crate::refusal::{Errno, Refusal, refuse};
use crate::state::{fixed, ip, same};
use crate::uapi::*;

/// Templates of a policy, at most (`XFRM_MAX_DEPTH`).
const TEMPLATES_MAX: usize = 6;

/// ICMPv6, and its kinds that are neighbour discovery's: a selector has the kind in the place of
/// the source port (the kernel's `xfrm_flowi_sport`).
const PROTOCOL_ICMP_V6: u8 = 58;
const NEIGHBOUR_KINDS: RangeInclusive<u16> = 133..=137;

/// A policy.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The fixed part of what was written, with its index.
    pub info: PolicyInfo,
    /// How its packets are sealed; `None`: not at all.
    pub template: Option<Template>,
    /// Whether its soft limit was told.
    pub is_dying: bool,
}

impl Policy {
    /// The policy that a request describes; its index is still 0 or what was asked for.
    ///
    /// # Errors
    /// The kernel's own refusals, and what Weir's policies cannot express.
    pub fn read(body: &[u8], now: u64) -> Result<Self, Refusal> {
        let Ok((mut info, rest)) = PolicyInfo::read_from_prefix(body) else {
            return refuse(Errno::EINVAL, "the message is shorter than a policy");
        };
        check_selector(&info.selector)?;
        if info.direction > DIRECTION_FORWARD || info.action > ACTION_BLOCK {
            return refuse(Errno::EINVAL, "no such direction or action");
        }
        if info.index != 0 && info.index & 7 != u32::from(info.direction) {
            return refuse(Errno::EINVAL, "the index belongs to another direction");
        }
        let mut template = None;
        for (kind, value) in attributes(rest) {
            match kind {
                attribute::TEMPLATES => template = read_template(value, &info)?,
                attribute::POLICY_TYPE => check_type(value)?,
                attribute::MARK if fixed::<Mark>(value)? != Mark::default() => {
                    return refuse(Errno::EOPNOTSUPP, "Weir knows no marks; leave mark out");
                }
                attribute::INTERFACE_ID if value.iter().any(|byte| *byte != 0) => {
                    return refuse(
                        Errno::EOPNOTSUPP,
                        "Weir has no xfrm interfaces; leave if_id out",
                    );
                }
                attribute::OFFLOAD_DEVICE => {
                    return refuse(
                        Errno::EOPNOTSUPP,
                        "Weir seals by itself; for a NIC set `offload` in its configuration",
                    );
                }
                _ => {}
            }
        }
        info.used = LifetimeUsed { add_time: now, ..LifetimeUsed::default() };
        let policy = Self { info, template, is_dying: false };
        check_upper(&policy)?;
        Ok(policy)
    }

    /// Whether it is about the same packets in the same direction: then there is only one of them.
    pub fn is(&self, selector: &Selector, direction: u8) -> bool {
        self.info.direction == direction && self.info.selector == *selector
    }

    /// Whether it is about neighbour discovery (RFC 4861), as daemons ask that it pass: Weir never
    /// seals it by a policy of addresses, so that such a policy is kept and changes nothing.
    pub fn is_for_neighbours(&self) -> bool {
        let Selector { family, protocol, source_port, source_port_mask, .. } = self.info.selector;
        family == FAMILY_V6
            && protocol == PROTOCOL_ICMP_V6
            && source_port_mask == [0xff; 2]
            && NEIGHBOUR_KINDS.contains(&u16::from_be_bytes(source_port))
    }

    /// The addresses that are met on the wire side: destinations outward, sources inward.
    pub fn far(&self) -> Prefix {
        let selector = &self.info.selector;
        let (bytes, len) = match self.info.direction {
            DIRECTION_OUT => (&selector.destination, selector.destination_len),
            _ => (&selector.source, selector.source_len),
        };
        Prefix::new(ip(bytes, selector.family), len)
    }

    /// Whether it is about packets between these two hosts alone.
    pub fn is_between(&self, source: IpAddr, destination: IpAddr) -> bool {
        let selector = &self.info.selector;
        let whole = if selector.family == FAMILY_V4 { 32 } else { 128 };
        selector.source_len == whole
            && selector.destination_len == whole
            && ip(&selector.source, selector.family) == source
            && ip(&selector.destination, selector.family) == destination
    }

    /// Its message, of `header`'s kind.
    pub fn write(&self, header: Header) -> Vec<u8> {
        self.write_attributes(Writer::new(header, &self.info))
    }

    /// Appends what is told besides the fixed part.
    pub fn write_attributes(&self, writer: Writer) -> Vec<u8> {
        let writer = writer.with_some(attribute::TEMPLATES, self.template.as_ref());
        writer.with(attribute::POLICY_TYPE, PolicyType::default().as_bytes()).finish()
    }
}

/// Whether the association `info` is one that `template` asks for (the kernel's
/// `xfrm_state_find`).
pub fn wants(template: &Template, info: &SaInfo) -> bool {
    let ends = |one: &Address, other: &Address| same(one, other, info.family);
    template.id.protocol == info.id.protocol
        && template.mode == info.mode
        && template.request == info.request
        && (template.id.spi == [0; 4] || template.id.spi == info.id.spi)
        && (template.mode == MODE_TRANSPORT
            || template.family == info.family
                && ends(&template.id.destination, &info.id.destination)
                && (template.source == [0; 16] || ends(&template.source, &info.source)))
}

/// Whether what came by the association `info` satisfies `template` (the kernel's
/// `xfrm_state_ok`).
pub fn accepts(template: &Template, info: &SaInfo) -> bool {
    let any_request = Template { request: info.request, ..*template };
    wants(if template.request == 0 { &any_request } else { template }, info)
}

fn check_selector(selector: &Selector) -> Result<(), Refusal> {
    let len_max = match selector.family {
        FAMILY_V4 => 32,
        FAMILY_V6 => 128,
        _ => return refuse(Errno::EINVAL, "the family is neither IPv4 nor IPv6"),
    };
    if selector.source_len > len_max || selector.destination_len > len_max {
        return refuse(Errno::EINVAL, "a prefix of the selector is longer than an address");
    }
    if selector.interface != 0 {
        return refuse(Errno::EOPNOTSUPP, "Weir's policies are about addresses; leave dev out");
    }
    Ok(())
}

/// Refuses what is about more than addresses.
fn check_upper(policy: &Policy) -> Result<(), Refusal> {
    let selector = &policy.info.selector;
    let ports = [selector.source_port_mask, selector.destination_port_mask];
    let is_whole = selector.protocol == 0 && ports == [[0; 2]; 2];
    let passes = policy.template.is_none() && policy.info.action == ACTION_ALLOW;
    if is_whole || passes && policy.is_for_neighbours() {
        return Ok(());
    }
    refuse(Errno::EOPNOTSUPP, "Weir's policies are about addresses; leave protocol and ports out")
}

fn check_type(value: &[u8]) -> Result<(), Refusal> {
    let found: PolicyType = fixed(value)?;
    match found.kind {
        0 => Ok(()),
        _ => refuse(Errno::EINVAL, "there are main policies only"),
    }
}

fn read_template(value: &[u8], info: &PolicyInfo) -> Result<Option<Template>, Refusal> {
    let count = value.len() / size_of::<Template>();
    if count > TEMPLATES_MAX {
        return refuse(Errno::EINVAL, "more than six templates");
    }
    if count > 1 {
        return refuse(Errno::EOPNOTSUPP, "Weir wraps a packet once; give one template");
    }
    if count == 0 {
        return Ok(None);
    }
    let mut template: Template = fixed(value)?;
    if template.family == 0 {
        template.family = info.selector.family;
    }
    if !matches!(template.family, FAMILY_V4 | FAMILY_V6) {
        return refuse(Errno::EINVAL, "the template's family is neither IPv4 nor IPv6");
    }
    match template.mode {
        MODE_TUNNEL => {}
        MODE_TRANSPORT if template.family != info.selector.family => {
            return refuse(Errno::EINVAL, "transport mode changes no family");
        }
        MODE_TRANSPORT => {}
        2..=MODE_LAST => {
            return refuse(Errno::EPROTONOSUPPORT, "Weir has tunnel and transport mode");
        }
        _ => return refuse(Errno::EINVAL, "no such mode"),
    }
    match template.id.protocol {
        PROTOCOL_ESP => Ok(Some(template)),
        PROTOCOL_AH | PROTOCOL_COMP => {
            refuse(Errno::EPROTONOSUPPORT, "Weir speaks ESP; no AH and no IPComp")
        }
        _ => refuse(Errno::EINVAL, "no protocol of associations"),
    }
}
