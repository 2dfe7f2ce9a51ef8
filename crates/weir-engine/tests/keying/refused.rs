//! Handshakes that are refused at their end leave nothing: somebody on the way changes the number
//! by which several workers' SPIs are made, which any sender may write and the seal does not cover.

use weir_engine::tunnel::PeerSettings;
use weir_engine::tunnel::handshake::Terms;
use weir_engine::tunnel::key::{Entropy, PresharedKey};
use weir_engine::tunnel::path::Path;
use weir_engine::tunnel::rekey::Limits;
use weir_engine::tunnel::state::{Effect, PeerActivity, Tunnel};

use super::floods::{at, finish, sent};
use super::world::{PORT, SECOND, Seeded, identity, terms};

/// Draws this SPI twice, then others.
const DRAWN_TWICE: u32 = 0x1000_0000;
/// Where messages say who sends them, and the bytes of both MACs behind them.
const SENDER: std::ops::Range<usize> = 4..8;
const MACS: usize = 2 * 16;

struct Drawing {
    rest: Seeded,
    spis: u32,
}

impl Entropy for Drawing {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.rest.fill(bytes);
        if let Ok(spi) = <&mut [u8; 4]>::try_from(bytes) {
            self.spis += 1;
            if self.spis <= 2 {
                *spi = DRAWN_TWICE.to_be_bytes();
            }
        }
    }
}

/// Gateway `number` of two with two workers each, which knows the other one, but not where it is.
fn gateway(number: u8) -> Tunnel {
    gateway_that_knows(number, None)
}

fn gateway_that_knows(number: u8, path: Option<Path>) -> Tunnel {
    let entropy = Drawing { rest: Seeded(u64::from(number)), spis: 0 };
    let mut tunnel = Tunnel::new(identity(number), Limits::default(), Box::new(entropy));
    let peer = PeerSettings {
        public_key: identity(3 - number).public(),
        preshared: PresharedKey::none(),
        path,
        terms: Terms { workers: 2, ..terms(false) },
        replay_window: 64,
        path_mtu_max: 0,
    };
    tunnel.configure(at(0), Limits::default(), vec![peer], &mut Vec::new());
    tunnel
}

fn path() -> Path {
    Path::to([203, 0, 113, 2].into(), PORT)
}

/// The initiation of a gateway that is wanted to speak.
fn initiation(tunnel: &mut Tunnel, number: u8, second: u64) -> Vec<u8> {
    let wanted = PeerActivity { wanted: Some(Some(path())), ..PeerActivity::default() };
    let (now, mut effects) = (at(second * SECOND), Vec::new());
    tunnel.note_activity(now, &identity(3 - number).public(), &wanted, &mut effects);
    tunnel.tick(now, &mut effects);
    sent(&mut effects).expect("an initiation")
}

/// The same message to gateway `to`, from an SPI that is no worker's first.
fn changed(message: &[u8], to: u8) -> Vec<u8> {
    let mut message = message[..message.len() - MACS].to_vec();
    message[SENDER.start] |= 1;
    finish(&mut message, &identity(to).public());
    message
}

fn spi(message: &[u8]) -> u32 {
    u32::from_le_bytes(message[SENDER].try_into().unwrap())
}

fn answer(tunnel: &mut Tunnel, second: u64, message: &[u8]) -> Vec<Effect> {
    let mut effects = Vec::new();
    tunnel.handle(at(second * SECOND), &path(), message, &mut effects);
    effects
}

#[test]
fn the_spi_of_an_answer_that_is_refused_at_its_end_is_given_back() {
    let (mut initiator, mut responder) = (gateway(2), gateway(1));
    let first = initiation(&mut initiator, 2, 1);
    let mut refused = answer(&mut responder, 1, &changed(&first, 1));
    assert_eq!((sent(&mut refused), responder.counters().handshakes), (None, 0));
    let second = initiation(&mut initiator, 2, 10);
    let mut agreed = answer(&mut responder, 10, &second);
    let response = sent(&mut agreed).expect("an answer");
    assert_eq!(responder.counters().handshakes, 1);
    assert_eq!(spi(&response), DRAWN_TWICE, "free again");
}

#[test]
fn the_spi_of_an_initiation_whose_answer_is_refused_is_given_back() {
    let (mut initiator, mut responder) = (gateway(1), gateway(2));
    let first = initiation(&mut initiator, 1, 1);
    assert_eq!(spi(&first), DRAWN_TWICE);
    let response = sent(&mut answer(&mut responder, 1, &first)).expect("an answer");
    answer(&mut initiator, 1, &changed(&response, 1));
    let counters = initiator.counters();
    assert_eq!((counters.handshakes, counters.not_authentic), (0, 1), "{counters:?}");
    let second = initiation(&mut initiator, 1, 10);
    assert_eq!(spi(&second), DRAWN_TWICE, "free again");
}

/// Who started again has forgotten which initiations it saw.
#[test]
fn an_initiation_that_is_replayed_after_a_restart_moves_no_endpoint_that_is_known() {
    let first = initiation(&mut gateway(2), 2, 1);
    let elsewhere = Path::to([198, 51, 100, 9].into(), PORT);
    for known in [Some(path()), None] {
        let mut restarted = gateway_that_knows(1, known.clone());
        let mut effects = Vec::new();
        restarted.handle(at(5 * SECOND), &elsewhere, &first, &mut effects);
        assert!(sent(&mut effects).is_some(), "it is answered once");
        restarted.handle(at(15 * SECOND), &elsewhere, &first, &mut effects);
        assert!(sent(&mut effects).is_none(), "and not again");
        let status = restarted.status(at(15 * SECOND)).next().unwrap();
        assert_eq!(status.path, known.or(Some(elsewhere.clone())), "looked for where it speaks");
    }
}
