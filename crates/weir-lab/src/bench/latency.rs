//! What a gateway adds to the time a packet takes, at low load.
//!
//! Host A sends a small datagram, host B sends it back, one at a time and a thousand a second. A
//! round trip crosses two gateways twice, so a gateway adds a quarter of what the round trip takes
//! longer than over a Linux bridge in the gateways' place.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Figure, Options, Route, Samples};
use crate::gateways::Protection;
use crate::interrupt;
use crate::topology::{Lab, Side};
use crate::traffic::bypass::on_own_thread;
use crate::wireguard;
use weir_wire::udp::PORT_ROCE_V2;

/// Interleaved rounds over bridge, Weir and the peer.
pub(super) const ROUNDS: usize = 5;
/// Round trips of one round.
pub(super) const PROBES: usize = 2000;
/// Those that only wake the path up.
const WARM_UP: usize = 100;
const PERIOD: Duration = Duration::from_millis(1);
/// A datagram that is not back by then is lost.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of a datagram.
const LEN: usize = 64;
const PORT: u16 = 7;
/// Passes through a gateway in a round trip.
const PASSES: f64 = 4.0;

/// Median, 99th percentile and longest of the round trip, microseconds.
#[derive(Clone, Copy)]
pub(super) struct RoundTrip {
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    pub(super) max_us: f64,
    pub(super) lost: usize,
}

/// What is sent to and fro.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    /// Of the sender and of who answers.
    ports: [u16; 2],
    /// What each datagram begins with, before its number.
    head: [u8; HEAD_LEN],
}

const HEAD_LEN: usize = 12;

impl Probe {
    /// Bytes that mean nothing.
    pub(super) const UDP: Probe = Probe { ports: [0, PORT], head: [0; HEAD_LEN] };

    /// UC SEND Only, to a queue pair of the same number at either end.
    pub(super) fn roce(queue_pair: u32) -> Self {
        let [_, high, middle, low] = queue_pair.to_be_bytes();
        let head = [0x24, 0, 0xff, 0xff, 0, high, middle, low, 0, 0, 0, 0];
        Self { ports: [PORT_ROCE_V2; 2], head }
    }
}

pub(super) fn added(options: &Options) -> Result<Vec<Figure>> {
    let (bridge, wireguard) = (Route::bridge()?, Route::wireguard()?);
    let weir = Route::weir(options, Protection::Sealed)?;
    let probes = if options.quick { PROBES / 20 } else { PROBES };
    let mut ours = [Samples::default(), Samples::default()];
    let mut theirs = ours.clone();
    let (mut bare, mut lost) = (Samples::default(), [0, 0]);
    for _ in 0..options.rounds(ROUNDS) {
        let base = round_trips(&bridge.lab, probes, Probe::UDP)?;
        bare.0.push(base.median_us);
        let paths = [(&weir, &mut ours, 0), (&wireguard, &mut theirs, 1)];
        for (route, [median, p99], place) in paths {
            let trip = round_trips(&route.lab, probes, Probe::UDP)?;
            median.0.push((trip.median_us - base.median_us) / PASSES);
            p99.0.push((trip.p99_us - base.p99_us) / PASSES);
            lost[place] += trip.lost;
        }
    }
    let note = format!(
        "a gateway's share of the round trip of {LEN} bytes of UDP, {probes} a round, 1,000 a \
         second; the bridge's whole round trip {:.1} us; lost {}, peer {}",
        bare.median(),
        lost[0],
        lost[1]
    );
    let names = ["added_latency_p50_us", "added_latency_p99_us"];
    let pairs = names.iter().zip(ours.iter().zip(&theirs));
    let figures = pairs.map(|(name, (ours, theirs))| {
        Figure::new(name, "us", ours).against(&wireguard::name(), theirs).noted(&note)
    });
    Ok(figures.collect())
}

/// Round trips of `probes` datagrams, one at a time.
pub(super) fn round_trips(lab: &Lab, probes: usize, what: Probe) -> Result<RoundTrip> {
    let [own, far] = what.ports;
    let address = SocketAddr::from((lab.host_v4(Side::B), far));
    let echo = on_own_thread(|| {
        lab.host(Side::B).enter()?;
        UdpSocket::bind(address).context("host B cannot listen")
    })?;
    let sender = on_own_thread(|| {
        lab.host(Side::A).enter()?;
        let socket = UdpSocket::bind((lab.host_v4(Side::A), own)).context("host A cannot send")?;
        socket.connect(address)?;
        Ok(socket)
    })?;
    echo.set_read_timeout(Some(PATIENCE))?;
    sender.set_read_timeout(Some(PATIENCE))?;
    let answering = std::thread::spawn(move || answer(&echo));
    let measured = probe(&sender, probes, &what.head);
    // An empty datagram ends the answering side; lost, its patience does.
    sender.send(&[])?;
    answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    measured
}

/// Sends back what comes, until an empty datagram or nothing for a while.
fn answer(socket: &UdpSocket) {
    let mut buffer = [0; LEN];
    while let Ok((len @ 1.., from)) = socket.recv_from(&mut buffer) {
        let _ = socket.send_to(&buffer[..len], from);
    }
}

fn probe(socket: &UdpSocket, probes: usize, head: &[u8; HEAD_LEN]) -> Result<RoundTrip> {
    let mut times = Vec::with_capacity(probes);
    let mut lost = 0;
    let mut buffer = [0; LEN];
    let number_at = HEAD_LEN..HEAD_LEN + 8;
    for number in 0..WARM_UP + probes {
        interrupt::check()?;
        let begin = Instant::now();
        buffer[..HEAD_LEN].copy_from_slice(head);
        buffer[number_at.clone()].copy_from_slice(&number.to_le_bytes());
        socket.send(&buffer)?;
        // An answer to an earlier one may still come.
        let back = loop {
            match socket.recv(&mut buffer) {
                Ok(_) if buffer[number_at.clone()] == number.to_le_bytes() => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        let taken = begin.elapsed();
        match back {
            true if number >= WARM_UP => times.push(taken.as_secs_f64() * 1e6),
            true => {}
            false => lost += 1,
        }
        std::thread::sleep(PERIOD.saturating_sub(taken));
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
    let trip = at(0.5).zip(at(0.99)).zip(times.last().copied());
    let ((median_us, p99_us), max_us) = trip.context("no datagram came back")?;
    Ok(RoundTrip { median_us, p99_us, max_us, lost })
}
