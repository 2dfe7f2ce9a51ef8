//! A third party on the wire between gateways: what do others see there?
//!
//! It holds no key and believes nobody. It is told which addresses must appear sealed only, and
//! between which gateways; it counts, keeps an example of each violation, and watches that no
//! sequence number of an SPI appears twice: with AES-GCM that would be a nonce used twice.

use std::collections::BTreeMap;

use super::glance::{EspNumbers, Glance, IKE_PORT, Kind, NAT_TRAVERSAL_PORT};
use super::plain;
use crate::policy::{FrameClass, Prefix};

/// Sequence numbers remembered behind the highest of an SPI.
const WINDOW: u32 = 8192;
const WINDOW_WORDS: usize = WINDOW as usize / 64;
/// Associations watched for repeated numbers at a time, 1 KiB each. One that is idle makes room: of
/// it, only the highest number stays known.
pub const ASSOCIATIONS_MAX: usize = 4096;
/// Associations of which that much is known; beyond, and where none is idle, ESP is counted and not
/// watched.
const KNOWN_MAX: usize = 1 << 16;
/// An association is idle when so many frames came since its last.
const IDLE_FRAMES: u64 = 1 << 16;
/// Violations kept as examples.
pub const EXAMPLES_MAX: usize = 10;

/// What a witness is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectations {
    /// What must appear sealed only. Empty: everything, unless something is tagged.
    pub sealed: Vec<Prefix>,
    /// What RoCE packets must carry a tag in the place of their ICRC from and to. With these and
    /// without `sealed`, nothing else is judged.
    pub tagged: Vec<Prefix>,
    /// Addresses that ESP travels between. Empty: any.
    pub gateways: Vec<[u8; 16]>,
    /// Classes of frames that may be clear, whoever sends them.
    pub allowed: Vec<FrameClass>,
    /// UDP port of the native keying.
    pub keying_port: u16,
}

/// Why a frame ought not to be on this wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// In clear, from or to what must be sealed.
    Plaintext,
    /// ESP, but not between the gateways.
    ForeignEsp,
    /// RoCE with its ordinary ICRC, or none that could be read, where there should be a tag.
    Untagged,
    /// A sequence number that its SPI had already: a repeated frame, or a nonce used twice.
    RepeatedSequence,
}

impl Violation {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Violation::Plaintext => "plaintext",
            Violation::ForeignEsp => "foreign_esp",
            Violation::Untagged => "untagged",
            Violation::RepeatedSequence => "repeated_sequence",
        }
    }
}

/// What was seen. `frames` = esp + tagged + keying + gateways + `clear_by_class` + outside +
/// plaintext + untagged + foreign_esp; `repeated` are ESP frames, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WitnessCounters {
    /// Frames looked at.
    pub frames: u64,
    /// ESP between the gateways, repeated ones too.
    pub esp: u64,
    /// RoCE without its ordinary ICRC, where there should be tags. Whether these are right ones,
    /// only who has the key can tell.
    pub tagged: u64,
    /// Handshakes of the native keying, and IKE.
    pub keying: u64,
    /// ARP, neighbour discovery and ICMP between the gateways themselves.
    pub gateways: u64,
    /// Clear frames of a class that is allowed, by [`FrameClass`] number.
    pub clear_by_class: [u64; FrameClass::ALL.len()],
    /// Clear, neither from nor to what must be sealed.
    pub outside: u64,
    /// Violations: clear and must not be.
    pub plaintext: u64,
    /// Violations: RoCE that carries no tag.
    pub untagged: u64,
    /// Violations: ESP of others.
    pub foreign_esp: u64,
    /// Violations: sequence numbers that came twice.
    pub repeated: u64,
    /// ESP frames too far behind the highest of their SPI to be judged.
    pub late: u64,
    /// ESP frames of associations that there was no room to watch.
    pub unwatched: u64,
}

impl WitnessCounters {
    /// Frames that ought not to have been there.
    pub fn violations(&self) -> u64 {
        self.plaintext + self.untagged + self.foreign_esp + self.repeated
    }

    /// Frames of which nobody can say whether their numbers came twice.
    pub fn unjudged(&self) -> u64 {
        self.late + self.unwatched
    }
}

/// A violation as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// What is wrong.
    pub violation: Violation,
    /// The frame's number among those looked at, from 1.
    pub frame: u64,
    /// Its length in bytes.
    pub len: usize,
    /// Its headers.
    pub glance: Glance,
}

/// A witness at work.
#[derive(Debug)]
pub struct Witness {
    expected: Expectations,
    counters: WitnessCounters,
    associations: BTreeMap<Association, Watched>,
    /// Of those, how many have a window.
    windows: usize,
    /// No association becomes idle before this many frames were seen.
    none_idle_until: u64,
    examples: Vec<Example>,
}

/// What is known of an association.
#[derive(Debug)]
struct Watched {
    /// The frame that was its last.
    last: u64,
    highest: u32,
    /// Which numbers up to this one came is not known any more.
    forgotten_to: Option<u32>,
    /// Absent once it was idle and made room.
    window: Option<Sequences>,
}

impl Watched {
    fn note(&mut self, sequence: u32) -> Noted {
        let seen = self.window.get_or_insert_with(|| Sequences::after(self.highest));
        if self.forgotten_to.is_some_and(|it| !is_ahead(sequence, it)) {
            return Noted::TooOld;
        }
        let noted = seen.note(sequence);
        self.highest = seen.highest;
        // What is too old for the window is told by that from here on.
        self.forgotten_to.take_if(|it| seen.highest.wrapping_sub(*it) >= WINDOW);
        noted
    }
}

/// One direction between two gateways: SPIs are chosen by receivers.
type Association = ([u8; 16], u32);

impl Witness {
    /// A witness of what is `expected`.
    pub fn new(expected: Expectations) -> Self {
        Self {
            expected,
            counters: WitnessCounters::default(),
            associations: BTreeMap::new(),
            windows: 0,
            none_idle_until: 0,
            examples: Vec::new(),
        }
    }

    /// Looks at a frame of `len` bytes, whose first are `bytes`. Says what is wrong with it.
    pub fn see(&mut self, bytes: &[u8], len: usize) -> Option<Violation> {
        self.counters.frames += 1;
        let glance = Glance::at(bytes, len).unwrap_or(NOTHING);
        let violation = self.judge(&glance, bytes, len)?;
        let counter = match violation {
            Violation::Plaintext => &mut self.counters.plaintext,
            Violation::Untagged => &mut self.counters.untagged,
            Violation::ForeignEsp => &mut self.counters.foreign_esp,
            Violation::RepeatedSequence => &mut self.counters.repeated,
        };
        *counter += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(Example { violation, frame: self.counters.frames, len, glance });
        }
        Some(violation)
    }

    /// What was seen so far.
    pub fn counters(&self) -> &WitnessCounters {
        &self.counters
    }

    /// The first violations.
    pub fn examples(&self) -> &[Example] {
        &self.examples
    }

    /// SPIs seen, with the receiver's address and the highest sequence number.
    pub fn associations(&self) -> impl Iterator<Item = ([u8; 16], u32, u32)> {
        self.associations.iter().map(|((to, spi), seen)| (*to, *spi, seen.highest))
    }

    fn judge(&mut self, glance: &Glance, bytes: &[u8], len: usize) -> Option<Violation> {
        let in_udp = |(_, destination): (u16, u16)| destination == NAT_TRAVERSAL_PORT;
        if let Some(numbers) = glance.esp(bytes, in_udp) {
            if !self.is_between_gateways(glance) {
                return Some(Violation::ForeignEsp);
            }
            self.counters.esp += 1;
            return self.follow(glance, numbers);
        }
        if self.is_gateways_own(glance) {
            return None;
        }
        if let Some(class) = glance.class().filter(|it| self.expected.allowed.contains(it)) {
            self.counters.clear_by_class[class as usize] += 1;
            return None;
        }
        if plain::is_roce(glance) && is_inside(&self.expected.tagged, glance) {
            if plain::has_plain_icrc(glance, bytes, len) != Some(false) {
                return Some(Violation::Untagged);
            }
            self.counters.tagged += 1;
            return None;
        }
        if self.must_be_sealed(glance) {
            return Some(Violation::Plaintext);
        }
        self.counters.outside += 1;
        None
    }

    /// What gateways say for themselves: to find and to key each other. Without their addresses it
    /// is told by its form alone.
    fn is_gateways_own(&mut self, glance: &Glance) -> bool {
        let named = !self.expected.gateways.is_empty();
        if named && !self.is_from_gateway(glance) {
            return false;
        }
        match glance.kind {
            Kind::Udp { ports, word, .. } if self.is_key_exchange(ports, word) => {
                self.counters.keying += 1;
            }
            Kind::Arp | Kind::Icmp(_) | Kind::Icmpv6(_) | Kind::Discovery if named => {
                self.counters.gateways += 1;
            }
            _ => return false,
        }
        true
    }

    fn is_key_exchange(&self, ports: (u16, u16), word: [u8; 4]) -> bool {
        let keying = self.expected.keying_port;
        let native = (ports.0 == keying || ports.1 == keying) && matches!(word, [1..=3, 0, 0, 0]);
        let is = |port| ports.0 == port || ports.1 == port;
        native || is(IKE_PORT) || (is(NAT_TRAVERSAL_PORT) && (word == [0; 4] || word[0] == 0xff))
    }

    fn is_from_gateway(&self, glance: &Glance) -> bool {
        glance.addresses.is_some_and(|(source, _)| self.expected.gateways.contains(&source))
    }

    fn is_between_gateways(&self, glance: &Glance) -> bool {
        let gateways = &self.expected.gateways;
        let both = |(source, destination): ([u8; 16], [u8; 16])| {
            gateways.contains(&source) && gateways.contains(&destination)
        };
        gateways.is_empty() || glance.addresses.is_some_and(both)
    }

    fn must_be_sealed(&self, glance: &Glance) -> bool {
        let Expectations { sealed, tagged, .. } = &self.expected;
        // A frame without addresses belongs to no prefix, and to everything.
        (sealed.is_empty() && tagged.is_empty()) || is_inside(sealed, glance)
    }

    fn follow(&mut self, glance: &Glance, numbers: EspNumbers) -> Option<Violation> {
        let key = (glance.addresses.map_or([0; 16], |(_, to)| to), numbers.spi);
        let now = self.counters.frames;
        let known = self.associations.get(&key);
        if known.is_none_or(|it| it.window.is_none()) {
            let has_place = known.is_some() || self.associations.len() < KNOWN_MAX;
            if !(has_place && self.make_room(now)) {
                self.counters.unwatched += 1;
                return None;
            }
            self.windows += 1;
        }
        let before = numbers.sequence.wrapping_sub(1);
        let watched = self.associations.entry(key).or_insert_with(|| Watched {
            last: now,
            highest: before,
            forgotten_to: None,
            window: None,
        });
        watched.last = now;
        match watched.note(numbers.sequence) {
            Noted::New => None,
            Noted::Again => Some(Violation::RepeatedSequence),
            Noted::TooOld => {
                self.counters.late += 1;
                None
            }
        }
    }

    /// Whether there is room for one more window: the one that was idle for longest goes.
    fn make_room(&mut self, now: u64) -> bool {
        if self.windows < ASSOCIATIONS_MAX {
            return true;
        }
        if now < self.none_idle_until {
            return false;
        }
        let with_window = self.associations.values_mut().filter(|it| it.window.is_some());
        let Some(oldest) = with_window.min_by_key(|it| it.last) else { return false };
        self.none_idle_until = oldest.last + IDLE_FRAMES;
        if now < self.none_idle_until {
            return false;
        }
        (oldest.window, oldest.forgotten_to) = (None, Some(oldest.highest));
        self.windows -= 1;
        true
    }
}

/// Whether it comes from or goes to one of these.
fn is_inside(prefixes: &[Prefix], glance: &Glance) -> bool {
    glance.addresses.is_some_and(|(source, destination)| {
        prefixes.iter().any(|it| it.contains(&source) || it.contains(&destination))
    })
}

const NOTHING: Glance = Glance {
    to: [0; 6],
    from: [0; 6],
    ethertype: 0,
    addresses: None,
    protocol: 0,
    kind: Kind::Unreadable,
};

enum Noted {
    New,
    Again,
    TooOld,
}

/// The sequence numbers of one SPI, modulo 2^32: with extended numbers, the low half is what the
/// wire shows.
#[derive(Debug)]
struct Sequences {
    highest: u32,
    bits: Box<[u64; WINDOW_WORDS]>,
}

impl Sequences {
    /// Of numbers about `highest`, none was seen.
    fn after(highest: u32) -> Self {
        Self { highest, bits: Box::new([0; WINDOW_WORDS]) }
    }

    fn note(&mut self, sequence: u32) -> Noted {
        let ahead = sequence.wrapping_sub(self.highest);
        if is_ahead(sequence, self.highest) {
            if ahead >= WINDOW {
                self.bits.fill(0);
            } else {
                (1..=ahead).for_each(|step| self.set(self.highest.wrapping_add(step), false));
            }
            self.highest = sequence;
        } else if self.highest.wrapping_sub(sequence) >= WINDOW {
            return Noted::TooOld;
        } else if self.bits[word(sequence)] & bit(sequence) != 0 {
            return Noted::Again;
        }
        self.set(sequence, true);
        Noted::New
    }

    fn set(&mut self, sequence: u32, value: bool) {
        let word = &mut self.bits[word(sequence)];
        *word = if value { *word | bit(sequence) } else { *word & !bit(sequence) };
    }
}

/// By serial number arithmetic (RFC 1982).
fn is_ahead(sequence: u32, highest: u32) -> bool {
    (1..1 << 31).contains(&sequence.wrapping_sub(highest))
}

fn word(sequence: u32) -> usize {
    (sequence % WINDOW) as usize / 64
}

fn bit(sequence: u32) -> u64 {
    1 << (sequence % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::mapped;

    const A: [u8; 4] = [192, 0, 2, 1];
    const B: [u8; 4] = [192, 0, 2, 2];

    fn packet(from: [u8; 4], to: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
        frame.extend((20 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend([from, to].concat());
        frame.extend(payload);
        frame
    }

    fn esp(from: [u8; 4], to: [u8; 4], spi: u32, sequence: u32) -> Vec<u8> {
        let mut payload = [spi.to_be_bytes(), sequence.to_be_bytes()].concat();
        payload.resize(60, 0xa5);
        packet(from, to, 50, &payload)
    }

    fn witness(sealed: Vec<Prefix>) -> Witness {
        let gateways = [A, B].map(|it| mapped(it.into())).to_vec();
        Witness::new(Expectations { sealed, gateways, keying_port: 51_840, ..Default::default() })
    }

    #[test]
    fn only_esp_between_the_gateways_is_no_violation() {
        let mut witness = witness(vec![]);
        let mut see = |frame: Vec<u8>| witness.see(&frame, frame.len());
        assert_eq!(see(esp(A, B, 0x1001, 1)), None);
        assert_eq!(see(esp(B, A, 0x1001, 1)), None, "the other direction's SPI is its own");
        assert_eq!(see(packet(A, B, 1, &[8, 0, 0, 0])), None, "a gateway pings the other");
        assert_eq!(see(esp(A, [192, 0, 2, 9], 0x1001, 2)), Some(Violation::ForeignEsp));
        let tcp = packet([10, 0, 0, 1], [10, 0, 0, 2], 6, &[0; 20]);
        assert_eq!(see(tcp), Some(Violation::Plaintext));
        assert_eq!(see(packet(A, B, 6, &[0; 20])), Some(Violation::Plaintext), "nor theirs");
        assert_eq!(see(vec![0; 3]), Some(Violation::Plaintext), "what nobody can read");
        assert_eq!(witness.counters().violations(), 4);
        assert_eq!(witness.examples().len(), 4);
    }

    #[test]
    fn what_need_not_be_sealed_is_counted_as_outside() {
        let mut witness = witness(vec![Prefix::new([10, 0, 0, 0].into(), 8)]);
        let frame = packet([172, 16, 0, 1], [172, 16, 0, 2], 6, &[0; 20]);
        assert_eq!(witness.see(&frame, frame.len()), None);
        let frame = packet([172, 16, 0, 1], [10, 9, 9, 9], 6, &[0; 20]);
        assert_eq!(witness.see(&frame, frame.len()), Some(Violation::Plaintext));
        assert_eq!(witness.counters().outside, 1);
    }

    #[test]
    fn a_sequence_number_that_comes_twice_is_a_violation_of_its_own() {
        let mut witness = witness(vec![]);
        let mut see = |sequence| {
            let frame = esp(A, B, 0x1001, sequence);
            witness.see(&frame, frame.len())
        };
        assert_eq!([see(7), see(9), see(8)], [None; 3], "order is the network's business");
        assert_eq!(see(9), Some(Violation::RepeatedSequence));
        assert_eq!(see(7), Some(Violation::RepeatedSequence));
        assert_eq!(see(9 + WINDOW), None);
        assert_eq!(see(9), None, "too old to tell");
        assert_eq!(witness.counters().late, 1);
    }

    #[test]
    fn associations_beyond_the_bound_are_counted_and_an_idle_one_makes_room() {
        let mut witness = witness(vec![]);
        let see = |witness: &mut Witness, spi: u32, sequence| {
            let frame = esp(A, B, 256 + spi, sequence);
            witness.see(&frame, frame.len())
        };
        // Somebody makes SPIs up, and none is left for those of the gateways.
        for spi in 0..ASSOCIATIONS_MAX as u32 + 3 {
            assert_eq!(see(&mut witness, spi, 7), None);
        }
        assert_eq!(witness.counters().unwatched, 3);
        assert_eq!(witness.counters().unjudged(), 3);
        assert_eq!(witness.associations().count(), ASSOCIATIONS_MAX);
        // They stay idle: the next one is watched.
        let tcp = packet([10, 0, 0, 1], [10, 0, 0, 2], 6, &[0; 20]);
        for _ in 0..IDLE_FRAMES {
            witness.see(&tcp, tcp.len());
        }
        assert_eq!(see(&mut witness, 5000, 1), None);
        assert_eq!(see(&mut witness, 5000, 1), Some(Violation::RepeatedSequence));
        assert_eq!(witness.counters().unwatched, 3);
        // The first of them made room. Of it, no number up to its highest can be judged.
        assert_eq!(see(&mut witness, 0, 6), None);
        assert_eq!(see(&mut witness, 0, 7), None);
        assert_eq!(witness.counters().late, 2);
        assert_eq!(see(&mut witness, 0, 8), None);
        assert_eq!(see(&mut witness, 0, 8), Some(Violation::RepeatedSequence));
        assert_eq!(see(&mut witness, 0, 5), None, "late, not repeated");
        assert_eq!(witness.counters().unjudged(), 6);
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set(
            start: u32,
            steps in proptest::collection::vec(-300i32..400, 1..400),
        ) {
            let mut sequences = Sequences::after(start.wrapping_sub(1));
            let (mut seen, mut now) = (BTreeSet::new(), i64::from(start));
            for step in [0].into_iter().chain(steps) {
                now += i64::from(step);
                let again = matches!(sequences.note(now as u32), Noted::Again);
                // Steps are small: within the window of what came before, unless it went down far.
                let highest = seen.last().copied().unwrap_or(now);
                if highest - now < i64::from(WINDOW) && now >= i64::from(start) {
                    prop_assert_eq!(again, !seen.insert(now));
                }
            }
        }

        #[test]
        fn no_bytes_bring_a_witness_down(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            len in 0usize..3000,
        ) {
            let mut witness = witness(vec![]);
            witness.see(&bytes, len);
            prop_assert_eq!(witness.counters().frames, 1);
        }
    }
}
