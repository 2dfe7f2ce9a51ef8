//! What must hold for any input of the `xfrm` fuzz target: no panic, answers that are netlink, one
//! acknowledgement for each request that asks for one, a plan that the engine can take.

use std::collections::BTreeSet;

use weir_engine::esp::sa::Fingerprint;
use weir_xfrm::database::{Asker, Outside, Xfrm};
use weir_xfrm::netlink::messages;
use weir_xfrm::plan::GatewayAddresses;
use weir_xfrm::refusal::Refusal;
use weir_xfrm::uapi::{flag, kind};

/// An input: datagrams, each behind its length in two bytes (the machine's order).
pub(crate) fn exercise(mut input: &[u8]) {
    let own = vec!["192.0.2.1".parse().expect("an address")];
    let place = GatewayAddresses { own, taken_spis: BTreeSet::from([0x1001]) };
    let mut xfrm = Xfrm::new(place);
    let mut bits = 0x1234_5678_u32;
    let mut now = 1_000_000;
    while let Some((length, rest)) = input.split_first_chunk::<2>() {
        let length = usize::from(u16::from_ne_bytes(*length)).min(rest.len());
        let (datagram, rest) = rest.split_at(length);
        input = rest;
        now += 1;
        say(&mut xfrm, now, datagram, &mut bits);
        let plan = xfrm.plan();
        assert_eq!(plan.peers.len(), plan.acquire_for.len());
        let (mut sealing, mut opening) = (0, 0);
        for peer in &plan.peers {
            sealing += usize::from(peer.seal_spi.is_some());
            opening += peer.open_spis.len();
        }
        assert_eq!((sealing, opening), (plan.sealing.len(), plan.opening.len()));
        let spis: BTreeSet<u32> = plan.opening.iter().map(|it| xfrm.states()[*it].spi()).collect();
        assert_eq!(spis.len(), plan.opening.len(), "an SPI opens once");
        let keys: Vec<_> = xfrm.states().iter().filter_map(|it| it.fingerprint()).collect();
        assert_eq!(BTreeSet::from_iter(&keys).len(), keys.len(), "a key has one association");
        xfrm.tick(now, &[]);
    }
}

fn say(xfrm: &mut Xfrm, now: u64, datagram: &[u8], bits: &mut u32) {
    let asker = Asker { port: 7, wants_words: true, caps_acknowledgements: false };
    let answer = xfrm.handle(now, asker, datagram, &mut Bits(bits));
    let wanted = messages(datagram).filter(|(header, _)| {
        let dump = header.flags & flag::DUMP == flag::DUMP
            && matches!(header.kind, kind::GET_SA | kind::GET_POLICY);
        header.flags & flag::ACK != 0 && !dump
    });
    let wanted = wanted.count();
    let mut acknowledged = 0;
    for datagram in &answer.datagrams {
        let told: usize = messages(datagram).map(|(header, _)| header.length as usize).sum();
        assert_eq!(told, datagram.len(), "an answer is netlink to its last byte");
        acknowledged += messages(datagram).filter(|(header, _)| header.kind == kind::ERROR).count();
    }
    assert!(acknowledged >= wanted, "{acknowledged} acknowledgements for {wanted} requests");
}

/// Bits that are the same each time.
struct Bits<'a>(&'a mut u32);

impl Outside for Bits<'_> {
    fn random(&mut self) -> u32 {
        *self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *self.0
    }

    fn admit(&mut self, _key: Fingerprint) -> Result<(), Refusal> {
        Ok(())
    }
}
