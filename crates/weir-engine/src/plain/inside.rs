//! What packets carry, and what pieces make up: judged as packets of their own, before the one that
//! brings them goes on.
//!
//! ```text
//!   packet -+-> fragment --last piece--> the whole ---+-> judged, and what it carries
//!           `-> tunnel ------------------> the inner -+        `--Err--> the packet is dropped
//! ```
//!
//! A datagram in pieces is judged with the piece that makes it whole: without that one its receiver
//! has none of it. What cannot be looked at meets the exception of its cause.
//!
//! Pieces come to a worker by their addresses, and the datagram's flow may be another's: then the
//! datagram is set aside to be judged there (docs/adr/0220). What tunnels carry stays here, as all
//! packets of a tunnel do.

use weir_detect::fragments::{Fragments, Policy};
use weir_detect::tunnels;
use weir_wire::frame::{Link, Time};
use weir_wire::parse::{Parsed, parse};

use crate::policy::{Exception, Exceptions};
use crate::verdict::DropReason;

/// Packets within each other, at most.
const LAYERS_MAX: usize = 16;

/// Judges one packet: its bytes, and what the walk found.
pub(super) type Judge<'j> = &'j mut dyn FnMut(&[u8], &Parsed, bool) -> Result<(), DropReason>;

/// How often packets were looked into, and could not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsideCounters {
    /// Packets that others carried.
    pub carried: u64,
    /// Datagrams that were whole with their last piece.
    pub assembled: u64,
    /// Packets with more layers than are looked at.
    pub too_deep: u64,
    /// Datagrams of which pieces were given up: no room, too long apart, or too large.
    pub given_up: u64,
}

/// Takes packets apart, and puts pieces together.
#[derive(Debug)]
pub(super) struct Inside {
    fragments: Fragments,
    exceptions: Exceptions,
    /// What receivers may read in several ways is dropped.
    refuses: bool,
    counters: InsideCounters,
}

impl Inside {
    pub(super) fn new(exceptions: Exceptions, seed: u64, refuses: bool) -> Self {
        let mut fragments = Fragments::new(Policy::default(), seed);
        fragments.refuse_conflicts(refuses);
        Self { fragments, exceptions, refuses, counters: InsideCounters::default() }
    }

    /// Other exceptions; pieces that wait go on waiting.
    pub(super) fn renew(&mut self, exceptions: Exceptions, refuses: bool) {
        (self.exceptions, self.refuses) = (exceptions, refuses);
        self.fragments.refuse_conflicts(refuses);
    }

    pub(super) fn counters(&self) -> InsideCounters {
        InsideCounters { given_up: self.fragments.given_up(), ..self.counters }
    }

    /// Has `judge` look at what a packet carries, or completes.
    ///
    /// # Errors
    /// Why the packet is dropped.
    pub(super) fn look(
        &mut self,
        now: Time,
        bytes: &[u8],
        parsed: &Parsed,
        judge: Judge<'_>,
    ) -> Result<(), DropReason> {
        self.layer(now, (bytes, Link::Ethernet), parsed, 1, judge)
    }

    /// The datagram that a piece completes, which nobody has judged.
    ///
    /// # Errors
    /// Why the piece is dropped.
    pub(super) fn complete(
        &mut self,
        now: Time,
        bytes: &[u8],
        parsed: &Parsed,
    ) -> Result<Option<Vec<u8>>, DropReason> {
        let before = self.fragments.given_up();
        let taken = self.fragments.take(now, bytes, parsed);
        if taken.is_refused {
            return Err(DropReason::FragmentConflict);
        }
        let Some(whole) = taken.whole else {
            let is_lost = self.fragments.given_up() > before;
            let exception = if is_lost { self.exceptions.fragments } else { Exception::Pass };
            return exception.judge(DropReason::FragmentsFull).map(|()| None);
        };
        self.counters.assembled += 1;
        Ok(Some(whole))
    }

    /// Has `judge` look at a datagram that another worker completed, and at what it carries.
    ///
    /// # Errors
    /// Why its last piece is dropped.
    pub(super) fn look_at_whole(
        &mut self,
        now: Time,
        datagram: &[u8],
        judge: Judge<'_>,
    ) -> Result<(), DropReason> {
        self.judged(now, (datagram, Link::Ethernet), (1, true), judge)
    }

    fn layer(
        &mut self,
        now: Time,
        (bytes, link): (&[u8], Link),
        parsed: &Parsed,
        depth: usize,
        judge: Judge<'_>,
    ) -> Result<(), DropReason> {
        if !tunnels::wraps(parsed) {
            return Ok(());
        }
        let is_overtagged = tunnels::is_overtagged(parsed);
        if depth > LAYERS_MAX || is_overtagged {
            self.counters.too_deep += 1;
            if is_overtagged && self.refuses {
                return Err(DropReason::TunnelTooDeep);
            }
            return self.exceptions.layers.judge(DropReason::TunnelTooDeep);
        }
        if parsed.fragment.is_some() {
            return match self.complete(now, bytes, parsed)? {
                Some(whole) => self.judged(now, (&whole, link), (depth, true), judge),
                None => Ok(()),
            };
        }
        if parsed.fault.is_some() && parsed.tunnel.is_none() {
            return Ok(());
        }
        let Some((start, link, _)) = tunnels::inner(bytes, parsed) else { return Ok(()) };
        let carried = bytes.get(start..parsed.end as usize).filter(|it| !it.is_empty());
        let Some(carried) = carried else { return Ok(()) };
        self.counters.carried += 1;
        self.judged(now, (carried, link), (depth, false), judge)
    }

    fn judged(
        &mut self,
        now: Time,
        (bytes, link): (&[u8], Link),
        (depth, is_rebuilt): (usize, bool),
        judge: Judge<'_>,
    ) -> Result<(), DropReason> {
        let parsed = parse(bytes, link, bytes.len() as u32);
        judge(bytes, &parsed, is_rebuilt)?;
        self.layer(now, (bytes, link), &parsed, depth + 1, judge)
    }
}

impl Exception {
    fn judge(self, reason: DropReason) -> Result<(), DropReason> {
        match self {
            Self::Pass => Ok(()),
            Self::Drop => Err(reason),
        }
    }
}
