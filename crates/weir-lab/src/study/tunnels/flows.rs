//! A TCP stream through each tunnel, all at once.

use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Tunnels;
use super::ends::Ends;
use crate::interrupt;
use crate::netns::{Namespace, SHORT};
use crate::process::Running;
use crate::topology::{Lab, Side};
use crate::traffic::bypass::on_own_thread;

/// The first port of iperf3's servers.
const PORT: u16 = 5300;
/// What streams may take beyond their time.
const PATIENCE: Duration = Duration::from_secs(40);
/// Connections that are begun at once: the standard library's listeners let 128 wait.
const AT_ONCE: usize = 100;
/// What those may take, on a busy machine.
const CONNECTED: Duration = Duration::from_secs(30);
/// Bytes of one write or read.
const CHUNK: usize = 64 * 1024;
/// A last interval shorter than this share of a second is no sample.
const WHOLE: f64 = 0.9;

/// Gb/s by tunnel and second, at the receiver. `poll` is called often, with the seconds so far.
pub(super) fn run(
    step: &Tunnels,
    lab: &Lab,
    ends: &mut Ends,
    raw: &Path,
    poll: &mut dyn FnMut(f64) -> Result<()>,
) -> Result<Vec<Vec<f64>>> {
    if let Some(swarm) = &mut ends.swarm {
        return swarm.run(lab.host(Side::A), step.seconds, poll);
    }
    match step.tunnels > step.one_process_above {
        true => by_one_process(step, lab, ends, poll),
        false => by_iperf3(step, lab, ends, raw, poll),
    }
}

fn by_iperf3(
    step: &Tunnels,
    lab: &Lab,
    ends: &Ends,
    raw: &Path,
    poll: &mut dyn FnMut(f64) -> Result<()>,
) -> Result<Vec<Vec<f64>>> {
    let server = lab.host(Side::A);
    let mut listening = Vec::new();
    for number in 0..step.tunnels as usize {
        let mut command = server.command("iperf3");
        let port = (PORT + number as u16).to_string();
        let target = step.target(lab, number).to_string();
        command.args(["-s", "-1", "-J", "-i", "1", "-B", &target, "-p", &port]);
        listening.push(Running::start(&mut command)?);
    }
    for (number, server) in listening.iter_mut().enumerate() {
        let listens = format!(":{:04X} 00000000:0000 0A", PORT + number as u16);
        interrupt::until("iperf3's server that listens", SHORT, || {
            ensure!(server.is_running()?, "iperf3's server ended: {}", server.stdout().trim());
            let table = fs::read_to_string(format!("/proc/{}/net/tcp", server.id()))?;
            Ok(table.contains(&listens))
        })?;
    }
    let mut sending = Vec::new();
    for (number, source) in ends.sources.iter().enumerate() {
        let mut command = ends.clients(lab).command("iperf3");
        let port = (PORT + number as u16).to_string();
        let target = step.target(lab, number).to_string();
        command.args(["-c", &target, "-C", "cubic", "-J", "-B", source, "-p", &port]);
        command.args(["-t", &step.seconds.to_string(), "--connect-timeout", "20000"]);
        sending.push(Running::start(&mut command)?);
    }
    let (begun, limit) = (Instant::now(), Duration::from_secs(u64::from(step.seconds)) + PATIENCE);
    let ended = interrupt::until("end of iperf3", limit, || {
        poll(begun.elapsed().as_secs_f64())?;
        let mut running = false;
        for client in &mut sending {
            running |= client.is_running()?;
        }
        Ok(!running)
    });
    // A server whose client failed waits for ever.
    let _ = interrupt::until("end of iperf3's servers", Duration::from_secs(5), || {
        let mut running = false;
        for server in &mut listening {
            running |= server.is_running()?;
        }
        Ok(!running)
    });
    let mut said = String::new();
    for (server, client) in listening.iter().zip(&sending) {
        said += &format!("{}\n{}\n", client.stdout(), server.stdout());
    }
    fs::write(raw.join("iperf3.json.txt"), said)?;
    ended?;
    let both = listening.iter().zip(&sending);
    both.map(|(server, client)| samples(&client.stdout(), &server.stdout())).collect()
}

/// Gb/s of every whole second, as the server saw it.
fn samples(client: &str, server: &str) -> Result<Vec<f64>> {
    ensure!(!client.trim().is_empty(), "iperf3 ended without a report");
    let client: Value = serde_json::from_str(client).context("iperf3 speaks no JSON")?;
    if let Some(reason) = client["error"].as_str() {
        bail!("iperf3: {reason}");
    }
    let used = client["end"]["sender_tcp_congestion"].as_str().unwrap_or("nothing");
    ensure!(used == "cubic", "iperf3 used {used} where cubic was asked for");
    let server: Value = serde_json::from_str(server).context("iperf3's server has no report")?;
    let intervals = server["intervals"].as_array().context("iperf3 reports no intervals")?;
    let mut samples = Vec::new();
    for interval in intervals {
        let sum = &interval["sum"];
        if sum["seconds"].as_f64().context("an interval has no length")? >= WHOLE {
            samples.push(sum["bits_per_second"].as_f64().context("no rate")? / 1e9);
        }
    }
    ensure!(!samples.is_empty(), "iperf3 reports no whole second");
    Ok(samples)
}

/// All streams by one thread, all receivers by another: a thousand processes would measure
/// themselves.
fn by_one_process(
    step: &Tunnels,
    lab: &Lab,
    ends: &Ends,
    poll: &mut dyn FnMut(f64) -> Result<()>,
) -> Result<Vec<Vec<f64>>> {
    let count = step.tunnels as usize;
    let targets: Vec<SocketAddr> =
        (0..count).map(|it| SocketAddr::from((step.target(lab, it), PORT))).collect();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let listener = inside(lab.host(Side::A), || Ok(TcpListener::bind(any)?))?;
    let (senders, receivers) = connect(ends.clients(lab), &ends.sources, &targets, &listener)?;
    for stream in senders.iter().chain(&receivers) {
        stream.set_nonblocking(true)?;
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(&senders, &over));
        let receiving = scope.spawn(|| receive(&receivers, step.seconds, &over));
        let begun = Instant::now();
        let polled = loop {
            std::thread::sleep(Duration::from_millis(20));
            let polled = poll(begun.elapsed().as_secs_f64());
            if polled.is_err() || receiving.is_finished() {
                break polled;
            }
        };
        over.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let samples = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        polled.and(sent).and(samples)
    })
}

fn inside<T: Send>(namespace: &Namespace, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    on_own_thread(|| {
        namespace.enter()?;
        act()
    })
}

/// A connection from each source to its target, and its other end; many at a time, because a first
/// packet waits for a neighbour that is not known yet, and no more than may wait to be accepted.
fn connect(
    namespace: &Namespace,
    sources: &[String],
    targets: &[SocketAddr],
    listener: &TcpListener,
) -> Result<(Vec<TcpStream>, Vec<TcpStream>)> {
    listener.set_nonblocking(true)?;
    let sources: Vec<Ipv4Addr> = sources
        .iter()
        .map(|it| it.parse().context("a source is an address"))
        .collect::<Result<_>>()?;
    inside(namespace, || {
        let (mut senders, mut arrived) = (Vec::new(), HashMap::new());
        let pairs: Vec<_> = sources.iter().zip(targets).collect();
        for some in pairs.chunks(AT_ONCE) {
            for (source, target) in some {
                senders.push(begin(**source, **target)?);
            }
            interrupt::until("streams through all tunnels", CONNECTED, || {
                while arrived.len() < senders.len() {
                    match listener.accept() {
                        Ok((stream, from)) => drop(arrived.insert(from.ip(), stream)),
                        Err(error) if is_for_later(&error) => return Ok(false),
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(true)
            })?;
        }
        let other_end = |source: &Ipv4Addr| {
            let found = arrived.remove(&IpAddr::V4(*source));
            found.with_context(|| format!("no stream came from {source}"))
        };
        let receivers = sources.iter().map(other_end).collect::<Result<_>>()?;
        Ok((senders, receivers))
    })
}

/// A connection that may still be on its way.
fn begin(source: Ipv4Addr, target: SocketAddr) -> Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddr::from((source, 0)))?;
    match connect(&socket, &target) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error).with_context(|| format!("none from {source} to {target}")),
    }
}

fn send(streams: &[TcpStream], over: &AtomicBool) -> Result<()> {
    let bytes = vec![0x5a; CHUNK];
    while !over.load(Ordering::Relaxed) {
        let mut moved = false;
        for mut stream in streams {
            match stream.write(&bytes) {
                Ok(count) => moved |= count > 0,
                Err(error) if is_for_later(&error) => {}
                Err(error) => return Err(error).context("a stream broke"),
            }
        }
        if !moved {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

fn receive(streams: &[TcpStream], seconds: u32, over: &AtomicBool) -> Result<Vec<Vec<f64>>> {
    let mut samples = vec![Vec::new(); streams.len()];
    let mut counts = vec![0_u64; streams.len()];
    let mut bytes = vec![0; CHUNK];
    let mut last = Instant::now();
    while samples[0].len() < seconds as usize && !over.load(Ordering::Relaxed) {
        let mut moved = false;
        for (mut stream, count) in streams.iter().zip(&mut counts) {
            match stream.read(&mut bytes) {
                Ok(0) => bail!("a stream ended early"),
                Ok(read) => {
                    *count += read as u64;
                    moved = true;
                }
                Err(error) if is_for_later(&error) => {}
                Err(error) => return Err(error).context("a stream broke"),
            }
        }
        let lasted = last.elapsed().as_secs_f64();
        if lasted >= 1.0 {
            for (samples, count) in samples.iter_mut().zip(&mut counts) {
                samples.push(std::mem::take(count) as f64 * 8.0 / lasted / 1e9);
            }
            last = Instant::now();
        }
        if !moved {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(samples)
}

fn is_for_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
