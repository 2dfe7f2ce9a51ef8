//! Proof at the wire: of every frame about to leave, is it sealed, or may it be clear?
//!
//! The shell asks [`WireProof::admit`] last of all, with the very bytes that it gives to the port.
//! The answer rests on those bytes and the policy, and on nothing that the sealing side says
//! ([`glance`] shares no code with it). [`witness`] asks the same of two gateways from outside.

pub mod glance;
mod plain;
pub mod witness;

use std::collections::BTreeSet;

use glance::{Glance, IKE_PORT, Kind, NAT_TRAVERSAL_PORT};

use crate::policy::{Action, Encapsulation, FrameClass, Mode, OnLeak, OtherTraffic, Policy, Route};
use crate::tunnel::{MESSAGE_LEN_MAX, MESSAGE_LEN_MIN};

/// Bytes of a data message of WireGuard without text: header and tag.
const DATA_LEN_MIN: usize = 16 + 16;

/// What was found out about the frames that came to the wire. `checked` = the sum of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProofCounters {
    /// Frames looked at; a super-packet is one.
    pub checked: u64,
    /// ESP over IP or in UDP, and WireGuard's data messages.
    pub esp: u64,
    /// RoCE to a peer whose packets are tagged, with another value than its ordinary ICRC: a tag,
    /// or damage. Only who has the key can tell.
    pub tagged: u64,
    /// Handshake datagrams of the native keying.
    pub keying: u64,
    /// The gateway's own ARP, neighbour discovery, ICMP and IKE.
    pub own: u64,
    /// Of a class that `[pair.frames]` lets pass in clear, by [`FrameClass`] number.
    pub clear_by_class: [u64; FrameClass::ALL.len()],
    /// To addresses that the policy leaves in clear, or whose peer need not be sealed to yet.
    pub clear_by_policy: u64,
    /// Must be sealed and was not.
    pub plaintext: u64,
    /// Of `plaintext`: kept from the wire. The rest left.
    pub plaintext_dropped: u64,
}

impl ProofCounters {
    /// Whether each frame that was looked at is one of these.
    pub fn adds_up(&self) -> bool {
        let clear = self.clear_by_class.iter().sum::<u64>() + self.clear_by_policy;
        let protected = self.esp + self.tagged;
        self.checked == protected + self.keying + self.own + clear + self.plaintext
    }
}

/// The last check before the wire, for one policy.
#[derive(Debug)]
pub struct WireProof {
    /// Whether anything is kept from the wire; a gateway that only watches has nothing to prove.
    is_sealing: bool,
    policy: Policy,
    /// Ports of ESP in UDP that any peer is sent; `None` as source: any.
    esp_ports: BTreeSet<(Option<u16>, u16)>,
    /// Whether ESP comes from an own address only: every peer is reached from there.
    esp_is_own: bool,
    /// Whether a translator may have given a peer another port than [`NAT_TRAVERSAL_PORT`].
    may_be_translated: bool,
    /// Whether peers are clients that speak WireGuard.
    has_clients: bool,
    counters: ProofCounters,
    last: Option<Glance>,
}

impl WireProof {
    /// A check of what `policy` says.
    pub fn new(policy: &Policy) -> Self {
        let mut proof = Self {
            is_sealing: false,
            policy: policy.clone(),
            esp_ports: BTreeSet::new(),
            esp_is_own: false,
            may_be_translated: false,
            has_clients: false,
            counters: ProofCounters::default(),
            last: None,
        };
        proof.renew(policy);
        proof
    }

    /// Goes on by another policy; the counters stay.
    pub fn renew(&mut self, policy: &Policy) {
        self.is_sealing = policy.seals() || policy.default != Action::Clear;
        let ports = policy.peers.iter().filter_map(|peer| match peer.encapsulation {
            Encapsulation::Esp => None,
            Encapsulation::Udp | Encapsulation::UdpSpread => Some((None, NAT_TRAVERSAL_PORT)),
            Encapsulation::UdpPorts { source, destination } => Some((Some(source), destination)),
        });
        self.esp_ports = ports.collect();
        self.esp_is_own =
            policy.own.is_some() && policy.peers.iter().all(|peer| peer.mode == Mode::Ethernet);
        self.may_be_translated = policy
            .peers
            .iter()
            .any(|peer| peer.agreed.is_some() && peer.encapsulation == Encapsulation::Udp);
        self.has_clients = policy.peers.iter().any(|peer| peer.mode == Mode::WireGuard);
        self.policy = policy.clone();
    }

    /// Whether a frame of `len` bytes, whose headers stand in `first`, may leave by the wire.
    /// Counts it.
    #[inline]
    pub fn admit(&mut self, first: &[u8], len: usize) -> bool {
        if !self.is_sealing {
            return true;
        }
        self.counters.checked += 1;
        let Some(glance) = Glance::at(first, len) else { return self.plaintext(None) };
        if self.is_sealed(&glance, first) || self.has_clients && is_data(&self.policy, &glance) {
            self.counters.esp += 1;
            return true;
        }
        self.admit_clear(&glance, first, len)
    }

    /// What was found so far.
    pub fn counters(&self) -> &ProofCounters {
        &self.counters
    }

    /// Headers of the last frame that must be sealed and was not.
    pub fn last_plaintext(&self) -> Option<&Glance> {
        self.last.as_ref()
    }

    #[inline]
    fn is_sealed(&self, glance: &Glance, first: &[u8]) -> bool {
        let in_udp = |(source, destination)| {
            self.esp_ports.contains(&(None, destination))
                || self.esp_ports.contains(&(Some(source), destination))
                || self.may_be_translated
                    && source == NAT_TRAVERSAL_PORT
                    && self.is_from_own(glance)
        };
        glance.esp(first, in_udp).is_some() && (!self.esp_is_own || self.is_from_own(glance))
    }

    fn is_from_own(&self, glance: &Glance) -> bool {
        let own = self.policy.own.as_ref();
        own.is_some_and(|own| glance.addresses.is_some_and(|(source, _)| own.holds(&source)))
    }

    /// The short list of what may be clear.
    #[cold]
    fn admit_clear(&mut self, glance: &Glance, first: &[u8], len: usize) -> bool {
        let Self { policy, counters, .. } = &mut *self;
        if is_keying(policy, glance) {
            counters.keying += 1;
            return true;
        }
        if is_own(policy, glance) {
            counters.own += 1;
            return true;
        }
        if let Some(class) = glance.class() {
            let peer = policy.peer_for_everything();
            match policy.frames.of(class) {
                Action::Clear => {}
                Action::Seal if peer.is_some_and(|peer| policy.may_be_clear(peer)) => {
                    counters.clear_by_policy += 1;
                    return true;
                }
                _ => return self.plaintext(Some(*glance)),
            }
            counters.clear_by_class[class as usize] += 1;
            return true;
        }
        let way = match glance.addresses {
            Some((_, destination)) => policy.route_to(&destination),
            // It may go to anybody.
            None if glance.kind == Kind::Unreadable => return self.plaintext(Some(*glance)),
            None => policy.peer_for_everything().map(|peer| Route::Peer(peer as u32)),
        };
        match (way, policy.default) {
            (Some(Route::Clear), _) | (None, Action::Clear) => counters.clear_by_policy += 1,
            (Some(Route::Peer(peer)), _) => {
                let peer = peer as usize;
                let may_be_clear = match policy.peers[peer].mode {
                    Mode::IcrcTag(_) if is_tagged(glance, first, len) => {
                        counters.tagged += 1;
                        return true;
                    }
                    Mode::IcrcTag(terms) if is_other(glance) => terms.other == OtherTraffic::Clear,
                    _ => false,
                };
                if !may_be_clear && !policy.may_be_clear(peer) {
                    return self.plaintext(Some(*glance));
                }
                counters.clear_by_policy += 1;
            }
            _ => return self.plaintext(Some(*glance)),
        }
        true
    }

    fn plaintext(&mut self, glance: Option<Glance>) -> bool {
        self.counters.plaintext += 1;
        self.last = glance.or(self.last);
        let stays = self.policy.on_leak == OnLeak::Drop;
        self.counters.plaintext_dropped += u64::from(stays);
        !stays
    }
}

/// RoCE that does not carry its ordinary ICRC.
fn is_tagged(glance: &Glance, first: &[u8], len: usize) -> bool {
    plain::is_roce(glance) && plain::has_plain_icrc(glance, first, len) == Some(false)
}

/// Neither RoCE nor anything that may be.
fn is_other(glance: &Glance) -> bool {
    !plain::is_roce(glance) && glance.kind != Kind::Unreadable
}

/// A handshake datagram: from the keying port, and shaped like one. From an own address where there
/// is one.
fn is_keying(policy: &Policy, glance: &Glance) -> bool {
    let Kind::Udp { ports, word, payload_len, .. } = glance.kind else { return false };
    let from_us = match (&policy.own, glance.addresses) {
        (Some(own), Some((source, _))) => own.holds(&source),
        (Some(_), None) => false,
        (None, _) => true,
    };
    from_us
        && policy.keying_port == Some(ports.0)
        && matches!(word, [1..=3, 0, 0, 0])
        && (MESSAGE_LEN_MIN..=MESSAGE_LEN_MAX).contains(&payload_len)
}

/// A data message of WireGuard (whitepaper s5.4.6): from an own address and the keying port, and
/// shaped like one.
fn is_data(policy: &Policy, glance: &Glance) -> bool {
    let Kind::Udp { ports, word, payload_len, .. } = glance.kind else { return false };
    let (Some(own), Some((source, _))) = (&policy.own, glance.addresses) else { return false };
    own.holds(&source)
        && policy.keying_port == Some(ports.0)
        && word == [4, 0, 0, 0]
        && payload_len >= DATA_LEN_MIN
        && payload_len.is_multiple_of(16)
}

/// What the gateway itself says: from its own MAC and an own address, ARP, ICMP and IKE.
fn is_own(policy: &Policy, glance: &Glance) -> bool {
    let Some(own) = &policy.own else { return false };
    let Some((source, _)) = glance.addresses else { return false };
    if glance.from != own.mac.0 || !own.holds(&source) {
        return false;
    }
    match glance.kind {
        Kind::Arp | Kind::Icmp(_) | Kind::Icmpv6(_) | Kind::Discovery => true,
        Kind::Udp { ports: (IKE_PORT, _), .. } => true,
        // What it says is its own to seal: that port belongs to a daemon that does (docs/adr/0170).
        Kind::Udp { ports: (source, _), .. } if own.daemon_ports.contains(&source) => true,
        // RFC 3948 s2.2, s2.3: the non-ESP marker, or a keepalive.
        Kind::Udp { ports: (NAT_TRAVERSAL_PORT, _), word, payload_len, .. } => {
            word == [0; 4] || (payload_len == 1 && word[0] == 0xff)
        }
        _ => false,
    }
}
