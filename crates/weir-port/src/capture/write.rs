//! Writing captures: nanosecond pcap, and pcapng with an interface per port, the direction of each
//! packet and a comment beside it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use weir_wire::frame::{Link, Meta, Time};
use zerocopy::IntoBytes;

use super::{PACKET_LEN_MAX, link, pcap, pcapng};

/// Which format to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureFormat {
    /// Classic pcap with nanoseconds: one link type, no interfaces.
    Pcap,
    /// pcapng with nanoseconds.
    PcapNg,
}

/// Which way a packet went, seen from its interface (`epb_flags`, bits 0 and 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received by the interface.
    Inbound,
    /// Sent by it.
    Outbound,
}

/// What is written beside a packet, where the format can hold it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketNote<'a> {
    /// Which way it went.
    pub direction: Option<Direction>,
    /// Free text that Wireshark shows with the packet; cut to 1024 bytes.
    pub comment: Option<&'a str>,
}

/// An Interface Statistics Block: packets since the capture began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStatistics {
    /// That the interface received (`isb_ifrecv`).
    pub received: u64,
    /// Lost before the reader, in the interface or the system (`isb_ifdrop`, which Wireshark shows
    /// as dropped).
    pub dropped: u64,
    /// That the filter took (`isb_filteraccept`).
    pub accepted: u64,
    /// Lost in the system for want of room (`isb_osdrop`).
    pub dropped_by_system: u64,
    /// Given to the reader (`isb_usrdeliv`).
    pub delivered: u64,
}

const OPTION_COMMENT: u16 = 1;
const OPTION_IF_NAME: u16 = 2;
const OPTION_EPB_FLAGS: u16 = 2;
const COMMENT_LEN_MAX: usize = 1024;

/// Writes packets to a file or any byte sink.
#[derive(Debug)]
pub struct CaptureWriter<W: Write> {
    sink: W,
    format: CaptureFormat,
    interfaces: u32,
}

impl CaptureWriter<BufWriter<File>> {
    /// Creates `path` (an older file of that name is replaced) with the given interfaces: name and
    /// link type. Classic pcap keeps the first one's link type only.
    ///
    /// # Errors
    /// The file cannot be created or written, or no interface is given.
    pub fn create(
        path: impl AsRef<Path>,
        format: CaptureFormat,
        interfaces: &[(&str, Link)],
    ) -> io::Result<Self> {
        Self::new(BufWriter::with_capacity(1 << 18, File::create(path)?), format, interfaces)
    }
}

impl<W: Write> CaptureWriter<W> {
    /// Writes the file header and the interfaces to `sink`.
    ///
    /// # Errors
    /// The sink's own, or `InvalidInput` when no interface is given.
    pub fn new(
        mut sink: W,
        format: CaptureFormat,
        interfaces: &[(&str, Link)],
    ) -> io::Result<Self> {
        let Some((_, first_link)) = interfaces.first() else {
            let what = "a capture needs at least one interface";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        match format {
            CaptureFormat::Pcap => {
                sink.write_all(&pcap::MAGIC_NANOSECONDS.to_le_bytes())?;
                // Version 2.4, zone 0, accuracy 0.
                sink.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
                sink.write_all(&(PACKET_LEN_MAX as u32).to_le_bytes())?;
                sink.write_all(&u32::from(link::number_of(*first_link)).to_le_bytes())?;
            }
            CaptureFormat::PcapNg => {
                write_section_header(&mut sink)?;
                for (name, link) in interfaces {
                    write_interface(&mut sink, name, *link)?;
                }
            }
        }
        Ok(Self { sink, format, interfaces: interfaces.len() as u32 })
    }

    /// Writes one packet given in pieces, as seen on interface number `interface`.
    ///
    /// # Errors
    /// The sink's own, or `InvalidInput`: an interface that was not announced, or a packet above
    /// [`PACKET_LEN_MAX`] bytes.
    pub fn write(
        &mut self,
        interface: u32,
        meta: &Meta,
        parts: &[&[u8]],
        note: PacketNote<'_>,
    ) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > PACKET_LEN_MAX || interface >= self.interfaces {
            let what = format!("packet of {len} bytes on interface {interface} cannot be recorded");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let original_len = meta.original_len.max(len as u32);
        match self.format {
            CaptureFormat::Pcap => {
                let seconds = (meta.time.0 / 1_000_000_000) as u32;
                let nanoseconds = (meta.time.0 % 1_000_000_000) as u32;
                write_u32s(&mut self.sink, &[seconds, nanoseconds, len as u32, original_len])?;
                self.write_parts(parts)
            }
            CaptureFormat::PcapNg => {
                let options = packet_options(note);
                let padding = len.next_multiple_of(4) - len;
                let total_len = (32 + len + padding + options.len()) as u32;
                let (high, low) = ((meta.time.0 >> 32) as u32, meta.time.0 as u32);
                let kind = pcapng::ENHANCED_PACKET;
                let head = [kind, total_len, interface, high, low, len as u32, original_len];
                self.sink.write_all(head.map(u32::to_le).as_bytes())?;
                self.write_parts(parts)?;
                if padding > 0 || !options.is_empty() {
                    self.sink.write_all(&[0; 3][..padding])?;
                    self.sink.write_all(&options)?;
                }
                self.sink.write_all(&total_len.to_le_bytes())
            }
        }
    }

    /// Writes what the kernel and the reader counted on interface number `interface` until `time`
    /// (pcapng only; once an interface, at the end).
    ///
    /// # Errors
    /// The sink's own.
    pub fn write_statistics(
        &mut self,
        interface: u32,
        time: Time,
        statistics: &InterfaceStatistics,
    ) -> io::Result<()> {
        if self.format == CaptureFormat::Pcap {
            return Ok(());
        }
        let mut options = Vec::new();
        for (code, value) in [
            (4, statistics.received),
            (5, statistics.dropped),
            (6, statistics.accepted),
            (7, statistics.dropped_by_system),
            (8, statistics.delivered),
        ] {
            push_option(&mut options, code, &value.to_le_bytes());
        }
        push_option(&mut options, 0, &[]);
        let len = 24 + options.len() as u32;
        let (high, low) = ((time.0 >> 32) as u32, time.0 as u32);
        let head = [pcapng::INTERFACE_STATISTICS, len, interface, high, low];
        write_u32s(&mut self.sink, &head)?;
        self.sink.write_all(&options)?;
        write_u32s(&mut self.sink, &[len])
    }

    /// The sink, to look at.
    pub fn sink(&self) -> &W {
        &self.sink
    }

    /// The sink, to take out whole blocks that were written.
    pub fn sink_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Hands everything to the sink below.
    ///
    /// # Errors
    /// The sink's own.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// Flushes and gives the sink back.
    ///
    /// # Errors
    /// The sink's own.
    pub fn finish(mut self) -> io::Result<W> {
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn write_parts(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        parts.iter().try_for_each(|part| self.sink.write_all(part))
    }
}

/// Bytes that [`put_packet`] needs beyond the packet's own, at most.
pub const PACKET_BLOCK_OVERHEAD: usize = 36;

/// Puts a packet of interface 0 as an Enhanced Packet Block (pcapng section 4.3) without options
/// at the beginning of `buffer`, and returns the block's length: what [`CaptureWriter::write`]
/// does, for a writer with memory of its own. `None`: there is no room for it.
pub fn put_packet(buffer: &mut [u8], meta: &Meta, packet: &[u8]) -> Option<usize> {
    const HEAD: usize = 28;
    let padded = packet.len().next_multiple_of(4);
    let total = HEAD + padded + 4;
    let block = buffer.get_mut(..total)?;
    let (len, total_len) = (packet.len() as u32, total as u32);
    let (high, low) = ((meta.time.0 >> 32) as u32, meta.time.0 as u32);
    let original_len = meta.original_len.max(len);
    let head = [pcapng::ENHANCED_PACKET, total_len, 0, high, low, len, original_len];
    block[..HEAD].copy_from_slice(head.map(u32::to_le).as_bytes());
    let (body, tail) = block[HEAD..].split_at_mut(packet.len());
    body.copy_from_slice(packet);
    tail[..padded - packet.len()].fill(0);
    tail[padded - packet.len()..].copy_from_slice(&total_len.to_le_bytes());
    Some(total)
}

/// The shortest block of [`put_filler`].
pub const FILLER_LEN_MIN: usize = 12;

/// Fills `buffer`, whose length is a multiple of 4, at least [`FILLER_LEN_MIN`] and at most
/// [`BLOCK_LEN_MAX`](super::BLOCK_LEN_MAX), with one block of a type for local use (pcapng section
/// 10.1) that readers pass over: what follows it lies where its writer wants it. No Custom Block:
/// tshark 4.0 counts those as frames.
pub fn put_filler(buffer: &mut [u8]) {
    debug_assert!(buffer.len().is_multiple_of(4) && buffer.len() >= FILLER_LEN_MIN);
    let len = buffer.len() as u32;
    buffer.fill(0);
    buffer[..8].copy_from_slice([pcapng::FILLER, len].map(u32::to_le).as_bytes());
    let end = buffer.len() - 4;
    buffer[end..].copy_from_slice(&len.to_le_bytes());
}

fn write_u32s(sink: &mut impl Write, numbers: &[u32]) -> io::Result<()> {
    numbers.iter().try_for_each(|number| sink.write_all(&number.to_le_bytes()))
}

fn write_section_header(sink: &mut impl Write) -> io::Result<()> {
    let len = 28;
    write_u32s(sink, &[pcapng::SECTION_HEADER, len, pcapng::BYTE_ORDER_MAGIC])?;
    // Version 1.0, section length unknown.
    sink.write_all(&[1, 0, 0, 0])?;
    write_u32s(sink, &[u32::MAX, u32::MAX, len])
}

fn write_interface(sink: &mut impl Write, name: &str, link: Link) -> io::Result<()> {
    let mut options = Vec::new();
    push_option(&mut options, OPTION_IF_NAME, name.as_bytes());
    push_option(&mut options, pcapng::OPTION_IF_TSRESOL, &[9]);
    push_option(&mut options, 0, &[]);
    let len = 20 + options.len() as u32;
    write_u32s(sink, &[pcapng::INTERFACE_DESCRIPTION, len])?;
    write_u32s(sink, &[u32::from(link::number_of(link)), PACKET_LEN_MAX as u32])?;
    sink.write_all(&options)?;
    write_u32s(sink, &[len])
}

fn packet_options(note: PacketNote<'_>) -> Vec<u8> {
    let mut options = Vec::new();
    if let Some(direction) = note.direction {
        let flags: u32 = if direction == Direction::Inbound { 1 } else { 2 };
        push_option(&mut options, OPTION_EPB_FLAGS, &flags.to_le_bytes());
    }
    if let Some(comment) = note.comment {
        let end = comment.floor_char_boundary(COMMENT_LEN_MAX);
        push_option(&mut options, OPTION_COMMENT, &comment.as_bytes()[..end]);
    }
    if !options.is_empty() {
        push_option(&mut options, 0, &[]);
    }
    options
}

fn push_option(options: &mut Vec<u8>, code: u16, value: &[u8]) {
    options.extend(code.to_le_bytes());
    options.extend((value.len() as u16).to_le_bytes());
    options.extend(value);
    options.resize(options.len().next_multiple_of(4), 0);
}
