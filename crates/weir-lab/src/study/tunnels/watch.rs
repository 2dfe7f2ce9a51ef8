//! What is looked at beside the streams: processors and memory each second, and the wire.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::netns::SHORT;
use crate::process;
use crate::topology::{Lab, WIRE_END_A, WIRE_END_B};

const PERIOD: Duration = Duration::from_secs(1);

/// Samples, one a second.
#[derive(Debug)]
pub(super) struct Watch {
    processes: Vec<u32>,
    next: Instant,
    last: Vec<[u64; 2]>,
    /// Busy share, by processor.
    pub(super) processors: Vec<Vec<f64>>,
    /// Resident memory of the endpoint's programs.
    pub(super) memory_mib: Vec<f64>,
}

impl Watch {
    pub(super) fn begin(processes: Vec<u32>) -> Self {
        let last = processors();
        let processors = vec![Vec::new(); last.len()];
        let next = Instant::now() + PERIOD;
        Self { processes, next, last, processors, memory_mib: Vec::new() }
    }

    /// Takes a sample, if it is time.
    pub(super) fn poll(&mut self) {
        if Instant::now() < self.next {
            return;
        }
        self.next += PERIOD;
        let now = processors();
        let pairs = now.iter().zip(&self.last).zip(&mut self.processors);
        for (([busy, all], [busy_before, all_before]), samples) in pairs {
            let all = all.saturating_sub(*all_before).max(1);
            samples.push(busy.saturating_sub(*busy_before) as f64 / all as f64);
        }
        self.last = now;
        let each = self.processes.iter().filter_map(|id| process::resident_mib(*id).ok());
        self.memory_mib.push(each.sum());
    }

    /// Busy processors, by second.
    pub(super) fn busy(&self) -> Vec<f64> {
        let seconds = self.processors.iter().map(Vec::len).min().unwrap_or(0);
        (0..seconds).map(|at| self.processors.iter().map(|it| it[at]).sum()).collect()
    }
}

/// Ticks by processor: busy, and all.
fn processors() -> Vec<[u64; 2]> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let lines = text.lines().filter(|it| it.starts_with("cpu") && !it.starts_with("cpu "));
    let ticks = |line: &str| {
        let all: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|it| it.parse().ok()).collect();
        let idle: u64 = all.iter().skip(3).take(2).sum();
        let sum: u64 = all.iter().sum();
        [sum - idle, sum]
    };
    lines.map(ticks).collect()
}

/// tc's program for fragments of IPv4: of Ethernet type 0x0800, with a fragment's offset or more of
/// them to come (`tcpdump -y EN10MB -ddd 'ip[6:2] & 0x3fff != 0'`).
const FRAGMENTS: &str = "6,40 0 0 12,21 0 3 2048,40 0 0 20,69 0 1 16383,6 0 0 262144,6 0 0 0";

/// Counters of frames on the wire, both directions, each frame once: the wire's own redirections,
/// one for fragments and one for all else.
pub(super) struct Wire<'a> {
    lab: &'a Lab,
}

impl<'a> Wire<'a> {
    pub(super) fn count(lab: &'a Lab) -> Result<Self> {
        for (from, to) in [(WIRE_END_A, WIRE_END_B), (WIRE_END_B, WIRE_END_A)] {
            let wire = lab.wire();
            wire.run(&format!("tc filter del dev {from} ingress prio 1"))?;
            let mut fragments = wire.command("tc");
            fragments.args(["filter", "add", "dev", from, "ingress", "protocol", "all"]);
            fragments.args(["prio", "1", "bpf", "bytecode", FRAGMENTS]);
            fragments.args(["action", "mirred", "egress", "redirect", "dev", to]);
            process::run(&mut fragments, SHORT)?;
            wire.run(&format!(
                "tc filter add dev {from} ingress protocol all prio 2 u32 match u32 0 0 \
                 action mirred egress redirect dev {to}"
            ))?;
        }
        Ok(Self { lab })
    }

    /// Frames, and of them fragments.
    pub(super) fn counts(&self) -> Result<(u64, u64)> {
        let (mut all, mut fragments) = (0, 0);
        for port in [WIRE_END_A, WIRE_END_B] {
            let line = format!("tc -s -j filter show dev {port} ingress");
            let said = self.lab.wire().run(&line)?.stdout;
            let listed: Value = serde_json::from_str(&said).context("tc speaks JSON")?;
            for filter in listed.as_array().context("tc lists filters")? {
                let packets = filter.pointer("/options/actions/0/stats/packets");
                let Some(packets) = packets.and_then(Value::as_u64) else { continue };
                all += packets;
                fragments += if filter["kind"] == "bpf" { packets } else { 0 };
            }
        }
        Ok((all, fragments))
    }
}
