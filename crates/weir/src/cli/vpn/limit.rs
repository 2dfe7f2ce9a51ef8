//! `weir vpn limit` and `reach`: how much a client may send and be sent, and where to, changed
//! while it is there.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::{ClientArgs, Place, Shown, shown, write_client};
use crate::cli::print_json;
use crate::config::rate::Rate;
use crate::config::reach::Reach;
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

/// Arguments of `weir vpn reach`.
#[derive(Debug, Args)]
pub struct ReachArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub client: ClientArgs,
    /// Where alone it may send, as 10.0.0.0/28 or 10.0.0.5,tcp/443; `any` lifts the list
    #[arg(required = true, value_name = "WHERE")]
    pub list: Vec<String>,
}

pub(super) fn limit(args: &LimitArgs) -> Result<ExitCode> {
    change(&args.client, "the limit", |client| client.limit = args.rate.0)
}

pub(super) fn reach(args: &ReachArgs) -> Result<ExitCode> {
    let list = match args.list.as_slice() {
        [only] if only == "any" => Vec::new(),
        list => {
            let parsed: Result<Vec<Reach>, String> = list.iter().map(|it| it.parse()).collect();
            parsed.map_err(anyhow::Error::msg)?
        }
    };
    change(&args.client, "the list", |client| client.reach = list)
}

/// Changes a client's file, and has a running gateway take it; where that refuses, the client keeps
/// what it had.
fn change(args: &ClientArgs, what: &str, change: impl FnOnce(&mut Client)) -> Result<ExitCode> {
    let name = &args.name;
    let place = Place::find(&args.of)?;
    let _lock = place.lock()?;
    let clients = place.clients()?;
    let before = clients.iter().find(|(known, _)| known == name);
    let (_, before) = before.with_context(|| format!("there is no client `{name}`"))?;
    let mut client = before.clone();
    change(&mut client);
    let folder = &place.vpn.clients;
    let taken = write_client(folder, name, &client).and_then(|()| place.put_in_force());
    let in_force = match taken {
        Ok(in_force) => in_force,
        Err(error) => {
            write_client(folder, name, before)?;
            return Err(error.context(format!("client `{name}` keeps {what} that it had")));
        }
    };
    if args.of.json {
        print_json(&Shown { in_force: Some(in_force), ..shown(name, &client) })?;
    }
    Ok(ExitCode::SUCCESS)
}
