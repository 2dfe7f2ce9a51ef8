//! pcapng: a sequence of blocks (draft-ietf-opsawg-pcapng). Packets stand in Enhanced (EPB),
//! Simple (SPB) and obsolete (OPB) Packet Blocks; interfaces are described by IDBs, anew in every
//! section (SHB), whose byte order may differ.

use weir_wire::frame::Time;

use super::link::LinkType;
use super::{BLOCK_LEN_MAX, ByteOrder, PACKET_LEN_MAX, Step, pcap};

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;
pub(super) const INTERFACE_STATISTICS: u32 = 5;
/// Of the types for local use; our own.
pub(super) const FILLER: u32 = 0x8000_5765;
pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

const OPTION_END: u16 = 0;
pub(super) const OPTION_IF_TSRESOL: u16 = 9;
const OPTION_IF_FCSLEN: u16 = 13;
const OPTION_IF_TSOFFSET: u16 = 14;

/// Type and length before, length behind.
const BLOCK_OVERHEAD: usize = 12;
/// Interfaces in one section; more is an error.
const INTERFACES_MAX: usize = 4096;

/// What the section and its interfaces say of the packets.
#[derive(Debug)]
pub(super) struct PcapNg {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: LinkType,
    snap_len: u32,
    resolution: Resolution,
    offset_s: i64,
    fcs_len: u32,
}

/// Ticks of an interface's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    /// A tick is this many nanoseconds.
    TickNs(u64),
    /// A nanosecond is this many ticks.
    TicksPerNs(u64),
    /// A second is two to this power of ticks.
    Binary(u32),
}

impl Resolution {
    /// From the option `if_tsresol`; powers beyond any clock are cut to the finest we know.
    fn from_option(value: u8) -> Self {
        let power = u32::from(value & 0x7f);
        if value & 0x80 != 0 {
            Resolution::Binary(power.min(63))
        } else if power <= 9 {
            Resolution::TickNs(10u64.pow(9 - power))
        } else {
            Resolution::TicksPerNs(10u64.pow((power - 9).min(19)))
        }
    }

    fn nanoseconds(self, ticks: u64) -> u64 {
        match self {
            Resolution::TickNs(ns) => ticks.saturating_mul(ns),
            Resolution::TicksPerNs(ticks_per_ns) => ticks / ticks_per_ns,
            Resolution::Binary(power) => {
                let ns = (u128::from(ticks) * 1_000_000_000) >> power;
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        }
    }
}

impl PcapNg {
    pub(super) fn new() -> Self {
        Self { order: ByteOrder::Little, interfaces: Vec::new() }
    }

    /// Whether a file that begins so is pcapng.
    pub(super) fn recognises(head: &[u8]) -> bool {
        head.starts_with(&SECTION_HEADER.to_be_bytes())
    }

    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Step, String> {
        if bytes.len() < BLOCK_OVERHEAD {
            return Ok(Step::Need { len: BLOCK_OVERHEAD });
        }
        let is_section = Self::recognises(bytes);
        if is_section {
            self.order = match bytes[8..12] {
                [0x1a, 0x2b, 0x3c, 0x4d] => ByteOrder::Big,
                [0x4d, 0x3c, 0x2b, 0x1a] => ByteOrder::Little,
                _ => return Err(damaged("a section header lacks its byte-order magic")),
            };
        }
        let kind = self.order.u32(bytes, 0);
        let len = self.order.u32(bytes, 4) as usize;
        if len < BLOCK_OVERHEAD || !len.is_multiple_of(4) {
            return Err(damaged(&format!("a block of type {kind:#x} claims {len} bytes")));
        }
        let wanted = matches!(
            kind,
            SECTION_HEADER
                | INTERFACE_DESCRIPTION
                | ENHANCED_PACKET
                | SIMPLE_PACKET
                | OBSOLETE_PACKET
        );
        if !wanted {
            return Ok(Step::Skip { len: len as u64 });
        }
        if len > BLOCK_LEN_MAX {
            return Err(damaged(&format!(
                "a block of type {kind:#x} claims {len} bytes, more than {BLOCK_LEN_MAX}"
            )));
        }
        let Some(block) = bytes.get(..len) else {
            return Ok(Step::Need { len });
        };
        if self.order.u32(block, len - 4) as usize != len {
            return Err(damaged("the two lengths of a block differ"));
        }
        match kind {
            SECTION_HEADER => self.interfaces.clear(),
            INTERFACE_DESCRIPTION => self.describe_interface(block)?,
            _ => return self.packet(kind, block),
        }
        Ok(Step::Skip { len: len as u64 })
    }

    fn describe_interface(&mut self, block: &[u8]) -> Result<(), String> {
        let Some(fixed) = block.get(8..16) else {
            return Err(damaged("an interface description is too short"));
        };
        if self.interfaces.len() == INTERFACES_MAX {
            return Err(damaged(&format!("a section describes more than {INTERFACES_MAX} ports")));
        }
        let mut interface = Interface {
            link_type: LinkType::from_number(self.order.u16(fixed, 0)),
            snap_len: self.order.u32(fixed, 4),
            resolution: Resolution::TickNs(1000),
            offset_s: 0,
            fcs_len: 0,
        };
        let mut options = &block[16..block.len() - 4];
        while options.len() >= 4 {
            let code = self.order.u16(options, 0);
            let len = usize::from(self.order.u16(options, 2));
            let Some(value) = options.get(4..4 + len) else { break };
            match (code, value) {
                (OPTION_END, _) => break,
                (OPTION_IF_TSRESOL, [value, ..]) => {
                    interface.resolution = Resolution::from_option(*value);
                }
                (OPTION_IF_FCSLEN, [len, ..]) => interface.fcs_len = u32::from(*len),
                (OPTION_IF_TSOFFSET, value) if value.len() == 8 => {
                    let (first, second) = (self.order.u32(value, 0), self.order.u32(value, 4));
                    let (high, low) = match self.order {
                        ByteOrder::Big => (first, second),
                        ByteOrder::Little => (second, first),
                    };
                    interface.offset_s = ((u64::from(high) << 32) | u64::from(low)) as i64;
                }
                _ => {}
            }
            options = options.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// A packet block: `(interface, time, captured and original length)` stand where its kind says.
    fn packet(&self, kind: u32, block: &[u8]) -> Result<Step, String> {
        let order = self.order;
        let start = if kind == SIMPLE_PACKET { 12 } else { 28 };
        let room = (block.len() - 4)
            .checked_sub(start)
            .ok_or_else(|| damaged("a packet block is too short"))?;
        let interface_id = match kind {
            SIMPLE_PACKET => 0,
            OBSOLETE_PACKET => u32::from(order.u16(block, 8)),
            _ => order.u32(block, 8),
        };
        let interface = self.interfaces.get(interface_id as usize).ok_or_else(|| {
            damaged(&format!("a packet names interface {interface_id}, which is not described"))
        })?;
        let (captured_len, original_len) = if kind == SIMPLE_PACKET {
            let original_len = order.u32(block, 8);
            let snap_len = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
            (room.min(original_len.min(snap_len) as usize), original_len)
        } else {
            (order.u32(block, 20) as usize, order.u32(block, 24))
        };
        if captured_len > room || captured_len > PACKET_LEN_MAX {
            return Err(damaged(&format!("a packet claims {captured_len} bytes, it has {room}")));
        }
        let time = if kind == SIMPLE_PACKET {
            Time(0)
        } else {
            let ticks = (u64::from(order.u32(block, 12)) << 32) | u64::from(order.u32(block, 16));
            let offset_ns = interface.offset_s.saturating_mul(1_000_000_000);
            Time(interface.resolution.nanoseconds(ticks).saturating_add_signed(offset_ns))
        };
        let located = pcap::locate(
            interface.link_type,
            block,
            start,
            captured_len,
            original_len,
            time,
            interface.fcs_len,
        );
        let len = block.len();
        Ok(match located {
            Some((start, end, meta)) => Step::Packet { len, start, end, meta },
            None => Step::Unread { len },
        })
    }
}

fn damaged(what: &str) -> String {
    format!("{what}: the file is damaged here; what stands before was read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_ticks_become_nanoseconds() {
        for (option, ticks, ns) in [
            (6, 1_500_000, 1_500_000_000),
            (9, 7, 7),
            (0, 3, 3_000_000_000),
            (12, 5_999, 5),
            (0x80 | 10, 1536, 1_500_000_000),
            (0x80 | 32, 1 << 31, 500_000_000),
        ] {
            assert_eq!(Resolution::from_option(option).nanoseconds(ticks), ns, "{option:#x}");
        }
    }

    #[test]
    fn absurd_clocks_saturate() {
        assert_eq!(Resolution::from_option(0).nanoseconds(u64::MAX), u64::MAX);
        assert_eq!(Resolution::from_option(0x80).nanoseconds(u64::MAX), u64::MAX);
        assert_eq!(Resolution::from_option(0x7f).nanoseconds(u64::MAX), 1);
    }
}
