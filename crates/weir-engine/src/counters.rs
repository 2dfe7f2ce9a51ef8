//! Every frame received ends in exactly one counter: received = forwarded + sealed + opened +
//! tagged + handed + clear + unsealed + punted + consumed + dropped by reason, at each side.

use weir_wire::frame::Time;

use crate::policy::FrameClass;
use crate::verdict::{DropReason, Side, Verdict};

/// What happened to the frames of one side. A super-packet is one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideCounters {
    /// Frames received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Passed on unchanged, as no seal is asked for.
    pub forwarded: u64,
    /// Sealed and passed on.
    pub sealed: u64,
    /// Opened and passed on.
    pub opened: u64,
    /// Passed on in clear by the policy's list of exceptions.
    pub clear: u64,
    /// Of `forwarded`, carried by the kernel's fast path.
    pub fast: u64,
    /// Their bytes.
    pub fast_bytes: u64,
    /// Of those dropped: in the kernel, before they were received.
    pub early: u64,
    /// Their bytes.
    pub early_bytes: u64,
    /// Passed on in clear, to or from a peer whose traffic need not be sealed yet.
    pub unsealed: u64,
    /// Passed on with a tag in the place of the ICRC, or with the ICRC put back.
    pub tagged: u64,
    /// Handed to the kernel's ESP: from the host to be sealed, from the wire to be opened.
    pub handed: u64,
    /// Handed to the gateway's own kernel.
    pub punted: u64,
    /// Taken in by the engine.
    pub consumed: u64,
    /// Dropped, by [`DropReason`] number.
    pub dropped: [u64; DropReason::ALL.len()],
    /// Of `clear`: by [`FrameClass`] number.
    pub clear_by_class: [u64; FrameClass::ALL.len()],
}

impl Default for SideCounters {
    fn default() -> Self {
        Self {
            received: 0,
            received_bytes: 0,
            forwarded: 0,
            sealed: 0,
            opened: 0,
            clear: 0,
            fast: 0,
            fast_bytes: 0,
            early: 0,
            early_bytes: 0,
            unsealed: 0,
            tagged: 0,
            handed: 0,
            punted: 0,
            consumed: 0,
            dropped: [0; DropReason::ALL.len()],
            clear_by_class: [0; FrameClass::ALL.len()],
        }
    }
}

impl SideCounters {
    /// Counts one frame's verdict.
    #[inline]
    pub fn count(&mut self, bytes: usize, verdict: Verdict) {
        self.received += 1;
        self.received_bytes += bytes as u64;
        match verdict {
            Verdict::Forward => self.forwarded += 1,
            Verdict::Sealed => self.sealed += 1,
            Verdict::Opened => self.opened += 1,
            Verdict::Clear(class) => {
                self.clear += 1;
                self.clear_by_class[class as usize] += 1;
            }
            Verdict::Unsealed => self.unsealed += 1,
            Verdict::Tagged => self.tagged += 1,
            Verdict::Handed => self.handed += 1,
            Verdict::Punt => self.punted += 1,
            Verdict::Consumed => self.consumed += 1,
            Verdict::Held => {
                self.received -= 1;
                self.received_bytes -= bytes as u64;
            }
            Verdict::Drop(reason) => self.dropped[reason as usize] += 1,
        }
    }

    /// Counts frames that the kernel received and passed on.
    pub fn count_fast(&mut self, frames: u64, bytes: u64) {
        self.received += frames;
        self.received_bytes += bytes;
        self.forwarded += frames;
        self.fast += frames;
        self.fast_bytes += bytes;
    }

    /// Counts frames that the kernel dropped for `reason` before they were received.
    pub fn count_early(&mut self, reason: DropReason, frames: u64, bytes: u64) {
        self.received += frames;
        self.received_bytes += bytes;
        self.dropped[reason as usize] += frames;
        self.early += frames;
        self.early_bytes += bytes;
    }

    /// Frames dropped for `reason`.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Frames dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Whether every received frame has a verdict.
    pub fn adds_up(&self) -> bool {
        let protected = self.sealed + self.opened + self.tagged + self.handed;
        let passed = self.forwarded + protected + self.clear + self.unsealed;
        self.received == passed + self.punted + self.consumed + self.dropped_total()
    }
}

/// What one peer's associations did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// ESP packets made.
    pub sealed_packets: u64,
    /// Bytes of plaintext in them.
    pub sealed_bytes: u64,
    /// ESP packets opened.
    pub opened_packets: u64,
    /// Bytes of plaintext in them.
    pub opened_bytes: u64,
    /// Authentic packets that were dropped, because their source is not the peer's.
    pub refused_packets: u64,
    /// Authentic packets that were dropped, because its list of access does not lead there.
    pub denied_packets: u64,
    /// Packets that were dropped, both ways, because they exceeded its rate.
    pub limited_packets: u64,
    /// When the last packet was sealed.
    pub last_sealed: Time,
    /// When the last authentic packet came.
    pub last_opened: Time,
}

/// What was done about the tags of one peer's RoCE packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagCounters {
    /// Packets to it that were given a tag.
    pub tagged_packets: u64,
    /// Their bytes.
    pub tagged_bytes: u64,
    /// Packets from it whose tag was right and whose ICRC was put back.
    pub restored_packets: u64,
    /// Their bytes.
    pub restored_bytes: u64,
    /// Packets from it with an ordinary ICRC that were dropped.
    pub foreign: u64,
    /// Packets with a wrong tag.
    pub forged: u64,
    /// Packets with the tag of an epoch that has ended or not begun.
    pub old_epoch: u64,
    /// Packets that were not looked at, because of too many of the two above.
    pub limited: u64,
    /// When the last right tag came.
    pub last_restored: Time,
}

/// What passed in clear to and from one peer, because its traffic need not be sealed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClearCounters {
    /// Packets that the host sent to it; a super-packet is one.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets from it that were not sealed.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Of those sent: sealed they would not fit the wire. Their sender would be told.
    pub too_big_packets: u64,
    /// When the first of all these came.
    pub first: Time,
    /// When the last came.
    pub last: Time,
}

/// All counters of one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames from the host.
    pub host: SideCounters,
    /// Frames from the wire.
    pub wire: SideCounters,
    /// Packets that the kernel's ESP opened.
    pub kernel: SideCounters,
    /// Handshake datagrams sent, in clear as they must be; their contents are encrypted.
    pub keying_sent: u64,
    /// Handshake datagrams taken out of the wire's frames.
    pub keying_received: u64,
    /// Empty packets sealed as signs of life.
    pub keepalives_sent: u64,
    /// Questions about the path's width and answers to them, sealed.
    pub path_probes_sent: u64,
    /// ICMP messages that call a packet of ours too large for the path. Anyone may have sent them.
    pub too_large_heard: u64,
    /// Peers whose authentic packets came from another address than before.
    pub peers_moved: u64,
    /// Packets of the gateway's own: questions for neighbours, ICMP answers, from its kernel.
    pub own_sent: u64,
    /// Frames of the gateway's kernel that did not go out: not from our own address.
    pub own_refused: u64,
    /// TCP MSS options lowered.
    pub mss_clamped: u64,
    /// RDMA connection requests whose path MTU was lowered.
    pub path_mtu_clamped: u64,
    /// ICMP "too big" answers sent.
    pub too_big_answered: u64,
    /// Packets that were too big and might be cut, and were.
    pub too_big_cut: u64,
    /// CE marks carried from the outer to the inner header (RFC 6040).
    pub ce_combined: u64,
}

impl Counters {
    /// The counters of one side.
    pub fn side(&self, side: Side) -> &SideCounters {
        match side {
            Side::Host => &self.host,
            Side::Wire => &self.wire,
        }
    }

    /// The counters of one side, to count.
    pub fn side_mut(&mut self, side: Side) -> &mut SideCounters {
        match side {
            Side::Host => &mut self.host,
            Side::Wire => &mut self.wire,
        }
    }
}
