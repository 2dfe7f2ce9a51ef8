//! What the ends are told whose packet a rule rejects, each in the other's name: a reset (RFC 9293
//! s3.10.7.1), "administratively prohibited" (RFC 1812 s5.2.7.1, RFC 4443 s3.1), or the NAK of a
//! line of access.
//!
//! ```text
//!   sender <---- reset, ICMP, NAK ---- packet ---- reset, ICMP ----> receiver
//! ```

use weir_detect::Answered;
use weir_wire::bth::Qpn;
use weir_wire::checksum;
use weir_wire::frame::Time;
use weir_wire::parse::{Network, Parsed, Transport};
use weir_wire::tcp::flags::{ACK, FIN, RST, SYN};

use crate::access::{ANSWER_LEN_MAX, Answer};
use crate::meter::Observation;
use crate::mtu;

const ANSWERS_PER_SECOND: u32 = 1000;
const NS_PER_S: u64 = 1_000_000_000;
const PROTOCOL_TCP: u8 = 6;
const TCP_LEN: usize = 20;
const HOP_LIMIT: u8 = 64;
/// Bytes of the packet that an ICMP answer quotes, at most: its headers.
const QUOTED_MAX: usize = 96;

/// An end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Sender,
    Receiver,
}

/// The answers to the packet that was rejected last.
#[derive(Debug)]
pub(super) struct Refusal {
    to_sender: Written,
    to_receiver: Written,
    rdma: Answer,
    left: u32,
    refilled: Time,
    answers: Answers,
}

/// Answers to packets that rules rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Handed over to be sent.
    pub given: u64,
    /// Left out: there were 1,000 within the second.
    pub left_out: u64,
}

impl Default for Refusal {
    fn default() -> Self {
        let (to_sender, to_receiver) = (Written::default(), Written::default());
        let (rdma, left) = (Answer::default(), ANSWERS_PER_SECOND);
        let (refilled, answers) = (Time::default(), Answers::default());
        Self { to_sender, to_receiver, rdma, left, refilled, answers }
    }
}

/// A frame that waits to be sent, if it has a length.
#[derive(Debug)]
struct Written {
    bytes: [u8; ANSWER_LEN_MAX],
    len: usize,
}

impl Default for Written {
    fn default() -> Self {
        Self { bytes: [0; ANSWER_LEN_MAX], len: 0 }
    }
}

impl Refusal {
    /// Refuses an RDMA packet, whose sender's queue pair is `requester`.
    pub(super) fn refuse_rdma(&mut self, packet: &Observation<'_>, requester: Option<Qpn>) {
        if self.rdma.refuse_connection(packet).is_none() {
            self.rdma.refuse(packet, requester, 0);
        }
    }

    /// Refuses any other packet.
    pub(super) fn refuse(&mut self, now: Time, bytes: &[u8], parsed: &Parsed, whom: Answered) {
        if !mtu::is_between_hosts(parsed) {
            return;
        }
        if whom != Answered::Receiver && self.may(now) {
            self.to_sender.write(End::Sender, bytes, parsed);
        }
        if whom != Answered::Sender && self.may(now) {
            self.to_receiver.write(End::Receiver, bytes, parsed);
        }
    }

    /// No answer waits.
    pub(super) fn forget(&mut self) {
        (self.to_sender.len, self.to_receiver.len) = (0, 0);
        self.rdma.take();
    }

    /// The answer that waits for that end.
    pub(super) fn take(&mut self, end: End) -> Option<&[u8]> {
        let written = match end {
            End::Sender => &mut self.to_sender,
            End::Receiver => &mut self.to_receiver,
        };
        let answer = match (std::mem::take(&mut written.len), end) {
            (0, End::Sender) => self.rdma.take(),
            (0, End::Receiver) => None,
            (len, _) => Some(&written.bytes[..len]),
        };
        self.answers.given += u64::from(answer.is_some());
        answer
    }

    /// What was answered, and what was not.
    pub(super) fn answers(&self) -> Answers {
        self.answers
    }

    /// Takes one answer out of this second's.
    fn may(&mut self, now: Time) -> bool {
        if now.since_ns(self.refilled) >= NS_PER_S || now < self.refilled {
            (self.left, self.refilled) = (ANSWERS_PER_SECOND, now);
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        self.answers.left_out += u64::from(!may);
        may
    }
}

impl Written {
    /// Writes what that end is told of a packet.
    fn write(&mut self, to: End, bytes: &[u8], parsed: &Parsed) {
        let written = match (parsed.transport, to) {
            (Transport::Tcp { flags, .. }, _) if flags & RST != 0 => None,
            (Transport::Tcp { .. }, End::Sender) => self.reset(bytes, parsed, to),
            (Transport::Tcp { .. }, End::Receiver) => self.reset(bytes, &turned(parsed), to),
            _ if !mtu::is_answerable(parsed) => None,
            (_, End::Sender) => self.prohibited(bytes, parsed),
            (_, End::Receiver) => self.prohibited_of_answer(bytes, parsed),
        };
        self.len = written.unwrap_or_default();
    }

    /// A reset to the source of `parsed`, whose numbers are the packet's.
    fn reset(&mut self, bytes: &[u8], parsed: &Parsed, to: End) -> Option<usize> {
        let Transport::Tcp { source, destination, sequence, acknowledgment, flags } =
            parsed.transport
        else {
            return None;
        };
        let begins = u32::from(flags & SYN != 0);
        let taken = parsed.payload(bytes).len() as u32 + begins + u32::from(flags & FIN != 0);
        let (number, answered, answer_flags) = match (to, flags & ACK) {
            (End::Sender, 0) => (0, sequence.wrapping_add(taken), RST | ACK),
            (End::Sender, _) => (acknowledgment, 0, RST),
            // It stands where the packet would have: that is next in the receiver's window. Of a
            // SYN the receiver may have had another copy.
            (End::Receiver, ack) => (sequence.wrapping_add(begins), acknowledgment, RST | ack),
        };
        let mut segment = [0; TCP_LEN];
        segment[..2].copy_from_slice(&destination.to_be_bytes());
        segment[2..4].copy_from_slice(&source.to_be_bytes());
        segment[4..8].copy_from_slice(&number.to_be_bytes());
        segment[8..12].copy_from_slice(&answered.to_be_bytes());
        segment[12..14].copy_from_slice(&[(TCP_LEN as u8 / 4) << 4, answer_flags]);
        let [from, to] = [parsed.destination, parsed.source];
        let pseudo = match parsed.network {
            Network::Ipv4 => {
                let [from, to] = [from, to].map(|it| [it[12], it[13], it[14], it[15]]);
                checksum::pseudo_header_v4(from, to, PROTOCOL_TCP, TCP_LEN as u16)
            }
            _ => checksum::pseudo_header_v6(&from, &to, PROTOCOL_TCP, TCP_LEN as u32),
        };
        let sum = pseudo.with(&segment).checksum();
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        let at = self.head(bytes, parsed, TCP_LEN)?;
        self.bytes.get_mut(at..at + TCP_LEN)?.copy_from_slice(&segment);
        let answer = self.bytes.get_mut(..at + TCP_LEN)?;
        mtu::set_session_len(answer, usize::from(parsed.network_offset));
        Some(at + TCP_LEN)
    }

    /// Link and IP headers before `len` bytes; returns where those begin.
    fn head(&mut self, bytes: &[u8], parsed: &Parsed, len: usize) -> Option<usize> {
        let at = usize::from(parsed.network_offset);
        self.bytes.get_mut(..at)?.copy_from_slice(bytes.get(..at)?);
        self.bytes[..6].copy_from_slice(&parsed.link.source.0);
        self.bytes[6..12].copy_from_slice(&parsed.link.destination.0);
        match parsed.network {
            Network::Ipv4 => {
                let header = self.bytes.get_mut(at..at + 20)?;
                header.fill(0);
                header[0] = 0x45;
                header[2..4].copy_from_slice(&(20 + len as u16).to_be_bytes());
                header[6] = 0x40;
                header[8..10].copy_from_slice(&[HOP_LIMIT, PROTOCOL_TCP]);
                header[12..16].copy_from_slice(&parsed.destination[12..]);
                header[16..20].copy_from_slice(&parsed.source[12..]);
                let sum = checksum::ipv4_header(header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                Some(at + 20)
            }
            Network::Ipv6 => {
                let header = self.bytes.get_mut(at..at + 40)?;
                header.fill(0);
                header[0] = 0x60;
                header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
                header[6..8].copy_from_slice(&[PROTOCOL_TCP, HOP_LIMIT]);
                header[8..24].copy_from_slice(&parsed.destination);
                header[24..40].copy_from_slice(&parsed.source);
                Some(at + 40)
            }
            _ => None,
        }
    }

    /// ICMP to the source of `parsed`, of whose packet `bytes` are.
    fn prohibited(&mut self, bytes: &[u8], parsed: &Parsed) -> Option<usize> {
        let end = (usize::from(parsed.network_offset) + QUOTED_MAX).min(parsed.end as usize);
        let quoted = Parsed { end: end as u32, ..*parsed };
        let len = mtu::answer_len(&quoted);
        mtu::answer_prohibited(&quoted, bytes, self.bytes.get_mut(..len)?);
        Some(len)
    }

    /// ICMP to the receiver. Hosts heed errors of packets that they sent alone: it speaks of the
    /// packet that would have answered.
    fn prohibited_of_answer(&mut self, bytes: &[u8], parsed: &Parsed) -> Option<usize> {
        let at = usize::from(parsed.network_offset);
        let end = (at + QUOTED_MAX).min(parsed.end as usize);
        let mut quoted = [0; ANSWER_LEN_MAX];
        let quoted = quoted.get_mut(..end)?;
        quoted.copy_from_slice(bytes.get(..end)?);
        let (source, len) = match parsed.network {
            Network::Ipv4 => (at + 12, 4),
            _ => (at + 8, 16),
        };
        // Checksums are the same either way.
        let mut swap = |at: usize, len: usize| {
            let (from, to) = quoted.get_mut(at..at + 2 * len)?.split_at_mut(len);
            from.swap_with_slice(to);
            Some(())
        };
        swap(source, len)?;
        if let Transport::Udp { .. } = parsed.transport {
            swap(usize::from(parsed.transport_offset), 2)?;
        }
        self.prohibited(quoted, &turned(parsed))
    }
}

/// A packet's fields as if it went the other way.
fn turned(parsed: &Parsed) -> Parsed {
    let mut turned = *parsed;
    std::mem::swap(&mut turned.source, &mut turned.destination);
    std::mem::swap(&mut turned.link.source, &mut turned.link.destination);
    if let Transport::Tcp { source, destination, .. } = &mut turned.transport {
        std::mem::swap(source, destination);
    }
    turned
}
