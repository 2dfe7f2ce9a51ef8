//! What packets notice of a dashboard: a gateway that has 10,000 peers beside the one that is used,
//! and whose whole status somebody asks for once a second.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64ct::{Base64, Encoding};

use super::latency::{PROBES, Probe, ROUNDS, RoundTrip, round_trips};
use super::{Figure, Options, Route, Samples};
use crate::gateways::{Gateways, Protection, Setup, configurations};
use crate::netns::SHORT;
use crate::topology::{Lab, Plan, Side};
use crate::{interrupt, process};

/// Peers of gateway A that never speak.
const PEERS: u32 = 10_000;
/// How often a dashboard asks.
const PERIOD: Duration = Duration::from_secs(1);
/// Answers that are timed with nothing else to do.
const ANSWERS: usize = 9;
/// Between two looks at whether to ask.
const LOOK: Duration = Duration::from_millis(10);
const NAME: &str = "lab_status_10000";

/// `lab_status_10000_ms`, and what polling costs: `_p50_us`, `_p99_us`, `_gbps`.
pub(super) fn status(options: &Options) -> Result<Vec<Figure>> {
    let few = Route::weir(options, Protection::SealedInUdp)?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    let many = with_peers(options)?;
    for _ in 0..options.rounds(ANSWERS) {
        theirs.0.push(answer_ms(&few)?);
        ours.0.push(answer_ms(&many)?);
    }
    drop(few);
    let figure = Figure::new(&format!("{NAME}_ms"), "ms", &ours);
    let answers =
        figure.against("one peer", &theirs).noted("`weir status --json`, program's start included");
    let mut figures = vec![answers];
    figures.extend(delays(options, &many)?);
    figures.push(throughput(options, &many)?);
    Ok(figures)
}

/// Sealing gateways of which A has many more peers: who they are is known, where they are is not.
fn with_peers(options: &Options) -> Result<Route> {
    process::require(&super::TOOLS)?;
    let lab = Lab::build(Plan::default())?;
    let setup = Setup {
        driver: options.driver.clone(),
        ..Setup::new(&options.program, Protection::SealedInUdp)
    };
    let [mut text, other] = configurations(&lab, &setup)?;
    let identity = lab.folder().join("gw-a.identity");
    let mut command = std::process::Command::new(&options.program);
    process::run(command.args(["keys", "identity"]).arg(&identity), SHORT)?;
    text += &format!("\n[keying]\nidentity_file = \"{}\"\n", identity.display());
    for number in 0..PEERS {
        let [_, _, high, low] = number.to_be_bytes();
        let mut key = [7; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        text += &format!(
            "[[peer]]\nname = \"p{number}\"\nmode = \"ethernet\"\n\
             protects = \"10.200.{high}.{low}/32\"\npublic_key = \"{}\"\n",
            Base64::encode_string(&key),
        );
    }
    let gateways = Gateways::start_configured(&lab, &setup, &[text, other])?;
    Ok(Route { lab, gateways: Some(gateways), _tunnel: None })
}

fn gateways(route: &Route) -> Result<&Gateways> {
    route.gateways.as_ref().context("Weir's path has gateways")
}

fn answer_ms(route: &Route) -> Result<f64> {
    let begin = Instant::now();
    gateways(route)?.status(Side::A)?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

/// Does `work` while gateway A's status is asked for; how often it was answered.
fn polled<T>(route: &Route, work: impl FnOnce() -> Result<T>) -> Result<(T, usize)> {
    let gateways = gateways(route)?;
    let (has_ended, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            let mut next = Instant::now();
            while !has_ended.load(Ordering::Relaxed) {
                if Instant::now() < next {
                    thread::sleep(LOOK);
                    continue;
                }
                next += PERIOD;
                if gateways.status(Side::A).is_ok() {
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let done = work();
        has_ended.store(true, Ordering::Relaxed);
        done
    });
    Ok((done?, answers.into_inner()))
}

/// Round trips of hosts, with nobody asking and with somebody.
fn delays(options: &Options, route: &Route) -> Result<Vec<Figure>> {
    let probes = if options.quick { PROBES / 20 } else { PROBES };
    let (mut ours, mut theirs, mut answered) = (Vec::new(), Vec::new(), 0);
    for _ in 0..options.rounds(ROUNDS) {
        interrupt::check()?;
        theirs.push(round_trips(&route.lab, probes, Probe::UDP)?);
        let (trips, answers) = polled(route, || round_trips(&route.lab, probes, Probe::UDP))?;
        ours.push(trips);
        answered += answers;
    }
    let samples =
        |trips: &[RoundTrip], of: fn(&RoundTrip) -> f64| Samples(trips.iter().map(of).collect());
    let longest = |trips: &[RoundTrip]| trips.iter().map(|it| it.max_us).fold(0.0, f64::max);
    let lost = |trips: &[RoundTrip]| trips.iter().map(|it| it.lost).sum::<usize>();
    let note = format!(
        "round trips through both gateways, {probes} a round; {answered} answers about {PEERS} \
         peers meanwhile; the longest {:.0} us, unasked {:.0} us; lost {}, unasked {}",
        longest(&ours),
        longest(&theirs),
        lost(&ours),
        lost(&theirs),
    );
    let figure = |name: &str, of: fn(&RoundTrip) -> f64| {
        let figure = Figure::new(&format!("{NAME}_{name}"), "us", &samples(&ours, of));
        figure.against("nobody asks", &samples(&theirs, of)).noted(&note)
    };
    Ok(vec![figure("p50_us", |it| it.median_us), figure("p99_us", |it| it.p99_us)])
}

/// One TCP stream, likewise.
fn throughput(options: &Options, route: &Route) -> Result<Figure> {
    let seconds = options.tcp_seconds();
    let (mut ours, mut theirs, mut answered) = (Samples::default(), Samples::default(), 0);
    for _ in 0..options.rounds(super::ROUNDS) {
        theirs.0.push(route.tcp(seconds)?.gbps);
        let (report, answers) = polled(route, || route.tcp(seconds))?;
        ours.0.push(report.gbps);
        answered += answers;
    }
    let note = format!("one TCP stream, {seconds} s a run; {answered} answers meanwhile");
    let figure = Figure::new(&format!("{NAME}_gbps"), "Gb/s", &ours);
    Ok(figure.against("nobody asks", &theirs).noted(&note))
}
