//! A gateway with lines of access, told who says what.
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::IpAddr;
use std::sync::Arc;

use weir_engine::access::{
    AccessAction, AccessEvent, AccessPolicy, AccessState, Hits, Line, Operation, Operations, Party,
    Terms,
};
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::output::Destination;
use weir_engine::pipeline::{Associations, Engine};
use weir_engine::policy::{Policy, Prefix};
use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_wire::frame::{Frame, Link, Meta, Offload, Time};

use crate::talk::Packet;

pub(crate) mod cm;

pub(crate) const MTU: u16 = 9000;

pub(crate) fn host(last: u8) -> Party {
    Party::new(vec![Prefix::new(IpAddr::from([10, 0, 0, last]), 32)])
}

/// What host 2 may do to host 1.
pub(crate) fn b_to_a(name: &str, operations: &[Operation], action: AccessAction) -> Line {
    let operations = match operations {
        [] => Operations::ALL,
        some => Operations::of(some.iter().copied()),
    };
    let (from, to, terms) = (host(2), host(1), Terms::default());
    Line { name: name.into(), from, to, operations, terms, limits: None, action, log: false }
}

/// A gateway before host 1, which seals nothing.
pub(crate) struct Gateway {
    pub(crate) engine: Engine,
    pub(crate) now: Time,
}

impl Gateway {
    pub(crate) fn with(lines: Vec<Line>, default: AccessAction) -> Self {
        let meter = Meter::new(MeterLimits::default(), 7);
        let engine = Engine::new(policy(lines, default), Associations::default(), meter).unwrap();
        Self { engine, now: Time(1_700_000_000_000_000_000) }
    }

    /// One whose queue pairs have owners.
    pub(crate) fn with_state(lines: Vec<Line>, default: AccessAction, state: AccessState) -> Self {
        let mut gateway = Self::with(vec![], default);
        gateway.reload_with(AccessPolicy::new(lines, default).with_state(state));
        gateway
    }

    pub(crate) fn reload_with(&mut self, lines: AccessPolicy) {
        let mut policy = Policy::watch(1, MTU);
        policy.access = Some(Arc::new(lines));
        self.engine.swap(policy, Associations::default()).unwrap();
    }

    pub(crate) fn reload(&mut self, lines: Vec<Line>, default: AccessAction) {
        self.engine.swap(policy(lines, default), Associations::default()).unwrap();
    }

    /// What becomes of the packets, in one batch.
    pub(crate) fn verdicts(&mut self, packets: &[Packet]) -> Vec<Verdict> {
        let side = if packets[0].from.host == 1 { Side::Host } else { Side::Wire };
        let bytes: Vec<_> = packets.iter().map(Packet::bytes).collect();
        self.verdicts_on(side, &bytes, Offload::default())
    }

    /// What becomes of one packet. Beside it an answer may leave.
    pub(crate) fn verdict_of(&mut self, side: Side, bytes: Vec<u8>, offload: Offload) -> Verdict {
        self.now = self.now.plus_ns(1000);
        let mut buffer = bytes;
        let (len, original_len) = (buffer.len(), buffer.len() as u32);
        let meta = Meta { time: self.now, original_len, link: Link::Ethernet, offload };
        let mut frames = [Frame::new(&mut buffer, 0, len, meta)];
        self.engine.process(self.now, side, &mut frames).verdicts[0]
    }

    pub(crate) fn verdicts_on(
        &mut self,
        side: Side,
        packets: &[Vec<u8>],
        offload: Offload,
    ) -> Vec<Verdict> {
        self.now = self.now.plus_ns(1000);
        let mut buffers = packets.to_vec();
        let mut frames = Vec::new();
        for buffer in &mut buffers {
            let (len, original_len) = (buffer.len(), buffer.len() as u32);
            let meta = Meta { time: self.now, original_len, link: Link::Ethernet, offload };
            frames.push(Frame::new(buffer, 0, len, meta));
        }
        let output = self.engine.process(self.now, side, &mut frames);
        let verdicts = output.verdicts.clone();
        let passed = verdicts.iter().filter(|it| !matches!(it, Verdict::Drop(_))).count();
        let other = if side == Side::Host { Destination::Wire } else { Destination::Host };
        assert_eq!(output.packets.len(), passed, "what is not dropped leaves");
        assert!(output.packets.iter().all(|it| it.destination == other));
        let counters = self.engine.counters();
        assert!(counters.host.adds_up() && counters.wire.adds_up());
        verdicts
    }

    #[track_caller]
    pub(crate) fn passes(&mut self, packets: &[Packet]) {
        let verdicts = self.verdicts(packets);
        assert!(verdicts.iter().all(|it| *it == Verdict::Forward), "{verdicts:?}");
    }

    #[track_caller]
    pub(crate) fn denies(&mut self, packets: &[Packet]) {
        self.drops(packets, DropReason::AccessDenied);
    }

    #[track_caller]
    pub(crate) fn drops(&mut self, packets: &[Packet], reason: DropReason) {
        let verdicts = self.verdicts(packets);
        assert!(
            verdicts.iter().all(|it| *it == Verdict::Drop(reason)),
            "{packets:?}: {verdicts:?}"
        );
    }

    pub(crate) fn wait_ms(&mut self, milliseconds: u64) {
        self.now = self.now.plus_ns(milliseconds * 1_000_000);
    }

    /// Messages and packets by line, the default last.
    pub(crate) fn hits(&self) -> Vec<(u64, u64)> {
        let access = self.engine.access().expect("there are lines");
        let all = access.hits().iter().copied().chain([access.default_hits()]);
        all.map(|Hits { messages, packets, .. }| (messages, packets)).collect()
    }

    pub(crate) fn events(&mut self) -> Vec<AccessEvent> {
        std::iter::from_fn(|| self.engine.take_access_event()).collect()
    }
}

pub(crate) fn policy(lines: Vec<Line>, default: AccessAction) -> Policy {
    let access = Some(Arc::new(AccessPolicy::new(lines, default)));
    let mut policy = Policy::watch(1, MTU);
    policy.access = access;
    policy
}
