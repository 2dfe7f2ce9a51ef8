//! `weir vpn limit`: how much a client may send and be sent, changed while it is there.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::{ClientArgs, Place, Shown, shown, write_client};
use crate::cli::print_json;
use crate::config::rate::Rate;
use crate::config::vpn::Client;

/// Arguments of `weir vpn limit`.
#[derive(Debug, Args)]
pub struct LimitArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub client: ClientArgs,
    /// Bits a second each way, as 50M or 1.5G; `none` lifts the limit
    #[arg(value_parser = rate)]
    pub rate: Limit,
}

/// A limit or none.
#[derive(Clone, Copy, Debug)]
pub struct Limit(Option<Rate>);

fn rate(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        text => Ok(Limit(Some(text.parse()?))),
    }
}

pub(super) fn limit(args: &LimitArgs) -> Result<ExitCode> {
    let name = &args.client.name;
    let place = Place::find(&args.client.of)?;
    let _lock = place.lock()?;
    let clients = place.clients()?;
    let before = clients.iter().find(|(known, _)| known == name);
    let (_, before) = before.with_context(|| format!("there is no client `{name}`"))?;
    let client = Client { limit: args.rate.0, ..before.clone() };
    let folder = &place.vpn.clients;
    let taken = write_client(folder, name, &client).and_then(|()| place.put_in_force());
    let in_force = match taken {
        Ok(in_force) => in_force,
        Err(error) => {
            write_client(folder, name, before)?;
            return Err(error.context(format!("client `{name}` keeps the limit that it had")));
        }
    };
    if args.client.of.json {
        print_json(&Shown { in_force: Some(in_force), ..shown(name, &client) })?;
    }
    Ok(ExitCode::SUCCESS)
}
