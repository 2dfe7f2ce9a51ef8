//! What remembering and showing cost: the store, `weir serve`, and a gateway beside both.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::{Gid, Uid, chown};

use super::memory::{cargo, figures};
use super::{Figure, Options, Route, SHARE_ROUNDS, SHARE_SECONDS, Samples, share_of_tcp};
use crate::gateways::{Gateways, Protection, Setup, configurations, run_folder};
use crate::serve::{ACCOUNT, Serve, store_folder};
use crate::topology::{HOST_DEVICE, Lab, Plan, Side};
use crate::traffic::bypass;
use crate::traffic::hostile::{Campaign, Hostile};
use crate::{interrupt, process};

/// Flows that begin, and records that are stored, a second.
const RECORDS_PER_SECOND: u32 = 500;
/// Until the first of them have ended: the idle timeout.
const FIRST_RECORDS: Duration = Duration::from_secs(7);
/// How often the page is opened.
const OPENED: usize = 20;
/// What the screen Home asks for.
const HOME: [&str; 4] = [
    "/api/v1/status",
    "/api/v1/talkers?limit=10",
    "/api/v1/periods",
    "/api/v1/alerts/summary?last=300",
];
/// What the other screens ask a store for.
const SCREENS: [&str; 5] = [
    "/api/v1/flows?group=true&limit=200",
    "/api/v1/conversations?group=true&limit=200",
    "/api/v1/volumes?of=flows&by=ends",
    "/api/v1/alerts/summary",
    "/api/v1/counters?last=86400",
];

/// Questions that tell groups apart, of all that the store has.
const GROUPS: [&str; 4] = [
    "/api/v1/flows?group=true&order=bytes&limit=1000&last=604800",
    "/api/v1/flows?group=true&order=packets&limit=1000&last=604800",
    "/api/v1/volumes?of=flows&by=source&exact=true&limit=1000&last=604800",
    "/api/v1/volumes?of=flows&by=ends&exact=true&limit=1000&last=604800",
];

/// Filling a store, asking it as the dashboard does, and `weir serve` over it.
pub(super) fn store(options: &Options) -> Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("gw.sqlite");
    let mut command = cargo("weir-store", "store_speed");
    command.arg("--keep").arg(&path);
    let mut figures = figures("store_speed", command, options)?;
    give_away(folder.path())?;
    let serve = Serve::start(&options.program, folder.path(), &[], &[path])?;
    let page = serve.get("/")?;
    let assets: Vec<&str> = page.split('"').filter(|it| it.starts_with("/assets/")).collect();
    let mut opened = Samples::default();
    for _ in 0..options.rounds(OPENED) {
        let begin = Instant::now();
        for path in ["/"].iter().chain(&assets).chain(&HOME) {
            serve.get(path)?;
        }
        opened.0.push(begin.elapsed().as_secs_f64() * 1e3);
        // Fewer requests than clients may send.
        interrupt::sleep(Duration::from_millis(200))?;
    }
    for path in SCREENS.iter().cycle().take(SCREENS.len() * 4) {
        serve.get(path)?;
    }
    let resident = Samples(vec![process::resident_mib(serve.id())?]);
    let filled = "over the store that store_records_per_s filled";
    figures
        .push(Figure::new("serve_rss_mib", "MiB", &resident).noted(&format!(
            "{filled}, after each question of the dashboard was asked four times"
        )));
    std::thread::scope(|scope| {
        for path in GROUPS {
            // One that takes too long is told so; what counts is the memory.
            scope.spawn(|| serve.get(path).ok());
        }
    });
    let peak = Samples(vec![process::peak_mib(serve.id())?]);
    figures.push(Figure::new("serve_rss_mib_peak", "MiB", &peak).noted(&format!(
        "{filled}, after four questions at once that tell groups apart among all of it"
    )));
    figures.push(Figure::new("dashboard_home_ms", "ms", &opened).noted(&format!(
        "the page, its {} files and what Home asks, one after another; {filled}, no browser",
        assets.len()
    )));
    Ok(figures)
}

/// To who `weir serve` becomes.
fn give_away(folder: &Path) -> Result<()> {
    let (owner, group) = (Some(Uid::from_raw(ACCOUNT)), Some(Gid::from_raw(ACCOUNT)));
    for entry in folder.read_dir()? {
        chown(entry?.path(), owner, group)?;
    }
    Ok(chown(folder, owner, group)?)
}

/// Sealed TCP with a store, `weir serve` and a listener of its live stream, as a share of that
/// without; flows begin and end beside both.
pub(super) fn cost(options: &Options) -> Result<Vec<Figure>> {
    let table = format!("\n[store]\ngroup = \"{ACCOUNT}\"\n");
    let (with, without) = (sealed(options, &table)?, sealed(options, "")?);
    let run_folders = Side::BOTH.map(|side| run_folder(&with.lab, side));
    let stores = Side::BOTH.map(|side| store_folder(&with.lab, side));
    let serve =
        Serve::start(&options.program, &with.lab.folder().join("serve"), &run_folders, &stores)?;
    let mut live = serve.ask("/api/v1/live")?;
    let listener = std::thread::spawn(move || {
        let (mut heard, mut buffer) = (0, [0; 4096]);
        while let Ok(count @ 1..) = live.read(&mut buffer) {
            heard += count;
        }
        heard
    });
    let rounds = options.rounds(SHARE_ROUNDS) as u32;
    // Two runs a round, and what a run takes beside its seconds.
    let seconds = FIRST_RECORDS.as_secs() as u32 + rounds * 2 * (SHARE_SECONDS + 1) + 5;
    let count = (RECORDS_PER_SECOND * seconds) as usize;
    let hostile = Hostile::UdpFlood;
    let frames = Campaign { hostile, is_benign: false, count, sources: 1, seed: 1 }.frames();
    let pour = |lab| bypass::pour(lab, Side::B, HOST_DEVICE, &frames, RECORDS_PER_SECOND);
    let figure = std::thread::scope(|scope| {
        scope.spawn(|| pour(&with.lab));
        scope.spawn(|| pour(&without.lab));
        interrupt::sleep(FIRST_RECORDS)?;
        let what = "with store, `weir serve` and a listener of the live stream";
        share_of_tcp(options, "gateway_cost_share_operate", &with, &without, what)
    })?;
    let status = with.gateways.as_ref().context("its gateways are there")?.status(Side::A)?;
    drop(serve);
    let heard = listener.join().unwrap_or_default();
    Ok(vec![figure.noted(&format!(
        "{RECORDS_PER_SECOND} flows/s beside both, {} records stored by one gateway, {} lost; \
         {heard} bytes of live stream",
        status["store"]["written"], status["store"]["overflowed"]
    ))])
}

/// Sealing gateways whose flows end soon, with `table`.
fn sealed(options: &Options, table: &str) -> Result<Route> {
    process::require(&super::TOOLS)?;
    let lab = Lab::build(Plan::default())?;
    let setup = Setup {
        driver: options.driver.clone(),
        ..Setup::new(&options.program, Protection::SealedInUdp)
    };
    let limits = "\n[limits]\nactive_timeout_s = 5\nidle_timeout_s = 5\n";
    let texts = configurations(&lab, &setup)?.map(|text| text + limits + table);
    let gateways = Gateways::start_configured(&lab, &setup, &texts)?;
    Ok(Route { lab, gateways: Some(gateways), _tunnel: None })
}
