//! BTH opcodes (IBTA Vol 1 s9.2, table 35; Annex A14 for XRC, A17 for CNP): names, and which
//! extended headers each one carries.

use core::fmt;

/// An opcode: transport service in the high three bits, operation in the low five.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(pub u8);

/// The transport service in an opcode's high three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// Reliable connection.
    ReliableConnection,
    /// Unreliable connection.
    UnreliableConnection,
    /// Reliable datagram.
    ReliableDatagram,
    /// Unreliable datagram.
    UnreliableDatagram,
    /// Congestion notification (RoCE v2).
    CongestionNotification,
    /// Extended reliable connection.
    ExtendedReliableConnection,
    /// Manufacturer specific or reserved.
    Other,
}

/// What a packet does, whatever its place in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Compare-and-swap or fetch-and-add request.
    Atomic,
    /// Acknowledgment, positive or negative.
    Acknowledge,
    /// Acknowledgment of an atomic, with the value that was there.
    AtomicAcknowledge,
    /// RESYNC (reliable datagram only).
    Resync,
    /// FLUSH (IBTA Annex A19).
    Flush,
    /// ATOMIC WRITE (IBTA Annex A19).
    AtomicWrite,
    /// Congestion notification packet.
    CongestionNotification,
    /// An opcode that no specification defines.
    Reserved,
}

/// A packet's place in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

/// An extended header that may stand behind the BTH, in the order they stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Extension {
    /// Reliable datagram: end-to-end context.
    Rdeth,
    /// Datagram: Q_Key and source queue pair.
    Deth,
    /// XRC: shared receive queue.
    Xrceth,
    /// FLUSH: placement type and selectivity.
    Feth,
    /// RDMA: address, R_Key, length.
    Reth,
    /// Atomic request.
    AtomicEth,
    /// Acknowledgment: syndrome and message sequence number.
    Aeth,
    /// Atomic acknowledgment: original value.
    AtomicAckEth,
    /// Immediate data.
    ImmDt,
    /// R_Key to invalidate.
    Ieth,
}

impl Extension {
    /// All of them, in the order in which they stand behind the BTH.
    pub const ALL: [Extension; 10] = [
        Self::Rdeth,
        Self::Deth,
        Self::Xrceth,
        Self::Feth,
        Self::Reth,
        Self::AtomicEth,
        Self::Aeth,
        Self::AtomicAckEth,
        Self::ImmDt,
        Self::Ieth,
    ];

    /// Its length in bytes. (Not a collection: it is never empty.)
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(self) -> usize {
        match self {
            Self::Reth => 16,
            Self::AtomicEth => 28,
            Self::Deth | Self::AtomicAckEth => 8,
            Self::Rdeth | Self::Xrceth | Self::Feth | Self::Aeth | Self::ImmDt | Self::Ieth => 4,
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

impl Opcode {
    /// The transport service.
    #[inline]
    pub const fn service(self) -> Service {
        match self.0 >> 5 {
            0 => Service::ReliableConnection,
            1 => Service::UnreliableConnection,
            2 => Service::ReliableDatagram,
            3 => Service::UnreliableDatagram,
            4 if self.0 == Self::CNP.0 => Service::CongestionNotification,
            5 => Service::ExtendedReliableConnection,
            _ => Service::Other,
        }
    }

    /// Whether a specification defines it.
    #[inline]
    pub const fn is_defined(self) -> bool {
        !matches!(self.operation(), Operation::Reserved)
    }

    /// What the packet does.
    #[inline]
    pub const fn operation(self) -> Operation {
        TABLE[self.0 as usize].operation
    }

    /// The packet's place in its message.
    #[inline]
    pub const fn position(self) -> Position {
        TABLE[self.0 as usize].position
    }

    /// Whether a message starts with this packet (First or Only).
    #[inline]
    pub const fn starts_message(self) -> bool {
        matches!(self.position(), Position::First | Position::Only)
    }

    /// Whether a message ends with this packet (Last or Only).
    #[inline]
    pub const fn ends_message(self) -> bool {
        matches!(self.position(), Position::Last | Position::Only)
    }

    /// Whether a requester sends it (congestion notifications are neither side's).
    #[inline]
    pub const fn is_request(self) -> bool {
        matches!(
            self.operation(),
            Operation::Send
                | Operation::Write
                | Operation::ReadRequest
                | Operation::Atomic
                | Operation::Resync
                | Operation::Flush
                | Operation::AtomicWrite
        )
    }

    /// Whether a responder sends it.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(
            self.operation(),
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }

    /// Whether `extension` stands behind the BTH.
    #[inline]
    pub const fn carries(self, extension: Extension) -> bool {
        TABLE[self.0 as usize].extensions & extension.bit() != 0
    }

    /// Where `extension` stands, in bytes from the end of the BTH; `None` when it is not carried.
    #[inline]
    pub const fn extension_offset(self, extension: Extension) -> Option<usize> {
        if !self.carries(extension) {
            return None;
        }
        let before = TABLE[self.0 as usize].extensions & (extension.bit() - 1);
        Some(total_len(before) as usize)
    }

    /// Bytes of all extended headers together.
    #[inline]
    pub const fn extensions_len(self) -> usize {
        TABLE[self.0 as usize].extensions_len as usize
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_defined() {
            f.pad(self.name())
        } else {
            write!(f, "{} {:#04x}", self.name(), self.0)
        }
    }
}

macro_rules! opcodes {
    ($($constant:ident = $value:literal $name:literal,)+) => {
        impl Opcode {
            $(#[doc = $name]
            pub const $constant: Opcode = Opcode($value);)+

            /// Every opcode that a specification defines.
            pub const DEFINED: &'static [Opcode] = &[$(Opcode::$constant,)+];

            /// Its name as the specification spells it; "reserved" for those without one.
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($value => $name,)+
                    _ => "reserved",
                }
            }
        }
    };
}

opcodes! {
    RC_SEND_FIRST = 0x00 "RC SEND First",
    RC_SEND_MIDDLE = 0x01 "RC SEND Middle",
    RC_SEND_LAST = 0x02 "RC SEND Last",
    RC_SEND_LAST_IMMEDIATE = 0x03 "RC SEND Last with Immediate",
    RC_SEND_ONLY = 0x04 "RC SEND Only",
    RC_SEND_ONLY_IMMEDIATE = 0x05 "RC SEND Only with Immediate",
    RC_WRITE_FIRST = 0x06 "RC RDMA WRITE First",
    RC_WRITE_MIDDLE = 0x07 "RC RDMA WRITE Middle",
    RC_WRITE_LAST = 0x08 "RC RDMA WRITE Last",
    RC_WRITE_LAST_IMMEDIATE = 0x09 "RC RDMA WRITE Last with Immediate",
    RC_WRITE_ONLY = 0x0a "RC RDMA WRITE Only",
    RC_WRITE_ONLY_IMMEDIATE = 0x0b "RC RDMA WRITE Only with Immediate",
    RC_READ_REQUEST = 0x0c "RC RDMA READ Request",
    RC_READ_RESPONSE_FIRST = 0x0d "RC RDMA READ response First",
    RC_READ_RESPONSE_MIDDLE = 0x0e "RC RDMA READ response Middle",
    RC_READ_RESPONSE_LAST = 0x0f "RC RDMA READ response Last",
    RC_READ_RESPONSE_ONLY = 0x10 "RC RDMA READ response Only",
    RC_ACKNOWLEDGE = 0x11 "RC Acknowledge",
    RC_ATOMIC_ACKNOWLEDGE = 0x12 "RC ATOMIC Acknowledge",
    RC_COMPARE_SWAP = 0x13 "RC CmpSwap",
    RC_FETCH_ADD = 0x14 "RC FetchAdd",
    RC_SEND_LAST_INVALIDATE = 0x16 "RC SEND Last with Invalidate",
    RC_SEND_ONLY_INVALIDATE = 0x17 "RC SEND Only with Invalidate",
    RC_FLUSH = 0x1c "RC FLUSH",
    RC_ATOMIC_WRITE = 0x1d "RC ATOMIC WRITE",

    UC_SEND_FIRST = 0x20 "UC SEND First",
    UC_SEND_MIDDLE = 0x21 "UC SEND Middle",
    UC_SEND_LAST = 0x22 "UC SEND Last",
    UC_SEND_LAST_IMMEDIATE = 0x23 "UC SEND Last with Immediate",
    UC_SEND_ONLY = 0x24 "UC SEND Only",
    UC_SEND_ONLY_IMMEDIATE = 0x25 "UC SEND Only with Immediate",
    UC_WRITE_FIRST = 0x26 "UC RDMA WRITE First",
    UC_WRITE_MIDDLE = 0x27 "UC RDMA WRITE Middle",
    UC_WRITE_LAST = 0x28 "UC RDMA WRITE Last",
    UC_WRITE_LAST_IMMEDIATE = 0x29 "UC RDMA WRITE Last with Immediate",
    UC_WRITE_ONLY = 0x2a "UC RDMA WRITE Only",
    UC_WRITE_ONLY_IMMEDIATE = 0x2b "UC RDMA WRITE Only with Immediate",

    RD_SEND_FIRST = 0x40 "RD SEND First",
    RD_SEND_MIDDLE = 0x41 "RD SEND Middle",
    RD_SEND_LAST = 0x42 "RD SEND Last",
    RD_SEND_LAST_IMMEDIATE = 0x43 "RD SEND Last with Immediate",
    RD_SEND_ONLY = 0x44 "RD SEND Only",
    RD_SEND_ONLY_IMMEDIATE = 0x45 "RD SEND Only with Immediate",
    RD_WRITE_FIRST = 0x46 "RD RDMA WRITE First",
    RD_WRITE_MIDDLE = 0x47 "RD RDMA WRITE Middle",
    RD_WRITE_LAST = 0x48 "RD RDMA WRITE Last",
    RD_WRITE_LAST_IMMEDIATE = 0x49 "RD RDMA WRITE Last with Immediate",
    RD_WRITE_ONLY = 0x4a "RD RDMA WRITE Only",
    RD_WRITE_ONLY_IMMEDIATE = 0x4b "RD RDMA WRITE Only with Immediate",
    RD_READ_REQUEST = 0x4c "RD RDMA READ Request",
    RD_READ_RESPONSE_FIRST = 0x4d "RD RDMA READ response First",
    RD_READ_RESPONSE_MIDDLE = 0x4e "RD RDMA READ response Middle",
    RD_READ_RESPONSE_LAST = 0x4f "RD RDMA READ response Last",
    RD_READ_RESPONSE_ONLY = 0x50 "RD RDMA READ response Only",
    RD_ACKNOWLEDGE = 0x51 "RD Acknowledge",
    RD_ATOMIC_ACKNOWLEDGE = 0x52 "RD ATOMIC Acknowledge",
    RD_COMPARE_SWAP = 0x53 "RD CmpSwap",
    RD_FETCH_ADD = 0x54 "RD FetchAdd",
    RD_RESYNC = 0x55 "RD RESYNC",

    UD_SEND_ONLY = 0x64 "UD SEND Only",
    UD_SEND_ONLY_IMMEDIATE = 0x65 "UD SEND Only with Immediate",

    CNP = 0x81 "CNP",

    XRC_SEND_FIRST = 0xa0 "XRC SEND First",
    XRC_SEND_MIDDLE = 0xa1 "XRC SEND Middle",
    XRC_SEND_LAST = 0xa2 "XRC SEND Last",
    XRC_SEND_LAST_IMMEDIATE = 0xa3 "XRC SEND Last with Immediate",
    XRC_SEND_ONLY = 0xa4 "XRC SEND Only",
    XRC_SEND_ONLY_IMMEDIATE = 0xa5 "XRC SEND Only with Immediate",
    XRC_WRITE_FIRST = 0xa6 "XRC RDMA WRITE First",
    XRC_WRITE_MIDDLE = 0xa7 "XRC RDMA WRITE Middle",
    XRC_WRITE_LAST = 0xa8 "XRC RDMA WRITE Last",
    XRC_WRITE_LAST_IMMEDIATE = 0xa9 "XRC RDMA WRITE Last with Immediate",
    XRC_WRITE_ONLY = 0xaa "XRC RDMA WRITE Only",
    XRC_WRITE_ONLY_IMMEDIATE = 0xab "XRC RDMA WRITE Only with Immediate",
    XRC_READ_REQUEST = 0xac "XRC RDMA READ Request",
    XRC_READ_RESPONSE_FIRST = 0xad "XRC RDMA READ response First",
    XRC_READ_RESPONSE_MIDDLE = 0xae "XRC RDMA READ response Middle",
    XRC_READ_RESPONSE_LAST = 0xaf "XRC RDMA READ response Last",
    XRC_READ_RESPONSE_ONLY = 0xb0 "XRC RDMA READ response Only",
    XRC_ACKNOWLEDGE = 0xb1 "XRC Acknowledge",
    XRC_ATOMIC_ACKNOWLEDGE = 0xb2 "XRC ATOMIC Acknowledge",
    XRC_COMPARE_SWAP = 0xb3 "XRC CmpSwap",
    XRC_FETCH_ADD = 0xb4 "XRC FetchAdd",
    XRC_SEND_LAST_INVALIDATE = 0xb6 "XRC SEND Last with Invalidate",
    XRC_SEND_ONLY_INVALIDATE = 0xb7 "XRC SEND Only with Invalidate",
    XRC_FLUSH = 0xbc "XRC FLUSH",
    XRC_ATOMIC_WRITE = 0xbd "XRC ATOMIC WRITE",
}

/// What the table knows of one opcode.
#[derive(Clone, Copy)]
struct Entry {
    operation: Operation,
    position: Position,
    extensions: u16,
    extensions_len: u8,
}

/// One entry an opcode: the walk looks here once a packet.
static TABLE: [Entry; 256] = {
    let reserved = Entry {
        operation: Operation::Reserved,
        position: Position::Only,
        extensions: 0,
        extensions_len: 0,
    };
    let mut table = [reserved; 256];
    let mut index = 0;
    while index < Opcode::DEFINED.len() {
        let opcode = Opcode::DEFINED[index];
        table[opcode.0 as usize] = entry(opcode);
        index += 1;
    }
    table
};

const fn entry(opcode: Opcode) -> Entry {
    let (operation, position, reliable_extensions) = if opcode.0 == Opcode::CNP.0 {
        (Operation::CongestionNotification, Position::Only, 0)
    } else {
        reliable(opcode.0 & 0x1f)
    };
    let answer = matches!(
        operation,
        Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
    );
    let service_extensions = match opcode.service() {
        Service::ReliableDatagram if answer => Extension::Rdeth.bit(),
        Service::ReliableDatagram => Extension::Rdeth.bit() | Extension::Deth.bit(),
        Service::UnreliableDatagram => Extension::Deth.bit(),
        Service::ExtendedReliableConnection if !answer => Extension::Xrceth.bit(),
        _ => 0,
    };
    let extensions = reliable_extensions | service_extensions;
    Entry { operation, position, extensions, extensions_len: total_len(extensions) }
}

/// Operation, place and extended headers by an opcode's low five bits, as RC has them; the other
/// services have the same and add their own headers.
const fn reliable(low: u8) -> (Operation, Position, u16) {
    use Extension::{Aeth, AtomicAckEth, AtomicEth, Feth, Ieth, ImmDt, Reth};
    use Operation as O;
    use Position::{First, Last, Middle, Only};
    match low {
        0x00 => (O::Send, First, 0),
        0x01 => (O::Send, Middle, 0),
        0x02 => (O::Send, Last, 0),
        0x03 => (O::Send, Last, ImmDt.bit()),
        0x04 => (O::Send, Only, 0),
        0x05 => (O::Send, Only, ImmDt.bit()),
        0x06 => (O::Write, First, Reth.bit()),
        0x07 => (O::Write, Middle, 0),
        0x08 => (O::Write, Last, 0),
        0x09 => (O::Write, Last, ImmDt.bit()),
        0x0a => (O::Write, Only, Reth.bit()),
        0x0b => (O::Write, Only, Reth.bit() | ImmDt.bit()),
        0x0c => (O::ReadRequest, Only, Reth.bit()),
        0x0d => (O::ReadResponse, First, Aeth.bit()),
        0x0e => (O::ReadResponse, Middle, 0),
        0x0f => (O::ReadResponse, Last, Aeth.bit()),
        0x10 => (O::ReadResponse, Only, Aeth.bit()),
        0x11 => (O::Acknowledge, Only, Aeth.bit()),
        0x12 => (O::AtomicAcknowledge, Only, Aeth.bit() | AtomicAckEth.bit()),
        0x13 | 0x14 => (O::Atomic, Only, AtomicEth.bit()),
        0x15 => (O::Resync, Only, 0),
        0x16 => (O::Send, Last, Ieth.bit()),
        0x17 => (O::Send, Only, Ieth.bit()),
        0x1c => (O::Flush, Only, Feth.bit() | Reth.bit()),
        0x1d => (O::AtomicWrite, Only, Reth.bit()),
        _ => (O::Reserved, Only, 0),
    }
}

/// Bytes of the extended headers in a bit set.
const fn total_len(extensions: u16) -> u8 {
    let mut total = 0;
    let mut index = 0;
    while index < Extension::ALL.len() {
        if extensions & Extension::ALL[index].bit() != 0 {
            total += Extension::ALL[index].len();
        }
        index += 1;
    }
    total as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_defined_opcode_has_an_operation_and_a_name_of_its_own() {
        for (index, opcode) in Opcode::DEFINED.iter().enumerate() {
            assert!(opcode.is_defined(), "{opcode:?}");
            for other in &Opcode::DEFINED[..index] {
                assert_ne!(opcode.name(), other.name());
                assert_ne!(opcode, other);
            }
        }
        assert_eq!(Opcode(0x1e).to_string(), "reserved 0x1e");
        assert_eq!(Opcode::RC_WRITE_FIRST.to_string(), "RC RDMA WRITE First");
    }

    #[test]
    fn extended_headers_stand_in_the_specified_order() {
        let write = Opcode::RC_WRITE_ONLY_IMMEDIATE;
        assert_eq!(write.extension_offset(Extension::Reth), Some(0));
        assert_eq!(write.extension_offset(Extension::ImmDt), Some(16));
        assert_eq!(write.extensions_len(), 20);
        let answer = Opcode::RD_ATOMIC_ACKNOWLEDGE;
        assert_eq!(answer.extension_offset(Extension::Rdeth), Some(0));
        assert_eq!(answer.extension_offset(Extension::Deth), None);
        assert_eq!(answer.extension_offset(Extension::Aeth), Some(4));
        assert_eq!(answer.extension_offset(Extension::AtomicAckEth), Some(8));
        let xrc = Opcode::XRC_WRITE_ONLY;
        assert_eq!(xrc.extension_offset(Extension::Xrceth), Some(0));
        assert_eq!(xrc.extension_offset(Extension::Reth), Some(4));
        assert_eq!(Opcode::XRC_FLUSH.extension_offset(Extension::Feth), Some(4));
        assert_eq!(Opcode::XRC_FLUSH.extension_offset(Extension::Reth), Some(8));
        assert_eq!(Opcode::XRC_ACKNOWLEDGE.extension_offset(Extension::Xrceth), None);
    }

    #[test]
    fn a_message_starts_and_ends_where_its_opcodes_say() {
        assert!(Opcode::RC_SEND_FIRST.starts_message() && !Opcode::RC_SEND_FIRST.ends_message());
        assert!(Opcode::UC_WRITE_LAST_IMMEDIATE.ends_message());
        assert!(Opcode::UD_SEND_ONLY.starts_message() && Opcode::UD_SEND_ONLY.ends_message());
        assert!(Opcode::RC_READ_REQUEST.is_request() && !Opcode::RC_READ_REQUEST.is_response());
        assert!(!Opcode::CNP.is_request() && !Opcode::CNP.is_response());
    }
}
