//! What lines of access cost a gateway in the lab: RoCE to a hundred thousand queue pairs before
//! ten thousand lines, beside the same gateways without lines.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::latency::{Probe, round_trips};
use super::rate::{PAYLOADS, Search, highest_rate_of};
use super::{Figure, Options, Route, Samples};
use crate::gateways::{Gateways, Protection, Setup, configurations};
use crate::process;
use crate::topology::{HOST_V4, Lab, Plan, Side};
use crate::traffic::frames::RoceStream;

const LINES: u32 = 10_000;
const QUEUE_PAIRS: u32 = 100_000;
/// Queue pairs that are remembered: the bench's, and those of the probes.
const ROOM: u32 = 131_072;
/// Interleaved rounds with lines and without.
const LATENCY_ROUNDS: usize = 7;
const PROBES: usize = 2000;
/// Passes through a gateway in a round trip.
const PASSES: f64 = 4.0;

/// Lines that name others, and one that lets the lab's hosts pass; nothing else may.
fn lines() -> String {
    let line = |name: &str, from: &str, to: &str, operations: &str, action: &str| {
        format!(
            "\n[[access]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\n\
             operations = [{operations}]\naction = \"{action}\"\n"
        )
    };
    let other = |base: u32, number: u32| Ipv4Addr::from(base + number).to_string();
    let mut lines: String = (0..LINES - 2)
        .map(|number| {
            let (from, to) = (other(0x0b00_0000, number), other(0x0b80_0000, number));
            line(&format!("other-{number}"), &from, &to, "\"write\"", "deny")
        })
        .collect();
    let all = "\"send\", \"send_imm\", \"write\", \"read\", \"atomic\"";
    let [a, b] = HOST_V4.map(|it| it.to_string());
    lines += &line("a-to-b", &a, &b, all, "allow");
    lines + &line("b-to-a", &b, &a, all, "allow")
}

/// Gateways that forward; with lines that judge, if so wanted.
fn route(options: &Options, judges: bool) -> Result<Route> {
    process::require(&super::TOOLS)?;
    let lab = Lab::build(Plan::default())?;
    let pair_lines = match judges {
        true => "access_default = \"deny\"\naccess_state = \"learn\"\n".to_owned(),
        false => String::new(),
    };
    let limits = format!("\n[limits]\nconversations = {ROOM}\n");
    let setup = Setup {
        driver: options.driver.clone(),
        pair_lines,
        tables: if judges { limits + &lines() } else { limits },
        ..Setup::new(&options.program, Protection::Plain)
    };
    let texts = configurations(&lab, &setup)?;
    let gateways = Gateways::start_configured(&lab, &setup, &texts)?;
    Ok(Route { lab, gateways: Some(gateways), _tunnel: None })
}

/// The highest rate without loss with lines and without, and what they add to a round trip.
pub(super) fn beside_none(options: &Options) -> Result<Vec<Figure>> {
    let (with, without) = (route(options, true)?, route(options, false)?);
    let search = if options.quick { Search::QUICK } else { Search::FULL };
    let what = format!(
        "{LINES} lines, {QUEUE_PAIRS} queue pairs in turn, access_state learn, at both gateways"
    );
    let mut figures = Vec::new();
    for payload in PAYLOADS {
        let stream = || Ok::<_, anyhow::Error>(RoceStream::new(payload)?.among(QUEUE_PAIRS));
        let (theirs, their_limit) = highest_rate_of(&without.lab, stream()?, search)?;
        let (ours, our_limit) = highest_rate_of(&with.lab, stream()?, search)?;
        let name = format!("access_lab_cost_share_{payload}");
        let note = format!(
            "UC SEND Only, {payload} bytes, {what}; no loss; {our_limit}, without {their_limit}"
        );
        let figure = Figure::new(&name, "kpps", &ours);
        figures.push(figure.against("Weir without lines", &theirs).noted(&note));
    }
    figures.push(latency(options, &with, &without, &what)?);
    let gateways = with.gateways.as_ref().context("its gateways are there")?;
    let hits = gateways.access_hits(Side::A)?;
    let queue_pairs = hits.pointer("/pairs/0/state/queue_pairs").and_then(Value::as_u64);
    if !options.quick {
        let known = queue_pairs.unwrap_or_default();
        ensure!(known >= u64::from(QUEUE_PAIRS), "{known} queue pairs are known: {hits}");
    }
    Ok(figures)
}

fn latency(options: &Options, with: &Route, without: &Route, what: &str) -> Result<Figure> {
    let probes = if options.quick { PROBES / 20 } else { PROBES };
    let probe = Probe::roce(RoceStream::QUEUE_PAIR + QUEUE_PAIRS);
    let (mut added, mut bare, mut lost) = (Samples::default(), Samples::default(), 0);
    for _ in 0..options.rounds(LATENCY_ROUNDS) {
        let base = round_trips(&without.lab, probes, probe)?;
        let ours = round_trips(&with.lab, probes, probe)?;
        added.0.push((ours.median_us - base.median_us) / PASSES);
        bare.0.push(base.median_us);
        lost += base.lost + ours.lost;
    }
    let note = format!(
        "a gateway's share of a round trip of RoCE, {probes} a round, 1,000 a second; {what}; \
         without lines the whole round trip takes {:.1} us, {}; lost {lost}",
        bare.median(),
        bare.interval()
    );
    Ok(Figure::new("access_lab_added_latency_us", "us", &added).noted(&note))
}
