//! The ports, and the ways by which traffic could pass a gateway.

use std::path::Path;
use std::process::Command;

use weir_port::interface::{Interface, Offloads};

use super::{Finding, Grade};
use crate::machine::{Link, Machine};

/// The wire MTU that carries RoCE packets of MTU 4096 sealed over IPv6 (see
/// `daemon::control::preflight`).
const MTU_FOR_ROCE_4096: u32 = 4288;

/// Device features that mean IPsec in the NIC, as `ethtool -k` names them.
const IPSEC_FEATURES: &[&str] = &["esp-hw-offload", "esp-tx-csum-hw-offload"];

/// Looks at the named interfaces, or at every Ethernet port.
pub fn examine(machine: &Machine, names: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in names.iter().filter(|name| machine.link(name).is_none()) {
        let change = "`ip link` lists those of this network namespace";
        findings.push(Finding::change(name, "interface", "not there", Grade::Problem, change));
    }
    for link in &machine.links {
        let named = names.contains(&link.name);
        let software = ["bridge", "dummy", "ifb", "tun"];
        let software = link.kind.as_deref().is_some_and(|kind| software.contains(&kind));
        let could_be_port =
            names.is_empty() && link.mac.is_some() && link.name != "lo" && !software;
        if named || could_be_port {
            port(machine, link, &mut findings);
        }
    }
    findings
}

fn port(machine: &Machine, link: &Link, findings: &mut Vec<Finding>) {
    let area = link.name.as_str();
    let interface = Interface::find(area).ok();
    let driver = interface.as_ref().and_then(|it| it.driver().ok());
    let driver = driver.map_or("unknown".to_owned(), |it| {
        format!("{} {}", it.name, it.firmware).trim().to_owned()
    });
    findings.push(Finding::good(
        area,
        "driver",
        format!(
            "{driver}; {}; {} queues in, {} out",
            speed(area),
            link.receive_queues,
            link.send_queues
        ),
    ));
    let state = match (link.up, link.carrier) {
        (true, true) => Finding::good(area, "state", "up"),
        (true, false) => Finding::change(
            area,
            "state",
            "up, no carrier",
            Grade::Advice,
            "look at cable, switch and the other end",
        ),
        (false, _) => {
            let change = format!("`ip link set {area} up`");
            Finding::change(area, "state", "down", Grade::Advice, change)
        }
    };
    findings.push(state);
    let mtu = format!("{} bytes", link.mtu_bytes);
    findings.push(if link.mtu_bytes >= MTU_FOR_ROCE_4096 {
        Finding::good(area, "MTU", mtu)
    } else {
        Finding::change(
            area,
            "MTU",
            mtu,
            Grade::Advice,
            format!(
                "{MTU_FOR_ROCE_4096} on the wire port carries RoCE MTU 4096 sealed; otherwise \
                 set `roce_mtu` to what fits (`weir check` computes it)"
            ),
        )
    });
    let offloads = interface.and_then(|it| it.offloads().ok());
    findings.extend(offloads.map(|it| of_offloads(area, &it)));
    findings.push(Finding::good(area, "IPsec in the NIC", ipsec_features(area)));
    besides(machine, link, findings);
}

/// What the port does for the kernel, and what of it should be otherwise.
fn of_offloads(area: &str, offloads: &Offloads) -> Finding {
    let found = format!(
        "checksum {}, scatter-gather {}, TSO {}, GRO {}, LRO {}",
        on(offloads.tx_checksum),
        on(offloads.scatter_gather),
        on(offloads.tso),
        on(offloads.gro),
        on(offloads.lro)
    );
    let change = match (offloads.lro, offloads.gro) {
        (true, _) => "lro off`: merged segments lose their borders",
        (_, false) => "gro on`: TCP without segmentation offload costs less (guide/detect.md)",
        _ => return Finding::good(area, "offloads", found),
    };
    let change = format!("`ethtool -K {area} {change}");
    Finding::change(area, "offloads", found, Grade::Advice, change)
}

/// What else has a hand on the port.
fn besides(machine: &Machine, link: &Link, findings: &mut Vec<Finding>) {
    let area = link.name.as_str();
    if let Some(controller) = link.controller.and_then(|index| machine.link_by_index(index)) {
        let kind = controller.kind.as_deref().unwrap_or("device");
        findings.push(Finding::change(
            area,
            "member of",
            format!("{kind} {}", controller.name),
            Grade::Problem,
            format!("`ip link set {area} nomaster`: frames pass there, beside the gateway"),
        ));
    }
    if machine.carries_default_route(link) || machine.ssh_client_of(link).is_some() {
        findings.push(Finding::change(
            area,
            "administration",
            "carries the default route or an ssh session",
            Grade::Advice,
            "use another port: `weir up` refuses this one without --force",
        ));
    }
    if !link.addresses.is_empty() {
        let addresses: Vec<String> = link.addresses.iter().map(ToString::to_string).collect();
        findings.push(Finding::change(
            area,
            "addresses",
            addresses.join(" "),
            Grade::Advice,
            format!(
                "`ip address flush dev {area}`, if it shall be a port: Weir keeps the kernel's own \
                 stack away from its ports; its own address belongs in the configuration"
            ),
        ));
    }
    if link.has_xdp {
        findings.push(Finding::change(
            area,
            "XDP program",
            "attached",
            Grade::Advice,
            format!("`ip link set {area} xdp off`, unless it is Weir's: it sees frames first"),
        ));
    }
    for direction in ["ingress", "egress"] {
        let programs = foreign_filters(area, direction);
        if !programs.is_empty() {
            findings.push(Finding::change(
                area,
                "tc program",
                format!("{direction}: {}", programs.join(" ")),
                Grade::Advice,
                format!("`tc filter del dev {area} {direction}`, if nobody needs it"),
            ));
        }
    }
}

/// Ways past the gateway that concern the machine as a whole.
pub fn ways_past(machine: &Machine) -> Vec<Finding> {
    const AREA: &str = "ways past";
    let mut findings = Vec::new();
    for (name, path) in [
        ("IPv4 forwarding", "/proc/sys/net/ipv4/ip_forward"),
        ("IPv6 forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"),
    ] {
        let forwards = std::fs::read_to_string(path).is_ok_and(|it| it.trim() != "0");
        findings.push(if forwards {
            let change = format!("`echo 0 > {path}`, unless this machine is a router too");
            Finding::change(AREA, name, "on", Grade::Advice, change)
        } else {
            Finding::good(AREA, name, "off")
        });
    }
    let is_switch = |link: &&Link| link.kind.as_deref() == Some("openvswitch");
    let open_vswitch = machine.links.iter().any(|link| is_switch(&link))
        || Path::new("/run/openvswitch/db.sock").exists();
    findings.push(if open_vswitch {
        let change = "`ovs-vsctl show`: no bridge may hold both ports (`ovs-vsctl del-port`)";
        Finding::change(AREA, "Open vSwitch", "present", Grade::Advice, change)
    } else {
        Finding::good(AREA, "Open vSwitch", "absent")
    });
    for bridge in machine.links.iter().filter(|link| link.kind.as_deref() == Some("bridge")) {
        let members: Vec<&str> = machine
            .links
            .iter()
            .filter(|link| link.controller == Some(bridge.index))
            .map(|link| link.name.as_str())
            .collect();
        if members.len() > 1 {
            findings.push(Finding::change(
                AREA,
                "bridge",
                format!("{} joins {}", bridge.name, members.join(" ")),
                Grade::Advice,
                "take the gateway's ports out (`ip link set PORT nomaster`)",
            ));
        }
    }
    findings
}

fn on(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

fn speed(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed"));
    match text.ok().and_then(|it| it.trim().parse::<i64>().ok()) {
        Some(megabits) if megabits > 0 => format!("{} Gb/s", megabits as f64 / 1000.0),
        _ => "speed unknown".to_owned(),
    }
}

fn ipsec_features(name: &str) -> String {
    let Ok(output) = Command::new("ethtool").args(["-k", name]).output() else {
        return "unknown (`apt-get install ethtool`)".to_owned();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let offered: Vec<&str> = IPSEC_FEATURES
        .iter()
        .filter(|feature| {
            let line = text.lines().find(|line| line.trim().starts_with(**feature));
            // `off [fixed]` means that the device has none.
            line.is_some_and(|line| !line.contains("[fixed]") || line.contains(": on"))
        })
        .copied()
        .collect();
    if offered.is_empty() { "none".to_owned() } else { offered.join(" ") }
}

/// Names of BPF filters that are not Weir's.
fn foreign_filters(name: &str, direction: &str) -> Vec<String> {
    let output = Command::new("tc").args(["-j", "filter", "show", "dev", name, direction]).output();
    let filters = output.ok().and_then(|it| serde_json::from_slice(&it.stdout).ok());
    let Some(serde_json::Value::Array(filters)) = filters else { return Vec::new() };
    filters
        .iter()
        .filter_map(|filter| filter["options"]["bpf_name"].as_str())
        .filter(|program| !program.contains("weir"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str) -> Link {
        Link { index, name: name.into(), mac: Some([2; 6]), up: true, ..Link::default() }
    }

    #[test]
    fn a_bridge_over_ports_is_a_way_past() {
        let mut bridge = link(1, "br0");
        bridge.kind = Some("bridge".into());
        let member = |index, name: &str| Link { controller: Some(1), ..link(index, name) };
        let machine = Machine::with_links(vec![bridge, member(2, "left"), member(3, "right")]);
        let shown = serde_json::to_string(&ways_past(&machine)).unwrap();
        assert!(shown.contains("br0 joins left right"), "{shown}");
        let findings = examine(&machine, &["left".to_owned()]);
        let membership = findings.iter().find(|it| it.name == "member of").unwrap();
        assert_eq!(membership.grade, Grade::Problem);
        assert!(membership.change.as_deref().unwrap().contains("ip link set left nomaster"));
    }

    #[test]
    fn an_interface_that_is_not_there_is_a_problem() {
        let findings = examine(&Machine::default(), &["p9".to_owned()]);
        assert_eq!(findings[0].grade, Grade::Problem);
    }
}
