//! What must hold for any input of the fuzz target `keying`: two gateways that shake hands over a
//! network that an enemy has.

use std::collections::VecDeque;
use std::net::IpAddr;

use weir_engine::policy::{Encapsulation, Mode};
use weir_engine::tunnel::handshake::Terms;
use weir_engine::tunnel::key::{Entropy, Identity, PresharedKey};
use weir_engine::tunnel::path::Path;
use weir_engine::tunnel::path_mtu::{Probe, ProbeMessage};
use weir_engine::tunnel::rekey::Limits;
use weir_engine::tunnel::state::{Effect, Now, PeerActivity, Tunnel};
use weir_engine::tunnel::{MESSAGE_LEN_MAX, PeerSettings};
use zeroize::Zeroizing;

const PORT: u16 = 51840;
const PATH_MTU_MAX: u16 = 9000;
/// Datagrams on the way, at most; more are lost.
const WIRE_MAX: usize = 32;
/// The last 16 bytes of a datagram are a cookie's MAC, which nobody looks at without load.
const SECOND_MAC_LEN: usize = 16;
const STEPS_MAX: usize = 256;

/// Bytes of a datagram on its way, and whether somebody changed what counts.
struct OnWire {
    to: usize,
    bytes: Vec<u8>,
    changed: bool,
}

struct World {
    sides: [Tunnel; 2],
    wire: VecDeque<OnWire>,
    elapsed_ns: u64,
}

struct Counting(u64);

impl Entropy for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (self.0 >> 33) as u8;
        }
    }
}

/// A byte of settings, then steps of three bytes: what the enemy does, where, and by how much.
pub(crate) fn keying(input: &[u8]) {
    let [settings, steps @ ..] = input else { return };
    ProbeMessage::parse(steps);
    let mut world = World::new(settings & 1 != 0);
    world.pass(0);
    for (count, step) in steps.chunks_exact(3).enumerate().take(STEPS_MAX) {
        world.step(step[0], step[1], step[2], &steps[3 * count..]);
    }
}

impl World {
    fn new(ml_kem: bool) -> Self {
        let identity = |side: usize| Identity::new(Zeroizing::new([side as u8 + 1; 32])).unwrap();
        let tunnel = |side: usize| {
            let random = Box::new(Counting(side as u64 + 1));
            let mut tunnel = Tunnel::new(identity(side), Limits::default(), random);
            let terms =
                Terms { mode: Mode::Tunnel, encapsulation: Encapsulation::Esp, ml_kem, workers: 1 };
            let peer = PeerSettings {
                public_key: identity(1 - side).public(),
                preshared: PresharedKey::none(),
                path: Some(Path::to(address(1 - side), PORT)),
                terms,
                replay_window: 64,
                path_mtu_max: PATH_MTU_MAX,
            };
            tunnel.configure(Now::default(), Limits::default(), vec![peer], &mut Vec::new());
            tunnel
        };
        Self { sides: [tunnel(0), tunnel(1)], wire: VecDeque::new(), elapsed_ns: 1 }
    }

    fn now(&self) -> Now {
        let unix_ns = 1_700_000_000_000_000_000 + self.elapsed_ns;
        Now { elapsed_ns: self.elapsed_ns, unix_ns }
    }

    fn step(&mut self, what: u8, place: u8, value: u8, rest: &[u8]) {
        match what % 8 {
            0 | 1 => self.deliver(),
            2 => self.change(place, value),
            3 => drop(self.wire.pop_front()),
            4 => self.repeat(),
            5 => self.pass(u64::from(value) * 100_000_000),
            6 => {
                let bytes = rest[..rest.len().min(MESSAGE_LEN_MAX)].to_vec();
                self.put(OnWire { to: usize::from(place & 1), bytes, changed: true });
            }
            _ => self.note_activity(place, value),
        }
    }

    fn deliver(&mut self) {
        let Some(OnWire { to, bytes, changed }) = self.wire.pop_front() else { return };
        let (now, mut effects) = (self.now(), Vec::new());
        let path = Path::to(address(1 - to), PORT);
        self.sides[to].handle(now, &path, &bytes, &mut effects);
        let installs = effects.iter().any(|it| matches!(it, Effect::Install(_)));
        assert!(!(installs && changed), "a changed datagram made keys");
        self.carry_out(to, effects);
    }

    fn change(&mut self, place: u8, value: u8) {
        let Some(next) = self.wire.front_mut() else { return };
        let at = usize::from(place) * next.bytes.len() / 256;
        let Some(byte) = next.bytes.get_mut(at) else { return };
        *byte ^= value;
        next.changed |= value != 0 && at + SECOND_MAC_LEN < next.bytes.len();
    }

    fn repeat(&mut self) {
        let Some(OnWire { to, bytes, changed }) = self.wire.front() else { return };
        let again = OnWire { to: *to, bytes: bytes.clone(), changed: *changed };
        self.put(again);
    }

    fn pass(&mut self, duration_ns: u64) {
        self.elapsed_ns += duration_ns;
        for side in 0..2 {
            let (now, mut effects) = (self.now(), Vec::new());
            self.sides[side].tick(now, &mut effects);
            self.carry_out(side, effects);
        }
    }

    /// What the data path may have seen, true or not.
    fn note_activity(&mut self, place: u8, value: u8) {
        let side = usize::from(place & 1);
        let (now, mut effects) = (self.now(), Vec::new());
        let status = self.sides[side].status(now).next().unwrap();
        let probe = Probe { round: u32::from(place >> 4), size_bytes: u16::from(value) << 6 };
        let activity = PeerActivity {
            heard: place & 2 != 0,
            sealed: status
                .spis
                .map(|(seal, _)| (seal, u64::from(value) << 30, u64::from(value) << 34)),
            confirmed: (place & 4 != 0).then_some(()).and(status.spis).map(|(_, open)| open),
            probed: (place & 8 != 0).then_some(probe),
            probe_answered: Some(probe),
            too_large: value & 1 != 0,
            ..PeerActivity::default()
        };
        self.sides[side].note_activity(now, &status.public_key, &activity, &mut effects);
        self.carry_out(side, effects);
    }

    fn put(&mut self, datagram: OnWire) {
        if self.wire.len() < WIRE_MAX {
            self.wire.push_back(datagram);
        }
    }

    fn carry_out(&mut self, side: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { datagram: bytes, .. } => {
                    assert!(bytes.len() <= MESSAGE_LEN_MAX);
                    self.put(OnWire { to: 1 - side, bytes, changed: false });
                }
                Effect::PathMtu { bytes, .. } => assert!((1..=PATH_MTU_MAX).contains(&bytes)),
                Effect::Probe { message: ProbeMessage::Ask(probe), .. } => {
                    assert!(probe.size_bytes <= PATH_MTU_MAX);
                }
                _ => {}
            }
        }
    }
}

fn address(side: usize) -> IpAddr {
    IpAddr::from([192, 0, 2, side as u8 + 1])
}
