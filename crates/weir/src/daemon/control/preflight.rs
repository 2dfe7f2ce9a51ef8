//! What must be right before a gateway takes ports: they are there, they are not what the
//! administrator sits on, and the wire carries what is sealed.

use std::net::IpAddr;
use std::time::Duration;

use weir_engine::esp::esp_len;
use weir_engine::esp::wireguard::data_len;
use weir_port::Interface;
use weir_store::clock;

use crate::config::Problems;
use crate::config::settings::{Encapsulation, Mode, Pair, Peer, Settings};
use crate::daemon::control::{alert_files, notify};
use crate::daemon::pair::mirror::egress;
use crate::machine::{Link, Machine};

/// Bytes of headers and ICRC around the payload of the longest RoCE v2 packet that fills a path
/// MTU: IPv6 (40), UDP (8), BTH (12), RETH (16), XRCETH (4), ImmDt (4), ICRC (4). IBTA Vol 1 s5.2,
/// Annex A17.
const ROCE_AROUND_PAYLOAD_BYTES: usize = 40 + 8 + 12 + 16 + 4 + 4 + 4;

/// Ethernet header with one VLAN tag: what a frame inside EtherIP brings along.
const INNER_ETHERNET_BYTES: usize = 14 + 4;

/// EtherIP (RFC 3378 s2).
const ETHERIP_BYTES: usize = 2;

/// Between two looks for ports that are missing.
const LOOK: Duration = Duration::from_millis(100);

/// UDP around ESP (RFC 3948).
const UDP_BYTES: usize = 8;

/// Bytes of the outer IP packet that carries an inner IP packet of `inner` bytes to `peer`.
pub fn sealed_bytes(peer: &Peer, inner: usize) -> usize {
    if peer.mode == Mode::IcrcTag {
        return inner;
    }
    let outer = match peer.endpoint {
        Some(IpAddr::V4(_)) => 20,
        _ => 40,
    };
    let udp = if peer.encapsulation == Encapsulation::Udp { UDP_BYTES } else { 0 };
    outer
        + udp
        + match peer.mode {
            Mode::Ethernet => esp_len(ETHERIP_BYTES + INNER_ETHERNET_BYTES + inner),
            Mode::Tunnel => esp_len(inner),
            Mode::Transport | Mode::IcrcTag => esp_len(inner.saturating_sub(outer)),
            Mode::WireGuard => UDP_BYTES + data_len(inner),
            // Packets are fitted to the tunnel, and it to the wire.
            Mode::OpenVpn => return inner,
        }
}

/// The wire MTU, in bytes, that the pair's RoCE MTU needs once sealed; `None` when no RoCE MTU is
/// configured or nothing is sealed.
pub fn wire_mtu_needed(pair: &Pair) -> Option<(usize, &Peer)> {
    let inner = usize::from(pair.roce_mtu_bytes?) + ROCE_AROUND_PAYLOAD_BYTES;
    pair.peers.iter().map(|peer| (sealed_bytes(peer, inner), peer)).max_by_key(|(bytes, _)| *bytes)
}

/// Warns of a pair without `roce_mtu` whose hosts' largest packets do not fit the wire once sealed.
fn warn_of_narrow_wire(pair: &Pair, machine: &Machine, problems: &mut Problems) {
    let (Some(host), Some(wire)) = (machine.link(&pair.host), machine.link(&pair.wire)) else {
        return;
    };
    let of_peer = |peer| (sealed_bytes(peer, host.mtu_bytes as usize), peer);
    let widest = pair.peers.iter().map(of_peer).max_by_key(|(bytes, _)| *bytes);
    let Some((needed, peer)) = widest.filter(|it| it.0 > wire.mtu_bytes as usize) else { return };
    problems.warning_in_file(
        format!(
            "pair `{}`: a packet of {} bytes sealed for peer `{}` needs {needed}, and `{}` has MTU \
             {}: TCP is clamped, what may be cut is cut, the rest is answered by ICMP, which RDMA \
             ignores",
            pair.name, host.mtu_bytes, peer.name, wire.name, wire.mtu_bytes
        ),
        format!(
            "`ip link set {} mtu {needed}` (the switches too); for RDMA write `roce_mtu`, the \
             path MTU that the hosts use",
            wire.name
        ),
    );
}

/// Finds wires too narrow for the configured RoCE MTU, where the interfaces are there.
pub fn check_mtu(settings: &Settings, machine: &Machine, problems: &mut Problems) {
    for pair in &settings.pairs {
        if pair.roce_mtu_bytes.is_none() {
            warn_of_narrow_wire(pair, machine, problems);
        }
        let (Some((needed, peer)), Some(wire)) = (wire_mtu_needed(pair), machine.link(&pair.wire))
        else {
            continue;
        };
        if (wire.mtu_bytes as usize) < needed {
            let roce = pair.roce_mtu_bytes.unwrap_or_default();
            problems.error_in_file(
                format!(
                    "pair `{}`: `{}` has MTU {}, and a RoCE packet of MTU {roce} sealed for peer \
                     `{}` needs {needed}; RoCE would stall, for it ignores ICMP",
                    pair.name, wire.name, wire.mtu_bytes, peer.name
                ),
                format!(
                    "`ip link set {} mtu {needed}` (the switches too), or a smaller `roce_mtu` \
                     with the hosts' ports set accordingly",
                    wire.name
                ),
            );
        }
    }
}

/// Finds mirrors whose copies would leave by where they must not, as far as their ports are there.
pub fn check_mirrors(settings: &Settings, machine: &Machine, problems: &mut Problems) {
    for mirror in &settings.mirrors {
        if let Some(why) = egress::refusal(mirror, machine) {
            problems.error_in_file(
                format!("mirror `{}`: {why}", mirror.name),
                "name a `port` that leads nowhere but to an analyser",
            );
        }
    }
}

/// Whether ports may be taken that the machine is administered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Administration {
    /// No.
    Protect,
    /// Yes, `--force`.
    Force,
}

/// Waits until the ports of `settings` are there and up, and those of its mirrors are there,
/// `patience` at most; says of each what it waits for.
///
/// # Errors
/// Which are still not, and what to do.
pub fn wait_for_ports(settings: &Settings, patience: Duration) -> anyhow::Result<()> {
    let until = clock::now() + patience;
    let mut said = Vec::new();
    loop {
        let missing = missing_ports(settings);
        if missing.is_empty() {
            return Ok(());
        }
        let words = missing.join("; ");
        if clock::now() >= until {
            anyhow::bail!("{words}; `weir up --wait SECONDS` waits longer");
        }
        for what in missing.into_iter().filter(|what| !said.contains(what)).collect::<Vec<_>>() {
            tracing::warn!("waiting: {what}");
            said.push(what);
        }
        notify::waiting(&format!("waiting: {words}"));
        std::thread::sleep(LOOK);
    }
}

/// What of the ports is missing, each with what to do.
pub fn missing_ports(settings: &Settings) -> Vec<String> {
    let ports = settings.pairs.iter().flat_map(|pair| [&pair.host, &pair.wire]);
    let ports = ports.map(|name| (name, true));
    let mirrors = settings.mirrors.iter().map(|mirror| (&mirror.port, false));
    let missing = |(name, must_be_up): (&String, bool)| match Interface::find(name) {
        Err(_) => {
            Some(format!("interface `{name}` is not there (`ip link` lists those there are)"))
        }
        Ok(it) if must_be_up && !it.is_up().unwrap_or(false) => {
            Some(format!("interface `{name}` is down (`ip link set {name} up`)"))
        }
        Ok(_) => None,
    };
    ports.chain(mirrors).filter_map(missing).collect()
}

/// Finds everything about the machine's ports that keeps a gateway from starting.
pub fn check(
    settings: &Settings,
    machine: &Machine,
    administration: Administration,
    problems: &mut Problems,
) {
    let mut taken: Vec<(u32, &str)> = Vec::new();
    for pair in &settings.pairs {
        for name in [&pair.host, &pair.wire] {
            let link = machine.link(name);
            if let Some((_, other)) =
                taken.iter().find(|(index, _)| link.is_some_and(|link| link.index == *index))
            {
                problems.error_in_file(
                    format!("`{name}` and `{other}` are two names of one interface"),
                    "give every pair two ports of its own",
                );
            }
            taken.extend(link.map(|link| (link.index, &**name)));
            match link {
                None => problems.error_in_file(
                    format!("pair `{}`: interface `{name}` is not there", pair.name),
                    "`ip link` lists those of this network namespace",
                ),
                Some(link) => check_link(link, machine, administration, problems),
            }
        }
    }
    check_mtu(settings, machine, problems);
    check_mirrors(settings, machine, problems);
    alert_files::check(settings, problems);
}

fn check_link(
    link: &Link,
    machine: &Machine,
    administration: Administration,
    problems: &mut Problems,
) {
    let name = &link.name;
    if !link.up {
        problems.error_in_file(
            format!("interface `{name}` is down"),
            format!("`ip link set {name} up`"),
        );
    }
    if link.mac.is_none() {
        problems.error_in_file(
            format!("interface `{name}` is no Ethernet port"),
            "name a port with an Ethernet address",
        );
    }
    let mut used_for = Vec::new();
    if machine.carries_default_route(link) {
        used_for.push("the default route".to_owned());
    }
    if let Some(client) = machine.ssh_client_of(link) {
        used_for.push(format!("an ssh session from {client}"));
    }
    if used_for.is_empty() {
        return;
    }
    let what = format!("interface `{name}` carries {}", used_for.join(" and "));
    match administration {
        Administration::Protect => problems.error_in_file(
            what,
            "a gateway would cut it off: name another port, or say --force at the console",
        ),
        Administration::Force => problems.warning_in_file(what, "taken by --force"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    fn settings(peer: &str) -> Settings {
        let text = format!(
            "[gateway]\nname = \"g\"\n[[pair]]\nhost = \"h\"\nwire = \"w\"\nroce_mtu = 4096\n\
             address = [\"192.0.2.1/24\", \"fd00::1/64\"]\n[[peer]]\nname = \"b\"\n\
             protects = \"10.0.0.0/8\"\n{peer}\n\
             seal = {{ spi = 256, key_file = \"a\" }}\nopen = {{ spi = 256, key_file = \"b\" }}\n"
        );
        let mut problems = Problems::new(Path::new("test"), &text);
        let settings = config::understand(&text, Path::new("."), &mut problems);
        settings.unwrap_or_else(|| panic!("{problems}"))
    }

    fn machine(wire_mtu_bytes: u32) -> Machine {
        let link = |index, name: &str, mtu_bytes| Link {
            index,
            name: name.into(),
            mtu_bytes,
            up: true,
            mac: Some([2, 0, 0, 0, 0, 1]),
            ..Link::default()
        };
        Machine::with_links(vec![link(1, "h", 9000), link(2, "w", wire_mtu_bytes)])
    }

    #[test]
    fn the_wire_mtu_needed_is_the_sum_of_all_headers() {
        // 4184 = 40 + 8 + 12 + 16 + 4 + 4 + 4096 + 4; EtherIP frame 2 + 18 more; ESP 16 before,
        // padding to four, 2 + 16 behind.
        let needed = |peer: &str| wire_mtu_needed(&settings(peer).pairs[0]).unwrap().0;
        let v4 = "mode = \"ethernet\"\nendpoint = \"192.0.2.2\"";
        let v6 = "mode = \"ethernet\"\nendpoint = \"fd00::2\"";
        assert_eq!(needed(v4), 20 + 16 + 4184 + 20 + 2 + 2 + 16);
        assert_eq!(needed(v6), needed(v4) + 20);
        assert_eq!(needed(&format!("{v4}\nencapsulation = \"udp\"")), needed(v4) + 8);
        assert_eq!(
            needed("mode = \"tunnel\"\nendpoint = \"192.0.2.2\""),
            20 + 16 + 4184 + 2 + 2 + 16
        );
        assert_eq!(needed("mode = \"transport\""), 40 + 16 + 4144 + 2 + 2 + 16);
    }

    #[test]
    fn without_a_roce_mtu_a_wire_no_wider_than_the_hosts_is_warned_of() {
        let mut settings = settings("mode = \"ethernet\"\nendpoint = \"192.0.2.2\"");
        settings.pairs[0].roce_mtu_bytes = None;
        let warned = |mtu: u32| {
            let mut problems = Problems::new(Path::new("test"), "");
            check_mtu(&settings, &machine(mtu), &mut problems);
            assert!(!problems.refused());
            problems.to_string()
        };
        let host = machine(1).link("h").unwrap().mtu_bytes;
        assert!(warned(host).contains(&format!("a packet of {host} bytes")), "{}", warned(host));
        assert_eq!(warned(host + 100), "");
    }

    #[test]
    fn a_wire_one_byte_too_narrow_is_refused_with_the_number_it_needs() {
        let settings = settings("mode = \"ethernet\"\nendpoint = \"192.0.2.2\"");
        let (needed, _) = wire_mtu_needed(&settings.pairs[0]).unwrap();
        let check = |mtu: usize| {
            let mut problems = Problems::default();
            check(&settings, &machine(mtu as u32), Administration::Protect, &mut problems);
            problems.to_string()
        };
        assert_eq!(check(needed), "");
        assert!(check(needed - 1).contains(&format!("ip link set w mtu {needed}")));
    }

    #[test]
    fn two_names_of_one_interface_are_not_two_ports() {
        let settings = settings("mode = \"ethernet\"\nendpoint = \"192.0.2.2\"");
        let mut machine = machine(9000);
        let wire = machine.links.remove(1);
        machine.links[0].other_names.push(wire.name);
        let mut problems = Problems::default();
        check(&settings, &machine, Administration::Protect, &mut problems);
        assert!(problems.to_string().contains("two names of one interface"), "{problems}");
    }

    #[test]
    fn absent_and_switched_off_ports_are_all_named() {
        let settings = settings("mode = \"ethernet\"\nendpoint = \"192.0.2.2\"");
        let mut machine = machine(9000);
        machine.links[0].up = false;
        machine.links.remove(1);
        let mut problems = Problems::default();
        check(&settings, &machine, Administration::Protect, &mut problems);
        let shown = problems.to_string();
        assert!(shown.contains("`h` is down") && shown.contains("`w` is not there"), "{shown}");
    }
}
