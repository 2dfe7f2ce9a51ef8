//! Two engines, their keying, and the wire between them, in virtual time.

mod leaving;
mod rollback;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use weir_engine::access::{
    AccessAction, AccessPolicy, Line, Operation, Operations, Party, Terms as LineTerms,
};
use weir_engine::esp::open::{OpeningSa, OpeningState};
use weir_engine::esp::sa::{Fingerprint, SaParameters, Spi};
use weir_engine::esp::seal::{SealingSa, SealingState};
use weir_engine::esp::spread::SPI_WORKER_MASK;
use weir_engine::meter::{Meter, MeterLimits};
use weir_engine::output::{Destination, Output};
use weir_engine::pipeline::{Agreed, Associations, Engine};
use weir_engine::policy::{
    Action, Encapsulation, FrameActions, Mode, OwnAddress, Peer, Policy, Prefix, Sealing,
};
use weir_engine::tunnel::handshake::Terms;
use weir_engine::tunnel::key::{Entropy, Identity, PresharedKey, PublicKey};
use weir_engine::tunnel::path::Path;
use weir_engine::tunnel::rekey::Limits;
use weir_engine::tunnel::state::{Effect, Install, KeyingCounters, Now, PeerActivity, Tunnel};
use weir_engine::tunnel::{PeerSettings, PeerState, PeerStatus};
use weir_engine::verdict::{DropReason, Side};
use weir_wire::frame::{Frame, Link, Meta, Time};
use weir_wire::parse::{MacAddress, Transport, parse};
use zeroize::Zeroizing;

use leaving::collect;
use rollback::Copy;

pub(crate) const PORT: u16 = 51840;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;
const WIRE_MTU: u16 = 2000;
/// The side whose gateway has a line of access: it judges what its host asks before that is sealed,
/// and what the other asks after it was opened.
const JUDGE: usize = 1;
const HOST_MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xa], [2, 0, 0, 0, 0, 0xb]];

/// Random bytes that a seed decides.
#[derive(Clone)]
pub(crate) struct Seeded(pub(crate) u64);

impl Entropy for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = (mixed ^ mixed >> 31) as u8;
        }
    }
}

pub(crate) fn identity(number: u8) -> Identity {
    Identity::new(Zeroizing::new([number; 32])).unwrap()
}

pub(crate) fn preshared(number: u8) -> PresharedKey {
    PresharedKey::new(Zeroizing::new([number; 32]))
}

pub(crate) fn terms(ml_kem: bool) -> Terms {
    Terms { mode: Mode::Ethernet, encapsulation: Encapsulation::Esp, ml_kem, workers: 1 }
}

/// How one gateway is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    pub(crate) preshared: PresharedKey,
    pub(crate) terms: Terms,
    pub(crate) knows_endpoint: bool,
    pub(crate) seed: u64,
    pub(crate) probes_path: bool,
    pub(crate) keys: Keys,
}

/// Where keys come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    Agreed,
    /// One for each direction, until somebody makes new ones; the disk keeps how far they went.
    Files,
}

impl Setup {
    pub(crate) fn new(side: usize) -> Self {
        Self {
            limits: Limits::default(),
            preshared: preshared(7),
            terms: terms(false),
            knows_endpoint: true,
            seed: 1000 + side as u64,
            probes_path: false,
            keys: Keys::Agreed,
        }
    }
}

pub(crate) struct Gateway {
    side: usize,
    setup: Setup,
    address: u8,
    pub(crate) tunnel: Tunnel,
    pub(crate) engine: Engine,
    /// Of the workers beside the first.
    others: Vec<Engine>,
    /// How many share what the host sends.
    sharing: usize,
    /// Added to the world's time, for the wall clock alone.
    pub(crate) wall_offset_ns: i64,
    delivered: Vec<Vec<u8>>,
    disk: Disk,
}

/// What survives a crash of a gateway whose keys are in files.
#[derive(Clone, Debug, Default)]
struct Disk {
    sealing: Option<SealingState>,
    opening: Option<OpeningState>,
}

/// A frame on the wire, to a side.
#[derive(Clone, Debug)]
pub(crate) struct OnWire {
    pub(crate) to: usize,
    pub(crate) frame: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) sides: [Gateway; 2],
    pub(crate) wire: VecDeque<OnWire>,
    pub(crate) elapsed_ns: u64,
    /// The largest IP packet that the wire carries; a larger one vanishes.
    pub(crate) wire_carries: usize,
    /// Keys that were put in place to seal with, by the SPI that they seal under: several, where a
    /// peer drew the same random bytes twice.
    keys: [HashMap<u32, Vec<SaParameters>>; 2],
    /// How often somebody made new keys for files.
    generation: u8,
    copies: [Option<Copy>; 2],
    /// Beside the key's file: below which number its gateway began last.
    stamps: [Option<u64>; 2],
    installed: HashSet<Fingerprint>,
    nonces: HashSet<(Fingerprint, [u8; 8])>,
    sealed: u64,
    sequence: u32,
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn mac(last: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 1, last])
}

fn settings(side: usize, setup: &Setup) -> PeerSettings {
    let endpoint = address(2 - side as u8);
    PeerSettings {
        public_key: identity(2 - side as u8).public(),
        preshared: setup.preshared.clone(),
        path: setup.knows_endpoint.then(|| Path::to(endpoint, PORT)),
        terms: setup.terms,
        replay_window: 1024,
        path_mtu_max: if setup.probes_path { WIRE_MTU } else { 0 },
    }
}

fn policy(side: usize, setup: &Setup, own: u8) -> Policy {
    let mut policy = Policy::watch(1, WIRE_MTU);
    policy.default = Action::Drop;
    policy.frames = FrameActions::sealing();
    policy.keying_port = Some(PORT);
    if side == JUDGE {
        policy.access = Some(Arc::new(AccessPolicy::new(vec![no_writes()], AccessAction::Allow)));
    }
    policy.own = Some(OwnAddress {
        mac: mac(own),
        addresses: vec![(address(own), 24)],
        ..OwnAddress::default()
    });
    policy.with_peers(vec![Peer {
        name: "peer".into(),
        mode: setup.terms.mode,
        encapsulation: setup.terms.encapsulation,
        sealing: Sealing::Require,
        endpoint: setup.knows_endpoint.then(|| address(2 - side as u8)),
        protects: vec![Prefix::ALL],
        everything: true,
        seal_spi: (setup.keys == Keys::Files).then(|| file_key(side, 0).spi.value()),
        open_spis: match setup.keys {
            Keys::Files => vec![file_key(1 - side, 0).spi.value()],
            Keys::Agreed => Vec::new(),
        },
        agreed: (setup.keys == Keys::Agreed).then(|| identity(2 - side as u8).public()),
        kernel: None,
        rate_limit: None,
        reaches: Vec::new(),
    }])
}

/// Nobody may write.
fn no_writes() -> Line {
    Line {
        name: "no-writes".into(),
        from: Party::any(),
        to: Party::any(),
        operations: Operations::of([Operation::Write]),
        terms: LineTerms::default(),
        limits: None,
        action: AccessAction::Deny,
        log: false,
    }
}

/// The key of that generation that `side` seals with where keys are in files.
fn file_key(side: usize, generation: u8) -> SaParameters {
    let mask = (side as u8 + 0x40) ^ generation.rotate_right(2);
    let material: Vec<u8> = (0..36).map(|byte| byte ^ mask).collect();
    SaParameters::new(Spi::new(0x1000 + side as u32).unwrap(), &material).unwrap()
}

impl Gateway {
    fn new(side: usize, setup: Setup, generation: u8, disk: Disk) -> Self {
        let own = side as u8 + 1;
        let policy = policy(side, &setup, own);
        let engine = || {
            let meter = Meter::new(MeterLimits::default(), 7);
            let mut associations = Associations::default();
            if setup.keys == Keys::Files {
                let sealing = SealingSa::new(&file_key(side, generation), disk.sealing.as_ref());
                let opening =
                    OpeningSa::new(&file_key(1 - side, generation), disk.opening.as_ref());
                associations.sealing.push(sealing.unwrap());
                associations.opening.push(opening.unwrap());
            }
            Engine::new(policy.clone(), associations, meter).unwrap()
        };
        let entropy = Box::new(Seeded(setup.seed));
        Self {
            side,
            address: own,
            tunnel: Tunnel::new(identity(own), setup.limits, entropy),
            engine: {
                let mut first = engine();
                if setup.keys == Keys::Agreed {
                    first.set_one_of_several();
                }
                first
            },
            others: (1..setup.terms.workers).map(|_| engine()).collect(),
            sharing: 1,
            setup,
            wall_offset_ns: 0,
            delivered: Vec::new(),
            disk,
        }
    }

    fn now(&self, elapsed_ns: u64) -> Now {
        let unix_ns =
            (1_700_000_000 * SECOND + elapsed_ns).saturating_add_signed(self.wall_offset_ns);
        Now { elapsed_ns, unix_ns }
    }

    fn worker(&mut self, number: usize) -> &mut Engine {
        match number {
            0 => &mut self.engine,
            other => &mut self.others[other - 1],
        }
    }

    /// Which worker gets a frame: from the host they take turns, ESP goes by its SPI.
    fn steer(&self, port: Side, bytes: &[u8]) -> usize {
        match (port, parse(bytes, Link::Ethernet, bytes.len() as u32).transport) {
            (Side::Host, _) => usize::from(bytes[17]) % self.sharing,
            (Side::Wire, Transport::Esp { spi, .. }) if !self.others.is_empty() => {
                (spi & SPI_WORKER_MASK) as usize % (self.others.len() + 1)
            }
            (Side::Wire, _) => 0,
        }
    }

    pub(crate) fn peer(&self, elapsed_ns: u64) -> PeerStatus {
        self.tunnel.status(self.now(elapsed_ns)).next().unwrap()
    }
}

impl World {
    /// Both gateways, a second after they started.
    pub(crate) fn new(setups: [Setup; 2]) -> Self {
        let [a, b] = setups;
        let mut world = Self {
            sides: [Gateway::new(0, a, 0, Disk::default()), Gateway::new(1, b, 0, Disk::default())],
            wire: VecDeque::new(),
            elapsed_ns: SECOND,
            wire_carries: usize::from(WIRE_MTU),
            keys: Default::default(),
            generation: 0,
            copies: Default::default(),
            stamps: Default::default(),
            installed: HashSet::new(),
            nonces: HashSet::new(),
            sealed: 0,
            sequence: 0,
        };
        for side in 0..2 {
            world.know_key(side);
            world.configure(side);
            world.keep(side);
            world.stamp(side);
        }
        world
    }

    /// By defaults, until both can seal.
    pub(crate) fn connected() -> Self {
        let mut world = Self::new([Setup::new(0), Setup::new(1)]);
        world.run(2 * SECOND);
        assert_eq!(world.states(), [PeerState::Up; 2]);
        world
    }

    pub(crate) fn configure(&mut self, side: usize) {
        let gateway = &mut self.sides[side];
        let now = gateway.now(self.elapsed_ns);
        let mut effects = Vec::new();
        let peers = match gateway.setup.keys {
            Keys::Agreed => vec![settings(side, &gateway.setup)],
            Keys::Files => Vec::new(),
        };
        gateway.tunnel.configure(now, gateway.setup.limits, peers, &mut effects);
        self.carry_out(side, effects);
    }

    /// The gateway is killed and starts again, with other random bytes unless told otherwise.
    pub(crate) fn restart(&mut self, side: usize, change: impl FnOnce(&mut Setup)) {
        let mut setup = self.sides[side].setup.clone();
        setup.seed = setup.seed.wrapping_mul(31).wrapping_add(17);
        change(&mut setup);
        let disk = self.sides[side].disk.clone();
        self.start(side, setup, disk);
    }

    /// A gateway that was killed starts with what is on its disk.
    fn start(&mut self, side: usize, setup: Setup, disk: Disk) {
        let wall_offset_ns = self.sides[side].wall_offset_ns;
        let gateway = Gateway::new(side, setup, self.generation, disk);
        self.sides[side] = Gateway { wall_offset_ns, ..gateway };
        self.configure(side);
        self.keep(side);
        self.stamp(side);
    }

    /// The gateway takes its configuration in once more.
    pub(crate) fn reload(&mut self, side: usize) {
        let last = self.sides[side].address;
        self.move_to(side, last);
        self.configure(side);
    }

    /// Whether keys come from handshakes.
    pub(crate) fn agrees(&self) -> bool {
        self.sides[0].setup.keys == Keys::Agreed
    }

    /// Numbers are reserved on the disk before they are used, and noted before packets are
    /// delivered, as a worker does.
    fn keep(&mut self, side: usize) {
        let Gateway { engine, disk, setup, .. } = &mut self.sides[side];
        if setup.keys == Keys::Agreed {
            return;
        }
        for association in engine.sealing_associations() {
            if let Some(wanted) = association.reservation_needed() {
                disk.sealing = Some(wanted);
                association.extend_reservation(&wanted);
            }
        }
        for association in engine.opening_associations() {
            if association.is_dirty() {
                let state = disk.opening.get_or_insert_with(|| association.empty_state());
                association.snapshot(state);
            }
        }
    }

    /// The gateway gets another address; who speaks to the old one is not heard.
    pub(crate) fn move_to(&mut self, side: usize, last: u8) {
        let gateway = &mut self.sides[side];
        gateway.address = last;
        let policy = policy(side, &gateway.setup, last);
        for engine in gateway.others.iter_mut().chain([&mut gateway.engine]) {
            engine.swap(policy.clone(), Associations::default()).unwrap();
        }
        gateway.engine.tick(Time(self.elapsed_ns));
        self.gather(side);
    }

    /// All associations of `side` are gone, if they were agreed.
    pub(crate) fn lose(&mut self, side: usize) {
        if self.sides[side].setup.keys == Keys::Files {
            return;
        }
        let activity = PeerActivity { lost: true, ..PeerActivity::default() };
        let now = self.sides[side].now(self.elapsed_ns);
        let mut effects = Vec::new();
        let peer = self.sides[side].peer(self.elapsed_ns).public_key;
        self.sides[side].tunnel.note_activity(now, &peer, &activity, &mut effects);
        self.carry_out(side, effects);
    }

    /// A front end at `side` names this SPI for an association of its own.
    pub(crate) fn name(&mut self, side: usize, spi: u32) {
        let gateway = &mut self.sides[side];
        let now = gateway.now(self.elapsed_ns);
        gateway.tunnel.avoid(now, [spi].into());
    }

    /// Time passes in steps of 100 ms; the wire carries everything at once.
    pub(crate) fn run(&mut self, duration_ns: u64) {
        for _ in 0..duration_ns / (100 * MS) {
            self.pass(100 * MS);
            self.deliver_all();
        }
    }

    /// Time passes, and nothing arrives.
    pub(crate) fn pass(&mut self, duration_ns: u64) {
        self.elapsed_ns += duration_ns;
        for side in 0..2 {
            self.tick(side);
        }
    }

    pub(crate) fn tick(&mut self, side: usize) {
        let time = Time(self.elapsed_ns);
        self.sides[side].engine.tick(time);
        self.gather(side);
        for number in 0..self.sides[side].others.len() {
            self.sides[side].others[number].tick(time);
            let sent = collect(self.sides[side].others[number].output(), &[]);
            self.put(side, sent);
        }
        let now = self.sides[side].now(self.elapsed_ns);
        let mut effects = Vec::new();
        let Gateway { tunnel, engine, others, .. } = &mut self.sides[side];
        for engine in others.iter_mut().chain([engine]) {
            engine.take_activity(&mut |peer, activity| {
                tunnel.note_activity(now, &peer, &activity, &mut effects);
                true
            });
        }
        tunnel.tick(now, &mut effects);
        self.carry_out(side, effects);
    }

    pub(crate) fn deliver_all(&mut self) {
        let mut steps = 0;
        while let Some(next) = self.wire.pop_front() {
            self.deliver(next);
            steps += 1;
            assert!(steps < 100_000, "the gateways talk without end");
        }
    }

    /// What the host of `side` sends; returns a mark that its frame carries.
    pub(crate) fn send(&mut self, side: usize) -> u32 {
        self.send_of(side, 60)
    }

    /// The same of so many bytes.
    pub(crate) fn send_of(&mut self, side: usize, frame_len: usize) -> u32 {
        self.send_noted(side, frame_len).0
    }

    /// The same, with the frame.
    pub(crate) fn send_noted(&mut self, side: usize, frame_len: usize) -> (u32, Vec<u8>) {
        self.sequence += 1;
        let mark = self.sequence;
        let mut frame = vec![0; frame_len];
        frame[..6].copy_from_slice(&HOST_MAC[1 - side]);
        frame[6..12].copy_from_slice(&HOST_MAC[side]);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame[14..18].copy_from_slice(&mark.to_be_bytes());
        self.process(side, Side::Host, &frame);
        (mark, frame)
    }

    /// The host of `side` asks the other for a READ or a WRITE, by RoCE v1; the mark that its frame
    /// would arrive with.
    pub(crate) fn ask(&mut self, side: usize, is_write: bool) -> (u32, Vec<u8>) {
        const ROCE_V1: [u8; 2] = [0x89, 0x15];
        const INFINIBAND: u8 = 0x1b;
        self.sequence += 1;
        // The version, and the flow label's bits.
        let mark = 0x6000_0000 | self.sequence;
        let bth = [if is_write { 10 } else { 12 }, 0, 0xff, 0xff, 0, 0, 0, 0x17];
        let psn = (self.sequence & 0xff_ffff).to_be_bytes();
        let reth = [[0; 8].as_slice(), &[0, 0, 0, 0x77], &[0, 0, 0, 16]].concat();
        let payload = vec![0xdd; if is_write { 16 } else { 0 }];
        let body = [bth.as_slice(), &psn, &reth, &payload, &[0; 4]].concat();
        let [own, other] = [side as u8 + 1, 2 - side as u8];
        let grh = [
            &mark.to_be_bytes()[..],
            &(body.len() as u16).to_be_bytes(),
            &[INFINIBAND, 64],
            &[own; 16],
            &[other; 16],
        ];
        let link = [&HOST_MAC[1 - side][..], &HOST_MAC[side], &ROCE_V1].concat();
        let frame = [link, grh.concat(), body].concat();
        self.process(side, Side::Host, &frame);
        (mark, frame)
    }

    /// Marks that the host of `side` received since the last call.
    pub(crate) fn received(&mut self, side: usize) -> Vec<u32> {
        let mark = |frame: Vec<u8>| u32::from_be_bytes(frame[14..18].try_into().unwrap());
        self.sides[side].delivered.drain(..).map(mark).collect()
    }

    /// The same with the frames.
    pub(crate) fn received_whole(&mut self, side: usize) -> Vec<(u32, Vec<u8>)> {
        let marked =
            |frame: Vec<u8>| (u32::from_be_bytes(frame[14..18].try_into().unwrap()), frame);
        self.sides[side].delivered.drain(..).map(marked).collect()
    }

    /// Somebody sends a frame in clear by the wire, in the name of the other host.
    pub(crate) fn forge(&mut self, side: usize) {
        let mut frame = vec![0xee; 80];
        frame[..6].copy_from_slice(&HOST_MAC[side]);
        frame[6..12].copy_from_slice(&HOST_MAC[1 - side]);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        self.process(side, Side::Wire, &frame);
    }

    pub(crate) fn assert_adds_up(&self, side: usize) {
        for engine in self.sides[side].others.iter().chain([&self.sides[side].engine]) {
            let counters = engine.counters();
            assert!(counters.host.adds_up() && counters.wire.adds_up(), "{counters:?}");
        }
    }

    pub(crate) fn deliver(&mut self, OnWire { to, frame }: OnWire) {
        self.process(to, Side::Wire, &frame);
        let now = self.sides[to].now(self.elapsed_ns);
        let mut effects = Vec::new();
        let Gateway { tunnel, engine, .. } = &mut self.sides[to];
        for (path, datagram) in engine.take_datagrams() {
            tunnel.handle(now, &path, &datagram, &mut effects);
        }
        self.carry_out(to, effects);
    }

    pub(crate) fn states(&self) -> [PeerState; 2] {
        [0, 1].map(|side| self.status(side).state)
    }

    pub(crate) fn status(&self, side: usize) -> PeerStatus {
        self.sides[side].peer(self.elapsed_ns)
    }

    pub(crate) fn counters(&self, side: usize) -> KeyingCounters {
        self.sides[side].tunnel.counters()
    }

    /// Somebody on the path calls the last ESP packet that `side` sent too large.
    pub(crate) fn complain(&mut self, side: usize, spi: u32) {
        let mut quoted = vec![0x45, 0, 0x23, 0x28, 0, 0, 0x40, 0, 64, 50, 0, 0, 192, 0, 2];
        quoted.push(side as u8 + 1);
        quoted.extend([192, 0, 2, 2 - side as u8]);
        quoted.extend(spi.to_be_bytes());
        quoted.extend([0, 0, 0, 1]);
        let mut packet = vec![0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 198, 51, 100, 1];
        packet.extend([192, 0, 2, side as u8 + 1, 3, 4, 0, 0, 0, 0, 2, 64]);
        let own = mac(self.sides[side].address).0;
        let frame = [&own[..], &[2, 0, 0, 0, 9, 9, 8, 0], &packet, &quoted].concat();
        self.process(side, Side::Wire, &frame);
    }

    /// Frames from the wire that `side` dropped for `reason`.
    pub(crate) fn dropped(&self, side: usize, port: Side, reason: DropReason) -> u64 {
        let counters = self.sides[side].engine.counters();
        assert!(counters.host.adds_up() && counters.wire.adds_up());
        counters.side(port).dropped_for(reason)
    }

    pub(crate) fn sealed(&self) -> u64 {
        self.sealed
    }

    fn process(&mut self, side: usize, port: Side, bytes: &[u8]) {
        let time = Time(self.elapsed_ns);
        let mut buffer = [&[0; 192][..], bytes, &[0; 64]].concat();
        let end = buffer.len() - 64;
        let meta = Meta {
            time,
            original_len: bytes.len() as u32,
            link: Link::Ethernet,
            ..Meta::default()
        };
        let mut frames = [Frame::new(&mut buffer, 192, end, meta)];
        let number = self.sides[side].steer(port, bytes);
        let engine = self.sides[side].worker(number);
        engine.process(time, port, &mut frames);
        let sent = collect(engine.output(), &frames);
        self.keep(side);
        self.put(side, sent);
    }
}

/// A tunnel alone, for those who speak to it by hand.
pub(crate) fn tunnel(number: u8, peers: Vec<PublicKey>) -> Tunnel {
    let limits = Limits::default();
    let mut tunnel = Tunnel::new(identity(number), limits, Box::new(Seeded(u64::from(number))));
    let peers = peers.into_iter().map(|public_key| PeerSettings {
        public_key,
        preshared: PresharedKey::none(),
        path: None,
        terms: terms(false),
        replay_window: 64,
        path_mtu_max: 0,
    });
    tunnel.configure(Now::default(), limits, peers.collect(), &mut Vec::new());
    tunnel
}
