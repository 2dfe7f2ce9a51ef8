//! Connection managers' messages between the two ends of a talk.

use weir_engine::verdict::{DropReason, Side, Verdict};
use weir_wire::cm::{
    AlternatePathResponse, ConnectReply, ConnectRequest, DisconnectRequest, LoadAlternatePath,
    MESSAGE_LEN, Message, Reject, ServiceReply, ServiceRequest, attribute,
};
use weir_wire::frame::{Link, Offload};
use weir_wire::icrc;
use weir_wire::mad::{GENERAL_SERVICES_QUEUE_KEY, MAD_LEN, MadHeader, class};
use weir_wire::parse::parse;
use zerocopy::{FromBytes, IntoBytes};

use super::Gateway;
use crate::talk::{End, Packet};

/// Who connects to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// The requester's way of talking to the responder's queue pair.
    pub(crate) requester: End,
    /// And back.
    pub(crate) responder: End,
    /// The managers' names for it, the requester's first.
    pub(crate) ids: [u32; 2],
    pub(crate) service_id: u64,
    /// 0 RC, 1 UC, 3 XRC.
    pub(crate) transport: u8,
}

impl Exchange {
    pub(crate) fn of(requester: End, responder: End) -> Self {
        Self { requester, responder, ids: [71, 72], service_id: 0x0106_4853, transport: 0 }
    }

    pub(crate) fn request(&self) -> Vec<u8> {
        let mut body = [0; MESSAGE_LEN];
        let request = ConnectRequest::mut_from_bytes(&mut body).unwrap();
        request.local_comm_id.set(self.ids[0]);
        request.service_id.set(self.service_id);
        request.local_qpn_and_resources.set(self.responder.to_qp << 8);
        request.remote_eecn_and_service.set(u32::from(self.transport) << 1);
        request.starting_psn_and_retry.set(500 << 8);
        request.path_mtu_and_rnr = 3 << 4;
        request.primary.local_gid = gid(self.requester.host);
        request.primary.remote_gid = gid(self.requester.peer);
        message(self.requester, attribute::REQ, &body)
    }

    pub(crate) fn reply(&self) -> Vec<u8> {
        let mut body = [0; MESSAGE_LEN];
        let reply = ConnectReply::mut_from_bytes(&mut body).unwrap();
        reply.local_comm_id.set(self.ids[1]);
        reply.remote_comm_id.set(self.ids[0]);
        reply.local_qpn.set(self.requester.to_qp << 8);
        reply.starting_psn.set(100 << 8);
        message(self.responder, attribute::REP, &body)
    }

    /// The same, with an alternate path between these hosts, the requester's first.
    pub(crate) fn request_with(&self, alternate: [u8; 2]) -> Vec<u8> {
        self.request_by(alternate, 0xffff)
    }

    /// The same, with this LID at the path's beginning.
    pub(crate) fn request_by(&self, alternate: [u8; 2], lid: u16) -> Vec<u8> {
        let plain = self.request();
        let parsed = parse(&plain, Link::Ethernet, plain.len() as u32);
        let mut body = *match weir_wire::cm::message(&plain, &parsed) {
            Some((_, Message::Request(request))) => request,
            _ => unreachable!(),
        };
        body.alternate.local_lid.set(lid);
        (body.alternate.local_gid, body.alternate.remote_gid) =
            (gid(alternate[0]), gid(alternate[1]));
        message(self.requester, attribute::REQ, body.as_bytes().try_into().unwrap())
    }

    /// The requester's proposal of a path between these hosts, its own first.
    pub(crate) fn load_alternate(&self, alternate: [u8; 2]) -> Vec<u8> {
        let mut body = [0; MESSAGE_LEN];
        let proposal = LoadAlternatePath::mut_from_bytes(&mut body).unwrap();
        proposal.local_comm_id.set(self.ids[0]);
        proposal.remote_comm_id.set(self.ids[1]);
        proposal.remote_qpn_and_timeout.set(self.requester.to_qp << 8);
        (proposal.local_gid, proposal.remote_gid) = (gid(alternate[0]), gid(alternate[1]));
        message(self.requester, attribute::LAP, &body)
    }

    /// The responder's answer to that; 0: the path is loaded.
    pub(crate) fn answer_alternate(&self, status: u8) -> Vec<u8> {
        let mut body = [0; MESSAGE_LEN];
        let answer = AlternatePathResponse::mut_from_bytes(&mut body).unwrap();
        answer.local_comm_id.set(self.ids[1]);
        answer.remote_comm_id.set(self.ids[0]);
        answer.status = status;
        message(self.responder, attribute::APR, &body)
    }

    /// The requester's RTU or, with [`attribute::REJ`], its refusal of what was granted.
    pub(crate) fn confirm(&self, attribute: u16) -> Vec<u8> {
        let mut body = [0; MESSAGE_LEN];
        let reject = Reject::mut_from_bytes(&mut body).unwrap();
        reject.local_comm_id.set(self.ids[0]);
        reject.remote_comm_id.set(self.ids[1]);
        message(self.requester, attribute, &body)
    }

    /// The requester's.
    pub(crate) fn disconnect(&self) -> Vec<u8> {
        let mut body = [0; MESSAGE_LEN];
        let request = DisconnectRequest::mut_from_bytes(&mut body).unwrap();
        request.local_comm_id.set(self.ids[0]);
        request.remote_comm_id.set(self.ids[1]);
        request.remote_qpn.set(self.requester.to_qp << 8);
        message(self.requester, attribute::DREQ, &body)
    }
}

/// A client's question: which queue pair serves `service_id`?
pub(crate) fn asks(client: End, service_id: u64) -> Vec<u8> {
    let mut body = [0; MESSAGE_LEN];
    ServiceRequest::mut_from_bytes(&mut body).unwrap().service_id.set(service_id);
    message(client, attribute::SIDR_REQ, &body)
}

/// The server's answer: its queue pair `qpn` serves `service_id`.
pub(crate) fn serves(server: End, qpn: u32, service_id: u64) -> Vec<u8> {
    let mut body = [0; MESSAGE_LEN];
    let reply = ServiceReply::mut_from_bytes(&mut body).unwrap();
    reply.qpn.set(qpn << 8);
    reply.service_id.set(service_id);
    message(server, attribute::SIDR_REP, &body)
}

/// A frame with a connection manager's message.
pub(crate) fn message(from: End, attribute: u16, body: &[u8; MESSAGE_LEN]) -> Vec<u8> {
    let datagram = End { to_qp: 1, ..from }.datagram(9);
    let mut bytes = Packet { source_qp: 1, payload_len: MAD_LEN, ..datagram }.bytes();
    let parsed = parse(&bytes, Link::Ethernet, bytes.len() as u32);
    let start = usize::from(parsed.rdma.unwrap().payload_offset);
    bytes[start - 8..start - 4].copy_from_slice(&GENERAL_SERVICES_QUEUE_KEY.to_be_bytes());
    let (header, rest) = MadHeader::mut_from_prefix(&mut bytes[start..]).unwrap();
    (header.base_version, header.management_class, header.class_version) =
        (1, class::COMMUNICATION, 2);
    header.method = 3;
    header.status.set(0);
    header.class_specific.set(0);
    header.transaction_id.set(77);
    header.attribute_id.set(attribute);
    header.reserved.set(0);
    header.attribute_modifier.set(0);
    rest[..MESSAGE_LEN].copy_from_slice(body);
    assert!(icrc::write(&mut bytes, &parsed));
    bytes
}

/// What a REJ of the frame says, if it is one.
pub(crate) fn reject_in(bytes: &[u8]) -> Option<Reject> {
    let parsed = parse(bytes, Link::Ethernet, bytes.len() as u32);
    match weir_wire::cm::message(bytes, &parsed)?.1 {
        Message::Reject(reject) => Some(*reject),
        _ => None,
    }
}

fn gid(host: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, host]
}

impl Gateway {
    #[track_caller]
    pub(crate) fn takes(&mut self, side: Side, bytes: Vec<u8>, expected: Result<(), DropReason>) {
        let verdicts = self.verdicts_on(side, &[bytes], Offload::default());
        assert_eq!(verdicts, [expected.map_or_else(Verdict::Drop, |()| Verdict::Forward)]);
    }

    /// B asks, and A grants.
    #[track_caller]
    pub(crate) fn connects(&mut self, exchange: &Exchange) {
        self.takes(Side::Wire, exchange.request(), Ok(()));
        self.takes(Side::Host, exchange.reply(), Ok(()));
    }
}
