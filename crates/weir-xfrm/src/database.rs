//! The two databases (RFC 4301 s4.4) and how they are asked.

use std::collections::BTreeMap;

use weir_engine::esp::sa::Fingerprint;
use zerocopy::FromBytes;

pub use crate::answer::{Answer, Asker, Notice};

use crate::answer::Exchange;
use crate::netlink::messages;
use crate::plan::Place;
use crate::policy::Policy;
use crate::refusal::{Errno, Refusal, refuse};
use crate::state::State;
use crate::uapi::*;

/// Associations at most; a further one is refused with `ENOBUFS`. About 1 KiB each.
pub const STATES_MAX: usize = 8192;

/// Policies at most; likewise. About 300 bytes each.
pub const POLICIES_MAX: usize = 8192;

/// Keys that sealed and were removed, whose numbers go on when they come back; the oldest are
/// forgotten. 16 bytes each.
const RETIRED_MAX: usize = 65_536;

/// Associations and policies of all front ends.
#[derive(Debug)]
pub struct Xfrm {
    pub(crate) place: Place,
    /// In the order of their making.
    pub(crate) states: Vec<State>,
    /// In the order in which they are asked: by direction, priority, making.
    pub(crate) policies: Vec<Policy>,
    /// The last number of keys that sealed and were removed, and when that was.
    pub(crate) retired: BTreeMap<Fingerprint, (u64, u64)>,
    pub(crate) next_index: u32,
    pub(crate) next_acquire: u32,
}

impl Xfrm {
    /// Empty databases for a gateway at this place.
    pub fn new(place: Place) -> Self {
        Self {
            place,
            states: Vec::new(),
            policies: Vec::new(),
            retired: BTreeMap::new(),
            next_index: 8,
            next_acquire: 1,
        }
    }

    /// The associations, in the order of their making.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// The policies, in the order in which they decide.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Where the gateway stands; what its configuration holds may have changed.
    pub fn set_place(&mut self, place: Place) {
        self.place = place;
    }

    /// Carries out what a front end says. `now` is in seconds since 1970; `random` gives bits for
    /// SPIs. Bytes that are no netlink message are passed over, as the kernel does.
    pub fn handle(
        &mut self,
        now: u64,
        asker: Asker,
        datagram: &[u8],
        random: &mut dyn FnMut() -> u32,
    ) -> Answer {
        let mut answer = Answer::default();
        for (header, body) in messages(datagram) {
            let mut exchange = Exchange { now, asker, header, answer: &mut answer };
            let mut result = Ok(());
            if header.flags & flag::REQUEST != 0 && header.kind >= kind::NEW_SA {
                result = self.dispatch(&mut exchange, body, random);
            }
            match &result {
                // A dump ends by itself.
                Ok(()) if header.flags & flag::ACK == 0 || is_dump(&header) => {}
                Ok(()) => exchange.acknowledge(body, None),
                Err(refusal) => exchange.acknowledge(body, Some(refusal)),
            }
        }
        answer
    }

    fn dispatch(
        &mut self,
        exchange: &mut Exchange<'_>,
        body: &[u8],
        random: &mut dyn FnMut() -> u32,
    ) -> Result<(), Refusal> {
        match exchange.header.kind {
            kind::NEW_SA => self.new_state(exchange, body, false),
            kind::UPD_SA => self.new_state(exchange, body, true),
            kind::DEL_SA => self.delete_state(exchange, body),
            kind::GET_SA if is_dump(&exchange.header) => self.dump_states(exchange, body),
            kind::GET_SA => self.tell_state(exchange, body),
            kind::ALLOC_SPI => self.allocate_spi(exchange, body, random),
            kind::FLUSH_SA => self.flush_states(exchange, body),
            kind::GET_AE => self.tell_numbering(exchange, body),
            kind::NEW_AE => refuse(
                Errno::EOPNOTSUPP,
                "numbers of a running association cannot be set: one would be used twice",
            ),
            kind::NEW_POLICY => self.new_policy(exchange, body, false),
            kind::UPD_POLICY => self.new_policy(exchange, body, true),
            kind::DEL_POLICY => self.delete_policy(exchange, body),
            kind::GET_POLICY if is_dump(&exchange.header) => {
                self.dump_policies(exchange);
                Ok(())
            }
            kind::GET_POLICY => self.tell_policy(exchange, body),
            kind::FLUSH_POLICY => self.flush_policies(exchange, body),
            kind::GET_SAD_INFO => self.count_states(exchange, body),
            kind::GET_SPD_INFO => self.count_policies(exchange, body),
            // What a kernel without CONFIG_XFRM_MIGRATE says.
            0x21 => refuse(Errno::ENOPROTOOPT, "associations do not migrate; install new ones"),
            _ => refuse(Errno::EINVAL, "no such request"),
        }
    }

    /// Remembers how far a key has sealed: the same key installed again goes on from there, which
    /// keeps its nonces from repeating as long as the gateway runs.
    pub(crate) fn retire(&mut self, state: &State, now: u64) {
        let Some(fingerprint) = state.fingerprint() else { return };
        if state.sealed == 0 {
            return;
        }
        if self.retired.len() >= RETIRED_MAX {
            let oldest = self.retired.iter().min_by_key(|(_, (_, when))| *when);
            if let Some(oldest) = oldest.map(|(fingerprint, _)| *fingerprint) {
                self.retired.remove(&oldest);
            }
        }
        self.retired.insert(fingerprint, (state.sealed, now));
    }
}

/// The fixed part of a request.
///
/// # Errors
/// The message is shorter.
pub(crate) fn read<T: FromBytes>(body: &[u8]) -> Result<(T, &[u8]), Refusal> {
    T::read_from_prefix(body)
        .map_err(|_| Refusal::new(Errno::EINVAL, "the message is shorter than its kind needs"))
}

fn is_dump(header: &Header) -> bool {
    header.flags & flag::DUMP == flag::DUMP
        && matches!(header.kind, kind::GET_SA | kind::GET_POLICY)
}
