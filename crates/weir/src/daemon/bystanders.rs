//! Who watches a pair's packets in clear, on the host's side of the seal, and has no say: the
//! evidence ring and the mirrors.
//!
//! ```text
//!   from the host --> seen --> engine (seals in place) --> verdicts
//!   from the wire ----------> engine (opens in place) --> seen, with verdicts
//! ```

use arrayvec::ArrayVec;
use weir_engine::verdict::Verdict;
use weir_port::BATCH;
use weir_store::evidence::{EvidenceOptions, EvidenceRing, Mark, Place};
use weir_wire::frame::Frame;

use super::mirror::Mirror;

/// The bystanders of one pair.
#[derive(Default)]
pub struct Bystanders {
    /// The last packets.
    pub evidence: Option<EvidenceRing>,
    /// Copies.
    pub mirrors: Vec<Mirror>,
    marks: ArrayVec<Mark, BATCH>,
}

impl Bystanders {
    /// Whether there is anyone.
    pub fn want_packets(&self) -> bool {
        self.evidence.is_some() || !self.mirrors.is_empty()
    }

    /// With a ring as `evidence` says.
    pub fn new(evidence: Option<EvidenceOptions>, mirrors: Vec<Mirror>) -> Self {
        let evidence = evidence.map(EvidenceRing::new);
        Self { evidence, mirrors, marks: ArrayVec::new() }
    }

    /// Sees a batch from the host, before the engine changes it.
    pub fn from_host(&mut self, frames: &[Frame<'_>]) {
        for mirror in &mut self.mirrors {
            mirror.copy(true, frames, |_| true);
        }
        let Some(ring) = &mut self.evidence else { return };
        self.marks.clear();
        for frame in frames.iter().take(BATCH) {
            self.marks.push(record(ring, Place::FromHost, frame));
        }
    }

    /// Learns what became of that batch.
    pub fn decided(&mut self, verdicts: &[Verdict]) {
        let Some(ring) = &mut self.evidence else { return };
        for (mark, verdict) in self.marks.drain(..).zip(verdicts) {
            ring.decide(mark, *verdict);
        }
    }

    /// Sees a batch from the wire, after the engine has decided: mirrors copy what goes to the host
    /// in clear; evidence keeps the rest too.
    pub fn from_wire(&mut self, frames: &[Frame<'_>], verdicts: &[Verdict], kept: bool) {
        let passed = |index: usize| kept && verdicts.get(index).is_some_and(|it| passes(*it));
        for mirror in &mut self.mirrors {
            mirror.copy(false, frames, passed);
        }
        let Some(ring) = &mut self.evidence else { return };
        for (index, (frame, verdict)) in frames.iter().zip(verdicts).enumerate() {
            let place = if passed(index) { Place::ToHost } else { Place::FromWire };
            let mark = record(ring, place, frame);
            ring.decide(mark, *verdict);
        }
    }

    /// Looks after the mirrors. Call it ten times a second.
    pub fn tick(&mut self) {
        self.mirrors.iter_mut().for_each(Mirror::tick);
    }
}

fn record(ring: &mut EvidenceRing, place: Place, frame: &Frame<'_>) -> Mark {
    let original_len = frame.meta.original_len.max(frame.len() as u32);
    ring.record(frame.meta.time, place, original_len, frame.bytes())
}

/// Whether a frame from the wire goes to the host.
fn passes(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Forward | Verdict::Clear(_) | Verdict::Opened)
}
