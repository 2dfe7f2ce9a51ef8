//! What packets carry, and what pieces make up: judged as packets of their own, before the one that
//! brings them goes on.
//!
//! ```text
//!   packet -+-> fragment --last piece--> the whole ---+-> judged, and what it carries
//!           `-> tunnel ------------------> the inner -+        `--Err--> the packet is dropped
//! ```
//!
//! A datagram in pieces is judged with the piece that makes it whole. Where something may be
//! dropped all its pieces wait for that, and go on together: nobody gets pieces but of what was
//! judged (docs/adr/0281). What cannot be looked at meets the exception of its cause.
//!
//! Pieces come to a worker by their addresses, and the datagram's flow may be another's: then the
//! datagram is set aside to be judged there (docs/adr/0220). What tunnels carry stays here, as all
//! packets of a tunnel do.

use weir_detect::fragments::{Carrier, Cause, Fragments, GivenUp, Policy};
use weir_detect::tags;
use weir_detect::tunnels::{self, TunnelPorts};
use weir_wire::frame::{Link, Time};
use weir_wire::parse::{Network, Parsed, parse};

use crate::policy::{Exception, Exceptions};
use crate::verdict::DropReason;

/// Packets within each other, at most.
const LAYERS_MAX: usize = 16;

/// Judges one packet: its bytes, what the walk found, and how it was come by.
pub(super) type Judge<'j> = &'j mut dyn FnMut(&[u8], &Parsed, Found) -> Result<(), DropReason>;

/// How a packet was come by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Put together from fragments.
    pub(super) is_rebuilt: bool,
    /// So many packets carry it, one within the other.
    pub(super) carriers: u8,
}

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

/// What the frame waits for that was looked into last.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    /// For other pieces of the datagram of this number.
    pub waits_for: Option<u64>,
    /// It completed these, whose pieces go where it goes.
    pub completes: Vec<u64>,
    /// What it completed, which another worker is to judge.
    pub datagram: Option<Vec<u8>>,
}

/// What becomes of the pieces of a datagram that was given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned {
    /// As in [`Aside`].
    pub number: u64,
    /// `None`: they go on as they are.
    pub reason: Option<DropReason>,
}

/// Takes packets apart, and puts pieces together.
#[derive(Debug)]
pub(super) struct Inside {
    fragments: Fragments,
    exceptions: Exceptions,
    tunnels: TunnelPorts,
    /// What receivers may read in several ways is dropped.
    refuses: bool,
    /// Of the frame that is looked into.
    aside: Option<Box<Aside>>,
    counters: InsideCounters,
}

impl Inside {
    pub(super) fn new(exceptions: Exceptions, seed: u64) -> Self {
        let fragments = Fragments::new(Policy::default(), seed);
        let counters = InsideCounters::default();
        let tunnels = TunnelPorts::default();
        Self { fragments, exceptions, tunnels, refuses: false, aside: None, counters }
    }

    /// Other exceptions; pieces that wait go on waiting. `holds`: they wait in our hands.
    pub(super) fn renew(
        &mut self,
        exceptions: Exceptions,
        refuses: bool,
        holds: bool,
        tunnels: TunnelPorts,
    ) {
        (self.exceptions, self.refuses, self.tunnels) = (exceptions, refuses, tunnels);
        self.fragments.refuse_conflicts(refuses);
        if self.fragments.are_held() != holds {
            self.fragments.set_held(holds);
        }
    }

    pub(super) fn holds(&self) -> bool {
        self.fragments.are_held()
    }

    /// What the last frame waits for, if it does.
    pub(super) fn take_aside(&mut self) -> Option<Box<Aside>> {
        self.aside.take()
    }

    /// Pieces that were held in vain since this was asked last.
    pub(super) fn take_abandoned(&mut self) -> impl Iterator<Item = Abandoned> + use<> {
        let without_room = self.exceptions.fragments.judge(DropReason::FragmentsFull).err();
        let given_up = self.fragments.take_given_up().into_iter();
        given_up.map(move |GivenUp { number, cause }| {
            let reason = match cause {
                Cause::Room => without_room,
                Cause::Late => Some(DropReason::FragmentsLate),
                Cause::Conflict => Some(DropReason::FragmentConflict),
            };
            Abandoned { number, reason }
        })
    }

    pub(super) fn expire(&mut self, now: Time) {
        self.fragments.expire(now);
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
        is_verified: bool,
        judge: Judge<'_>,
    ) -> Result<(), DropReason> {
        let place = Place { is_verified, ..Place::default() };
        self.layer(now, (bytes, Link::Ethernet), parsed, place, judge)
    }

    /// Takes in a piece whose datagram another worker judges, once it is whole.
    ///
    /// # Errors
    /// Why the piece is dropped.
    pub(super) fn take_piece(
        &mut self,
        now: Time,
        bytes: &[u8],
        parsed: &Parsed,
    ) -> Result<(), DropReason> {
        if let Some(whole) = self.complete(now, bytes, parsed, None)? {
            self.aside.get_or_insert_default().datagram = Some(whole);
        }
        Ok(())
    }

    /// The datagram that a piece completes, which nobody has judged.
    fn complete(
        &mut self,
        now: Time,
        bytes: &[u8],
        parsed: &Parsed,
        carrier: Option<&Carrier<'_>>,
    ) -> Result<Option<Vec<u8>>, DropReason> {
        let before = self.fragments.given_up();
        let taken = self.fragments.take_from(now, bytes, parsed, carrier);
        if taken.is_refused {
            return Err(DropReason::FragmentConflict);
        }
        self.counters.assembled += u64::from(taken.whole.is_some());
        if self.holds()
            && let Some(number) = taken.number
        {
            let aside = self.aside.get_or_insert_default();
            match taken.whole {
                Some(_) => aside.completes.push(number),
                None => aside.waits_for = Some(number),
            }
        } else if taken.whole.is_none() && self.fragments.given_up() > before {
            self.exceptions.fragments.judge(DropReason::FragmentsFull)?;
        }
        Ok(taken.whole)
    }

    /// Has `judge` look at a datagram that another worker completed, and at what it carries. Pieces
    /// within it wait for nobody: they are not here.
    ///
    /// # Errors
    /// Why its last piece is dropped.
    pub(super) fn look_at_whole(
        &mut self,
        now: Time,
        datagram: &[u8],
        judge: Judge<'_>,
    ) -> Result<(), DropReason> {
        let outermost = (datagram, Link::Ethernet);
        let judged = self.judged(now, outermost, Place::default(), true, judge);
        self.aside = None;
        judged
    }

    fn layer(
        &mut self,
        now: Time,
        (bytes, link): (&[u8], Link),
        parsed: &Parsed,
        place: Place<'_>,
        judge: Judge<'_>,
    ) -> Result<(), DropReason> {
        if !self.tunnels.wraps(parsed) {
            return Ok(());
        }
        let Place { depth, carriers, is_verified, carrier } = place;
        let is_overtagged = tunnels::is_overtagged(parsed);
        if depth == LAYERS_MAX || is_overtagged {
            self.counters.too_deep += 1;
            if is_overtagged && self.refuses {
                return Err(DropReason::TunnelTooDeep);
            }
            return self.exceptions.layers.judge(DropReason::TunnelTooDeep);
        }
        let deeper = Place { depth: depth + 1, ..place };
        if tags::hides(parsed) {
            let behind = tags::look_behind(bytes, link, bytes.len() as u32).parsed;
            if behind.network == Network::None {
                return Ok(());
            }
            self.counters.carried += 1;
            judge(bytes, &behind, Found { is_rebuilt: false, carriers })?;
            return self.layer(now, (bytes, link), &behind, deeper, judge);
        }
        if parsed.fragment.is_some() {
            return match self.complete(now, bytes, parsed, carrier)? {
                Some(whole) => {
                    let place = Place { is_verified: false, ..place };
                    self.judged(now, (&whole, link), place, true, judge)
                }
                None => Ok(()),
            };
        }
        if parsed.fault.is_some() && parsed.tunnel.is_none() {
            return Ok(());
        }
        let Some((start, link, _)) = self.tunnels.inner(bytes, parsed) else { return Ok(()) };
        let carried = bytes.get(start..parsed.end as usize).filter(|it| !it.is_empty());
        let Some(carried) = carried else { return Ok(()) };
        self.counters.carried += 1;
        let outer = Carrier { bytes, parsed, inner: start, is_verified, outer: carrier };
        let place =
            Place { depth, carriers: carriers + 1, is_verified: false, carrier: Some(&outer) };
        self.judged(now, (carried, link), place, false, judge)
    }

    fn judged(
        &mut self,
        now: Time,
        (bytes, link): (&[u8], Link),
        place: Place<'_>,
        is_rebuilt: bool,
        judge: Judge<'_>,
    ) -> Result<(), DropReason> {
        let parsed = parse(bytes, link, bytes.len() as u32);
        judge(bytes, &parsed, Found { is_rebuilt, carriers: place.carriers })?;
        let deeper = Place { depth: place.depth + 1, ..place };
        self.layer(now, (bytes, link), &parsed, deeper, judge)
    }
}

/// Where a packet is among others.
#[derive(Clone, Copy, Debug, Default)]
struct Place<'c> {
    /// So many are around it, pieces and labels among them.
    depth: usize,
    /// So many carry it.
    carriers: u8,
    /// Its transport checksum is right, or left to an adapter.
    is_verified: bool,
    carrier: Option<&'c Carrier<'c>>,
}

impl Exception {
    fn judge(self, reason: DropReason) -> Result<(), DropReason> {
        match self {
            Self::Pass => Ok(()),
            Self::Drop => Err(reason),
        }
    }
}
