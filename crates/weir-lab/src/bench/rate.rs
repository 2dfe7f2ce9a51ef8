//! The highest rate of RoCE frames that passes without loss, found by bisection.
//!
//! A trial sends a bounded count at a fixed rate; a firewall rule in host B counts what arrived and
//! drops it, which costs next to nothing: an RDMA adapter would take the frames from there.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Figure, Options, Route, Samples};
use crate::gateways::Protection;
use crate::interrupt;
use crate::observe::Firewall;
use crate::topology::{HOST_DEVICE, Lab, Side};
use crate::traffic::frames::RoceStream;
use crate::traffic::{Kind, bypass};

/// Payload sizes: a small and the largest RoCE MTU in wide use.
pub(super) const PAYLOADS: [usize; 2] = [1024, 4096];
/// Where the search begins, frames a second.
const RATE_FIRST: u32 = 20_000;
/// No sender here reaches it.
const RATE_MAX: u32 = 2_000_000;
/// Times that a rate which did not hold is lowered.
const LOWERINGS: usize = 12;
/// A sender that reaches less of its rate is itself the limit.
const SENDER_SHARE: f64 = 0.97;

/// How thoroughly to search.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// Seconds of each trial.
    trial_seconds: f64,
    /// The search ends when the bounds are this close together.
    precision: f64,
    /// The found rate must hold in this many more trials.
    confirmations: usize,
}

impl Search {
    pub(super) const FULL: Search =
        Search { trial_seconds: 1.5, precision: 1.04, confirmations: 3 };
    pub(super) const QUICK: Search =
        Search { trial_seconds: 0.2, precision: 2.0, confirmations: 1 };
}

/// One trial.
struct Trial {
    /// Frames a second that were really sent.
    achieved: f64,
    lost: u64,
    /// The sender itself could not keep the rate or its port refused frames.
    sender_limited: bool,
}

pub(super) fn sealed_roce(options: &Options) -> Result<Vec<Figure>> {
    roce(options, Protection::SealedInUdp, "lab_sealed_roce_kpps")
}

/// The same by ESP without UDP, whose packets cannot leave together.
pub(super) fn esp_roce(options: &Options) -> Result<Vec<Figure>> {
    roce(options, Protection::Sealed, "lab_sealed_roce_esp_kpps")
}

/// The same with tags in the place of ICRCs.
pub(super) fn tagged_roce(options: &Options) -> Result<Vec<Figure>> {
    roce(options, Protection::Tagged, "lab_tagged_roce_kpps")
}

fn roce(options: &Options, protection: Protection, name: &str) -> Result<Vec<Figure>> {
    let (bridge, weir) = (Route::bridge()?, Route::weir(options, protection)?);
    let search = if options.quick { Search::QUICK } else { Search::FULL };
    let Search { trial_seconds, confirmations, .. } = search;
    let mut figures = Vec::new();
    for payload in PAYLOADS {
        let (theirs, their_limit) = highest_rate(&bridge.lab, payload, search)?;
        let (ours, our_limit) = highest_rate(&weir.lab, payload, search)?;
        let figure = Figure::new(&format!("{name}_{payload}"), "kpps", &ours);
        let note = format!(
            "UC SEND Only, {payload} bytes behind the BTH, no loss in {confirmations} trials of \
             {trial_seconds} s; {our_limit}, peer {their_limit}"
        );
        figures.push(figure.against("Linux bridge, in clear", &theirs).noted(&note));
    }
    Ok(figures)
}

/// Thousands of frames a second in the confirming trials, and what limited them.
pub(super) fn highest_rate(
    lab: &Lab,
    payload: usize,
    search: Search,
) -> Result<(Samples, &'static str)> {
    highest_rate_of(lab, RoceStream::new(payload)?, search)
}

/// The same of `stream`.
pub(super) fn highest_rate_of(
    lab: &Lab,
    mut stream: RoceStream,
    search: Search,
) -> Result<(Samples, &'static str)> {
    let counter = Firewall::raise_against_one(lab.host(Side::B), HOST_DEVICE, Kind::RoceV2)?;
    let (mut good, mut bad, mut rate) = (0, RATE_MAX, RATE_FIRST);
    let mut limit = "limited by the path";
    while f64::from(bad) / f64::from(good.max(1)) > search.precision && rate < RATE_MAX {
        let trial = trial(lab, &counter, &mut stream, rate, search.trial_seconds)?;
        if trial.lost > 0 {
            (bad, limit) = (rate, "limited by the path");
        } else if trial.sender_limited {
            (bad, limit) = (rate, "limited by the sender");
            good = good.max(trial.achieved as u32);
        } else {
            good = rate;
        }
        // Upwards by half until something gives, then between the bounds.
        rate = if bad == RATE_MAX { good + good / 2 } else { good + (bad - good) / 2 };
        if good == 0 && bad < 1000 {
            bail!("not even {bad} frames a second pass without loss");
        }
    }
    let mut rate = good;
    for _ in 0..LOWERINGS {
        let trials: Vec<Trial> = (0..search.confirmations)
            .map(|_| trial(lab, &counter, &mut stream, rate, search.trial_seconds))
            .collect::<Result<_>>()?;
        if trials.iter().all(|trial| trial.lost == 0) {
            return Ok((Samples(trials.iter().map(|it| it.achieved / 1000.0).collect()), limit));
        }
        rate -= rate / 16;
        limit = "limited by the path";
    }
    bail!("no rate holds: {rate} frames a second still lose some");
}

/// Percent of `rate` packets of `stream` a second that arrive, for so many seconds.
pub(super) fn share_of(lab: &Lab, mut stream: RoceStream, rate: u32, seconds: f64) -> Result<f64> {
    let counter = Firewall::raise_against_one(lab.host(Side::B), HOST_DEVICE, Kind::RoceV2)?;
    let Trial { lost, achieved, .. } = trial(lab, &counter, &mut stream, rate, seconds)?;
    let sent = achieved * seconds;
    Ok(100.0 * (sent - lost as f64) / (f64::from(rate) * seconds))
}

fn trial(
    lab: &Lab,
    counter: &Firewall<'_>,
    stream: &mut RoceStream,
    rate: u32,
    seconds: f64,
) -> Result<Trial> {
    let before = counter.stopped(Kind::RoceV2)?;
    let count = (f64::from(rate) * seconds) as u64;
    let blast = bypass::blast(lab, stream, count, rate)?;
    let mut arrived = 0;
    // Until all are there, or nothing more comes.
    for _ in 0..100 {
        interrupt::sleep(Duration::from_millis(60))?;
        let now = counter.stopped(Kind::RoceV2)? - before;
        if now >= blast.sent || (now == arrived && now > 0) {
            arrived = now;
            break;
        }
        arrived = now;
    }
    let achieved = blast.sent as f64 / blast.seconds;
    Ok(Trial {
        achieved,
        lost: blast.sent.saturating_sub(arrived),
        sender_limited: achieved < SENDER_SHARE * f64::from(rate) || blast.refused > 0,
    })
}
