//! The two databases (RFC 4301 s4.4) and how they are asked.

use std::collections::HashSet;

use weir_engine::esp::sa::Fingerprint;
use zerocopy::FromBytes;

pub use crate::answer::{Answer, Asker, Notice};

use crate::answer::Exchange;
use crate::netlink::messages;
use crate::plan::GatewayAddresses;
use crate::policy::Policy;
use crate::refusal::{Errno, Refusal, refuse};
use crate::state::State;
use crate::uapi::*;

/// Associations at most; a further one is refused with `ENOBUFS`. About 1 KiB each.
pub const STATES_MAX: usize = 8192;

/// Policies at most; likewise. About 300 bytes each.
pub const POLICIES_MAX: usize = 8192;

/// What the databases ask of the gateway that they are of.
pub trait Outside {
    /// Bits for an SPI that nobody can guess.
    fn random(&mut self) -> u32;

    /// Whether an association may have this key, which no other of these databases has.
    ///
    /// # Errors
    /// Why it may not.
    fn admit(&mut self, key: Fingerprint) -> Result<(), Refusal>;
}

/// Associations and policies of all front ends.
#[derive(Debug)]
pub struct Xfrm {
    pub(crate) place: GatewayAddresses,
    /// In the order of their making.
    pub(crate) states: Vec<State>,
    /// In the order in which they are asked: by direction, priority, making.
    pub(crate) policies: Vec<Policy>,
    /// Keys of associations that were removed, until somebody takes them.
    removed: Vec<Fingerprint>,
    pub(crate) next_index: u32,
    pub(crate) next_acquire: u32,
}

impl Xfrm {
    /// Empty databases for a gateway at this place.
    pub fn new(place: GatewayAddresses) -> Self {
        Self {
            place,
            states: Vec::new(),
            policies: Vec::new(),
            removed: Vec::new(),
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
    pub fn set_place(&mut self, place: GatewayAddresses) {
        self.place = place;
    }

    /// Carries out what a front end says. `now` is in seconds since 1970. Bytes that are no netlink
    /// message are passed over, as the kernel does.
    pub fn handle(
        &mut self,
        now: u64,
        asker: Asker,
        datagram: &[u8],
        outside: &mut dyn Outside,
    ) -> Answer {
        let mut answer = Answer::default();
        for (header, body) in messages(datagram) {
            let mut exchange = Exchange { now, asker, header, answer: &mut answer };
            let mut result = Ok(());
            if header.flags & flag::REQUEST != 0 && header.kind >= kind::NEW_SA {
                result = self.dispatch(&mut exchange, body, outside);
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
        outside: &mut dyn Outside,
    ) -> Result<(), Refusal> {
        match exchange.header.kind {
            kind::NEW_SA => self.new_state(exchange, body, outside, false),
            kind::UPD_SA => self.new_state(exchange, body, outside, true),
            kind::DEL_SA => self.delete_state(exchange, body),
            kind::GET_SA if is_dump(&exchange.header) => self.dump_states(exchange, body),
            kind::GET_SA => self.tell_state(exchange, body),
            kind::ALLOC_SPI => self.allocate_spi(exchange, body, outside),
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

    /// The keys of associations that were removed since the last call, and have not come back: how
    /// far they went is to be kept.
    pub fn take_removed(&mut self) -> Vec<Fingerprint> {
        let mut removed = std::mem::take(&mut self.removed);
        if !removed.is_empty() {
            let there: HashSet<_> = self.states.iter().filter_map(State::fingerprint).collect();
            removed.retain(|key| !there.contains(key));
        }
        removed
    }

    pub(crate) fn note_removed(&mut self, state: &State) {
        self.removed.extend(state.fingerprint());
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
