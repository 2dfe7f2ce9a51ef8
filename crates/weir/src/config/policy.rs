//! From settings to what the engine takes: a `Policy` and the parameters of associations.

use std::path::PathBuf;

use weir_engine::esp::sa::{SaError, SaParameters, Spi};
use weir_engine::esp::spread::worker_association;
use weir_engine::policy::{self, Action, OwnAddress, Policy};
use weir_engine::tunnel::PeerSettings;
use weir_engine::tunnel::handshake::Terms;
use weir_engine::tunnel::key::PresharedKey;
use weir_engine::tunnel::path::Path;
use weir_wire::parse::MacAddress;

use super::key::Keys;
use super::keying::Secrets;
use super::settings::*;
use super::tag;

/// What only the machine knows of a pair's wire port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WirePort {
    /// Its MAC address.
    pub mac: MacAddress,
    /// The largest IP packet that it carries, bytes.
    pub mtu_bytes: u16,
}

/// One peer's two associations, ready for the engine.
#[derive(Clone, Debug)]
pub struct PeerAssociations {
    /// The peer's name.
    pub peer: String,
    /// To the peer.
    pub seal: SaParameters,
    /// From the peer.
    pub open: SaParameters,
    /// Where it is noted that the key to the peer sealed.
    pub stamp: PathBuf,
}

/// The policy of `pair`, numbered `epoch`, as its `worker` has it: with that one's associations.
pub fn policy(
    pair: &Pair,
    keying: Option<&Keying>,
    wire: WirePort,
    epoch: u32,
    worker: usize,
) -> Policy {
    let mut policy = Policy::watch(epoch, wire.mtu_bytes);
    policy.default = match pair.unprotected {
        Unprotected::Drop => Action::Drop,
        Unprotected::Seal => Action::Seal,
        Unprotected::Forward => Action::Clear,
    };
    policy.frames = pair.frames;
    policy.on_leak = match pair.on_leak {
        OnLeak::Drop => policy::OnLeak::Drop,
        OnLeak::Alert => policy::OnLeak::Alert,
    };
    policy.access = pair.access.clone();
    policy.check_icrc = pair.icrc == Icrc::Check;
    policy.marking = pair.marking.clone();
    policy.gather = pair.driver != Driver::Xdp;
    policy.masquerade = pair.vpn.as_ref().and_then(|vpn| vpn.masquerade);
    if let Some(openvpn) = &pair.openvpn {
        policy.masquerade = policy.masquerade.or(openvpn.masquerade);
    }
    policy.own = (!pair.addresses.is_empty()).then(|| OwnAddress {
        mac: wire.mac,
        addresses: pair.addresses.iter().map(|own| (own.address, own.length_bits)).collect(),
        next_hop: pair.next_hop,
        daemon_ports: pair.peers.iter().filter_map(Peer::tunnel).map(|it| it.port).collect(),
        vlan: pair.vlan,
    });
    let agrees = |peer: &Peer| matches!(peer.keys, PeerKeys::Agreed { .. });
    policy.keying_port = keying.filter(|_| pair.peers.iter().any(agrees)).map(|it| it.port);
    let sole = pair.peers.len() == 1 && pair.unprotected == Unprotected::Seal;
    let mut peers: Vec<_> = pair.peers.iter().map(|peer| compile(peer, sole, worker)).collect();
    fit_tunnels(&mut peers, wire);
    let kernel = peers.iter_mut().filter_map(|peer| peer.kernel.as_mut());
    kernel.zip(0..).for_each(|(kernel, place)| kernel.place = place);
    policy.with_peers(peers)
}

/// Bytes that OpenVPN's daemon puts around a packet, at most: IPv6, UDP, opcode and peer ID, and of
/// its ciphers the one with the longest: a hash of 32, an IV of 16, a packet ID of 8, padding of
/// 16.
const OPENVPN_AROUND_BYTES: u16 = 40 + 8 + 4 + 32 + 16 + 8 + 16;

/// Has no packet in a tunnel of OpenVPN be longer than what the wire carries whole: the gateway's
/// kernel would cut it, and the fast end of the wire drops cut ones.
fn fit_tunnels(peers: &mut [policy::Peer], wire: WirePort) {
    for peer in peers {
        if let policy::Mode::Device { mtu } = &mut peer.mode {
            *mtu = (*mtu).min(wire.mtu_bytes.saturating_sub(OPENVPN_AROUND_BYTES));
        }
    }
}

fn compile(peer: &Peer, gets_the_rest: bool, worker: usize) -> policy::Peer {
    let (mut protects, mut everything) = match &peer.protects {
        Protects::Everything => (vec![policy::Prefix::ALL], true),
        Protects::Prefixes(list) => (
            list.iter()
                .map(|prefix| policy::Prefix::new(prefix.network(), prefix.length_bits()))
                .collect(),
            false,
        ),
    };
    if gets_the_rest && !everything {
        protects.push(policy::Prefix::ALL);
        everything = true;
    }
    let by_kernel = peer.is_by_kernel();
    let by_weir = peer.configured().filter(|_| !by_kernel && worker < peer.workers);
    let number = worker as u32;
    policy::Peer {
        name: peer.name.clone(),
        mode: match peer.mode {
            Mode::Ethernet => policy::Mode::Ethernet,
            Mode::Tunnel => policy::Mode::Tunnel,
            Mode::Transport => policy::Mode::Transport,
            Mode::WireGuard => policy::Mode::WireGuard,
            Mode::OpenVpn => {
                policy::Mode::Device { mtu: peer.tunnel().map_or(0, |tunnel| tunnel.mtu_bytes) }
            }
            Mode::IcrcTag => {
                policy::Mode::IcrcTag(peer.tag.as_ref().map(tag::terms).unwrap_or_default())
            }
        },
        encapsulation: match peer.encapsulation {
            Encapsulation::Esp => policy::Encapsulation::Esp,
            Encapsulation::Udp if peer.spread => policy::Encapsulation::UdpSpread,
            Encapsulation::Udp => policy::Encapsulation::Udp,
        },
        sealing: match peer.sealing {
            Sealing::Observe => policy::Sealing::Observe,
            Sealing::Prefer => policy::Sealing::Prefer,
            Sealing::Require => policy::Sealing::Require,
        },
        endpoint: peer.endpoint,
        protects,
        everything,
        seal_spi: by_weir.map(|(seal, _)| seal.spi + number),
        open_spis: by_weir.map(|(_, open)| open.spi + number).into_iter().collect(),
        agreed: match &peer.keys {
            PeerKeys::Agreed { public_key, .. } => Some(*public_key),
            PeerKeys::Configured { .. } | PeerKeys::Tagged { .. } | PeerKeys::Daemon(_) => None,
        },
        rate_limit: peer.rate_limit,
        reaches: peer.reaches.iter().map(|it| it.compiled()).collect(),
        kernel: (by_kernel || peer.mode == Mode::OpenVpn).then(|| policy::KernelEsp {
            place: 0,
            spis: peer.configured().map(|(seal, open)| [seal.spi, open.spi]),
            nic_reaches: (peer.offload == Offload::Packet)
                .then(|| peer.networks().next())
                .flatten()
                .map(|(address, _)| address),
        }),
    }
}

/// The parameters of every association of `pair` that is configured and that `worker` has.
///
/// # Errors
/// [`SaError`]; none that settings and keys of one configuration can cause.
pub fn associations(
    pair: &Pair,
    keys: &Keys,
    worker: usize,
) -> Result<Vec<PeerAssociations>, SaError> {
    pair.peers
        .iter()
        .filter(|peer| worker < peer.workers)
        .filter_map(|peer| Some((peer, peer.configured()?)))
        .map(|(peer, (seal, open))| {
            Ok(PeerAssociations {
                peer: peer.name.clone(),
                seal: parameters(seal, peer, keys, worker)?,
                stamp: keys.stamp(&seal.key),
                open: parameters(open, peer, keys, worker)?,
            })
        })
        .collect()
}

fn parameters(
    association: &Association,
    peer: &Peer,
    keys: &Keys,
    worker: usize,
) -> Result<SaParameters, SaError> {
    let key = keys.find(&association.key).ok_or(SaError::KeyLength { len: 0 })?;
    let parameters = SaParameters {
        extended_sequence: peer.extended_sequence,
        replay_window: peer.replay_window_packets,
        ..SaParameters::new(Spi::new(association.spi)?, key.material())?
    };
    match peer.workers {
        1 => Ok(parameters),
        _ => worker_association(&parameters, worker as u32),
    }
}

/// The part of `mode` that both ends must have alike.
fn agreed_mode(mode: policy::Mode) -> policy::Mode {
    match mode {
        policy::Mode::IcrcTag(policy::TagTerms { keyed_by, .. }) => {
            let other = policy::OtherTraffic::default();
            policy::Mode::IcrcTag(policy::TagTerms { keyed_by, other })
        }
        mode => mode,
    }
}

/// What handshakes are made with, for each peer of `pair` whose keys are agreed.
/// `wire_mtu_bytes`: the largest IP packet that the wire port sends, where it is known.
pub fn keyed_peers(
    pair: &Pair,
    keying: &Keying,
    secrets: &Secrets,
    wire_mtu_bytes: Option<u16>,
) -> Vec<(String, PeerSettings)> {
    let of = |peer: &Peer| {
        let PeerKeys::Agreed { public_key, preshared, ml_kem } = &peer.keys else { return None };
        let compiled = compile(peer, false, 0);
        let is_client = peer.mode == Mode::WireGuard;
        let preshared = preshared.as_ref().and_then(|file| secrets.preshared.get(file));
        let settings = PeerSettings {
            public_key: *public_key,
            preshared: preshared.cloned().unwrap_or_else(PresharedKey::none),
            path: peer.endpoint.map(|endpoint| Path::to(endpoint, keying.port)),
            terms: Terms {
                mode: agreed_mode(compiled.mode),
                encapsulation: compiled.encapsulation,
                ml_kem: *ml_kem,
                workers: if is_client { 1 } else { u8::try_from(pair.workers).unwrap_or(1) },
            },
            replay_window: peer.replay_window_packets,
            path_mtu_max: wire_mtu_bytes
                .filter(|_| keying.probe_path_mtu && !is_client)
                .unwrap_or(0),
        };
        Some((peer.name.clone(), settings))
    };
    pair.peers.iter().filter_map(of).collect()
}
