//! Independent counters: tcpdump where frames pass, and a host's own firewall. None of it is ours.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::Value;
use weir_port::capture::CaptureReader;

use crate::netns::{Namespace, SHORT};
use crate::process::{self, Running};
use crate::topology::{GATEWAY_MAC, text_mac};
use crate::traffic::Kind;

/// A pcap filter for ESP, straight over IP or in UDP.
pub const ESP: &str = "ip proto 50 or ip6 proto 50 or udp port 4500";

/// A pcap filter for address resolution: ARP and neighbour discovery.
pub const NEIGHBOUR: &str = "arp or (icmp6 and ip6[40] >= 133 and ip6[40] <= 137)";

/// A pcap filter for all that may cross a sealed wire in clear: the gateways themselves asking for
/// each other's Ethernet addresses.
pub fn gateways_neighbour() -> String {
    let [a, b] = GATEWAY_MAC.map(text_mac);
    format!("({NEIGHBOUR}) and (ether src {a} or ether src {b})")
}

/// Kernel buffer of a capture, KiB: room for a burst while tcpdump writes.
const BUFFER_KIB: &str = "65536";
/// Reading a capture back takes no longer.
const COUNTING: Duration = Duration::from_secs(120);

/// tcpdump at work.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Running,
    file: PathBuf,
}

/// What tcpdump wrote, and what it says it missed.
#[derive(Debug)]
pub struct Captured {
    file: PathBuf,
    /// Frames that the kernel could not give to tcpdump. A count is true only when this is zero.
    pub dropped_by_kernel: u64,
}

impl Capture {
    /// Starts tcpdump on `port` inside `namespace`, writing to `file`, at most `snap_len` bytes of
    /// each frame. It listens when this returns.
    ///
    /// # Errors
    /// tcpdump is missing or refuses; its own words.
    pub fn start(namespace: &Namespace, port: &str, file: &Path, snap_len: u32) -> Result<Self> {
        let mut command = namespace.command("tcpdump");
        // -Z root: as another user it could not write into the lab's folder.
        command.args(["-i", port, "-n", "-U", "-Z", "root", "-B", BUFFER_KIB]);
        command.args(["-s", &snap_len.to_string(), "-w"]).arg(file);
        let mut tcpdump = Running::start(&mut command)?;
        tcpdump.wait_for("listening on", SHORT)?;
        Ok(Self { tcpdump, file: file.to_owned() })
    }

    /// Waits until it has written all that came before, ends it and reads its own account of
    /// losses.
    ///
    /// # Errors
    /// It does not catch up, does not end, or gives no account.
    pub fn stop(mut self) -> Result<Captured> {
        // What is on its way arrives.
        crate::interrupt::sleep(Duration::from_millis(1100))?;
        // Traffic may go on: what came until its first answer is what it must have written.
        let mut wanted = None;
        crate::interrupt::until("tcpdump that caught up", COUNTING, || {
            self.tcpdump.signal(Signal::USR1)?;
            crate::interrupt::sleep(Duration::from_millis(50))?;
            anyhow::ensure!(self.tcpdump.is_running()?, "tcpdump ended early");
            let Some(last) = accounts(&self.tcpdump.stderr()).pop() else { return Ok(false) };
            let wanted = *wanted.get_or_insert(last.received);
            Ok(last.captured + last.dropped >= wanted)
        })?;
        let words = self.tcpdump.stop(Signal::INT)?.stderr;
        let account = accounts(&words).pop();
        let account = account.with_context(|| format!("no account in: {}", words.trim()))?;
        Ok(Captured { file: self.file, dropped_by_kernel: account.dropped })
    }
}

struct Account {
    captured: u64,
    received: u64,
    dropped: u64,
}

/// tcpdump's accounts, oldest first: three counts, on one line when asked by SIGUSR1, on three at
/// its end.
fn accounts(words: &str) -> Vec<Account> {
    let words = words.replace(" packet ", " packets ");
    let count = |line: &str, mark: &str| -> Option<u64> {
        let before = line.split(mark).next().filter(|before| before.len() < line.len())?;
        before.split_whitespace().last()?.parse().ok()
    };
    let column = |mark: &str| words.lines().filter_map(|line| count(line, mark)).collect();
    let captured: Vec<u64> = column(" packets captured");
    let received: Vec<u64> = column(" packets received by filter");
    let dropped: Vec<u64> = column(" packets dropped by kernel");
    let rows = captured.into_iter().zip(received).zip(dropped);
    rows.map(|((captured, received), dropped)| Account { captured, received, dropped }).collect()
}

/// Frames of a capture that match a pcap filter; an empty one matches all.
///
/// # Errors
/// tcpdump does not accept the filter or the file.
pub fn count_in(file: &Path, filter: &str) -> Result<u64> {
    let mut command = Command::new("tcpdump");
    command.args(["-n", "--count", "-r"]).arg(file);
    if !filter.is_empty() {
        command.arg(filter);
    }
    let said = process::run(&mut command, COUNTING)?.stdout;
    let number = said.split_whitespace().next().and_then(|word| word.parse().ok());
    number.with_context(|| format!("tcpdump --count said: {}", said.trim()))
}

impl Captured {
    /// Where it is.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Frames that match a pcap filter; an empty one matches all.
    ///
    /// # Errors
    /// tcpdump does not accept the filter or the file.
    pub fn count(&self, filter: &str) -> Result<u64> {
        count_in(&self.file, filter)
    }

    /// Its frames, in their order.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn frames(&self) -> Result<Vec<Vec<u8>>> {
        let mut reader = CaptureReader::open(&self.file)?;
        let mut all = Vec::new();
        let mut take = |bytes: &[u8]| all.push(bytes.to_vec());
        while reader.next_batch(&mut |frames| frames.iter().for_each(|it| take(it.bytes())))? > 0 {}
        Ok(all)
    }

    /// Whether one of its frames holds `bytes`, by grep: the file has frames as they passed.
    ///
    /// # Errors
    /// A line feed is among them, at which grep would part them, or grep fails; its own words.
    pub fn contains(&self, bytes: &[u8]) -> Result<bool> {
        anyhow::ensure!(!bytes.contains(&b'\n'), "grep finds no line feed");
        let pattern: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        let mut command = Command::new("grep");
        command.args(["--text", "--quiet", "--perl-regexp", &pattern]).arg(&self.file);
        let said = Running::start(command.env("LC_ALL", "C"))?.finish(COUNTING)?;
        match said.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => anyhow::bail!("grep: {}", said.stderr.trim()),
        }
    }
}

/// A drop rule with a counter for every kind of traffic, where a host can have one: on what comes
/// in (before the host's stack) and on what goes out of it.
#[derive(Debug)]
pub struct Firewall<'a> {
    namespace: &'a Namespace,
}

impl<'a> Firewall<'a> {
    /// Puts the rules in place on `port`.
    ///
    /// # Errors
    /// nftables is missing or the kernel refuses.
    pub fn raise(namespace: &'a Namespace, port: &str) -> Result<Self> {
        Self::raise_against(namespace, port, &["ingress", "egress"], &Kind::ALL)
    }

    /// The same for what comes in of `kind` alone: one rule, which costs the least.
    ///
    /// # Errors
    /// As [`Firewall::raise`].
    pub fn raise_against_one(namespace: &'a Namespace, port: &str, kind: Kind) -> Result<Self> {
        Self::raise_against(namespace, port, &["ingress"], &[kind])
    }

    fn raise_against(
        namespace: &'a Namespace,
        port: &str,
        hooks: &[&str],
        kinds: &[Kind],
    ) -> Result<Self> {
        let mut rules = String::from("table netdev weir_lab {\n");
        for hook in hooks {
            rules +=
                &format!("chain {hook} {{\ntype filter hook {hook} device {port} priority 0\n");
            for kind in kinds {
                let (test, name) = (kind.firewall_test(), kind.name());
                rules += &format!("{test} counter drop comment \"{name}\"\n");
            }
            rules += "}\n";
        }
        rules += "}\n";
        let mut command = namespace.command("nft");
        process::run_with_input(command.args(["-f", "-"]), &rules, SHORT)?;
        Ok(Self { namespace })
    }

    /// Packets of `kind` that the rules stopped so far.
    ///
    /// # Errors
    /// nftables does not answer.
    pub fn stopped(&self, kind: Kind) -> Result<u64> {
        let listed = self.namespace.run("nft -j list table netdev weir_lab")?.stdout;
        let listed: Value = serde_json::from_str(&listed).context("nft speaks JSON")?;
        let items = listed["nftables"].as_array().context("nft lists rules")?;
        let rules = items.iter().filter_map(|item| item.get("rule"));
        let ours = rules.filter(|rule| rule["comment"] == kind.name());
        let expressions = ours.filter_map(|rule| rule["expr"].as_array()).flatten();
        Ok(expressions.filter_map(|part| part["counter"]["packets"].as_u64()).sum())
    }
}

impl Drop for Firewall<'_> {
    fn drop(&mut self) {
        let _ =
            self.namespace.command("nft").args(["delete", "table", "netdev", "weir_lab"]).output();
    }
}

/// Frames that a port has received since it exists, by the kernel's own count.
///
/// # Errors
/// No such port.
pub fn received_frames(namespace: &Namespace, port: &str) -> Result<u64> {
    let said = namespace.run(&format!("cat /sys/class/net/{port}/statistics/rx_packets"))?.stdout;
    said.trim().parse().with_context(|| format!("{port} counts {}", said.trim()))
}
