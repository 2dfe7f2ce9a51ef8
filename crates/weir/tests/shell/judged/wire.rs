//! Packets of flows that are not made in order: IPv4 and IPv6 with extension headers, fragments,
//! segments at any place.

/// A piece of a packet in eight bytes: where it begins, and what it has.
pub(super) type Piece<'a> = (usize, &'a [u8]);

pub(super) const HOP_BY_HOP: u8 = 0;
pub(super) const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
pub(super) const DESTINATION: u8 = 60;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
/// A fragment's unit.
pub(super) const UNIT: usize = 8;

/// Both ends of a flow and how their packets look.
#[derive(Clone)]
pub(super) struct Flow {
    pub(super) is_six: bool,
    /// Last parts of the client's address and of the server's.
    pub(super) ends: [u8; 2],
    pub(super) ports: [u16; 2],
    /// IPv6: extension headers of each packet.
    pub(super) extensions: Vec<u8>,
    /// The first sequence number of each side.
    pub(super) first: [u32; 2],
    /// How far each side's bytes went.
    pub(super) sent: [usize; 2],
    pub(super) frames: Vec<Vec<u8>>,
    identity: u16,
}

impl Flow {
    pub(super) fn new(is_six: bool, client: u8, server: u8, port: u16) -> Self {
        Self {
            is_six,
            ends: [client, server],
            ports: [40_000 + u16::from(client), port],
            extensions: Vec::new(),
            first: [1000, 5000],
            sent: [0, 0],
            frames: Vec::new(),
            identity: 0,
        }
    }

    /// The address of an end, as in EVE.
    pub(super) fn client(&self) -> String {
        match self.is_six {
            true => format!("2001:0db8:0000:0000:0000:0000:0000:00{:02x}", self.ends[0]),
            false => format!("10.0.0.{}", self.ends[0]),
        }
    }

    fn address(&self, side: usize) -> Vec<u8> {
        let last = self.ends[side];
        match (self.is_six, side) {
            (true, 0) => [&[0x20, 1, 0x0d, 0xb8], [0; 11].as_slice(), &[last]].concat(),
            (true, _) => [&[0x20, 1, 0x0d, 0xb8, 0, 1], [0; 9].as_slice(), &[last]].concat(),
            (false, 0) => vec![10, 0, 0, last],
            (false, _) => vec![192, 0, 2, last],
        }
    }

    fn ethernet(&self, side: usize) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2 - side as u8, 2, 0, 0, 0, 0, 1 + side as u8];
        frame.extend(if self.is_six { [0x86, 0xdd] } else { [8, 0] });
        frame
    }

    /// A packet of IP behind its Ethernet header; `field` is what IPv4 has of fragments.
    fn ip(&self, side: usize, next: u8, field: u16, behind: &[u8]) -> Vec<u8> {
        let mut frame = self.ethernet(side);
        if self.is_six {
            frame.extend([0x60, 0, 0, 0]);
            frame.extend((behind.len() as u16).to_be_bytes());
            frame.extend([next, 64]);
        } else {
            frame.extend([0x45, 0]);
            frame.extend((20 + behind.len() as u16).to_be_bytes());
            frame.extend(self.identity.to_be_bytes());
            frame.extend(field.to_be_bytes());
            frame.extend([64, next, 0, 0]);
        }
        frame.extend(self.address(side));
        frame.extend(self.address(1 - side));
        frame.extend(behind);
        frame
    }

    /// Extension headers of these kinds before `behind`, and the kind of the first.
    fn extended(&self, protocol: u8, kinds: &[u8], behind: &[u8]) -> (u8, Vec<u8>) {
        let mut bytes = Vec::new();
        for (index, kind) in kinds.iter().enumerate() {
            let next = kinds.get(index + 1).copied().unwrap_or(protocol);
            match *kind {
                // All of it, in no other piece.
                FRAGMENT => bytes.extend([next, 0, 0, 0, 0, 0, 0, self.identity as u8]),
                // With one address that was passed.
                ROUTING => {
                    bytes.extend([next, 2, 4, 0, 0, 0, 0, 0]);
                    bytes.extend(self.address(1));
                }
                // Six bytes of padding.
                _ => bytes.extend([next, 0, 1, 4, 0, 0, 0, 0]),
            }
        }
        bytes.extend(behind);
        (kinds.first().copied().unwrap_or(protocol), bytes)
    }

    /// A whole packet.
    pub(super) fn packet(&mut self, side: usize, protocol: u8, behind: &[u8]) -> Vec<u8> {
        self.identity += 1;
        let (next, bytes) = self.extended(protocol, &self.extensions, behind);
        self.ip(side, next, 0, &bytes)
    }

    /// Pieces of one packet, in this order; `total` is the length of all of it. IPv6's extension
    /// headers are in the fragments, but for options of hops, which are before.
    pub(super) fn fragments(
        &mut self,
        side: usize,
        protocol: u8,
        total: usize,
        pieces: &[Piece<'_>],
    ) {
        self.identity += 1;
        let is_before = |it: &u8| matches!(*it, HOP_BY_HOP | ROUTING);
        let before: Vec<u8> = self.extensions.iter().copied().filter(is_before).collect();
        let first = self.extensions.iter().copied().find(|it| !is_before(it)).unwrap_or(protocol);
        for (start, bytes) in pieces {
            let is_last = start + bytes.len() >= total;
            let at = (start / UNIT) as u16;
            let frame = if self.is_six {
                let field = at << 3 | u16::from(!is_last);
                let mut head = vec![first, 0];
                head.extend(field.to_be_bytes());
                head.extend([0, 0, 0, self.identity as u8]);
                head.extend(*bytes);
                let (next, all) = self.extended(FRAGMENT, &before, &head);
                self.ip(side, next, 0, &all)
            } else {
                self.ip(side, protocol, at | if is_last { 0 } else { 0x2000 }, bytes)
            };
            self.frames.push(frame);
        }
    }

    /// What is behind IPv6's headers before fragments: the other headers and the payload.
    pub(super) fn inner(&self, protocol: u8, behind: &[u8]) -> Vec<u8> {
        let is_in = |it: &u8| !matches!(*it, HOP_BY_HOP | ROUTING);
        let kinds: Vec<u8> = self.extensions.iter().copied().filter(is_in).collect();
        self.extended(protocol, &kinds, behind).1
    }

    /// A datagram with its header.
    pub(super) fn udp(&self, side: usize, data: &[u8]) -> Vec<u8> {
        let mut bytes = self.ports[side].to_be_bytes().to_vec();
        bytes.extend(self.ports[1 - side].to_be_bytes());
        bytes.extend((8 + data.len() as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(data);
        bytes
    }

    /// A segment with its header, from that byte of its side's stream.
    pub(super) fn segment(&self, side: usize, at: isize, flags: u8, data: &[u8]) -> Vec<u8> {
        let sequence = self.first[side].wrapping_add((1 + at) as u32);
        let seen = self.first[1 - side].wrapping_add(1 + self.sent[1 - side] as u32);
        let mut bytes = self.ports[side].to_be_bytes().to_vec();
        bytes.extend(self.ports[1 - side].to_be_bytes());
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(if flags & 16 != 0 { seen } else { 0 }.to_be_bytes());
        bytes.extend([0x50, flags, 0xff, 0, 0, 0, 0, 0]);
        bytes.extend(data);
        bytes
    }

    pub(super) fn datagram(&mut self, side: usize, data: &[u8]) {
        let bytes = self.udp(side, data);
        let frame = self.packet(side, UDP, &bytes);
        self.frames.push(frame);
    }

    pub(super) fn open(&mut self) {
        for (side, at, flags) in [(0, -1, 2), (1, -1, 18), (0, 0, 16)] {
            let bytes = self.segment(side, at, flags, b"");
            let frame = self.packet(side, TCP, &bytes);
            self.frames.push(frame);
        }
    }

    /// Data there, without an acknowledgment by the other side.
    pub(super) fn put(&mut self, side: usize, at: usize, data: &[u8]) {
        let bytes = self.segment(side, at as isize, 24, data);
        let frame = self.packet(side, TCP, &bytes);
        self.frames.push(frame);
    }

    /// All up to `end` of what the other side sent is acknowledged.
    pub(super) fn acknowledge(&mut self, side: usize, end: usize) {
        self.sent[1 - side] = end;
        let bytes = self.segment(side, self.sent[side] as isize, 16, b"");
        let frame = self.packet(side, TCP, &bytes);
        self.frames.push(frame);
    }

    /// Data at the end, in segments of `cut` bytes, in the order that `arrange` makes of them.
    pub(super) fn say(&mut self, side: usize, data: &[u8], cut: usize, arrange: Arrange) {
        let begin = self.sent[side];
        for index in arrange((0..data.len().div_ceil(cut)).collect()) {
            let piece = &data[index * cut..data.len().min((index + 1) * cut)];
            self.put(side, begin + index * cut, piece);
        }
        self.acknowledge(1 - side, begin + data.len());
    }

    pub(super) fn end(&mut self) {
        for (side, flags) in [(0, 17), (1, 17), (0, 16)] {
            let bytes = self.segment(side, self.sent[side] as isize, flags, b"");
            let frame = self.packet(side, TCP, &bytes);
            self.frames.push(frame);
            self.sent[side] += usize::from(flags & 1);
        }
    }
}

/// In which order pieces come, of the numbers from 0 on.
pub(super) type Arrange = fn(Vec<usize>) -> Vec<usize>;

/// The ways, by name.
pub(super) const ORDERS: [(&str, Arrange); 4] =
    [("order", in_order), ("reverse", reversed), ("disorder", shuffled), ("twice", twice)];

pub(super) fn in_order(order: Vec<usize>) -> Vec<usize> {
    order
}

/// The last first.
fn reversed(mut order: Vec<usize>) -> Vec<usize> {
    order.reverse();
    order
}

/// Every second one, and then the others.
pub(super) fn shuffled(mut order: Vec<usize>) -> Vec<usize> {
    order.sort_by_key(|it| (it % 2 == 0, it / 2 % 3, *it));
    order
}

/// Each of them twice.
fn twice(order: Vec<usize>) -> Vec<usize> {
    order.into_iter().flat_map(|it| [it, it]).collect()
}
