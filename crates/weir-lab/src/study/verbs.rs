//! perftest between two Soft-RoCE guests, as an experiment: what goes through, and what a gigabyte
//! costs in processor time, by perf's samples split over who spent it.
//!
//! On a veth the sender's thread runs the receiver's stack as well: kernel time is therefore
//! charged to the program that sent, and read so.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde::Deserialize;

use super::steps::Stage;
use crate::process::{self, Running};
use crate::topology::{HOST_V4, Side};
use crate::vm::{Guest, GuestKernel};

/// A run takes seconds; emulated machines are slow when the host is busy.
const RUN: Duration = Duration::from_secs(240);
/// perf's samples a second, by each processor.
const SAMPLES_PER_SECOND: u32 = 199;
/// Messages of one run, at most: small ones take an emulated machine long.
const MESSAGES_MAX: u64 = 20_000;
/// perftest's own least.
const MESSAGES_MIN: u64 = 5;
/// What perf may take to write its file, or to read it.
const PERF: Duration = Duration::from_secs(120);
/// Names of functions that encrypt, authenticate or check.
const CRYPTO: &[&str] = &["aes", "gcm", "ghash", "crc32", "sha256", "poly1305"];

/// One run of perftest.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Perftest {
    verb: Verb,
    /// Of a message, bytes.
    size: u32,
    /// Queue pairs.
    pairs: u32,
    /// What is sent in all, MB; fewer where messages are so small that they were too many.
    megabytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Verb {
    Write,
    Read,
    Send,
}

impl Perftest {
    pub(super) fn require(&self) -> Result<()> {
        ensure!((1..=1 << 23).contains(&self.size), "perftest: messages of 1 to 8388608 bytes");
        ensure!((1..=64).contains(&self.pairs), "perftest: 1 to 64 queue pairs");
        ensure!((1..=10_000).contains(&self.megabytes), "perftest: 1 to 10000 MB");
        GuestKernel::find()?;
        // The guests run this machine's programs.
        process::require(&[self.tool(), "rdma", "perf"])
    }

    fn tool(&self) -> &'static str {
        match self.verb {
            Verb::Write => "ib_write_bw",
            Verb::Read => "ib_read_bw",
            Verb::Send => "ib_send_bw",
        }
    }

    pub(super) fn expected_seconds(&self) -> f64 {
        f64::from(self.megabytes) / 8.0 + 15.0
    }

    pub(super) fn words(&self) -> String {
        format!(
            "perftest moves {} MB (at most {MESSAGES_MAX} messages) from guest A to guest B, READ \
             the other way, in Soft-RoCE of two emulated machines; beside it perf takes \
             {SAMPLES_PER_SECOND} samples a second of each processor",
            self.megabytes
        )
    }

    /// Messages of each queue pair.
    fn messages(&self) -> u64 {
        let wanted = u64::from(self.megabytes) * 1_000_000 / u64::from(self.size);
        (wanted.min(MESSAGES_MAX) / u64::from(self.pairs)).max(MESSAGES_MIN)
    }

    pub(super) fn run(&self, stage: &mut Stage<'_>) -> Result<()> {
        let daemons = threads(&stage.gateway_processes());
        let data = stage.raw.join("perf.data");
        let mut meter = stage.meter()?;
        let ids = stage.guests()?.iter().map(Guest::process_id).collect::<Vec<u32>>();
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-e", "cpu-clock", "-a", "-F"]);
        perf.arg(SAMPLES_PER_SECOND.to_string()).arg("-o").arg(&data);
        let line = format!(
            "{} -F -d rxe0 -x 1 -m 1024 -s {} -q {} -n {} --report_gbits",
            self.tool(),
            self.size,
            self.pairs,
            self.messages()
        );
        let raw = stage.raw.to_owned();
        let guests = stage.guests()?;
        let serving = guests[1].start(&line)?;
        guests[1].wait_for_rdma_server()?;
        let recording = Running::start(&mut perf)?;
        let begun = Instant::now();
        let client = guests[0].start(&format!("{line} {}", HOST_V4[Side::B.index()]))?;
        let client = guests[0].finish_or_stop(client, RUN)?;
        let seconds = begun.elapsed().as_secs_f64();
        meter.poll();
        let load = meter.finish();
        let guest_threads = threads(&ids);
        recording.stop(Signal::INT)?;
        let server = guests[1].finish_or_stop(serving, Duration::from_secs(20))?;
        fs::write(raw.join("perftest-client.txt"), &client.output)?;
        fs::write(raw.join("perftest-server.txt"), &server.output)?;
        let spent = spent(&data, &raw, &guest_threads, &daemons)?;
        // The report of it is kept, and is what counts.
        fs::remove_file(&data)?;
        let said = client.success().context("perftest's client")?;
        server.success().context("perftest's server")?;
        let (bytes, gbps) = self.report(&said)?;
        let gigabytes = bytes as f64 / 1e9;
        let values = &mut stage.measured.values;
        values.insert("gbps".to_owned(), gbps);
        let part = |name: &str| load.parts.get(name).copied().unwrap_or(0.0);
        let all = (part("hosts") + part("gateways")) * seconds;
        ensure!(all > 0.0, "nobody used the processors");
        values.insert("cpu".to_owned(), all / gigabytes);
        values.insert("cpu_gateway".to_owned(), part("gateways") * seconds / gigabytes);
        for (name, samples) in spent {
            let seconds = samples as f64 / f64::from(SAMPLES_PER_SECOND);
            values.insert(name.to_owned(), seconds / gigabytes);
        }
        stage.measured.load = Some(load);
        Ok(())
    }

    /// Bytes moved, and Gb/s, by perftest's last row: bytes, iterations, peak, average, rate.
    fn report(&self, said: &str) -> Result<(u64, f64)> {
        let is_row =
            |line: &&str| line.trim_start().starts_with(|sign: char| sign.is_ascii_digit());
        let row = said.lines().rfind(is_row);
        let row = row.with_context(|| format!("perftest reports nothing: {said}"))?;
        let words: Vec<f64> = row.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        let [size, messages, _, average, ..] = words[..] else {
            bail!("perftest's report has another form: {row}")
        };
        let wanted = self.messages() * u64::from(self.pairs);
        ensure!(
            size == f64::from(self.size) && messages >= wanted as f64 && average > 0.0,
            "perftest reports {messages} messages of {size} bytes, {average} Gb/s, where {wanted} \
             of {} bytes were asked for",
            self.size
        );
        Ok((messages as u64 * u64::from(self.size), average))
    }
}

/// Threads of processes, which perf calls by their own ids.
fn threads(processes: &[u32]) -> Vec<u32> {
    let of = |id: &u32| fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let ids = processes.iter().flat_map(of);
    ids.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect()
}

/// Samples by who spent them: emulated guests (their programs, and the kernel on their behalf),
/// Weir (encryption and checks, all else of its own, and the kernel on its behalf), and threads of
/// the kernel.
fn spent(
    data: &Path,
    raw: &Path,
    guests: &[u32],
    daemons: &[u32],
) -> Result<BTreeMap<&'static str, u64>> {
    let mut command = Command::new("perf");
    command.args(["report", "--stdio", "-n", "-g", "none", "-t", ";", "--sort", "pid,dso,sym"]);
    let said = process::run(command.arg("-i").arg(data), PERF)?.stdout;
    fs::write(raw.join("perf.txt"), &said)?;
    let mut sums = BTreeMap::new();
    for line in said.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(';').map(str::trim).collect();
        // With callers recorded there is a column more: samples stand before the process.
        let [.., samples, process, _, symbol] = fields[..] else { continue };
        let Ok(samples) = samples.parse::<u64>() else { continue };
        let Some((id, name)) = process.split_once(':') else { continue };
        let Ok(id) = id.trim().parse::<u32>() else { continue };
        let in_kernel = symbol.starts_with("[k]");
        let low = symbol.to_ascii_lowercase();
        let part = match () {
            () if guests.contains(&id) && in_kernel => "cpu_guests_kernel",
            () if guests.contains(&id) => "cpu_guests",
            () if daemons.contains(&id) && in_kernel => "cpu_weir_kernel",
            () if daemons.contains(&id) && CRYPTO.iter().any(|it| low.contains(it)) => {
                "cpu_weir_crypto"
            }
            () if daemons.contains(&id) => "cpu_weir_other",
            () if name.starts_with("ksoftirqd") => "cpu_softirq",
            () => continue,
        };
        *sums.entry(part).or_insert(0) += samples;
    }
    ensure!(sums.contains_key("cpu_guests"), "perf has no sample of the guests");
    Ok(sums)
}
