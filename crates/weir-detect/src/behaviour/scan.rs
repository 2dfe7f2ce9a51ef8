//! Scans: a source that tries many services, few of which answer.

use weir_wire::frame::Time;
use weir_wire::parse::Transport;
use weir_wire::tcp::flags::{ACK, RST, SYN};

use super::tally::Tally;
use super::{Signs, Watch, parts};
use crate::packet::View;

/// Services and sources that are remembered by one worker.
const ENTRIES_MAX: usize = 1 << 16;
/// Marks a service as one that answers.
const ANSWERED: bool = true;

/// How many services tried in vain are a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanWatch {
    targets: u32,
    seconds: u32,
}

impl ScanWatch {
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let (mut targets, mut seconds) = (100, 300);
        let word = |word: &str| Err(format!("`{word}` behind scan: targets or seconds"));
        let number = |name: &str, value: u32| {
            match name {
                "targets" => targets = value,
                "seconds" => seconds = value,
                _ => return false,
            }
            true
        };
        match parts(&format!(",{value}"), word, number)? {
            "" => Ok(Self { targets, seconds }),
            other => Err(format!("`{other}` behind scan: targets or seconds")),
        }
    }
}

/// The scans that rules have watched.
#[derive(Debug)]
pub(super) struct Scans {
    /// With the bit of each.
    watches: Vec<(u8, ScanWatch)>,
    marks: Tally,
}

impl Scans {
    pub(super) fn new(watches: &[Watch], seed: u64) -> Option<Self> {
        let scans = watches.iter().zip(0..).filter_map(|(watch, bit)| match watch {
            Watch::Scan(watch) => Some((bit, *watch)),
            _ => None,
        });
        let watches: Vec<_> = scans.collect();
        let marks = || Tally::new(ENTRIES_MAX, seed ^ 6);
        (!watches.is_empty()).then(|| Self { watches, marks: marks() })
    }

    /// What was tried and answered, which several workers count together.
    pub(super) fn marks(&mut self) -> &mut Tally {
        &mut self.marks
    }

    pub(super) fn look(&mut self, now: Time, view: &View<'_>) -> Signs {
        let Transport::Tcp { flags, .. } = view.parsed.transport else { return 0 };
        let mut signs = 0;
        for (bit, watch) in &self.watches {
            let seconds = watch.seconds;
            match flags & (SYN | ACK | RST) {
                SYN => {
                    let service = (view.source, view.destination, view.destination_port, seconds);
                    if self.marks.count(now, (service, ANSWERED), seconds) > 0 {
                        continue;
                    }
                    let tries = self.marks.add(now, service, 1, seconds);
                    let by = u32::from(tries == 1);
                    if self.marks.add(now, (view.source, seconds), by, seconds) >= watch.targets {
                        signs |= 1 << bit;
                    }
                }
                // Somebody answers: what was tried is there.
                answer if answer == SYN | ACK => {
                    let service = (view.destination, view.source, view.source_port, seconds);
                    let before = self.marks.add(now, (service, ANSWERED), 1, seconds);
                    if before == 1 && self.marks.count(now, service, seconds) > 0 {
                        self.marks.take(now, (view.destination, seconds), seconds);
                    }
                }
                _ => {}
            }
        }
        signs
    }
}
