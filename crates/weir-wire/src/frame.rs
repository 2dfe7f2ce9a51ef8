//! One packet in its buffer, with room before and behind it.
//!
//! A [`Frame`] borrows the memory a port received into (a ring slot, a TAP buffer, a mapped capture
//! record). Stages prepend and append in the head and tail room, so that sealing a packet moves no
//! payload byte. Super-packets (GSO, up to 64 KiB) travel whole, told by [`Offload`].

/// Nanoseconds on the clock of whoever received the frame (Unix epoch for captures and ports).
///
/// Never read from a clock here: ports stamp frames, and the daemon passes `now` down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// Nanoseconds from `earlier` to `self`; zero when the clock ran backwards.
    pub fn since_ns(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This instant moved later by `duration_ns`, saturating.
    pub fn plus_ns(self, duration_ns: u64) -> Time {
        Time(self.0.saturating_add(duration_ns))
    }
}

/// What the first byte of a frame belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Link {
    /// Ethernet II (or 802.3), no frame check sequence.
    #[default]
    Ethernet,
    /// An IPv4 or IPv6 header, told by its version nibble.
    Ip,
    /// Linux cooked capture, version 1 (16 bytes before the network header).
    LinuxSll,
    /// Linux cooked capture, version 2 (20 bytes before the network header).
    LinuxSll2,
    /// PPP (RFC 1662), with or without its address and control bytes.
    Ppp,
    /// Cisco's HDLC: address, control, and an EtherType.
    CiscoHdlc,
    /// BSD's loopback: four bytes of the address family, in the byte order of its machine.
    Loopback,
    /// A native InfiniBand link header (LRH), VCRC at the end.
    InfiniBand,
    /// IP over InfiniBand (RFC 4391 s6), as who took it from its interface has it: behind 40 bytes
    /// that say for whom it is, or at once.
    Ipoib,
}

/// A transport checksum that the sender left to its hardware (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
///
/// The field holds the pseudo-header sum; the ones-complement sum from `start` to the end of the
/// packet completes it. Both offsets count from the first byte of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// First byte covered.
    pub start: u16,
    /// Where the two checksum bytes stand.
    pub field: u16,
}

/// What kind of segments a super-packet falls into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// TCP over IPv4 (`VIRTIO_NET_HDR_GSO_TCPV4`).
    TcpV4,
    /// TCP over IPv6 (`VIRTIO_NET_HDR_GSO_TCPV6`).
    TcpV6,
    /// Equal UDP datagrams (`VIRTIO_NET_HDR_GSO_UDP_L4`).
    Udp,
}

/// A super-packet's cut: headers once, payload in pieces of `segment_len` (the last may be
/// shorter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Which headers each segment repeats.
    pub kind: SegmentKind,
    /// Payload bytes of a segment (TCP: the MSS less options).
    pub segment_len: u16,
    /// Bytes of all headers, from the frame's first byte through the transport header.
    pub header_len: u16,
    /// TCP with ECN: CWR belongs to the first segment only.
    pub ecn: bool,
}

/// What the sender left undone, as in virtio's `vnet_hdr`, independent of any kernel structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// A checksum still to be completed.
    pub checksum: Option<PartialChecksum>,
    /// The packet is a super-packet.
    pub segmentation: Option<Segmentation>,
    /// The receiver has already verified the transport checksum (or the sender is this machine).
    pub checksum_verified: bool,
    /// A UDP datagram without a checksum, which may get one: a port that can sends it with others
    /// of its kind, as one super-packet. Bytes of its headers, from the frame's first byte through
    /// UDP's.
    pub joinable: Option<u16>,
}

impl Offload {
    /// Whether the transport checksum is right, or left to an adapter. The kernel puts together
    /// what it has verified.
    pub fn is_verified(&self) -> bool {
        self.checksum_verified || self.checksum.is_some() || self.segmentation.is_some()
    }

    /// The same for a frame that grew by `bytes` in front of its transport header.
    #[must_use]
    pub fn shifted(self, bytes: u16) -> Self {
        Self {
            checksum: self.checksum.map(|checksum| PartialChecksum {
                start: checksum.start.saturating_add(bytes),
                field: checksum.field.saturating_add(bytes),
            }),
            segmentation: self.segmentation.map(|segmentation| Segmentation {
                header_len: segmentation.header_len.saturating_add(bytes),
                ..segmentation
            }),
            joinable: self.joinable.map(|header_len| header_len.saturating_add(bytes)),
            ..self
        }
    }
}

/// What a port knows of a frame beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta {
    /// When it was received.
    pub time: Time,
    /// Length on the wire; greater than the bytes present when a capture was cut short.
    pub original_len: u32,
    /// What its first byte belongs to.
    pub link: Link,
    /// What its sender left undone.
    pub offload: Offload,
}

/// One packet in a borrowed buffer. Not `Copy`: a buffer has one live frame.
#[derive(Debug)]
pub struct Frame<'a> {
    buffer: &'a mut [u8],
    start: usize,
    end: usize,
    /// What the port knows of it.
    pub meta: Meta,
}

impl<'a> Frame<'a> {
    /// The packet `buffer[start..end]`; the rest is head and tail room.
    ///
    /// # Panics
    /// When the range does not lie in the buffer: that is a port's bug.
    pub fn new(buffer: &'a mut [u8], start: usize, end: usize, meta: Meta) -> Self {
        assert!(start <= end && end <= buffer.len(), "a frame lies inside its buffer");
        Self { buffer, start, end, meta }
    }

    /// The packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The packet, to change.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Bytes of the packet that are present.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether no byte is present.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free bytes before the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Free bytes behind the packet.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.buffer.len() - self.end
    }

    /// Grows the packet at its front by `count` bytes of undefined content and returns it whole;
    /// `None`, and no change, when the headroom is too small.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> Option<&mut [u8]> {
        self.start = self.start.checked_sub(count)?;
        Some(self.bytes_mut())
    }

    /// Grows the packet at its end by `count` bytes of undefined content and returns it whole;
    /// `None`, and no change, when the tailroom is too small.
    #[inline]
    pub fn append(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.tailroom() {
            return None;
        }
        self.end += count;
        Some(self.bytes_mut())
    }

    /// Cuts `count` bytes off the front; they become headroom. Cuts all when there are fewer.
    #[inline]
    pub fn trim_front(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Cuts the packet to its first `len` bytes; no change when it is not longer.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }
}
