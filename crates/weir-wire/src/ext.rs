//! Extended transport headers (IBTA Vol 1 s9.3; Annex A14 for XRCETH, A19 for FETH): their views,
//! and where a packet has them.
//!
//! Which opcode carries which is [`Opcode::carries`](crate::bth::Opcode::carries). A function here
//! gives `None` when the opcode does not carry the header or the capture was cut before its end.

use core::fmt;

use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bth::{Bth, Extension, Qpn};
use crate::parse::Rdma;

/// RDMA: what memory the peer reads or writes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Reth {
    /// Virtual address in the responder's memory.
    pub virtual_address: U64,
    /// Key that authorises the access.
    pub remote_key: U32,
    /// Bytes of the whole message.
    pub dma_length: U32,
}

/// Acknowledgment.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Aeth {
    /// Syndrome (high eight bits), message sequence number (24).
    pub syndrome_and_msn: U32,
}

/// What an [`Aeth`]'s syndrome says (IBTA Vol 1 s9.7.5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Received; with the responder's coded credit count (31: does not count).
    Ack {
        /// Credit code.
        credit: u8,
    },
    /// Receiver not ready: no receive buffer was posted.
    RnrNak {
        /// Coded time after which to try again.
        timer: u8,
    },
    /// Refused.
    Nak(NakCause),
    /// A value that no specification defines.
    Reserved(u8),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NakCause {
    /// PSN sequence error.
    SequenceError,
    /// Invalid request.
    InvalidRequest,
    /// Remote access error.
    RemoteAccess,
    /// Remote operational error.
    RemoteOperational,
    /// Invalid RD request.
    InvalidRdRequest,
    /// A code that no specification defines.
    Reserved(u8),
}

/// Datagram: who sends, and the key that lets it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Deth {
    /// Q_Key.
    pub queue_key: U32,
    /// Source queue pair (low 24 bits).
    pub source_qp: U32,
}

/// Atomic request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AtomicEth {
    /// Virtual address in the responder's memory.
    pub virtual_address: U64,
    /// Key that authorises the access.
    pub remote_key: U32,
    /// The value to swap in, or to add.
    pub swap_or_add: U64,
    /// The value to compare with.
    pub compare: U64,
}

/// Atomic acknowledgment.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AtomicAckEth {
    /// The value that was there before.
    pub original: U64,
}

/// Immediate data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ImmDt {
    /// Four bytes that appear in the receiver's completion.
    pub data: U32,
}

/// Send with invalidate.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Ieth {
    /// The key that the responder shall invalidate.
    pub remote_key: U32,
}

/// Reliable datagram.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Rdeth {
    /// End-to-end context (low 24 bits).
    pub ee_context: U32,
}

/// Extended reliable connection.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Xrceth {
    /// Shared receive queue (low 24 bits).
    pub shared_receive_queue: U32,
}

/// Flush.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Feth {
    /// Selectivity level (bits 5, 4), placement type (3-0).
    pub selectivity_and_placement: U32,
}

impl Aeth {
    /// Syndrome as one byte.
    #[inline]
    pub fn syndrome_byte(&self) -> u8 {
        (self.syndrome_and_msn.get() >> 24) as u8
    }

    /// Syndrome, decoded.
    #[inline]
    pub fn syndrome(&self) -> Syndrome {
        Syndrome::from_byte(self.syndrome_byte())
    }

    /// Message sequence number: requests completed by the responder, modulo 2^24.
    #[inline]
    pub fn message_sequence(&self) -> u32 {
        self.syndrome_and_msn.get() & 0xff_ffff
    }
}

impl Syndrome {
    /// Decodes the byte.
    #[inline]
    pub const fn from_byte(byte: u8) -> Self {
        let value = byte & 0x1f;
        match byte >> 5 {
            0 => Self::Ack { credit: value },
            1 => Self::RnrNak { timer: value },
            3 => Self::Nak(NakCause::from_code(value)),
            _ => Self::Reserved(byte),
        }
    }
}

impl NakCause {
    /// Decodes a NAK syndrome's low five bits.
    #[inline]
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::SequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            other => Self::Reserved(other),
        }
    }

    /// Its name in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SequenceError => "PSN sequence error",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperational => "remote operational error",
            Self::InvalidRdRequest => "invalid RD request",
            Self::Reserved(_) => "reserved",
        }
    }
}

impl fmt::Display for NakCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Deth {
    /// Source queue pair.
    #[inline]
    pub fn source_qp(&self) -> Qpn {
        Qpn::new(self.source_qp.get())
    }
}

impl Rdeth {
    /// End-to-end context number.
    #[inline]
    pub fn ee_context(&self) -> u32 {
        self.ee_context.get() & 0xff_ffff
    }
}

impl Xrceth {
    /// Number of the shared receive queue.
    #[inline]
    pub fn shared_receive_queue(&self) -> u32 {
        self.shared_receive_queue.get() & 0xff_ffff
    }
}

/// A type that is the layout of one extended header.
pub trait ExtendedHeader: FromBytes + KnownLayout + Immutable + Unaligned {
    /// Which.
    const EXTENSION: Extension;
}

macro_rules! extended_headers {
    ($($header:ident $extension:ident $function:ident;)+) => {$(
        const _: () = assert!(size_of::<$header>() == Extension::$extension.len());

        impl ExtendedHeader for $header {
            const EXTENSION: Extension = Extension::$extension;
        }

        #[doc = concat!("The packet's [`", stringify!($header), "`], when it has one.")]
        #[inline]
        pub fn $function<'a>(bytes: &'a [u8], rdma: &Rdma) -> Option<&'a $header> {
            extended_header(bytes, rdma)
        }
    )+};
}

extended_headers! {
    Reth Reth reth;
    Aeth Aeth aeth;
    Deth Deth deth;
    AtomicEth AtomicEth atomic_eth;
    AtomicAckEth AtomicAckEth atomic_ack_eth;
    ImmDt ImmDt imm_dt;
    Ieth Ieth ieth;
    Rdeth Rdeth rdeth;
    Xrceth Xrceth xrceth;
    Feth Feth feth;
}

/// The packet's header of type `T`, when it has one. `bytes` is the frame that was parsed.
#[inline]
pub fn extended_header<'a, T: ExtendedHeader>(bytes: &'a [u8], rdma: &Rdma) -> Option<&'a T> {
    let offset = rdma.opcode.extension_offset(T::EXTENSION)?;
    let start = usize::from(rdma.bth_offset) + Bth::LEN + offset;
    T::ref_from_bytes(bytes.get(start..start + size_of::<T>())?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syndrome_tells_ack_rnr_and_nak_apart() {
        assert_eq!(Syndrome::from_byte(0x1f), Syndrome::Ack { credit: 31 });
        assert_eq!(Syndrome::from_byte(0x2e), Syndrome::RnrNak { timer: 14 });
        assert_eq!(Syndrome::from_byte(0x60), Syndrome::Nak(NakCause::SequenceError));
        assert_eq!(Syndrome::from_byte(0x62), Syndrome::Nak(NakCause::RemoteAccess));
        assert_eq!(Syndrome::from_byte(0x40), Syndrome::Reserved(0x40));
        assert_eq!(Syndrome::from_byte(0xe0), Syndrome::Reserved(0xe0));
    }
}
