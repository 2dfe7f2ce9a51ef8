//! What `--keep` leaves to look at: `weir serve` over both gateways, and traffic that goes on.

use std::process::Command;

use anyhow::{Context, Result};

use super::Options;
use crate::gateways::run_folder;
use crate::process::Running;
use crate::serve::{ACCOUNT, Serve, store_folder};
use crate::topology::{Hosts, Lab, Side};

/// RoCE frames of a round of the traffic that goes on, and how many of them a second.
const ROUND: (u32, u32) = (2000, 400);

/// More tables of a gateway that is to be looked at: what it stores, and records every few seconds,
/// so that a newcomer need not wait for them.
pub(super) fn tables() -> String {
    format!(
        "\n[store]\ngroup = \"{ACCOUNT}\"\nsize_mib = 64\n\n\
         [limits]\nactive_timeout_s = 5\nidle_timeout_s = 5\n"
    )
}

/// Starts both; returns the link that lets a browser in.
///
/// # Errors
/// `weir serve` does not start; its own words.
pub(super) fn open(lab: &Lab, options: &Options) -> Result<String> {
    let serve = Serve::start(
        &options.program,
        &lab.folder().join("serve"),
        &Side::BOTH.map(|side| run_folder(lab, side)),
        &Side::BOTH.map(|side| store_folder(lab, side)),
    )?;
    lab.note_process(serve.id())?;
    let link = serve.detach();
    if lab.plan().hosts == Hosts::Guests {
        return Ok(link);
    }
    keep_talking(lab, options).context("the traffic that goes on")?;
    Ok(link)
}

/// Until the lab is gone: pings, and RoCE frames past the hosts' kernels.
fn keep_talking(lab: &Lab, options: &Options) -> Result<()> {
    let target = lab.host_v4(Side::B).to_string();
    let mut ping = lab.host(Side::A).lasting_command("ping");
    Running::start(ping.args(["-q", "-i", "0.05", "-s", "1000", &target]))?.detach();
    let (count, rate) = ROUND;
    let script = format!(
        "while [ -d \"$1\" ]; do \"$0\" lab send --kind roce-v2 --count {count} --rate {rate}; \
         sleep 1; done >/dev/null 2>&1"
    );
    let mut send = Command::new("sh");
    send.args(["-c", &script]).arg(&options.program).arg(lab.folder());
    Running::start(&mut send)?.detach();
    Ok(())
}
