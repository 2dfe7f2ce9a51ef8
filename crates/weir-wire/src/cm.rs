//! Connection management messages (IBTA Vol 1 s12.6, s12.8, s12.11; Annex A11 for IP addresses in
//! the private data): how two queue pairs learn of each other.

use core::mem::offset_of;

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bth::{PartitionKey, Psn, Qpn};
use crate::mad::{self, MadHeader, class};
use crate::parse::Parsed;

/// Bytes of every message, behind the [`MadHeader`].
pub const MESSAGE_LEN: usize = mad::MAD_LEN - MadHeader::LEN;

/// Attribute identifiers.
pub mod attribute {
    /// ConnectRequest.
    pub const REQ: u16 = 0x10;
    /// MsgRcptAck.
    pub const MRA: u16 = 0x11;
    /// ConnectReject.
    pub const REJ: u16 = 0x12;
    /// ConnectReply.
    pub const REP: u16 = 0x13;
    /// ReadyToUse.
    pub const RTU: u16 = 0x14;
    /// DisconnectRequest.
    pub const DREQ: u16 = 0x15;
    /// DisconnectReply.
    pub const DREP: u16 = 0x16;
    /// ServiceIDResReq.
    pub const SIDR_REQ: u16 = 0x17;
    /// ServiceIDResReqResp.
    pub const SIDR_REP: u16 = 0x18;
    /// LoadAlternatePath.
    pub const LAP: u16 = 0x19;
    /// AlternatePathResponse.
    pub const APR: u16 = 0x1a;
}

/// Largest payload of a packet on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl PathMtu {
    /// All of them, smallest first.
    pub const ALL: [PathMtu; 5] =
        [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// Decodes a message's four bits.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Mtu256),
            2 => Some(Self::Mtu512),
            3 => Some(Self::Mtu1024),
            4 => Some(Self::Mtu2048),
            5 => Some(Self::Mtu4096),
            _ => None,
        }
    }

    /// Payload bytes.
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    /// The largest that is at most `payload_len` bytes; `None` under 256.
    pub fn at_most(payload_len: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= payload_len)
    }
}

/// One end-to-end path in a [`ConnectRequest`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Path {
    /// Requester's LID (RoCE: 0xffff).
    pub local_lid: U16,
    /// Responder's LID (RoCE: 0xffff).
    pub remote_lid: U16,
    /// Requester's GID.
    pub local_gid: [u8; 16],
    /// Responder's GID.
    pub remote_gid: [u8; 16],
    /// Flow label (high 20 bits), packet rate (low six).
    pub flow_label_and_rate: U32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level (high four bits), subnet local (bit 3).
    pub service_level_and_local: u8,
    /// Local acknowledge timeout (high five bits).
    pub local_ack_timeout: u8,
}

/// REQ: asks for a connection.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ConnectRequest {
    /// Requester's name for the connection.
    pub local_comm_id: U32,
    /// Reserved.
    pub reserved_4: U32,
    /// What is asked for; rdma_cm: the port.
    pub service_id: U64,
    /// Requester's channel adapter.
    pub local_ca_guid: U64,
    /// Reserved.
    pub reserved_24: U32,
    /// Requester's Q_Key (datagram services).
    pub local_queue_key: U32,
    /// Requester's queue pair (high 24 bits), responder resources.
    pub local_qpn_and_resources: U32,
    /// End-to-end context (high 24 bits), initiator depth.
    pub local_eecn_and_depth: U32,
    /// End-to-end context (high 24 bits), remote CM response timeout (bits 7-3), transport service
    /// (2, 1), end-to-end flow control (0).
    pub remote_eecn_and_service: U32,
    /// PSN of the responder's first request (high 24 bits), local CM response timeout (bits 7-3),
    /// retry count (2-0).
    pub starting_psn_and_retry: U32,
    /// Partition key.
    pub partition_key: U16,
    /// Path MTU (high four bits), RDC exists (bit 3), RNR retry count (2-0).
    pub path_mtu_and_rnr: u8,
    /// CM retries (high four bits), shared receive queue (bit 3), extended transport (2-0).
    pub cm_retries_and_srq: u8,
    /// Path to use.
    pub primary: Path,
    /// Path to fall back to; zeros for none.
    pub alternate: Path,
    /// The application's, or [`IpAddresses`] and then the application's.
    pub private_data: [u8; 92],
}

impl ConnectRequest {
    /// Where the byte that holds the path MTU stands in the message.
    pub const PATH_MTU_OFFSET: usize = offset_of!(ConnectRequest, path_mtu_and_rnr);
    /// Where the private data start in the message.
    pub const PRIVATE_DATA_OFFSET: usize = offset_of!(ConnectRequest, private_data);
    /// High 40 bits of a service identifier that rdma_cm made (Annex A11).
    const IP_SERVICE_PREFIX: u64 = 0x00_0000_0001;

    /// Requester's queue pair.
    pub fn local_qpn(&self) -> Qpn {
        Qpn::new(self.local_qpn_and_resources.get() >> 8)
    }

    /// RDMA READs and atomics that the requester takes at once.
    pub fn responder_resources(&self) -> u8 {
        self.local_qpn_and_resources.get() as u8
    }

    /// RDMA READs and atomics that the requester will have under way.
    pub fn initiator_depth(&self) -> u8 {
        self.local_eecn_and_depth.get() as u8
    }

    /// Transport service: 0 RC, 1 UC, 2 RD, 3 the extended one (XRC).
    pub fn transport_service(&self) -> u8 {
        (self.remote_eecn_and_service.get() >> 1) as u8 & 3
    }

    /// The PSN with which the receiver of this message begins: the responder's first request.
    pub fn starting_psn(&self) -> Psn {
        Psn::new(self.starting_psn_and_retry.get() >> 8)
    }

    /// Times the requester shall repeat a packet before it gives up.
    pub fn retry_count(&self) -> u8 {
        self.starting_psn_and_retry.get() as u8 & 7
    }

    /// For how many nanoseconds the receiver of this message repeats its REP: the local CM response
    /// timeout (4.096 us x 2^code) and the CM retries (IBTA Vol 1 s12.7).
    pub fn reply_repeated_ns(&self) -> u64 {
        let code = self.starting_psn_and_retry.get() as u8 >> 3;
        (4_096 << code) * (u64::from(self.cm_retries_and_srq >> 4) + 1)
    }

    /// Partition key.
    pub fn partition_key(&self) -> PartitionKey {
        PartitionKey(self.partition_key.get())
    }

    /// Path MTU; `None` for a reserved code.
    pub fn path_mtu(&self) -> Option<PathMtu> {
        PathMtu::from_code(self.path_mtu_and_rnr >> 4)
    }

    /// Writes the path MTU. Voids the packet's ICRC: [`crate::icrc::write`] makes it good.
    pub fn set_path_mtu(&mut self, mtu: PathMtu) {
        self.path_mtu_and_rnr = (mtu as u8) << 4 | self.path_mtu_and_rnr & 15;
    }

    /// RNR retry count (7: for ever).
    pub fn rnr_retry_count(&self) -> u8 {
        self.path_mtu_and_rnr & 7
    }

    /// GIDs of the path to fall back to, the requester's first; `None`: there is none, for it has
    /// no LID (Linux, `cm_req_handler`; RoCE: 0xffff).
    pub fn alternate_gids(&self) -> Option<[[u8; 16]; 2]> {
        let Path { local_lid, local_gid, remote_gid, .. } = self.alternate;
        (local_lid.get() != 0).then_some([local_gid, remote_gid])
    }

    /// Protocol and port that rdma_cm's service identifier names; `None` for another kind.
    pub fn ip_service(&self) -> Option<(u8, u16)> {
        let id = self.service_id.get();
        (id >> 24 == Self::IP_SERVICE_PREFIX).then_some(((id >> 16) as u8, id as u16))
    }

    /// The addresses that rdma_cm put before the application's private data.
    pub fn ip_addresses(&self) -> Option<&IpAddresses> {
        self.ip_service()?;
        IpAddresses::ref_from_prefix(&self.private_data).ok().map(|(addresses, _)| addresses)
    }
}

/// Addresses before the private data of rdma_cm's REQ (Annex A11).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IpAddresses {
    /// Major (high four bits) and minor version of this layout.
    pub version: u8,
    /// IP version (high four bits).
    pub ip_version: u8,
    /// Requester's port.
    pub source_port: U16,
    /// Requester's address; IPv4 in the last four bytes.
    pub source: [u8; 16],
    /// Responder's address, likewise.
    pub destination: [u8; 16],
}

/// REP: grants a connection.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ConnectReply {
    /// Responder's name for the connection.
    pub local_comm_id: U32,
    /// Requester's name for it.
    pub remote_comm_id: U32,
    /// Responder's Q_Key (datagram services).
    pub local_queue_key: U32,
    /// Responder's queue pair (high 24 bits).
    pub local_qpn: U32,
    /// End-to-end context (high 24 bits).
    pub local_eecn: U32,
    /// PSN of the requester's first request (high 24 bits).
    pub starting_psn: U32,
    /// RDMA READs and atomics that the responder takes at once.
    pub responder_resources: u8,
    /// RDMA READs and atomics that the responder will have under way.
    pub initiator_depth: u8,
    /// Target ACK delay (high five bits), failover accepted (2, 1), end-to-end flow control (0).
    pub ack_delay_and_failover: u8,
    /// RNR retry count (high three bits), shared receive queue (bit 4).
    pub rnr_retry_and_srq: u8,
    /// Responder's channel adapter.
    pub local_ca_guid: U64,
    /// The application's.
    pub private_data: [u8; 196],
}

impl ConnectReply {
    /// Responder's queue pair.
    pub fn local_qpn(&self) -> Qpn {
        Qpn::new(self.local_qpn.get() >> 8)
    }

    /// Whether the responder takes the REQ's alternate path (IBTA Vol 1 s12.6.8).
    pub fn accepts_failover(&self) -> bool {
        self.ack_delay_and_failover >> 1 & 3 == 0
    }

    /// The PSN with which the receiver of this message begins: the requester's first request.
    pub fn starting_psn(&self) -> Psn {
        Psn::new(self.starting_psn.get() >> 8)
    }
}

/// MRA: more time is needed for an answer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct MessageReceipt {
    /// Sender's name for the connection.
    pub local_comm_id: U32,
    /// Receiver's name for it.
    pub remote_comm_id: U32,
    /// Which message (high two bits): 0 REQ, 1 REP, 2 LAP.
    pub message: u8,
    /// Coded time (high five bits).
    pub service_timeout: u8,
    /// The application's.
    pub private_data: [u8; 222],
}

/// REJ: refuses a connection.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Reject {
    /// Sender's name for the connection; 0 when it has none.
    pub local_comm_id: U32,
    /// Receiver's name for it.
    pub remote_comm_id: U32,
    /// Which message (high two bits): 0 REQ, 1 REP, 2 none.
    pub message: u8,
    /// Bytes of additional information (high seven bits).
    pub information_len: u8,
    /// Reason (IBTA Vol 1 s12.6.7.2).
    pub reason: U16,
    /// Additional information, by reason.
    pub information: [u8; 72],
    /// The application's.
    pub private_data: [u8; 148],
}

/// RTU and DREP: nothing beside the two names.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Plain {
    /// Sender's name for the connection.
    pub local_comm_id: U32,
    /// Receiver's name for it.
    pub remote_comm_id: U32,
    /// The application's.
    pub private_data: [u8; 224],
}

/// DREQ: ends a connection.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DisconnectRequest {
    /// Sender's name for the connection.
    pub local_comm_id: U32,
    /// Receiver's name for it.
    pub remote_comm_id: U32,
    /// Receiver's queue pair (high 24 bits).
    pub remote_qpn: U32,
    /// The application's.
    pub private_data: [u8; 220],
}

impl DisconnectRequest {
    /// Receiver's queue pair.
    pub fn remote_qpn(&self) -> Qpn {
        Qpn::new(self.remote_qpn.get() >> 8)
    }
}

/// SIDR_REQ: asks for the queue pair of a datagram service.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ServiceRequest {
    /// Joins request and reply.
    pub request_id: U32,
    /// Partition key.
    pub partition_key: U16,
    /// Reserved.
    pub reserved: U16,
    /// What is asked for.
    pub service_id: U64,
    /// The application's.
    pub private_data: [u8; 216],
}

/// SIDR_REP: names the queue pair of a datagram service.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ServiceReply {
    /// Joins request and reply.
    pub request_id: U32,
    /// 0: the queue pair is valid.
    pub status: u8,
    /// Bytes of additional information.
    pub information_len: u8,
    /// Reserved.
    pub reserved: U16,
    /// Queue pair (high 24 bits).
    pub qpn: U32,
    /// What was asked for.
    pub service_id: U64,
    /// Q_Key to send with.
    pub queue_key: U32,
    /// Additional information, by status.
    pub information: [u8; 72],
    /// The application's.
    pub private_data: [u8; 136],
}

impl ServiceReply {
    /// Queue pair of the service.
    pub fn qpn(&self) -> Qpn {
        Qpn::new(self.qpn.get() >> 8)
    }
}

/// LAP: proposes another path.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct LoadAlternatePath {
    /// Sender's name for the connection.
    pub local_comm_id: U32,
    /// Receiver's name for it.
    pub remote_comm_id: U32,
    /// Reserved.
    pub reserved_8: U32,
    /// Receiver's queue pair (high 24 bits), remote CM response timeout (bits 7-3).
    pub remote_qpn_and_timeout: U32,
    /// Reserved.
    pub reserved_16: U32,
    /// Sender's LID.
    pub local_lid: U16,
    /// Receiver's LID.
    pub remote_lid: U16,
    /// Sender's GID.
    pub local_gid: [u8; 16],
    /// Receiver's GID.
    pub remote_gid: [u8; 16],
    /// Flow label (high 20 bits), traffic class (low eight).
    pub flow_label_and_class: U32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Packet rate (low six bits).
    pub packet_rate: u8,
    /// Service level (high four bits), subnet local (bit 3).
    pub service_level_and_local: u8,
    /// Local acknowledge timeout (high five bits).
    pub local_ack_timeout: u8,
    /// The application's.
    pub private_data: [u8; 168],
}

impl LoadAlternatePath {
    /// Receiver's queue pair.
    pub fn remote_qpn(&self) -> Qpn {
        Qpn::new(self.remote_qpn_and_timeout.get() >> 8)
    }
}

/// APR: answers a proposal of another path.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AlternatePathResponse {
    /// Sender's name for the connection.
    pub local_comm_id: U32,
    /// Receiver's name for it.
    pub remote_comm_id: U32,
    /// Bytes of additional information.
    pub information_len: u8,
    /// 0: loaded.
    pub status: u8,
    /// Reserved.
    pub reserved: U16,
    /// Additional information, by status.
    pub information: [u8; 72],
    /// The application's.
    pub private_data: [u8; 148],
}

const _: () = assert!(size_of::<Path>() == 44);
const _: () = assert!(size_of::<IpAddresses>() == 36);

macro_rules! messages {
    ($($attribute:ident $variant:ident $view:ident $text:literal;)+) => {
        $(const _: () = assert!(size_of::<$view>() == MESSAGE_LEN);)+

        /// A connection management message, by its kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Message<'a> {
            $(#[doc = $text] $variant(&'a $view),)+
        }

        impl<'a> Message<'a> {
            /// Its name, as in [`attribute`].
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => stringify!($attribute),)+ }
            }

            fn view(attribute_id: u16, body: &'a [u8]) -> Option<Self> {
                match attribute_id {
                    $(attribute::$attribute => {
                        $view::ref_from_bytes(body).ok().map(Self::$variant)
                    })+
                    _ => None,
                }
            }
        }
    };
}

messages! {
    REQ Request ConnectRequest "Asks for a connection.";
    MRA Receipt MessageReceipt "More time is needed for an answer.";
    REJ Reject Reject "Refuses a connection.";
    REP Reply ConnectReply "Grants a connection.";
    RTU Ready Plain "The connection is in use.";
    DREQ DisconnectRequest DisconnectRequest "Ends a connection.";
    DREP DisconnectReply Plain "The connection has ended.";
    SIDR_REQ ServiceRequest ServiceRequest "Asks for the queue pair of a datagram service.";
    SIDR_REP ServiceReply ServiceReply "Names the queue pair of a datagram service.";
    LAP LoadAlternatePath LoadAlternatePath "Proposes another path.";
    APR AlternatePathResponse AlternatePathResponse "Answers a proposal of another path.";
}

/// The connection management message of a datagram, as [`mad::padded`] has it.
pub fn message_of(datagram: &[u8; mad::MAD_LEN]) -> Option<Message<'_>> {
    let (header, body) = MadHeader::ref_from_prefix(datagram).ok()?;
    let is_of_connections = header.management_class == class::COMMUNICATION;
    is_of_connections.then(|| Message::view(header.attribute_id.get(), body)).flatten()
}

/// The packet's connection management message, with its datagram's header.
#[inline]
pub fn message<'a>(bytes: &'a [u8], parsed: &Parsed) -> Option<(&'a MadHeader, Message<'a>)> {
    let (header, body) = mad::mad(bytes, parsed)?;
    if header.management_class != class::COMMUNICATION {
        return None;
    }
    Some((header, Message::view(header.attribute_id.get(), body)?))
}

/// The packet's REQ, to change. A change voids the ICRC: [`crate::icrc::write`] makes it good.
pub fn request_mut<'a>(bytes: &'a mut [u8], parsed: &Parsed) -> Option<&'a mut ConnectRequest> {
    let (_, Message::Request(_)) = message(bytes, parsed)? else { return None };
    let start = mad::offset(bytes, parsed)? + MadHeader::LEN;
    ConnectRequest::mut_from_bytes(bytes.get_mut(start..start + MESSAGE_LEN)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_mtu_is_the_largest_that_fits() {
        assert_eq!(PathMtu::at_most(255), None);
        assert_eq!(PathMtu::at_most(1023), Some(PathMtu::Mtu512));
        assert_eq!(PathMtu::at_most(9000), Some(PathMtu::Mtu4096));
        for mtu in PathMtu::ALL {
            assert_eq!(PathMtu::from_code(mtu as u8), Some(mtu));
            assert_eq!(PathMtu::at_most(mtu.bytes()), Some(mtu));
        }
    }

    #[test]
    fn setting_the_path_mtu_leaves_its_neighbours_alone() {
        let mut bytes = [0xff; MESSAGE_LEN];
        let request = ConnectRequest::mut_from_bytes(&mut bytes).unwrap();
        assert_eq!(request.path_mtu(), None);
        request.set_path_mtu(PathMtu::Mtu1024);
        assert_eq!(request.path_mtu(), Some(PathMtu::Mtu1024));
        assert_eq!(request.rnr_retry_count(), 7);
        assert_eq!(ConnectRequest::PATH_MTU_OFFSET, 50);
        assert_eq!(ConnectRequest::PRIVATE_DATA_OFFSET, 140);
        let changed = bytes.iter().filter(|byte| **byte != 0xff).count();
        assert_eq!(changed, 1);
    }

    /// IBTA Vol 1 tables 106-120; tshark 4.0 does not dissect the last five.
    #[test]
    fn fields_stand_where_the_tables_place_them() {
        assert_eq!(offset_of!(ConnectRequest, primary), 52);
        assert_eq!(offset_of!(ConnectRequest, alternate), 96);
        assert_eq!(offset_of!(ConnectReply, private_data), 36);
        assert_eq!(offset_of!(Plain, private_data), 8);
        assert_eq!(offset_of!(DisconnectRequest, private_data), 12);
        assert_eq!(offset_of!(Reject, reason), 10);
        assert_eq!(offset_of!(Reject, private_data), 84);
        assert_eq!(offset_of!(MessageReceipt, private_data), 10);
        assert_eq!(offset_of!(LoadAlternatePath, remote_qpn_and_timeout), 12);
        assert_eq!(offset_of!(LoadAlternatePath, local_gid), 24);
        assert_eq!(offset_of!(LoadAlternatePath, private_data), 64);
        assert_eq!(offset_of!(AlternatePathResponse, private_data), 84);
        assert_eq!(offset_of!(ServiceRequest, private_data), 16);
        assert_eq!(offset_of!(ServiceReply, qpn), 8);
        assert_eq!(offset_of!(ServiceReply, queue_key), 20);
        assert_eq!(offset_of!(ServiceReply, private_data), 96);
    }
}
