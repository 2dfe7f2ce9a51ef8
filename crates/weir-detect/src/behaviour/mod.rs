//! What gives an attack away over many packets: floods by their rate, attacks on queue pairs by
//! what a source or a queue pair does over time.
//!
//! ```text
//!   packet -> Floods  (kind, source or destination) -> bucket empty: over its rate until it ends,
//!                                                      and who sends it: few, or forged ones
//!          -> Attacks (queue pair, pair of hosts)   -> marks, counted by Tally over seconds
//!                                                  `-> Signs: one bit a watch, asked by rules
//! ```
//!
//! Rules ask by keywords, and decide what becomes of the packet:
//!
//! ```text
//! flood:syn, by_dst, rate 2000, hold 10;     packets a second; over after 10 s at half of it
//! scan:targets 100, seconds 300;              services that do not answer
//! rdma.event:key_guessing, count 5, seconds 10;
//! ```
//!
//! Sources of the attacks: ReDMArk (Rothenberger et al. 2021), NeVerMore (2022), HT-Verbs, Pythia
//! (Tsai et al. 2019), Lee & Kim (2007). What is kept is bounded: tables of fixed size, in which a
//! new entry takes the place of the one that was used longest ago.

mod attack;
mod distinct;
mod flood;
mod guid;
mod idle;
mod lately;
mod pair;
mod queue_pair;
mod scan;
mod table;
mod tally;

use weir_wire::frame::Time;

pub(crate) use attack::AttackWatch;
use attack::Attacks;
pub(crate) use flood::FloodWatch;
pub use flood::{Flood, FloodKind, FloodSources, FloodView};
use flood::{FloodChange, Floods};
use guid::GuidChange;
pub(crate) use scan::ScanWatch;
use scan::Scans;
use tally::MarkChange;

use crate::alert::Alert;
use crate::detector::Direction;
use crate::flow::Flow;
use crate::packet::View;
use crate::rule::Protocol;
use crate::ruleset::RuleSet;

/// Watches of a set of rules, at most: one bit each.
pub(crate) const WATCHES_MAX: usize = 64;

const NS_PER_S: u64 = 1_000_000_000;

/// One thing that rules have watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Flood(FloodWatch),
    Attack(AttackWatch),
    Scan(ScanWatch),
}

impl Watch {
    /// Whether packets of a rule's protocol can be what is watched for.
    pub(crate) fn may_be_of(&self, protocol: Protocol) -> bool {
        use Protocol as P;
        let is_any = matches!(protocol, P::Ip | P::Ipv4 | P::Ipv6 | P::PacketHeader);
        let kind = match self {
            Self::Scan(_) => return true,
            // RoCE v2 is UDP.
            Self::Attack(_) => return is_any || matches!(protocol, P::Rdma | P::Udp),
            Self::Flood(watch) => watch.kind(),
        };
        is_any
            || match kind {
                FloodKind::Syn => matches!(protocol, P::Tcp | P::TcpPacket),
                FloodKind::Udp | FloodKind::Dns => protocol == P::Udp,
                FloodKind::Icmp => matches!(protocol, P::Icmp | P::Icmpv4 | P::Icmpv6),
                FloodKind::NewFlow => true,
                _ => matches!(protocol, P::Rdma | P::Udp),
            }
    }
}

/// Which watches say of the packet at hand that it belongs to what they watch for, a bit each.
pub(crate) type Signs = u64;

/// The watch that a keyword names; `None` if it is another keyword.
pub(crate) fn watch(name: &str, value: &str) -> Option<Result<Watch, String>> {
    match name {
        "flood" => Some(FloodWatch::parse(value).map(Watch::Flood)),
        "scan" => Some(ScanWatch::parse(value).map(Watch::Scan)),
        "rdma.event" => Some(AttackWatch::parse(value).map(Watch::Attack)),
        _ => None,
    }
}

/// The first word of a keyword's value, and the numbers behind: `word, name number, ...`. Words
/// without a number are given to `word`.
fn parts<'a>(
    value: &'a str,
    mut word: impl FnMut(&'a str) -> Result<(), String>,
    mut number: impl FnMut(&'a str, u32) -> bool,
) -> Result<&'a str, String> {
    let mut parts = value.split(',').map(str::trim);
    let first = parts.next().unwrap_or_default();
    for part in parts {
        let Some((name, text)) = part.split_once(char::is_whitespace) else {
            word(part)?;
            continue;
        };
        let value = text.trim().parse().ok().filter(|it| *it > 0);
        let value =
            value.ok_or_else(|| format!("`{text}` is not a number from 1 to {}", u32::MAX))?;
        if !number(name, value) {
            return Err(format!("`{name}` is not known here"));
        }
    }
    Ok(first)
}

/// What one worker's watches counted, for those of others.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedCounts {
    floods: Vec<FloodChange>,
    scans: Vec<MarkChange>,
    attacks: Vec<MarkChange>,
    guids: Vec<GuidChange>,
}

impl WatchedCounts {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { floods, scans, attacks, guids } = self;
        floods.is_empty() && scans.is_empty() && attacks.is_empty() && guids.is_empty()
    }
}

/// The watches of a set of rules, with what they have seen.
#[derive(Debug)]
pub(crate) struct Watcher {
    watches: Vec<Watch>,
    seed: u64,
    floods: Option<Floods>,
    scans: Option<Scans>,
    attacks: Option<Attacks>,
}

impl Watcher {
    /// Watches that have seen nothing yet. Takes memory for those alone that are asked for.
    pub(crate) fn new(watches: &[Watch], seed: u64) -> Self {
        let watches = watches.to_vec();
        let floods = Floods::new(&watches, seed);
        let scans = Scans::new(&watches, seed);
        let attacks = Attacks::new(&watches, seed);
        Self { watches, seed, floods, scans, attacks }
    }

    /// Goes on with the watches of other rules; the same ones go on with what they saw.
    pub(crate) fn swap(&mut self, watches: &[Watch]) {
        if self.watches != watches {
            *self = Self::new(watches, self.seed);
        }
    }

    /// Takes a packet into account, and says what it belongs to.
    pub(crate) fn look(
        &mut self,
        now: Time,
        flow: &Flow,
        direction: Direction,
        view: &View<'_>,
    ) -> Signs {
        let Self { floods, scans, attacks, .. } = self;
        let is_unasked = attacks.as_mut().is_some_and(|it| it.is_unasked(now, view));
        let mut signs =
            floods.as_mut().map_or(0, |it| it.look(now, flow, direction, view, is_unasked));
        signs |= scans.as_mut().map_or(0, |it| it.look(now, view));
        // What its receiver drops does nothing to it, and says nothing of who answers; a piece is
        // looked at with the whole datagram.
        let is_looked_at = !view.is_damaged && view.parsed.fragment.is_none();
        let attacks = attacks.as_mut().filter(|_| is_looked_at);
        signs | attacks.map_or(0, |it| it.look(now, view))
    }

    /// Keeps what is counted for other workers from now on.
    pub(crate) fn share(&mut self) {
        let Self { floods, scans, attacks, .. } = self;
        floods.iter_mut().for_each(Floods::share);
        scans.iter_mut().for_each(|it| it.marks().share());
        attacks.iter_mut().for_each(Attacks::share);
    }

    /// What was counted since this was asked last.
    pub(crate) fn take_shared(&mut self) -> WatchedCounts {
        let Self { floods, scans, attacks, .. } = self;
        let (marks, guids) = attacks.as_mut().map(Attacks::take_shared).unwrap_or_default();
        WatchedCounts {
            floods: floods.as_mut().map(Floods::take_shared).unwrap_or_default(),
            scans: scans.as_mut().map(|it| it.marks().take_shared()).unwrap_or_default(),
            attacks: marks,
            guids,
        }
    }

    /// Adds what another worker with the same watches and seed counted.
    pub(crate) fn add_shared(&mut self, now: Time, counts: &WatchedCounts) {
        if let Some(floods) = &mut self.floods {
            floods.add_shared(now, &counts.floods);
        }
        if let Some(scans) = &mut self.scans {
            scans.marks().add_shared(now, &counts.scans);
        }
        if let Some(attacks) = &mut self.attacks {
            attacks.add_shared(now, &counts.attacks, &counts.guids);
        }
    }

    /// The flood of a watch that a packet belongs to, which was dropped for it; `None` if nobody
    /// else can tell which of it to drop.
    pub(crate) fn flood(&mut self, watch: FloodWatch, source: u128, to: u128) -> Option<Flood> {
        self.floods.as_mut().and_then(|it| it.flood(watch, source, to))
    }

    /// Adds to alerts of a packet what is known of the flood that it belongs to.
    pub(crate) fn tell_floods(&mut self, rules: &RuleSet, view: &View<'_>, alerts: &mut [Alert]) {
        let Some(floods) = &mut self.floods else { return };
        for alert in alerts {
            let watch = rules.rule(alert.rule).flood_watch();
            alert.flood = watch.and_then(|it| floods.tell(it, view.source, view.destination));
        }
    }

    /// Takes in what was dropped of a flood before it came here; whether it goes on.
    pub(crate) fn dropped_early(&mut self, now: Time, flood: &Flood, packets: u32) -> bool {
        self.floods.as_mut().is_some_and(|it| it.dropped_early(now, flood, packets))
    }
}
