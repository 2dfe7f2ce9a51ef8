//! A small language for RDMA conversations: who sends what, as packets on the wire.
//!
//! ```ignore
//! let mut talk = Talk::new(MeterLimits::default());
//! talk.hear([A.write_only(7), B.ack(7)]);
//! ```
#![allow(dead_code, reason = "each test file uses a part")]

use weir_engine::meter::{Icrc, Meter, MeterLimits, Observation, Observed};
use weir_engine::verdict::Side;
use weir_wire::bth::{Extension, Opcode};
use weir_wire::frame::{Link, Time};
use weir_wire::icrc;
use weir_wire::parse::parse;

/// One end's way of talking: from its host to a queue pair at the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Last byte of its 10.0.0.x address.
    pub(crate) host: u8,
    /// Last byte of the other's.
    pub(crate) peer: u8,
    /// Queue pair it talks to.
    pub(crate) to_qp: u32,
    /// UDP source port.
    pub(crate) port: u16,
}

/// Host 1, talking to queue pair 0xb at host 2.
pub(crate) const A: End = End { host: 1, peer: 2, to_qp: 0xb, port: 50_001 };
/// Host 2, answering to queue pair 0xa at host 1.
pub(crate) const B: End = End { host: 2, peer: 1, to_qp: 0xa, port: 50_001 };

/// A packet to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) from: End,
    pub(crate) opcode: Opcode,
    pub(crate) psn: u32,
    pub(crate) payload_len: usize,
    pub(crate) ack_request: bool,
    /// DMA length in the RETH.
    pub(crate) dma_len: u32,
    pub(crate) remote_key: u32,
    /// Syndrome byte in the AETH.
    pub(crate) syndrome: u8,
    /// Source queue pair in the DETH.
    pub(crate) source_qp: u32,
    /// ECN bits of the IP header.
    pub(crate) ecn: u8,
    pub(crate) is_damaged: bool,
}

macro_rules! packets {
    ($($name:ident $opcode:ident $payload_len:literal;)+) => {
        impl End {
            $(pub(crate) fn $name(self, psn: u32) -> Packet {
                self.packet(Opcode::$opcode, psn, $payload_len)
            })+
        }
    };
}

packets! {
    send_only RC_SEND_ONLY 64;
    write_first RC_WRITE_FIRST 1024;
    write_middle RC_WRITE_MIDDLE 1024;
    write_last RC_WRITE_LAST 500;
    write_only RC_WRITE_ONLY 64;
    fetch_add RC_FETCH_ADD 0;
    read_first RC_READ_RESPONSE_FIRST 1024;
    read_middle RC_READ_RESPONSE_MIDDLE 1024;
    read_last RC_READ_RESPONSE_LAST 1024;
    atomic_ack RC_ATOMIC_ACKNOWLEDGE 0;
    ack RC_ACKNOWLEDGE 0;
    uc_send_only UC_SEND_ONLY 64;
    datagram UD_SEND_ONLY 64;
    cnp CNP 16;
}

impl End {
    fn packet(self, opcode: Opcode, psn: u32, payload_len: usize) -> Packet {
        Packet {
            from: self,
            opcode,
            psn,
            payload_len,
            ack_request: opcode.ends_message(),
            dma_len: payload_len as u32,
            remote_key: 1,
            syndrome: 0,
            source_qp: 0,
            ecn: 2,
            is_damaged: false,
        }
    }

    pub(crate) fn read(self, psn: u32, dma_len: u32) -> Packet {
        Packet { dma_len, ..self.packet(Opcode::RC_READ_REQUEST, psn, 0) }
    }

    pub(crate) fn nak(self, psn: u32, code: u8) -> Packet {
        Packet { syndrome: 0x60 | code, ..self.ack(psn) }
    }

    pub(crate) fn rnr(self, psn: u32) -> Packet {
        Packet { syndrome: 0x20 | 5, ..self.ack(psn) }
    }
}

impl Packet {
    /// Its frame: Ethernet, IPv4, UDP, BTH, extended headers, payload, ICRC.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut extended = Vec::new();
        for extension in Extension::ALL.into_iter().filter(|one| self.opcode.carries(*one)) {
            extended.extend(self.extended_header(extension));
        }
        let udp_len = 8 + 12 + extended.len() + self.payload_len + 4;
        let mut frame = vec![2, 0, 0, 0, 0, self.from.peer, 2, 0, 0, 0, 0, self.from.host, 8, 0];
        frame.extend([0x45, self.ecn]);
        frame.extend((20 + udp_len as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, self.from.host]);
        frame.extend([10, 0, 0, self.from.peer]);
        frame.extend(self.from.port.to_be_bytes());
        frame.extend(4791u16.to_be_bytes());
        frame.extend((udp_len as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend([self.opcode.0, 0x40, 0xff, 0xff]);
        frame.extend(self.from.to_qp.to_be_bytes());
        frame.extend((u32::from(self.ack_request) << 31 | self.psn & 0xff_ffff).to_be_bytes());
        frame.extend(extended);
        frame.resize(frame.len() + self.payload_len + 4, 0x5a);
        let parsed = parse(&frame, Link::Ethernet, frame.len() as u32);
        assert!(icrc::write(&mut frame, &parsed), "{self:?} is a RoCE packet");
        if self.is_damaged {
            *frame.last_mut().unwrap() ^= 1;
        }
        frame
    }

    fn extended_header(&self, extension: Extension) -> Vec<u8> {
        let mut bytes = vec![0; extension.len()];
        match extension {
            Extension::Reth => {
                bytes[8..12].copy_from_slice(&self.remote_key.to_be_bytes());
                bytes[12..16].copy_from_slice(&self.dma_len.to_be_bytes());
            }
            Extension::AtomicEth => bytes[8..12].copy_from_slice(&self.remote_key.to_be_bytes()),
            Extension::Aeth => bytes[0] = self.syndrome,
            Extension::Deth => bytes[4..8].copy_from_slice(&self.source_qp.to_be_bytes()),
            _ => {}
        }
        bytes
    }
}

/// A meter that listens, one packet a microsecond.
pub(crate) struct Talk {
    pub(crate) meter: Meter,
    pub(crate) now: Time,
    /// Whether the meter is a gateway's, with host 1 behind its host port.
    pub(crate) has_sides: bool,
}

impl Talk {
    pub(crate) fn new(limits: MeterLimits) -> Self {
        let now = Time(1_700_000_000_000_000_000);
        Self { meter: Meter::new(limits, 7), now, has_sides: false }
    }

    /// Lets the meter hear the packets; returns where the last one was counted.
    pub(crate) fn hear(&mut self, packets: impl IntoIterator<Item = Packet>) -> Observed {
        let mut observed = Observed::default();
        for packet in packets {
            self.now = self.now.plus_ns(1000);
            observed = self.with(packet, |meter, observation| meter.observe(observation));
        }
        observed
    }

    /// Lets the meter hear a packet that the gateway then drops.
    pub(crate) fn drop(&mut self, packet: Packet) {
        self.hear([packet]);
        self.with(packet, |meter, observation| meter.note_drop(observation));
    }

    fn with<T>(
        &mut self,
        packet: Packet,
        tell: impl FnOnce(&mut Meter, &Observation<'_>) -> T,
    ) -> T {
        let bytes = packet.bytes();
        let original_len = bytes.len() as u32;
        let side = if packet.from.host == 1 { Side::Host } else { Side::Wire };
        let observation = Observation {
            now: self.now,
            side: self.has_sides.then_some(side),
            bytes: &bytes,
            parsed: &parse(&bytes, Link::Ethernet, original_len),
            original_len,
            segments: 1,
            icrc: Icrc::Check,
        };
        tell(&mut self.meter, &observation)
    }

    pub(crate) fn wait_ms(&mut self, milliseconds: u64) {
        self.now = self.now.plus_ns(milliseconds * 1_000_000);
    }
}
