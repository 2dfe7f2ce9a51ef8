//! `[pair.openvpn]`: tunnels whose ends are OpenVPN's own daemons, which the gateway runs
//! (docs/adr/0170).
//!
//! Each tunnel is a file of the folder `tunnels`, `NAME.toml`, beside the configuration of its
//! daemon. `weir vpn openvpn` writes both. To the rest of the gateway a tunnel is a peer: what
//! comes out of it is metered and judged as a WireGuard client's packets are.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::address::Prefix;
use super::file::{self, Mode, Sealing};
use super::offload::{KERNEL_PEERS_MAX, Offload};
use super::problem::Problems;
use super::rate::Rate;
use super::reach::Reach;
use super::settings::{
    OpenVpn, Pair, Peer, PeerKeys, Protects, REPLAY_WINDOW_DEFAULT, Settings, Tunnel,
};

/// The ending of a tunnel's file.
pub const FILE_ENDING: &str = "toml";
/// A tunnel's file, and its daemon's, are no longer.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Daemons run without privilege.
const PORT_MIN: u16 = 1024;
const DEVICE_LEN_MAX: usize = 15;
const MTU_BYTES: std::ops::RangeInclusive<u16> = 576..=9000;

/// What a tunnel's file says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelFile {
    /// The configuration of its daemon, in the same folder.
    pub server: PathBuf,
    /// The tunnel device that the gateway makes for it.
    pub device: String,
    /// The UDP port that it listens at.
    pub port: u16,
    /// The networks of its clients. What they send from other addresses is dropped.
    pub networks: Vec<Prefix>,
    /// The largest packet inside, bytes.
    pub mtu: u16,
    /// Bits a second that its clients together may send and be sent; absent: as much as comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Rate>,
    /// Where its clients may send; none: anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<Reach>,
}

/// `[pair.openvpn]` as it is meant.
pub(super) fn resolve(
    pair: &file::Pair,
    directory: &Path,
    problems: &mut Problems,
) -> Option<OpenVpn> {
    let written = pair.openvpn.as_ref()?;
    let span = written.tunnels.span();
    let mut needs = |is_met: bool, what: &str, remedy: &str| {
        if !is_met {
            problems.error(span.clone(), format!("[pair.openvpn] {what}"), remedy);
        }
    };
    needs(
        !pair.address.0.is_empty(),
        "in a pair without an `address`: clients need one to speak to",
        "give the pair an outer `address` on the wire",
    );
    let several = pair.workers.as_ref().is_some_and(|it| *it.get_ref() > 1);
    needs(!several, "in a pair with several workers", "write workers = 1");
    needs(
        pair.driver == file::Driver::Packet,
        "in a pair with driver = \"xdp\"",
        "write driver = \"packet\"",
    );
    let other = pair.vpn.as_ref().and_then(|vpn| vpn.masquerade.as_ref());
    let masquerade = written.masquerade.as_ref();
    let is_one = match (other, masquerade) {
        (Some(other), Some(own)) => other.get_ref() == own.get_ref(),
        _ => true,
    };
    needs(is_one, "and [pair.vpn] masquerade by two addresses", "write the same at both");
    if let Some(address) = masquerade {
        let ip: Ipv4Addr = *address.get_ref();
        let is_own = pair.address.0.iter().any(|own| own.get_ref().address == ip);
        if is_own || ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
            let what = format!("masquerade = \"{ip}\" is no free address of the host's network");
            problems.error(address.span(), what, "write a free one of the host's own network");
        }
    }
    Some(OpenVpn {
        tunnels: directory.join(written.tunnels.get_ref()),
        masquerade: masquerade.map(|it| *it.get_ref()),
    })
}

/// Puts the tunnels that there are behind the peers of their pairs, before their other clients.
pub(super) fn enrol(settings: &mut Settings, problems: &mut Problems) {
    let (mut devices, mut ports) = (BTreeSet::new(), BTreeSet::new());
    for pair in &mut settings.pairs {
        let Some(openvpn) = pair.openvpn.clone() else { continue };
        let tunnels = match read_all(&openvpn.tunnels) {
            Ok(tunnels) => tunnels,
            Err(what) => {
                problems.error_in_file(what, "make tunnels: `weir vpn openvpn --help`");
                continue;
            }
        };
        let by_kernel = pair.peers.iter().filter(|peer| peer.offload != Offload::None).count();
        if tunnels.len() + by_kernel > KERNEL_PEERS_MAX {
            let what = format!("pair `{}` has {} tunnels of OpenVPN", pair.name, tunnels.len());
            let remedy = format!(
                "{KERNEL_PEERS_MAX} at most, peers whose ESP the kernel does among them; one \
                 server may have many clients (`weir vpn openvpn --one-server`)"
            );
            problems.error_in_file(what, remedy);
            continue;
        }
        for (name, written) in tunnels {
            let path = openvpn.tunnels.join(format!("{name}.{FILE_ENDING}"));
            let mut refuse = |what: String| {
                let remedy = "correct the file, or remove it with its daemon's";
                problems.error_in_file(format!("{}: {what}", path.display()), remedy);
            };
            wrong(pair, &name, &written).into_iter().for_each(&mut refuse);
            if !devices.insert(written.device.clone()) {
                refuse(format!("device `{}` is in use twice", written.device));
            }
            if !ports.insert(written.port) {
                refuse(format!("port {} is in use twice", written.port));
            }
            pair.peers.push(peer(&openvpn, name, written));
        }
    }
}

/// What a tunnel's file cannot mean.
fn wrong(pair: &Pair, name: &str, tunnel: &TunnelFile) -> Vec<String> {
    let mut found = Vec::new();
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let device = &tunnel.device;
    if device.is_empty() || device.len() > DEVICE_LEN_MAX || !device.chars().all(legal) {
        found.push(format!("device `{device}`: 1 to 15 letters, digits, `-` or `_`"));
    }
    if [&pair.host, &pair.wire, &pair.own_port()].contains(&device) {
        found.push(format!("device `{device}` is a port of the pair"));
    }
    if tunnel.port < PORT_MIN {
        found.push(format!("port {}: {PORT_MIN} at least, for it runs unprivileged", tunnel.port));
    }
    if !MTU_BYTES.contains(&tunnel.mtu) {
        found.push(format!("mtu = {}: 576 to 9000 bytes", tunnel.mtu));
    }
    if tunnel.networks.is_empty() {
        found.push("it has no network".into());
    }
    if pair.peers.iter().any(|it| it.name == name) {
        found.push("a peer has this name".into());
    }
    let held = pair.peers.iter().flat_map(|peer| match &peer.protects {
        Protects::Prefixes(list) => list.as_slice(),
        Protects::Everything => &[],
    });
    for other in held {
        if let Some(own) = tunnel.networks.iter().find(|it| it.overlaps(other)) {
            found.push(format!("{own} overlaps {other} of another peer"));
        }
    }
    found
}

fn peer(openvpn: &OpenVpn, name: String, file: TunnelFile) -> Peer {
    let TunnelFile { server, device, port, networks, mtu, limit, reach } = file;
    Peer {
        name,
        endpoint: None,
        mode: Mode::OpenVpn,
        encapsulation: file::Encapsulation::Esp,
        spread: false,
        sealing: Sealing::Require,
        offload: Offload::None,
        auto_lacks: None,
        is_in_nic: false,
        rate_limit: limit.map(Rate::bits_per_second),
        reaches: reach,
        tag: None,
        protects: Protects::Prefixes(networks),
        replay_window_packets: REPLAY_WINDOW_DEFAULT,
        extended_sequence: true,
        keys: PeerKeys::Daemon(Tunnel {
            server: openvpn.tunnels.join(server),
            device,
            port,
            mtu_bytes: mtu,
        }),
        workers: 1,
    }
}

/// Every tunnel in `folder`, by name.
///
/// # Errors
/// What is wrong, with its file.
pub fn read_all(folder: &Path) -> Result<Vec<(String, TunnelFile)>, String> {
    let failed = |path: &Path, what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, &error))? {
        let path = entry.map_err(|error| failed(folder, &error))?.path();
        if path.extension().is_some_and(|it| it == FILE_ENDING)
            && let Some(name) = path.file_stem().and_then(|it| it.to_str())
            && !name.starts_with('.')
        {
            names.insert(name.to_owned());
        }
    }
    let read = |name: String| {
        let path = folder.join(format!("{name}.{FILE_ENDING}"));
        let text = read_bounded(&path)?;
        let tunnel = toml::from_str(&text).map_err(|error| failed(&path, &error.message()))?;
        Ok((name, tunnel))
    };
    names.into_iter().map(read).collect()
}

/// The text of a file that is no longer than it may be.
///
/// # Errors
/// What is wrong, with the file.
pub fn read_bounded(path: &Path) -> Result<String, String> {
    let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    if fs::metadata(path).map_err(|error| failed(&error))?.len() > FILE_BYTES_MAX {
        return Err(failed(&"it is longer than 64 KiB"));
    }
    fs::read_to_string(path).map_err(|error| failed(&error))
}
