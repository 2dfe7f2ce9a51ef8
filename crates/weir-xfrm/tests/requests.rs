//! What real requests of `ip xfrm` (kept as the fuzz target's corpus) get for an answer, and what
//! plan follows. Error numbers are those of Linux; where Weir does less than Linux, those of a
//! Linux without that feature.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use proptest::prelude::*;
use weir_engine::esp::sa::Fingerprint;
use weir_engine::policy::{Mode, Route};
use weir_xfrm::database::{Answer, Asker, Outside, Xfrm};
use weir_xfrm::netlink::{Writer, messages};
use weir_xfrm::plan::GatewayAddresses;
use weir_xfrm::program::{Association, PolicyRequest};
use weir_xfrm::refusal::{Errno, Refusal};
use weir_xfrm::uapi::{
    DIRECTION_IN, DIRECTION_OUT, Header, MODE_TRANSPORT, MODE_TUNNEL, PolicyInfo, Selector, flag,
    group, kind,
};

const NOW: u64 = 1_000_000;
const EEXIST: i32 = -17;
const ESRCH: i32 = -3;

/// The datagrams of a kept input.
fn kept(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/xfrm");
    let bytes = std::fs::read(folder.join(name)).unwrap();
    let mut rest = &bytes[..];
    let mut datagrams = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (datagram, behind) = behind.split_at(u16::from_ne_bytes(*length).into());
        datagrams.push(datagram.to_vec());
        rest = behind;
    }
    datagrams
}

fn gateway() -> Xfrm {
    let own = vec!["192.0.2.1".parse().unwrap()];
    Xfrm::new(GatewayAddresses { own, taken_spis: BTreeSet::from([0x1001]) })
}

fn says(xfrm: &mut Xfrm, datagram: &[u8]) -> Answer {
    let asker = Asker { port: 7, wants_words: true, caps_acknowledgements: false };
    xfrm.handle(NOW, asker, datagram, &mut Gateway { refused: None })
}

/// A gateway that admits every key, or every one but this.
struct Gateway {
    refused: Option<Fingerprint>,
}

impl Outside for Gateway {
    fn random(&mut self) -> u32 {
        1
    }

    fn admit(&mut self, key: Fingerprint) -> Result<(), Refusal> {
        match self.refused == Some(key) {
            true => Err(Refusal::new(Errno::EEXIST, "in use elsewhere")),
            false => Ok(()),
        }
    }
}

/// The number of the acknowledgement.
fn errno(answer: &Answer) -> i32 {
    let all = answer.datagrams.iter().flat_map(|it| messages(it));
    let mut errors = all.filter(|(header, _)| header.kind == kind::ERROR);
    let (header, body) = errors.next().expect("there is an acknowledgement");
    assert_eq!(header.port, 7, "an answer names the asker's port");
    i32::from_ne_bytes(body[..4].try_into().unwrap())
}

#[test]
fn what_weir_does_not_do_is_refused_by_number_and_by_words() {
    let wanted = [
        (EEXIST, "SPI alone"),
        (-22, "section 2.1"),
        (-93, "tunnel and transport"),
        (-38, "rfc4106"),
        (-93, "no AH"),
        (-95, "ports"),
        (-99, "no `address`"),
        (-95, "`offload`"),
    ];
    let mut xfrm = gateway();
    let datagrams = kept("refused");
    assert_eq!(datagrams.len(), wanted.len());
    for (datagram, (number, words)) in datagrams.iter().zip(wanted) {
        let answer = says(&mut xfrm, datagram);
        let text = String::from_utf8_lossy(&answer.datagrams[0]).into_owned();
        assert_eq!(errno(&answer), number, "{text}");
        assert!(text.contains(words), "{words}: {text}");
        assert!(!answer.changed && answer.notices.is_empty());
    }
    assert!(xfrm.states().is_empty() && xfrm.policies().is_empty());
}

#[test]
fn neighbour_discovery_may_pass_and_nothing_else_of_icmp() {
    let (v6, [icmp_v6, allow, block]) = (10, [58, 0, 1]);
    let mut wanted = Vec::new();
    for direction in 0..3 {
        wanted.extend([(direction, 133, allow, 0), (direction, 136, allow, 0)]);
    }
    wanted.extend([(1, 128, allow, -95), (1, 135, block, -95)]);
    let mut xfrm = gateway();
    for (direction, icmp_kind, action, number) in wanted {
        let selector = Selector {
            family: v6,
            protocol: icmp_v6,
            source_port: u16::to_be_bytes(icmp_kind),
            source_port_mask: [0xff; 2],
            ..Selector::default()
        };
        let policy = PolicyInfo { selector, direction, action, ..PolicyInfo::default() };
        let flags = flag::REQUEST | flag::ACK;
        let header = Header { kind: kind::UPD_POLICY, flags, ..Header::default() };
        let answer = says(&mut xfrm, &Writer::new(header, &policy).finish());
        assert_eq!(errno(&answer), number, "{direction} {icmp_kind} {action}");
    }
    assert_eq!(xfrm.policies().len(), 6);
    assert!(xfrm.plan().selectors.is_empty(), "it opens no way for anything else");
}

#[test]
fn a_tunnel_becomes_a_peer_and_goes_again() {
    let mut xfrm = gateway();
    let [out_sa, in_sa, out_policy, in_policy, list, policies, update, no_sa, no_policy] =
        &kept("tunnel")[..]
    else {
        panic!("nine requests")
    };
    for request in [out_sa, in_sa, out_policy, in_policy] {
        assert_eq!(errno(&says(&mut xfrm, request)), 0);
        assert_eq!(errno(&says(&mut xfrm, request)), EEXIST, "once is enough");
    }
    let plan = xfrm.plan();
    let [peer] = &plan.peers[..] else { panic!("{plan:?}") };
    assert_eq!((peer.mode, peer.seal_spi), (Mode::Tunnel, Some(0x2001)));
    assert_eq!(peer.open_spis, [0x2002]);
    assert_eq!(peer.endpoint, Some("192.0.2.2".parse().unwrap()));
    assert!(matches!(plan.selectors[..], [(_, Route::Peer(0))]));
    assert!(xfrm.states()[1].parameters.as_ref().unwrap().extended_sequence);
    for (request, told) in [(list, kind::NEW_SA), (policies, kind::NEW_POLICY)] {
        let answer = says(&mut xfrm, request);
        let kinds: Vec<u16> =
            answer.datagrams.iter().flat_map(|it| messages(it)).map(|(it, _)| it.kind).collect();
        assert_eq!(kinds, [told, told, kind::DONE]);
    }
    for request in [update, no_sa, no_policy] {
        assert_eq!(errno(&says(&mut xfrm, request)), 0);
    }
    assert_eq!(errno(&says(&mut xfrm, no_sa)), ESRCH);
    assert_eq!(errno(&says(&mut xfrm, no_policy)), -2);
    assert_eq!(xfrm.plan().peers[0].seal_spi, None, "only what comes in is left");
}

/// The same request with another SPI, which stands behind so many bytes: those of a netlink header
/// and of a destination, and of a selector before it where an association is added.
fn with_spi(request: &[u8], offset: usize, spi: u32) -> Vec<u8> {
    let mut request = request.to_vec();
    request[offset..][..4].copy_from_slice(&spi.to_be_bytes());
    request
}

#[test]
fn one_key_has_one_association_and_is_told_of_when_it_goes() {
    let mut xfrm = gateway();
    let requests = kept("tunnel");
    let (add, remove) = (&requests[0], &requests[7]);
    let second_add = with_spi(add, 16 + 56 + 16, 0x2009);
    assert_eq!(errno(&says(&mut xfrm, add)), 0);
    let key = xfrm.states()[0].fingerprint().unwrap();
    let second = says(&mut xfrm, &second_add);
    assert_eq!(errno(&second), EEXIST, "a second SPI");
    assert!(String::from_utf8_lossy(&second.datagrams[0]).contains("key of its own"));
    assert_eq!(xfrm.take_removed(), []);
    assert_eq!(errno(&says(&mut xfrm, remove)), 0);
    assert_eq!(xfrm.take_removed(), [key]);
    assert_eq!(errno(&says(&mut xfrm, &second_add)), 0, "one at a time");
    says(&mut xfrm, &with_spi(remove, 16 + 16, 0x2009));
    says(&mut xfrm, add);
    assert_eq!(xfrm.take_removed(), [], "it came back");
    says(&mut xfrm, remove);
    let asker = Asker { port: 7, ..Asker::default() };
    let refused = xfrm.handle(NOW, asker, add, &mut Gateway { refused: Some(key) });
    assert_eq!(errno(&refused), EEXIST, "the gateway has the last word");
    assert!(xfrm.states().is_empty());
}

#[test]
fn no_debug_text_of_an_association_shows_its_key() {
    let mut xfrm = gateway();
    says(&mut xfrm, &kept("tunnel")[0]);
    let material = xfrm.states()[0].parameters.as_ref().unwrap().keying_material();
    let text = format!("{xfrm:?}");
    let bytes = format!("{:?}", &material[..8]);
    assert!(!text.contains(bytes.trim_matches(['[', ']'])), "{text}");
}

#[test]
fn limits_are_told_once_and_then_carried_out() {
    let mut xfrm = gateway();
    for request in kept("limits") {
        assert_eq!(errno(&says(&mut xfrm, &request)), 0);
    }
    assert!(matches!(xfrm.plan().selectors[..], [(_, Route::Clear), (_, Route::Drop)]));
    let told = |answer: &Answer| -> Vec<u32> { answer.notices.iter().map(|it| it.group).collect() };
    assert_eq!(told(&xfrm.tick(NOW, &[])), []);
    let soft = xfrm.tick(NOW + 1, &[]);
    assert_eq!(told(&soft), [group::EXPIRE, group::EXPIRE], "the association, and a policy's end");
    assert_eq!((xfrm.states().len(), xfrm.policies().len()), (1, 1));
    let hard = xfrm.tick(NOW + 2, &[]);
    assert_eq!(told(&hard), [group::EXPIRE]);
    assert!(hard.changed && xfrm.states().is_empty());
}

#[test]
fn a_packet_without_an_association_is_told_once() {
    let mut xfrm = gateway();
    says(&mut xfrm, &kept("tunnel")[2]);
    let plan = xfrm.plan();
    let policy = plan.acquire_for[0].unwrap();
    let mut ask = |now| {
        let [from, to] = ["10.0.0.5", "10.0.1.9"].map(|it| it.parse().unwrap());
        xfrm.acquire(now, policy, from, to)
    };
    let notice = ask(NOW).expect("charon hears of it");
    let (header, _) = messages(&notice.datagram).next().unwrap();
    assert_eq!((notice.group, header.kind), (group::ACQUIRE, kind::ACQUIRE));
    assert_eq!(ask(NOW + 1), None, "once, while it works on it");
    xfrm.tick(NOW + 30, &[]);
    assert!(xfrm.states().is_empty(), "nobody came");
}

/// A conversation with another gateway or host, as an administrator writes it: an association and a
/// policy for each direction.
#[derive(Clone, Copy, Debug)]
struct Conversation {
    is_tunnel: bool,
    is_v4: bool,
    remote: u8,
    request: u32,
    back: Back,
}

/// How what comes back is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Back {
    /// As what goes out.
    Alike,
    /// With no request number, in association and policy.
    AnyRequest,
    /// From whatever source.
    AnySource,
}

impl Conversation {
    fn drawn() -> impl Strategy<Value = Vec<Self>> {
        let back = prop_oneof![Just(Back::Alike), Just(Back::AnyRequest), Just(Back::AnySource)];
        let one = (any::<bool>(), any::<bool>(), 2u8..5, 1u32..4, back);
        let one = one.prop_map(|(is_tunnel, is_v4, remote, request, back)| Self {
            is_tunnel,
            is_v4,
            remote,
            request,
            // Hosts in transport mode have addresses.
            back: if is_tunnel || back != Back::AnySource { back } else { Back::Alike },
        });
        proptest::collection::vec(one, 1..12).prop_map(|mut all| {
            // Of two with a host one policy would do, and an end has a tunnel a request.
            let mut ends = BTreeSet::new();
            all.retain(|it| {
                let request = if it.is_tunnel { it.request } else { 0 };
                ends.insert((it.is_tunnel, it.is_v4, it.remote, request))
            });
            all
        })
    }

    fn place(&self, v4: [u8; 3], last: u8) -> IpAddr {
        match self.is_v4 {
            true => [v4[0], v4[1], v4[2], last].into(),
            false => {
                [0xfd00, v4[0].into(), v4[1].into(), v4[2].into(), 0, 0, 0, last.into()].into()
            }
        }
    }

    /// Outer addresses: ours, and the other's.
    fn ends(&self) -> [IpAddr; 2] {
        match self.is_tunnel {
            true => [self.place([192, 0, 2], 1), self.place([192, 0, 2], self.remote)],
            false => [self.place([10, 1, 0], 1), self.place([10, 2, 0], self.remote)],
        }
    }

    /// The networks, or the hosts, that speak; `number` tells tunnels apart.
    fn networks(&self, number: u8) -> [(IpAddr, u8); 2] {
        let (network, host) = if self.is_v4 { (24, 32) } else { (64, 128) };
        match self.is_tunnel {
            true => {
                [self.place([10, 3, 0], 0), self.place([10, 4, number], 0)].map(|it| (it, network))
            }
            false => self.ends().map(|it| (it, host)),
        }
    }

    /// The request that writes its association or its policy, of what goes out or comes back.
    fn request(&self, number: u8, is_back: bool, is_policy: bool) -> Vec<u8> {
        let (mut ends, mut networks) = (self.ends(), self.networks(number));
        let mut request = self.request;
        if is_back {
            ends.reverse();
            networks.reverse();
            match self.back {
                Back::Alike => {}
                Back::AnyRequest => request = 0,
                Back::AnySource if self.is_v4 => ends[0] = [0; 4].into(),
                Back::AnySource => ends[0] = [0; 16].into(),
            }
        }
        let mode = if self.is_tunnel { MODE_TUNNEL } else { MODE_TRANSPORT };
        match is_policy {
            true => PolicyRequest {
                networks,
                direction: if is_back { DIRECTION_IN } else { DIRECTION_OUT },
                ends,
                request,
                spi: None,
                mode,
                offload: None,
                interface: None,
            }
            .install(0),
            false => Association {
                ends,
                spi: spi(number, is_back),
                request,
                mode,
                keying_material: &[2 * number + u8::from(is_back); 20],
                extended_window: None,
                offload: None,
                bound: None,
            }
            .install(0),
        }
    }
}

fn spi(number: u8, is_back: bool) -> u32 {
    0x2000 + 2 * u32::from(number) + u32::from(is_back)
}

proptest! {
    /// In whatever order all is written, what comes back belongs to the peer that it was written
    /// for. Of no request: to its end's first; of no source: to its request's first.
    #[test]
    fn what_comes_back_belongs_to_whom_it_was_written_for(
        (all, order) in Conversation::drawn().prop_flat_map(|all| {
            let count = all.len();
            (Just(all), Just((0..4 * count).collect::<Vec<_>>()).prop_shuffle())
        })
    ) {
        let own = ["192.0.2.1".parse().unwrap(), "fd00:c0:0:2::1".parse().unwrap()];
        let mut xfrm = Xfrm::new(GatewayAddresses { own: own.into(), taken_spis: BTreeSet::new() });
        // Peers are in the order of the policies for what goes out.
        let mut peers = Vec::new();
        for place in order {
            let (number, is_back, is_policy) = (place / 4, place % 2 == 1, place / 2 % 2 == 1);
            let answer = says(&mut xfrm, &all[number].request(number as u8, is_back, is_policy));
            let text = String::from_utf8_lossy(&answer.datagrams[0]).into_owned();
            prop_assert_eq!(errno(&answer), 0, "{}: {}", place, text);
            if is_policy && !is_back {
                peers.push(number);
            }
        }
        let plan = xfrm.plan();
        prop_assert_eq!(plan.peers.len(), peers.len());
        let mut opening = vec![BTreeSet::new(); peers.len()];
        for (number, written) in all.iter().enumerate() {
            let belongs = |other: &usize| {
                let other = &all[*other];
                let kind = |it: &Conversation| (it.is_tunnel, it.is_v4);
                let has_remote = other.remote == written.remote;
                let has_request = other.request == written.request;
                kind(other) == kind(written) && match written.back {
                    Back::Alike => has_remote && has_request,
                    Back::AnyRequest => has_remote,
                    Back::AnySource => has_request,
                }
            };
            opening[peers.iter().position(belongs).unwrap()].insert(spi(number as u8, true));
        }
        for ((peer, number), opening) in plan.peers.iter().zip(peers).zip(opening) {
            prop_assert_eq!(peer.seal_spi, Some(spi(number as u8, false)));
            prop_assert_eq!(peer.open_spis.iter().copied().collect::<BTreeSet<_>>(), opening);
        }
    }
}
