//! Attacks on RDMA and floods, each with a benign twin that looks like it: what detection is judged
//! by. Host B attacks host A; everything is decided by a seed.
//!
//! | attack | its benign twin |
//! |---|---|
//! | `psn-injection` | one queue pair with losses and what is sent again |
//! | `psn-conflict` | WRITEs, some sent twice |
//! | `invalid-request` | messages of several packets |
//! | `uc-psn-injection` | an unreliable queue pair with losses, wide ones too |
//! | `uc-psn-conflict` | an unreliable queue pair of whose packets some come twice |
//! | `uc-invalid-request` | messages on an unreliable queue pair of which pieces are lost |
//! | `xrc-psn-conflict`, `xrc-key-guessing`, `xrc-write-length` | as those without `xrc-` |
//! | `write-length` | WRITEs of many lengths, as their RETHs say |
//! | `key-guessing` | many R_Keys, all granted |
//! | `address-guessing` | many addresses, nearly all granted |
//! | `qp-exhaustion` | connections that are completed, and end |
//! | `idle-queue-pairs` | connections of which nearly all are used or end |
//! | `exfiltration` | READs by a host that was known from the start |
//! | `port-change` | a queue pair that moves to another port once |
//! | `address-conflict` | an address that moves to another adapter once |
//! | `guid-conflict` | a host with two addresses, adapters that move once or are replaced |
//! | `state-saturation` | as many packets of few queue pairs |
//! | `key-saturation` | memory that is registered anew for each packet, in few entries |
//! | `pipeline-saturation` | as many READs, most of them large |
//! | `rnr-flood` | a receiver that is not ready now and then |
//! | `rogue-sm` | what diagnostic tools ask, and counters that they reset |
//! | `pkey-guessing`, `qkey-guessing` | two of each |
//! | `side-channel` | a poll of one address, then READs here and there |
//! | `forged-cnp` | congestion notifications for data |
//! | `read-flood`, `write-flood`, `cm-flood`, `mad-flood`, `cnp-flood` | the same, sent slowly |
//! | `syn-flood`, `udp-flood`, `icmp-flood`, `dns-flood` | the same, sent slowly |
//! | `half-open-flood` | as many connections, all set up |
//! | `carpet-flood`: UDP to all hosts of a network | the same, sent slowly |
//! | `ack-flood`: segments of connections that are not there | as many of one connection |
//! | `scan` | connections to as many services, all of which answer |

mod build;
mod connections;
mod extended;
mod flood;
mod rdma;
mod saturation;
mod unreliable;

use std::net::Ipv4Addr;

use anyhow::{Result, bail};

use super::frames::Planned;
use crate::topology::{HOST_V4, Side};

/// An attack that is told by many packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the table above")]
pub enum Hostile {
    PsnInjection,
    PsnConflict,
    InvalidRequest,
    UcPsnInjection,
    UcPsnConflict,
    UcInvalidRequest,
    XrcPsnConflict,
    XrcKeyGuessing,
    XrcWriteLength,
    WriteLength,
    KeyGuessing,
    AddressGuessing,
    QpExhaustion,
    IdleQueuePairs,
    Exfiltration,
    PortChange,
    AddressConflict,
    GuidConflict,
    StateSaturation,
    KeySaturation,
    PipelineSaturation,
    RnrFlood,
    RogueSm,
    PkeyGuessing,
    QkeyGuessing,
    SideChannel,
    ForgedCnp,
    ReadFlood,
    WriteFlood,
    CmFlood,
    MadFlood,
    CnpFlood,
    SynFlood,
    UdpFlood,
    IcmpFlood,
    DnsFlood,
    HalfOpenFlood,
    CarpetFlood,
    AckFlood,
    Scan,
}

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// What is done.
    pub hostile: Hostile,
    /// Its benign twin instead.
    pub is_benign: bool,
    /// Frames of the attacker, at least.
    pub count: usize,
    /// Addresses that a flood comes from; 0: another each time.
    pub sources: u32,
    /// Decides everything else.
    pub seed: u64,
}

impl Hostile {
    /// All of them.
    pub const ALL: [(&'static str, Hostile); 40] = [
        ("psn-injection", Hostile::PsnInjection),
        ("psn-conflict", Hostile::PsnConflict),
        ("invalid-request", Hostile::InvalidRequest),
        ("uc-psn-injection", Hostile::UcPsnInjection),
        ("uc-psn-conflict", Hostile::UcPsnConflict),
        ("uc-invalid-request", Hostile::UcInvalidRequest),
        ("xrc-psn-conflict", Hostile::XrcPsnConflict),
        ("xrc-key-guessing", Hostile::XrcKeyGuessing),
        ("xrc-write-length", Hostile::XrcWriteLength),
        ("write-length", Hostile::WriteLength),
        ("key-guessing", Hostile::KeyGuessing),
        ("address-guessing", Hostile::AddressGuessing),
        ("qp-exhaustion", Hostile::QpExhaustion),
        ("idle-queue-pairs", Hostile::IdleQueuePairs),
        ("exfiltration", Hostile::Exfiltration),
        ("port-change", Hostile::PortChange),
        ("address-conflict", Hostile::AddressConflict),
        ("guid-conflict", Hostile::GuidConflict),
        ("state-saturation", Hostile::StateSaturation),
        ("key-saturation", Hostile::KeySaturation),
        ("pipeline-saturation", Hostile::PipelineSaturation),
        ("rnr-flood", Hostile::RnrFlood),
        ("rogue-sm", Hostile::RogueSm),
        ("pkey-guessing", Hostile::PkeyGuessing),
        ("qkey-guessing", Hostile::QkeyGuessing),
        ("side-channel", Hostile::SideChannel),
        ("forged-cnp", Hostile::ForgedCnp),
        ("read-flood", Hostile::ReadFlood),
        ("write-flood", Hostile::WriteFlood),
        ("cm-flood", Hostile::CmFlood),
        ("mad-flood", Hostile::MadFlood),
        ("cnp-flood", Hostile::CnpFlood),
        ("syn-flood", Hostile::SynFlood),
        ("udp-flood", Hostile::UdpFlood),
        ("icmp-flood", Hostile::IcmpFlood),
        ("dns-flood", Hostile::DnsFlood),
        ("half-open-flood", Hostile::HalfOpenFlood),
        ("carpet-flood", Hostile::CarpetFlood),
        ("ack-flood", Hostile::AckFlood),
        ("scan", Hostile::Scan),
    ];

    /// Whether it is one by its rate alone.
    pub fn is_flood(self) -> bool {
        use Hostile::*;
        matches!(
            self,
            ReadFlood
                | WriteFlood
                | CmFlood
                | MadFlood
                | CnpFlood
                | SynFlood
                | UdpFlood
                | IcmpFlood
                | DnsFlood
                | HalfOpenFlood
                | CarpetFlood
                | AckFlood
        )
    }

    /// Whether its rate is what makes it one: a tenth of it is told of no more.
    pub fn is_by_rate(self) -> bool {
        // What is read away is told by how much it is in a minute.
        self.is_flood() || matches!(self, Self::Exfiltration | Self::PipelineSaturation)
    }

    /// The sid of the rule in `rules/` that tells it.
    pub fn rule(self) -> u32 {
        use Hostile::*;
        match self {
            PsnInjection | UcPsnInjection => 3_200_001,
            PsnConflict | UcPsnConflict | XrcPsnConflict => 3_200_002,
            InvalidRequest | UcInvalidRequest | WriteLength | XrcWriteLength => 3_200_003,
            KeyGuessing | AddressGuessing | XrcKeyGuessing => 3_200_004,
            QpExhaustion => 3_200_005,
            Exfiltration => 3_200_006,
            PortChange => 3_200_007,
            AddressConflict => 3_200_008,
            StateSaturation => 3_200_009,
            PkeyGuessing => 3_200_010,
            QkeyGuessing => 3_200_011,
            SideChannel => 3_200_012,
            ForgedCnp => 3_200_013,
            ReadFlood => 3_200_014,
            WriteFlood => 3_200_015,
            CmFlood => 3_200_016,
            MadFlood => 3_200_017,
            CnpFlood => 3_200_018,
            RnrFlood => 3_200_022,
            PipelineSaturation => 3_200_023,
            KeySaturation => 3_200_024,
            RogueSm => 3_200_025,
            GuidConflict => 3_200_029,
            IdleQueuePairs => 3_200_030,
            SynFlood => 3_200_101,
            UdpFlood => 3_200_103,
            IcmpFlood => 3_200_105,
            DnsFlood => 3_200_107,
            Scan => 3_200_108,
            HalfOpenFlood => 3_200_109,
            CarpetFlood => 3_200_113,
            AckFlood => 3_200_116,
        }
    }

    /// How many frames of it, and how many a second, its rule in `rules/` tells; of its twin, how
    /// many none does.
    pub fn usual(self, is_benign: bool) -> (u32, u32) {
        use Hostile::*;
        let (count, rate) = match self {
            PsnInjection | PsnConflict | InvalidRequest | UcPsnInjection | UcPsnConflict
            | UcInvalidRequest | WriteLength | XrcPsnConflict | XrcWriteLength => (4_000, 1_000),
            RogueSm => (1_000, 1_000),
            RnrFlood => (8_000, 4_000),
            KeySaturation => (40_000, 10_000),
            PipelineSaturation => (500_000, 800_000),
            KeyGuessing | XrcKeyGuessing | AddressGuessing | PortChange | AddressConflict
            | GuidConflict | PkeyGuessing | QkeyGuessing | ForgedCnp => (2_000, 1_000),
            QpExhaustion => (4_000, 500),
            // Half a minute until there are enough, a minute until nobody used them, and more.
            IdleQueuePairs => (9_000, 60),
            Exfiltration => (100_000, 2_000),
            StateSaturation => (40_000, 10_000),
            SideChannel => (40_000, 20_000),
            // A little more than half a second of the rule's rate, and what comes meanwhile: from
            // the 571,428th and the 1,142,857th on they are told.
            ReadFlood => (600_000, 8_000_000),
            WriteFlood => (1_200_000, 16_000_000),
            CmFlood => (20_000, 5_000),
            MadFlood => (20_000, 20_000),
            CnpFlood => (100_000, 100_000),
            SynFlood => (50_000, 50_000),
            UdpFlood => (200_000, 200_000),
            IcmpFlood | DnsFlood => (40_000, 20_000),
            HalfOpenFlood => (6_000, 1_500),
            CarpetFlood => (100_000, 100_000),
            AckFlood => (60_000, 30_000),
            Scan => (1_000, 100),
        };
        // Two differ from their twins by more than the rate. Any other flood's twin is the same at
        // a hundredth of the rate, or at less than a third of what is told.
        match self {
            HalfOpenFlood if is_benign => (3 * count, 3 * rate),
            AckFlood if is_benign => (count, rate),
            ReadFlood | WriteFlood if is_benign => (count * 2 / 5, rate / 25),
            _ if is_benign && self.is_flood() => (count / 10, rate / 100),
            _ => (count, rate),
        }
    }

    /// The attack, or the twin, that `attack-NAME` or `benign-NAME` names.
    ///
    /// # Errors
    /// There is none.
    pub fn from_name(name: &str) -> Result<(Self, bool)> {
        let (is_benign, bare) = match name.split_once('-') {
            Some(("attack", rest)) => (false, rest),
            Some(("benign", rest)) => (true, rest),
            _ => bail!("`{name}` begins neither with attack- nor with benign-"),
        };
        let known = Self::ALL.iter().find(|(known, _)| *known == bare);
        match known {
            Some((_, hostile)) => Ok((*hostile, is_benign)),
            None => bail!("no attack is called {bare}"),
        }
    }
}

impl Campaign {
    /// When its frame of that number (from 0 on) is sent, at `rate` a second, from the first one
    /// on: nanoseconds. What is read away is read by a host that comes ten minutes after others,
    /// and what is usual is learnt for a minute before a flood exceeds it.
    pub fn sent_ns(&self, number: u64, rate: u64) -> u64 {
        let pause = match self.hostile {
            Hostile::Exfiltration if !self.is_benign && number > 0 => 600_000_000_000,
            Hostile::AckFlood if number > 0 => 61_000_000_000,
            _ => 0,
        };
        pause + number * 1_000_000_000 / rate.max(1)
    }

    /// The frames in their order.
    pub fn frames(&self) -> Vec<Planned> {
        let mut random = Random(self.seed);
        match self.hostile.is_flood() {
            true => flood::frames(self, &mut random),
            false => rdma::frames(self, &mut random),
        }
    }

    /// The `number`th of the attacker's addresses.
    fn source(&self, number: u64, random: &mut Random) -> Ipv4Addr {
        match self.sources {
            0 => Ipv4Addr::from(random.below(0xdf00_0000) as u32 + 0x0100_0000),
            1 => HOST_V4[Side::B.index()],
            several => Ipv4Addr::from(0x0a4d_0100 + (number % u64::from(several)) as u32),
        }
    }
}

/// Numbers that a seed decides: SplitMix64 (Steele et al., OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Whether one of `in_so_many` came.
    fn one(&mut self, in_so_many: u64) -> bool {
        self.below(in_so_many) == 0
    }
}
