//! Who used the processors during a trial: its own processes by their part, and everybody else.
//!
//! Others' time is what all processes outside the lab have used, their ended children included
//! (`cutime`): it wanders up when a child is reaped and is lost by nobody, so that a compiler's
//! hundred short processes count. The total of `/proc/stat` less our own would not do: with
//! tick-based accounting a process is charged for packets that the kernel handles in its time, and
//! the total is not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::netns::{self, Namespace};
use crate::topology::{Lab, Side};

/// Ticks a second of `/proc/PID/stat`: 100 on every architecture that Weir runs on.
const TICKS: f64 = 100.0;
/// How often processes are looked at: those that end are known up to so long before.
const PERIOD: Duration = Duration::from_millis(200);
/// A flag of kernel threads.
const PF_KTHREAD: u64 = 0x0020_0000;
/// A thread so busy of one processor has no more to give.
const BUSY: f64 = 0.9;
/// Processors with less idle time than this share are all busy.
const IDLE: f64 = 0.08;

/// Use of the processors during a trial, in processors (1 is one of them, all the time).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Processors that the machine has.
    pub processors: usize,
    /// By part of the experiment: `generator`, `hosts`, `gateways`.
    pub parts: BTreeMap<String, f64>,
    /// Other processes of this machine.
    pub others: f64,
    /// Other guests of the machine below, if this is one (`steal`).
    pub stolen: f64,
    /// Idle, by processor (share).
    pub idle: Vec<f64>,
    /// Serving packets and timers in the kernel, in all.
    pub softirq: f64,
    /// The busiest thread and its share of one processor.
    pub busiest: Option<(String, f64)>,
    /// What held the trial back, in words.
    pub bottleneck: String,
}

impl Load {
    /// Share of the machine that was not ours to use, per cent.
    pub fn disturbance_percent(&self) -> f64 {
        100.0 * (self.others + self.stolen) / self.processors.max(1) as f64
    }
}

/// Watches a lab's processes.
pub struct Meter {
    started: Instant,
    polled: Instant,
    /// Network namespace to part.
    places: BTreeMap<u64, &'static str>,
    first: Snapshot,
    last: Snapshot,
    /// Ours, by process: what they had used when last seen, less what at first.
    own: BTreeMap<(u32, u64), Own>,
}

#[derive(Clone, Debug)]
struct Own {
    part: &'static str,
    name: String,
    ticks: Span,
    threads: BTreeMap<u32, (String, Span)>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    first: u64,
    last: u64,
}

#[derive(Clone, Debug, Default)]
struct Snapshot {
    /// By processor: user, nice, system, idle, iowait, irq, softirq, steal.
    processors: Vec<Vec<u64>>,
    /// Ticks of everybody else, ended children included.
    others: u64,
}

struct Process {
    name: String,
    /// Its own ticks, and those of its ended children.
    ticks: u64,
    children: u64,
    flags: u64,
    started: u64,
}

impl Meter {
    /// Begins.
    ///
    /// # Errors
    /// The lab's namespaces are gone.
    pub fn start(lab: &Lab) -> Result<Self> {
        let of = |side| [(lab.host(side), "hosts"), (lab.gateway(side), "gateways")];
        Self::of(&[of(Side::A), of(Side::B)].concat())
    }

    /// Begins, for any namespaces, each with its part.
    ///
    /// # Errors
    /// One is gone.
    pub(super) fn of(namespaces: &[(&Namespace, &'static str)]) -> Result<Self> {
        let mut places = BTreeMap::new();
        for (namespace, part) in namespaces {
            let path = Path::new(netns::FOLDER).join(namespace.name());
            let inode = fs::metadata(&path).context("a namespace is gone")?.ino();
            places.insert(inode, *part);
        }
        let now = Instant::now();
        let (first, last) = (Snapshot::default(), Snapshot::default());
        let own = BTreeMap::new();
        let mut meter = Self { started: now, polled: now, places, first, last, own };
        meter.look();
        meter.first = meter.last.clone();
        Ok(meter)
    }

    /// Since when.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Looks at all processes, if it is time.
    pub fn poll(&mut self) {
        if self.polled.elapsed() >= PERIOD {
            self.polled = Instant::now();
            self.look();
        }
    }

    /// Sums up.
    pub fn finish(mut self) -> Load {
        self.look();
        let seconds = self.elapsed().as_secs_f64();
        let cores = |ticks: u64| ticks as f64 / TICKS / seconds;
        let mut parts = BTreeMap::new();
        let mut busiest: Option<(String, f64)> = None;
        for own in self.own.values() {
            *parts.entry(own.part.to_owned()).or_insert(0.0) += cores(own.ticks.length());
            for (thread, ticks) in own.threads.values() {
                let share = cores(ticks.length());
                if busiest.as_ref().is_none_or(|(_, most)| share > *most) {
                    let name =
                        if *thread == own.name { String::new() } else { format!("/{thread}") };
                    busiest = Some((format!("{}{name} ({})", own.name, own.part), share));
                }
            }
        }
        let deltas = self.deltas();
        let column = |at: usize| deltas.iter().map(|it| it.get(at).copied().unwrap_or(0)).sum();
        let idle = deltas.iter().map(|it| {
            let all: u64 = it.iter().sum();
            (it[3] + it[4]) as f64 / all.max(1) as f64
        });
        let mut load = Load {
            processors: deltas.len(),
            parts,
            others: cores(self.last.others.saturating_sub(self.first.others)),
            stolen: cores(column(7)),
            softirq: cores(column(5) + column(6)),
            idle: idle.collect(),
            busiest,
            bottleneck: String::new(),
        };
        load.bottleneck = load.name_bottleneck();
        load
    }

    /// What each processor did, by kind of time.
    fn deltas(&self) -> Vec<Vec<u64>> {
        let rows = self.last.processors.iter().zip(&self.first.processors);
        let less = |last: &Vec<u64>, first: &Vec<u64>| -> Vec<u64> {
            last.iter().zip(first).map(|(last, first)| last.saturating_sub(*first)).collect()
        };
        rows.map(|(last, first)| less(last, first)).collect()
    }

    fn look(&mut self) {
        self.last.processors = processors();
        self.last.others = 0;
        let me = std::process::id();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // It may end while it is looked at.
            let Some(mut process) = Process::read(&format!("/proc/{pid}/stat")) else { continue };
            if process.flags & PF_KTHREAD != 0 {
                continue;
            }
            let key = (pid, process.started);
            if pid == me {
                // Generators that are threads of this program. Its children are looked at
                // themselves.
                process.children = 0;
                self.take(key, "generator", process);
                continue;
            }
            let place = || fs::metadata(format!("/proc/{pid}/ns/net")).ok().map(|it| it.ino());
            let part = match self.own.get(&key) {
                Some(own) => Some(own.part),
                None => place().and_then(|inode| self.places.get(&inode).copied()),
            };
            match part {
                Some(part) => self.take(key, part, process),
                None => self.last.others += process.ticks + process.children,
            }
        }
    }

    fn take(&mut self, key: (u32, u64), part: &'static str, process: Process) {
        let part = if process.name == "iperf3" { "generator" } else { part };
        let ticks = process.ticks + process.children;
        let own = self.own.entry(key).or_insert_with(|| Own {
            part,
            name: process.name.clone(),
            ticks: Span { first: ticks, last: ticks },
            threads: BTreeMap::new(),
        });
        // `ip` and `setpriv` become what they start.
        own.part = part;
        own.name = process.name;
        own.ticks.last = ticks;
        let threads = fs::read_dir(format!("/proc/{}/task", key.0));
        for entry in threads.into_iter().flatten().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let path = entry.path().join("stat");
            let Some(thread) = Process::read(&path.display().to_string()) else { continue };
            let span = Span { first: thread.ticks, last: thread.ticks };
            let seen = own.threads.entry(id).or_insert_with(|| (thread.name.clone(), span));
            *seen = (thread.name, Span { first: seen.1.first, last: thread.ticks });
        }
    }
}

impl Load {
    fn name_bottleneck(&self) -> String {
        let idle = self.idle.iter().sum::<f64>() / self.idle.len().max(1) as f64;
        if idle < IDLE {
            let mut parts: Vec<(&String, &f64)> = self.parts.iter().collect();
            parts.sort_by(|a, b| b.1.total_cmp(a.1));
            let words: Vec<String> =
                parts.iter().map(|(part, cores)| format!("{part} {cores:.2}")).collect();
            let others = self.others + self.stolen;
            let count = self.processors;
            return format!(
                "all {count} processors are busy: {}, others {others:.2}",
                words.join(", ")
            );
        }
        match &self.busiest {
            Some((thread, share)) if *share >= BUSY => {
                format!("one thread: {thread}, {:.0} % of a processor", share * 100.0)
            }
            _ => format!("no processor: {:.0} % of their time is idle", idle * 100.0),
        }
    }
}

impl Span {
    fn length(self) -> u64 {
        self.last.saturating_sub(self.first)
    }
}

impl Process {
    fn read(path: &str) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        // The name may hold blanks and brackets: fields are counted behind the last bracket.
        let (head, tail) = text.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            name,
            ticks: number(14)? + number(15)?,
            children: number(16)? + number(17)?,
            flags: number(9)?,
            started: number(22)?,
        })
    }
}

fn processors() -> Vec<Vec<u64>> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let lines = text.lines().filter(|line| {
        line.strip_prefix("cpu")
            .is_some_and(|it| it.starts_with(|sign: char| sign.is_ascii_digit()))
    });
    let numbers = |line: &str| -> Vec<u64> {
        line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect()
    };
    lines.map(numbers).filter(|it| it.len() == 8).collect()
}
