//! Who watches a pair's packets in clear, on the host's side of the seal, and has no say: the
//! evidence and the mirrors.
//!
//! ```text
//!   from the host --> seen --> engine (seals in place) --> verdicts
//!   from the wire ----------> engine (opens in place) --> seen, with verdicts
//!   carried by the kernel --> its head: seen, by the evidence alone
//! ```

use weir_engine::verdict::Verdict;
use weir_store::clock;
use weir_store::evidence::Label;
use weir_wire::fastpath::Head;
use weir_wire::frame::{Frame, Time};

use crate::daemon::pair::evidence::EvidenceRecorder;
use crate::daemon::pair::mirror::Mirror;
use crate::daemon::pair::prepare::{NextBystanders, NextMirror};

/// The bystanders of one pair.
#[derive(Default)]
pub struct Bystanders {
    /// The last packets.
    pub evidence: Option<EvidenceRecorder>,
    /// Copies.
    pub mirrors: Vec<Mirror>,
}

impl Bystanders {
    /// Those of a worker that starts. Evidence is written with `label`.
    pub fn new(next: NextBystanders, label: &Label) -> Self {
        let mut bystanders = Self::default();
        bystanders.change(next, label);
        bystanders
    }

    /// Puts others in the place of those at work: mirrors that `next` has too go on, and evidence
    /// that is held is kept as far as there is room.
    pub fn change(&mut self, next: NextBystanders, label: &Label) {
        let mut old = std::mem::take(&mut self.mirrors);
        for next in next.mirrors {
            match next {
                NextMirror::New(mirror) => self.mirrors.push(*mirror),
                NextMirror::Running(settings) => {
                    let at = old.iter().position(|mirror| *mirror.settings() == settings);
                    self.mirrors.extend(at.map(|at| old.swap_remove(at)));
                }
            }
        }
        match (&mut self.evidence, next.evidence) {
            (Some(evidence), Some(settings)) => evidence.change(settings),
            (evidence, Some(settings)) => {
                *evidence = Some(EvidenceRecorder::start(settings, label.clone(), clock::time()));
            }
            (evidence, None) => *evidence = None,
        }
    }

    /// Whether anyone here wants more of a packet than its head.
    pub fn want_whole_packets(&self) -> bool {
        self.mirrors.iter().any(|it| !it.is_by_kernel())
            || self.evidence.as_ref().is_some_and(|it| !it.is_of_heads())
    }

    /// Learns that the kernel carried the frame of `head` at `time`.
    pub fn carried(&mut self, time: Time, head: &Head) {
        if let Some(evidence) = &mut self.evidence {
            evidence.carried(time, head);
        }
    }

    /// Sees a batch from the host, before the engine changes it.
    pub fn from_host(&mut self, frames: &[Frame<'_>]) {
        for mirror in &mut self.mirrors {
            mirror.copy(true, frames, |_| true);
        }
        if let Some(evidence) = &mut self.evidence {
            evidence.host_sent(frames);
        }
    }

    /// Learns what became of that batch.
    pub fn decided(&mut self, verdicts: &[Verdict]) {
        if let Some(evidence) = &mut self.evidence {
            evidence.decided(verdicts);
        }
    }

    /// Sees a batch from the wire, after the engine has decided: mirrors copy what goes to the host
    /// in clear; evidence keeps the rest too.
    pub fn from_wire(&mut self, frames: &[Frame<'_>], verdicts: &[Verdict], kept: bool) {
        let passed = |index: usize| kept && verdicts.get(index).is_some_and(|it| passes(*it));
        for mirror in &mut self.mirrors {
            mirror.copy(false, frames, passed);
        }
        if let Some(evidence) = &mut self.evidence {
            evidence.wire_sent(frames, verdicts, passed);
        }
    }

    /// Looks after them. Call it ten times a second.
    pub fn tick(&mut self) {
        self.mirrors.iter_mut().for_each(Mirror::tick);
        if let Some(evidence) = &mut self.evidence {
            evidence.tick();
        }
    }
}

/// Whether a frame from the wire goes to the host.
fn passes(verdict: Verdict) -> bool {
    use Verdict::{Clear, Forward, Opened, Tagged, Unsealed};
    matches!(verdict, Forward | Clear(_) | Opened | Tagged | Unsealed)
}
