//! Five namespaces in a row, cabled as two hosts with a gateway each.
//!
//! ```text
//!   host A           gateway A              wire               gateway B           host B
//!   eth0 ---------- pf0hpf   p0 ------- wireA  wireB ------- p0   pf0hpf ---------- eth0
//!   10.77.0.1/24                      (a cable: tc redirect)                  10.77.0.2/24
//!   fd77::1/64                                                                fd77::2/64
//! ```
//!
//! Between host and gateway super-packets travel whole, as they do between a host and its DPU. On
//! the wire segmentation offloads are off, so that whoever listens there counts real frames.
//! Hosts are one subnet: their ARP and neighbour discovery cross the gateways. The wire is no
//! switch: it learns nothing, drops nothing, answers nothing.

use std::fs::{self, File, Metadata};
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::netns::{self, Namespace};

/// The port of a gateway that looks at its host, as BlueField names it.
pub const HOST_PORT: &str = "pf0hpf";
/// The port of a gateway that looks at the fabric.
pub const WIRE_PORT: &str = "p0";
/// A host's only port.
pub const HOST_DEVICE: &str = "eth0";
/// The wire's end at gateway A. Listening here sees both directions, each frame once.
pub const WIRE_END_A: &str = "wireA";
/// The wire's end at gateway B.
pub const WIRE_END_B: &str = "wireB";
/// IPv4 addresses of host A and host B.
pub const HOST_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
/// IPv6 addresses of host A and host B.
pub const HOST_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2)];
/// Ethernet addresses of host A and host B (locally administered).
pub const HOST_MAC: [[u8; 6]; 2] = [[2, 0x77, 0, 0, 0, 0x0a], [2, 0x77, 0, 0, 0, 0x0b]];
/// Ethernet addresses of the gateways' wire ports.
pub const GATEWAY_MAC: [[u8; 6]; 2] = [[2, 0x77, 0, 0, 0, 0x1a], [2, 0x77, 0, 0, 0, 0x1b]];
/// Addresses of a gateway on the wire, for those that need one (wireguard-go, tunnel mode).
pub const GATEWAY_V4: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 168, 77, 1), Ipv4Addr::new(192, 168, 77, 2)];

/// Names of all labs' namespaces begin so.
const PREFIX: &str = "weir-";
/// Where each lab holds a lock that tells whether its owner lives.
const LEASES: &str = "/run/weir-lab";
/// Processes that end with the lab, in its folder.
const PROCESSES: &str = "processes";

/// What a lab was built by, in its folder.
const PLAN: &str = "plan.json";
/// Largest MTU of a veth port.
const MTU_MAX: u32 = 65535 - 14;

/// What stands in the gateways' namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gateways {
    /// Nothing yet: ports without a connection, for `weir up`.
    Empty,
    /// A Linux bridge over both ports: the unprotected peer.
    Bridge,
    /// Routed, for a tunnel by wireguard-go: each host has a subnet of its own
    /// (10.77.1.0/24, 10.77.2.0/24) behind its gateway (.254).
    Routed,
}

/// How a host's port is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hosts {
    /// By the namespace's own network stack, with addresses.
    Stack,
    /// By a bridge to which guests' TAP devices are joined; no addresses.
    Guests,
}

/// What to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// MTU of the hosts' ports and the gateways' host ports, bytes.
    pub host_mtu: u32,
    /// MTU of the gateways' wire ports and the wire, bytes.
    pub wire_mtu: u32,
    /// What stands in the gateways.
    pub gateways: Gateways,
    /// What stands in the hosts.
    pub hosts: Hosts,
}

impl Default for Plan {
    /// Jumbo frames everywhere, as RDMA fabrics run; empty gateways.
    fn default() -> Self {
        Self { host_mtu: 9000, wire_mtu: 9000, gateways: Gateways::Empty, hosts: Hosts::Stack }
    }
}

/// Side A or side B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The left one: it sends.
    A,
    /// The right one: it receives.
    B,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    /// 0 for A, 1 for B: its place in the address tables above.
    pub fn index(self) -> usize {
        match self {
            Side::A => 0,
            Side::B => 1,
        }
    }

    /// The other one.
    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// A lab that stands. Dropping it removes everything, unless [kept](Lab::keep).
#[derive(Debug)]
pub struct Lab {
    // Hosts first: fields drop in this order, and processes in the hosts end before their cables.
    hosts: [Namespace; 2],
    gateways: [Namespace; 2],
    wire: Namespace,
    plan: Plan,
    folder: PathBuf,
    lease: Lease,
}

#[derive(Debug)]
struct Lease {
    id: String,
    path: PathBuf,
    // Held, not read: the lock on it is what says that the owner lives.
    _lock: File,
    kept: bool,
}

impl Lab {
    /// Builds what `plan` says.
    ///
    /// # Errors
    /// No privilege, a tool is missing, or the kernel refuses; what was made is removed again.
    pub fn build(plan: Plan) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "a lab needs root (network namespaces)");
        crate::process::require(&["ip", "tc", "ethtool", "setpriv"])?;
        if plan.host_mtu.max(plan.wire_mtu) > MTU_MAX || plan.host_mtu.min(plan.wire_mtu) < 1280 {
            bail!("an MTU of the lab lies between 1280 (IPv6) and {MTU_MAX}");
        }
        let lease = Lease::take()?;
        let create = |part: &str| Namespace::create(&format!("{PREFIX}{}-{part}", lease.id));
        let lab = Self {
            hosts: [create("hostA")?, create("hostB")?],
            gateways: [create("gatewayA")?, create("gatewayB")?],
            wire: create("wire")?,
            plan,
            folder: lease.path.with_extension("d"),
            lease,
        };
        fs::create_dir_all(&lab.folder).context("no folder for the lab's files")?;
        fs::write(lab.folder.join(PLAN), serde_json::to_string(&plan)?)?;
        lab.cable()?;
        for side in Side::BOTH {
            lab.set_up_gateway(side)?;
            lab.set_up_host(side)?;
        }
        Ok(lab)
    }

    /// The lab that another process built and [kept](Lab::keep), of that id if one is said. It
    /// stays when this guard goes.
    ///
    /// # Errors
    /// None stands, or several do and none is said.
    pub fn standing(id: Option<&str>) -> Result<Self> {
        let mut ids = standing();
        ids.retain(|it| id.is_none_or(|id| bare(id) == it));
        let [id] = &ids[..] else {
            match (id, ids.len()) {
                (Some(id), _) => bail!("no lab {id} stands; `weir lab up` builds one"),
                (None, 0) => bail!("no lab stands; `weir lab up` builds one"),
                (None, _) => bail!(
                    "several labs stand: {}; name one by --lab, or remove others by `weir lab \
                     down ID`",
                    ids.join(", ")
                ),
            }
        };
        let path = Path::new(LEASES).join(format!("{id}.lock"));
        let lock = File::open(&path).with_context(|| format!("no {}", path.display()))?;
        let folder = path.with_extension("d");
        let plan = fs::read_to_string(folder.join(PLAN)).context("the lab has no plan")?;
        let known = |part: &str| Namespace::kept(&format!("{PREFIX}{id}-{part}"));
        Ok(Self {
            hosts: [known("hostA"), known("hostB")],
            gateways: [known("gatewayA"), known("gatewayB")],
            wire: known("wire"),
            plan: serde_json::from_str(&plan)?,
            folder,
            lease: Lease { id: id.clone(), path, _lock: lock, kept: true },
        })
    }

    /// A host.
    pub fn host(&self, side: Side) -> &Namespace {
        &self.hosts[side.index()]
    }

    /// A gateway.
    pub fn gateway(&self, side: Side) -> &Namespace {
        &self.gateways[side.index()]
    }

    /// The wire between the gateways.
    pub fn wire(&self) -> &Namespace {
        &self.wire
    }

    /// What was built.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// The number that tells this lab from others.
    pub fn id(&self) -> &str {
        &self.lease.id
    }

    /// A folder for its files (configurations, sockets, captures), removed with it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The IPv4 address of a host, which differs between one subnet and routed ones.
    pub fn host_v4(&self, side: Side) -> Ipv4Addr {
        match self.plan.gateways {
            Gateways::Routed => Ipv4Addr::new(10, 77, 1 + side.index() as u8, 1),
            Gateways::Empty | Gateways::Bridge => HOST_V4[side.index()],
        }
    }

    /// A process outside of the namespaces that ends with the lab when it is swept.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn note_process(&self, id: u32) -> Result<()> {
        let mut file =
            File::options().append(true).create(true).open(self.folder.join(PROCESSES))?;
        writeln!(file, "{id}")?;
        Ok(())
    }

    /// Leaves it standing when the guard goes; `weir lab down` removes it.
    pub fn keep(&mut self) {
        for namespace in self.hosts.iter_mut().chain(&mut self.gateways).chain([&mut self.wire]) {
            namespace.keep();
        }
        self.lease.kept = true;
    }

    fn cable(&self) -> Result<()> {
        let Plan { host_mtu, wire_mtu, .. } = self.plan;
        for (side, wire_end) in [(Side::A, WIRE_END_A), (Side::B, WIRE_END_B)] {
            let host = self.host(side).name();
            let host_mac = text_mac(HOST_MAC[side.index()]);
            let gateway_mac = text_mac(GATEWAY_MAC[side.index()]);
            let wire = self.wire.name();
            self.gateway(side).ip(&format!(
                "link add name {HOST_PORT} mtu {host_mtu} type veth \
                 peer name {HOST_DEVICE} netns {host} mtu {host_mtu} address {host_mac}\n\
                 link add name {WIRE_PORT} mtu {wire_mtu} address {gateway_mac} type veth \
                 peer name {wire_end} netns {wire} mtu {wire_mtu}\n"
            ))?;
            quiet(self.gateway(side), &[HOST_PORT, WIRE_PORT])?;
            quiet(&self.wire, &[wire_end])?;
            whole_frames_only(self.gateway(side), WIRE_PORT)?;
            whole_frames_only(&self.wire, wire_end)?;
            self.gateway(side)
                .ip(&format!("link set {HOST_PORT} up\nlink set {WIRE_PORT} up\n"))?;
        }
        for (from, to) in [(WIRE_END_A, WIRE_END_B), (WIRE_END_B, WIRE_END_A)] {
            self.wire.run(&format!("tc qdisc add dev {from} clsact"))?;
            self.wire.run(&format!(
                "tc filter add dev {from} ingress protocol all prio 1 u32 match u32 0 0 \
                 action mirred egress redirect dev {to}"
            ))?;
        }
        self.wire.ip(&format!("link set {WIRE_END_A} up\nlink set {WIRE_END_B} up\n"))?;
        Ok(())
    }

    fn set_up_gateway(&self, side: Side) -> Result<()> {
        let gateway = self.gateway(side);
        match self.plan.gateways {
            Gateways::Empty => {}
            Gateways::Bridge => {
                gateway.ip("link add br0 type bridge stp_state 0 mcast_snooping 0\n")?;
                quiet(gateway, &["br0"])?;
                gateway.ip(&format!(
                    "link set {HOST_PORT} master br0\nlink set {WIRE_PORT} master br0\n\
                     link set br0 up\n"
                ))?;
            }
            Gateways::Routed => {
                let own = 1 + side.index();
                let wire_address = GATEWAY_V4[side.index()];
                gateway.ip(&format!(
                    "addr add 10.77.{own}.254/24 dev {HOST_PORT}\n\
                     addr add {wire_address}/24 dev {WIRE_PORT}\n"
                ))?;
                gateway.set(&[("net.ipv4.ip_forward", "1")])?;
            }
        }
        Ok(())
    }

    fn set_up_host(&self, side: Side) -> Result<()> {
        let host = self.host(side);
        if self.plan.hosts == Hosts::Guests {
            quiet(host, &[HOST_DEVICE])?;
            host.ip(&format!(
                "link add br0 type bridge stp_state 0 mcast_snooping 0\n\
                 link set {HOST_DEVICE} master br0\nlink set {HOST_DEVICE} up\n"
            ))?;
            quiet(host, &["br0"])?;
            host.ip("link set br0 up\n")?;
            return Ok(());
        }
        // No waiting for duplicate address detection: addresses are ours by construction.
        let key = format!("net.ipv6.conf.{HOST_DEVICE}.accept_dad");
        host.set(&[(&key, "0")])?;
        let (v4, v6) = (self.host_v4(side), HOST_V6[side.index()]);
        let network = Ipv4Addr::from(u32::from(v4) & 0xffff_ff00);
        // `congctl` pins the congestion control of every connection between the hosts.
        let mut lines = format!(
            "link set {HOST_DEVICE} up\n\
             addr add {v4}/24 dev {HOST_DEVICE} noprefixroute\n\
             route add {network}/24 dev {HOST_DEVICE} src {v4} congctl cubic\n"
        );
        if self.plan.gateways == Gateways::Routed {
            let gateway = Ipv4Addr::from(u32::from(network) | 254);
            lines += &format!("route add 10.77.0.0/16 via {gateway} congctl cubic\n");
        } else {
            lines += &format!(
                "addr add {v6}/64 dev {HOST_DEVICE} nodad noprefixroute\n\
                 route add fd77::/64 dev {HOST_DEVICE} congctl cubic\n"
            );
        }
        host.ip(&lines)?;
        Ok(())
    }
}

impl Lease {
    fn take() -> Result<Self> {
        fs::create_dir_all(LEASES).with_context(|| format!("cannot create {LEASES}"))?;
        // Several labs of one process (tests) differ by the number behind the pid.
        for count in 0..1000 {
            let id = match count {
                0 => std::process::id().to_string(),
                _ => format!("{}.{count}", std::process::id()),
            };
            let path = Path::new(LEASES).join(format!("{id}.lock"));
            let lock = File::options().create(true).append(true).open(&path)?;
            // Its last owner may have removed the file meanwhile, and another made a new one.
            let is_same = |file: Metadata| lock.metadata().is_ok_and(|it| it.ino() == file.ino());
            if lock.try_lock().is_ok() && fs::metadata(&path).is_ok_and(is_same) {
                // What a dead owner with our process id left is ours to remove.
                remove_namespaces(&id);
                return Ok(Self { id, path, _lock: lock, kept: false });
            }
        }
        bail!("this process already holds a thousand labs");
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // Namespaces whose creation was interrupted have no guard of their own.
        remove_namespaces(&self.id);
        let _ = fs::remove_dir_all(self.path.with_extension("d"));
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes every lab whose owner has ended: killed ones and kept ones. Returns what it removed.
///
/// # Errors
/// A namespace does not go away.
pub fn sweep() -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for id in abandoned() {
        removed.extend(remove_abandoned(&id)?);
    }
    Ok(removed)
}

/// The [ids](Lab::id) of the labs whose owners have ended: killed ones and kept ones.
pub fn abandoned() -> Vec<String> {
    let entries = fs::read_dir(LEASES).into_iter().flatten().flatten();
    let locks = entries.map(|it| it.path());
    let is_lock = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "lock");
    let is_free = |path: &PathBuf| {
        let lock = File::options().append(true).open(path);
        lock.is_ok_and(|lock| lock.try_lock().is_ok())
    };
    let mut ids: Vec<String> = locks
        .filter(|path| is_lock(path) && is_free(path))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    ids.sort();
    ids
}

/// The [ids](Lab::id) of the labs that stand and that nobody works in.
pub fn standing() -> Vec<String> {
    let (mut ids, there) = (abandoned(), netns::list(PREFIX));
    ids.retain(|id| there.contains(&format!("{PREFIX}{id}-hostA")));
    ids
}

/// A lab's id, named as its namespaces are or not.
fn bare(id: &str) -> &str {
    id.strip_prefix(PREFIX).unwrap_or(id)
}

/// Removes the lab of that [id](Lab::id) if its owner has ended. Returns what it removed.
///
/// # Errors
/// A namespace does not go away.
pub fn remove_abandoned(id: &str) -> Result<Vec<String>> {
    let id = bare(id);
    let path = Path::new(LEASES).join(format!("{id}.lock"));
    // Gone, or held: its owner lives, or another is at it.
    let Ok(lock) = File::options().append(true).open(&path) else { return Ok(Vec::new()) };
    if lock.try_lock().is_err() {
        return Ok(Vec::new());
    }
    let names = netns::list(&format!("{PREFIX}{id}-"));
    if let Some(name) = names.iter().find(|name| !netns::remove(name)) {
        bail!("namespace {name} does not go away; try `ip netns del {name}`");
    }
    end_noted(&path.with_extension("d"));
    let _ = fs::remove_dir_all(path.with_extension("d"));
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(names),
    }
}

/// Ends the processes that were noted in a lab's folder and still are what they were: its path
/// stands on their command lines.
fn end_noted(folder: &Path) {
    let noted = fs::read_to_string(folder.join(PROCESSES)).unwrap_or_default();
    for id in noted.lines() {
        let command_line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let is_ours = String::from_utf8_lossy(&command_line).contains(&*folder.to_string_lossy());
        if let (true, Some(pid)) = (is_ours, id.parse().ok().and_then(Pid::from_raw)) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }
}

fn remove_namespaces(id: &str) {
    for name in netns::list(&format!("{PREFIX}{id}-")) {
        netns::remove(&name);
    }
}

/// Ports that send nothing of their own: no IPv6 addresses, hence no MLD, DAD or solicitations.
fn quiet(namespace: &Namespace, ports: &[&str]) -> Result<()> {
    for port in ports {
        let key = format!("net.ipv6.conf.{port}.disable_ipv6");
        namespace.set(&[(&key, "1")])?;
    }
    Ok(())
}

fn whole_frames_only(namespace: &Namespace, port: &str) -> Result<()> {
    namespace.run(&format!("ethtool -K {port} tso off gso off gro off tx-udp-segmentation off"))?;
    Ok(())
}

/// An Ethernet address as text.
pub fn text_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
