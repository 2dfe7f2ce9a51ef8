//! A pair's evidence, kept by its worker: a ring in memory, and behind it a disk where one is
//! configured. The disk has a thread of its own; the worker waits for it only when it ends.

use arrayvec::ArrayVec;
use weir_engine::detect::ToldPacket;
use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_port::BATCH;
use weir_store::evidence::{
    CapturePoint, DiskCounters, EvidenceCounters, EvidenceDisk, EvidenceRing, Label, Mark, Snapshot,
};
use weir_wire::fastpath::{HEAD_BYTES, Head};
use weir_wire::frame::{Frame, Time};

pub use crate::config::settings::Evidence as Settings;

/// The last packets of a pair.
pub struct EvidenceRecorder {
    settings: Settings,
    label: Label,
    ring: EvidenceRing,
    disk: Option<EvidenceDisk>,
    marks: ArrayVec<Mark, BATCH>,
}

impl EvidenceRecorder {
    /// Begins to keep, as `settings` says, what the pair of `label` sees.
    pub fn start(settings: Settings, label: Label, now: Time) -> Self {
        let ring = EvidenceRing::new(settings.memory, now);
        let mut recorder = Self { settings, label, ring, disk: None, marks: ArrayVec::new() };
        recorder.start_disk();
        recorder
    }

    /// From the next packet on, as `settings` says. The packets that it holds stay as far as there
    /// is room.
    pub fn change(&mut self, settings: Settings) {
        let old = std::mem::replace(&mut self.settings, settings);
        if old == self.settings {
            return;
        }
        if let Some(disk) = self.disk.take() {
            // Nobody waits for it; whoever takes over its file does.
            disk.finish(&self.ring);
        }
        self.ring.change(self.settings.memory);
        self.start_disk();
    }

    /// Ends, with everything on the disk that it takes.
    pub fn finish(self) {
        let Some(disk) = self.disk else { return };
        let path = disk.counters().path;
        if !disk.finish(&self.ring).wait() {
            tracing::error!(path = %path.display(), "the disk did not take the last evidence");
        }
    }

    /// Records a batch from the host, whose verdicts are not known yet.
    pub fn host_sent(&mut self, frames: &[Frame<'_>]) {
        self.marks.clear();
        for frame in frames.iter().take(BATCH) {
            self.marks.push(record(&mut self.ring, CapturePoint::FromHost, frame));
        }
    }

    /// Learns what became of that batch.
    pub fn decided(&mut self, verdicts: &[Verdict]) {
        for (mark, verdict) in self.marks.drain(..).zip(verdicts) {
            self.ring.decide(mark, *verdict);
        }
        self.follow();
    }

    /// Records a batch from the wire with its verdicts; `passed` says which go to the host.
    pub fn wire_sent(
        &mut self,
        frames: &[Frame<'_>],
        verdicts: &[Verdict],
        passed: impl Fn(usize) -> bool,
    ) {
        for (index, (frame, verdict)) in frames.iter().zip(verdicts).enumerate() {
            let point = if passed(index) { CapturePoint::ToHost } else { CapturePoint::FromWire };
            let mark = record(&mut self.ring, point, frame);
            self.ring.decide(mark, *verdict);
        }
        self.follow();
    }

    /// Whether it keeps no more of a packet than the fast path hands up.
    pub fn is_of_heads(&self) -> bool {
        self.settings.memory.snap_bytes <= HEAD_BYTES
    }

    /// Records a frame that the kernel carried at `time`: it carries only what is forwarded as it
    /// is.
    pub fn carried(&mut self, time: Time, head: &Head) {
        let point = if head.side == 0 { CapturePoint::FromHost } else { CapturePoint::ToHost };
        let mut room = [0; HEAD_BYTES + 4];
        let mark = self.ring.record(time, point, head.wire_len, head.frame(&mut room));
        self.ring.decide(mark, Verdict::Forward);
        self.follow();
    }

    /// Records a packet that a rule told of, whole: beside what is kept of all, and a moment later.
    pub fn told(&mut self, packet: &ToldPacket) {
        if self.settings.memory.snap_bytes >= packet.bytes.len() {
            return;
        }
        let point = match (packet.side, packet.is_dropped) {
            (Side::Host, _) => CapturePoint::FromHost,
            (Side::Wire, false) => CapturePoint::ToHost,
            (Side::Wire, true) => CapturePoint::FromWire,
        };
        let mark = self.ring.record_whole(packet.time, point, &packet.bytes);
        if packet.is_dropped {
            self.ring.decide(mark, Verdict::Drop(DropReason::Rule));
        }
        self.follow();
    }

    /// Looks after the disk. Call it ten times a second, between batches.
    pub fn tick(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.tick(&self.ring);
        }
    }

    /// What the ring holds now.
    pub fn snapshot(&self) -> Snapshot {
        self.ring.snapshot()
    }

    /// What ring and disk hold and held.
    pub fn counters(&self) -> (EvidenceCounters, Option<DiskCounters>) {
        (self.ring.counters(), self.disk.as_ref().map(EvidenceDisk::counters))
    }

    fn follow(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.follow(&self.ring);
        }
    }

    fn start_disk(&mut self) {
        let Some(options) = self.settings.disk.clone() else { return };
        match EvidenceDisk::start(options, self.label.clone(), &self.ring) {
            Ok(disk) => self.disk = Some(disk),
            Err(error) => tracing::error!(%error, "evidence is not kept on disk: no thread"),
        }
    }
}

fn record(ring: &mut EvidenceRing, point: CapturePoint, frame: &Frame<'_>) -> Mark {
    let original_len = frame.meta.original_len.max(frame.len() as u32);
    ring.record(frame.meta.time, point, original_len, frame.bytes())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use weir_store::evidence::{EvidenceOptions, SEGMENT_BYTES};

    use super::*;
    use crate::api::dto::CutRequest;
    use crate::daemon::pair::evidence::merge::in_time_order;
    use crate::daemon::pair::evidence::{Shard, Wanted};

    /// What a recorder holds that keeps `snap_bytes` of each packet and was told of `packets`:
    /// where, the verdict, the length and what was kept.
    fn held(
        snap_bytes: usize,
        packets: &[ToldPacket],
    ) -> Vec<(CapturePoint, Option<Verdict>, u32, Vec<u8>)> {
        let memory = EvidenceOptions { bytes: 8 * SEGMENT_BYTES, snap_bytes };
        let settings = Settings { memory, disk: None };
        let mut recorder = EvidenceRecorder::start(settings, Label::default(), Time(1));
        packets.iter().for_each(|it| recorder.told(it));
        let shards = [Shard { disk: None, memory: recorder.snapshot() }];
        let wanted = Wanted::new(&CutRequest::default(), Time(u64::MAX)).unwrap();
        let (mut held, mut unreadable) = (Vec::new(), 0);
        in_time_order(&shards, &wanted, &mut unreadable, |it| {
            assert_eq!(it.is_told, it.verdict.is_none());
            held.push((it.point, it.verdict, it.original_len, it.bytes.to_vec()));
            Ok::<_, Infallible>(())
        })
        .unwrap();
        assert_eq!(unreadable, 0);
        held
    }

    #[test]
    fn a_packet_that_alerts_is_kept_whole() {
        let packet = |side, is_dropped, length| ToldPacket {
            time: Time(2),
            side,
            is_dropped,
            bytes: (0..length).map(|it| it as u8).collect(),
        };
        let long = [
            packet(Side::Host, false, 1500),
            packet(Side::Wire, false, 1400),
            packet(Side::Wire, true, 385),
        ];
        let held_of_long = held(384, &long);
        let dropped = Some(Verdict::Drop(DropReason::Rule));
        let places = [
            (CapturePoint::FromHost, false),
            (CapturePoint::ToHost, false),
            (CapturePoint::FromWire, true),
        ];
        assert_eq!(held_of_long.len(), long.len());
        for ((place, is_dropped), (told, kept)) in places.iter().zip(long.iter().zip(&held_of_long))
        {
            assert_eq!((kept.0, kept.1 == dropped), (*place, *is_dropped));
            assert_eq!((kept.2 as usize, &kept.3), (told.bytes.len(), &told.bytes));
        }
        // What is no longer than what is kept of all packets is kept whole with them.
        assert_eq!(held(384, &[packet(Side::Host, false, 384)]), []);
        assert_eq!(held(usize::MAX, &long), []);
    }
}
