//! What the kernel's fast path carries beside a Linux bridge, and what seeing costs with it and
//! without.

use anyhow::Result;

use super::{Figure, Options, Route, TOOLS, interleaved_tcp, share_of_tcp};
use crate::gateways::{Gateways, Protection, Setup, configurations};
use crate::process;
use crate::topology::{Lab, Plan};

/// Records to nobody: their making and sending is what costs.
const EXPORT: &str = "\n[[export]]\ncollector = \"udp://127.0.0.1:9\"\nformat = \"ipfix\"\n";

pub(super) fn against_bridge(options: &Options) -> Result<Vec<Figure>> {
    let (bridge, weir) = (Route::bridge()?, forwarding(options, "fastpath = \"tc\"\n", "")?);
    let (ours, theirs, note) = interleaved_tcp(options, &weir, &bridge)?;
    let figure = Figure::new("fastpath_vs_bridge", "Gb/s", &ours);
    Ok(vec![figure.against("Linux bridge", &theirs).noted(&note)])
}

/// Forwarding with ICRC, export and an evidence ring as a share of forwarding without them, on both
/// paths. Flows are metered in both: there is no switch for that.
pub(super) fn seeing(options: &Options) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, mode) in [("see_cost_share_slow", "off"), ("see_cost_share_fast", "tc")] {
        let fastpath = format!("fastpath = \"{mode}\"\n");
        let more = format!("{EXPORT}\n[evidence]\nmemory_mib = 64\n");
        let seeing = forwarding(options, &format!("{fastpath}icrc = \"check\"\n"), &more)?;
        let bare = forwarding(options, &format!("{fastpath}icrc = \"off\"\n"), "")?;
        let what = "with ICRC, export by IPFIX and an evidence ring, against none of them";
        figures.push(share_of_tcp(options, name, &seeing, &bare, what)?);
    }
    Ok(figures)
}

/// Two gateways that forward in clear, with more lines in their pairs and behind them.
fn forwarding(options: &Options, pair_lines: &str, more: &str) -> Result<Route> {
    process::require(&TOOLS)?;
    let lab = Lab::build(Plan::default())?;
    let setup = Setup {
        driver: options.driver.clone(),
        pair_lines: pair_lines.to_owned(),
        ..Setup::new(&options.program, Protection::Plain)
    };
    let texts = configurations(&lab, &setup)?.map(|text| text + more);
    let gateways = Gateways::start_configured(&lab, &setup, &texts)?;
    Ok(Route { lab, gateways: Some(gateways), _tunnel: None })
}
