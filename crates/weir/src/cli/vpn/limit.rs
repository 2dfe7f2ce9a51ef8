//! `weir vpn limit` and `reach`: how much a client may send and be sent, and where to, changed
//! while it is there.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::{Shown, VpnPair, WhereArgs, shown, write_client};
use crate::cli::{EXIT_USAGE, print_json};
use crate::config::reach::Reach;
use crate::config::vpn::Client;

/// Arguments of `weir vpn limit`.
#[derive(Debug, Args)]
#[command(override_usage = "weir vpn limit [OPTIONS] [CONFIG] <NAME> <RATE>")]
pub struct LimitArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub options: WhereArgs,
    /// The configuration (left out: the running gateway's), the client's name, and bits a second
    /// each way, as 50M or 1.5G; `none` lifts the limit
    #[arg(required = true, num_args = 2..=3, value_name = "WORD")]
    pub words: Vec<String>,
}

/// Arguments of `weir vpn reach`.
#[derive(Debug, Args)]
#[command(override_usage = "weir vpn reach [OPTIONS] [CONFIG] <NAME> <WHERE>...")]
pub struct ReachArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "documented at the type")]
    pub options: WhereArgs,
    /// The configuration (left out: the running gateway's), the client's name, and where alone it
    /// may send, as 10.0.0.0/28 or 10.0.0.5,tcp/443; `any` lifts the list
    #[arg(required = true, num_args = 2.., value_name = "WORD")]
    pub words: Vec<String>,
}

pub(super) fn limit(args: &LimitArgs) -> Result<ExitCode> {
    let (config, name, rest) = split(&args.words);
    let rate = match rest {
        [only] if only == "none" => Ok(None),
        [only] => only.parse().map(Some),
        _ => Err("name the client, and its rate".to_owned()),
    };
    match rate {
        Ok(rate) => {
            let place = VpnPair::find(config, &args.options)?;
            change((&place, name), args.options.json, "the limit", |client| client.limit = rate)
        }
        Err(what) => Ok(wrong(&what)),
    }
}

pub(super) fn reach(args: &ReachArgs) -> Result<ExitCode> {
    let (config, name, rest) = split(&args.words);
    let list: Result<Vec<Reach>, String> = match rest {
        [] => Err("name the client, and where it may send".to_owned()),
        [only] if only == "any" => Ok(Vec::new()),
        list => list.iter().map(|it| it.parse()).collect(),
    };
    match list {
        Ok(list) => {
            let place = VpnPair::find(config, &args.options)?;
            change((&place, name), args.options.json, "the list", |client| client.reach = list)
        }
        Err(what) => Ok(wrong(&what)),
    }
}

fn wrong(what: &str) -> ExitCode {
    eprintln!("weir: {what}");
    ExitCode::from(EXIT_USAGE)
}

/// The configuration, if there is one, the client's name, and what is behind. No client's name has
/// a dot or a slash, which a file's has.
fn split(words: &[String]) -> (Option<&Path>, &str, &[String]) {
    let is_file = words.first().is_some_and(|it| it.contains(['.', '/']));
    let (config, words) = words.split_at(usize::from(is_file));
    let config = config.first().map(Path::new);
    match words.split_first() {
        Some((name, rest)) => (config, name, rest),
        None => (config, "", &[]),
    }
}

/// Changes a client's file, and has a running gateway take it; where that refuses, the client keeps
/// what it had.
fn change(
    (place, name): (&VpnPair, &str),
    json: bool,
    what: &str,
    change: impl FnOnce(&mut Client),
) -> Result<ExitCode> {
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
    if json {
        print_json(&Shown { in_force: Some(in_force), ..shown(name, &client) })?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_told_from_a_clients_name() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            let (config, name, rest) = split(&words);
            (config.map(Path::to_owned), name.to_owned(), rest.len())
        };
        let gw = || Some(Path::new("gw-a.toml").to_owned());
        assert_eq!(of(&["gw-a.toml", "laptop", "20M"]), (gw(), "laptop".to_owned(), 1));
        assert_eq!(of(&["laptop", "20M"]), (None, "laptop".to_owned(), 1));
        assert_eq!(of(&["gw-a.toml", "laptop"]), (gw(), "laptop".to_owned(), 0));
        assert_eq!(of(&["laptop", "10.0.0.5,tcp/443", "10.0.0.6"]), (None, "laptop".to_owned(), 2));
    }
}
