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

/// Counters of frames on the wire, both directions, each frame once.
pub(super) struct Wire<'a> {
    lab: &'a Lab,
}

impl<'a> Wire<'a> {
    pub(super) fn count(lab: &'a Lab) -> Result<Self> {
        let mut rules = String::from("table netdev weir_study {\n");
        for port in [WIRE_END_A, WIRE_END_B] {
            // Before tc, which hands frames over to the other end.
            rules += &format!(
                "chain {port} {{\ntype filter hook ingress device {port} priority -500\n\
                 counter comment \"frames\"\n\
                 ip frag-off & 0x3fff != 0 counter comment \"fragments\"\n}}\n"
            );
        }
        let mut command = lab.wire().command("nft");
        process::run_with_input(command.args(["-f", "-"]), &(rules + "}\n"), SHORT)?;
        Ok(Self { lab })
    }

    /// Frames, and of them fragments.
    pub(super) fn counts(&self) -> Result<(u64, u64)> {
        let said = self.lab.wire().run("nft -j list table netdev weir_study")?.stdout;
        let listed: Value = serde_json::from_str(&said).context("nft speaks JSON")?;
        let items = listed["nftables"].as_array().context("nft lists rules")?;
        let sum = |comment: &str| -> u64 {
            let rules = items.iter().filter_map(|item| item.get("rule"));
            let parts = rules.filter(|rule| rule["comment"] == comment);
            let parts = parts.filter_map(|rule| rule["expr"].as_array()).flatten();
            parts.filter_map(|part| part["counter"]["packets"].as_u64()).sum()
        };
        Ok((sum("frames"), sum("fragments")))
    }
}
