//! The recorded connections judge the connection management messages that set them up.

use weir_wire::bth::Service;
use weir_wire::cm::{self, Message, PathMtu};
use weir_wire::icrc::{self, IcrcStatus};

use crate::captures;

#[test]
fn each_side_begins_with_the_psn_that_the_other_named() {
    for name in ["rc-write-rdmacm.pcap", "rping-ipv6-cm.pcap"] {
        let (mut request_qpn, mut reply_qpn) = (None, None);
        let (mut for_responder, mut for_requester) = (None, None);
        let (mut responder_began, mut requester_began) = (false, false);
        for packet in captures::packets(&captures::folder().join(name)) {
            let parsed = packet.parsed();
            let Some(rdma) = parsed.rdma else { continue };
            match cm::message(&packet.bytes, &parsed) {
                Some((_, Message::Request(request))) => {
                    request_qpn = Some((parsed.source, request.local_qpn()));
                    for_responder = Some(request.starting_psn());
                    assert!(request.ip_service().is_some_and(|(protocol, _)| protocol == 6));
                    let addresses = request.ip_addresses().expect("rdma_cm names addresses");
                    assert_eq!(addresses.source[12..], parsed.source[12..]);
                    assert_eq!(addresses.destination[12..], parsed.destination[12..]);
                    assert_eq!(request.primary.remote_gid[12..], parsed.destination[12..]);
                }
                Some((_, Message::Reply(reply))) => {
                    reply_qpn = Some((parsed.source, reply.local_qpn()));
                    for_requester = Some(reply.starting_psn());
                }
                _ => {}
            }
            let is_request =
                rdma.opcode.service() == Service::ReliableConnection && rdma.opcode.is_request();
            let to = Some((parsed.destination, rdma.destination_qp));
            if is_request && to == reply_qpn && !requester_began {
                assert_eq!(Some(rdma.psn), for_requester, "{name}");
                requester_began = true;
            } else if is_request && to == request_qpn && !responder_began {
                assert_eq!(Some(rdma.psn), for_responder, "{name}");
                responder_began = true;
            }
        }
        assert!(requester_began && responder_began, "{name} holds requests of both sides");
    }
}

#[test]
fn a_clamped_path_mtu_leaves_a_valid_packet() {
    let mut packet = captures::packets(&captures::folder().join("rc-write-rdmacm.pcap")).remove(0);
    let parsed = packet.parsed();
    let request = cm::request_mut(&mut packet.bytes, &parsed).expect("the first packet is a REQ");
    assert_eq!(request.path_mtu(), Some(PathMtu::Mtu4096));
    request.set_path_mtu(PathMtu::Mtu1024);
    assert_eq!(icrc::check(&packet.bytes, &parsed), IcrcStatus::Invalid);
    assert!(icrc::write(&mut packet.bytes, &parsed));
    assert_eq!(icrc::check(&packet.bytes, &packet.parsed()), IcrcStatus::Valid);
    let Some((_, Message::Request(request))) = cm::message(&packet.bytes, &parsed) else {
        panic!("it is still a REQ")
    };
    assert_eq!(request.path_mtu(), Some(PathMtu::Mtu1024));
}
