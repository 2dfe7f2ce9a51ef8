//! `weir vpn list` and `show`: clients, and tunnels of OpenVPN beside them.

use std::process::ExitCode;

use anyhow::Result;

use super::{Counters, ListArgs, Shown, VpnPair, WhereArgs, clients_of, shown};
use crate::api::dto::{OpenVpnSnapshot, PeerSnapshot};
use crate::cli::print_json;
use crate::config::settings::{Peer, Settings};

pub(super) fn list(args: &ListArgs) -> Result<ExitCode> {
    let all = all(args)?;
    if args.options.json {
        print_json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    all.iter().for_each(print);
    Ok(ExitCode::SUCCESS)
}

/// Clients and tunnels, with what the running gateway counted of them.
pub(super) fn all(args: &ListArgs) -> Result<Vec<Shown>> {
    let (config, options) = (args.config.as_deref(), &args.options);
    let settings = options.settings(config)?;
    let tunnels = tunnels(options, &settings);
    let clients = match VpnPair::find(config, options) {
        Ok(place) => place.clients()?,
        // Whoever has tunnels alone.
        Err(_) if !tunnels.is_empty() => Vec::new(),
        Err(error) => return Err(error),
    };
    let peers = clients_of(&settings)?;
    let of = |name: &str| peers.iter().find(|it| it.name == name);
    let mut all: Vec<Shown> = Vec::new();
    for (name, client) in &clients {
        let counters = of(name).cloned().map(Counters::of);
        all.push(Shown { counters, ..shown(name, client) });
    }
    all.extend(tunnels.into_iter().map(|peer| tunnel(peer, of(&peer.name))));
    Ok(all)
}

fn tunnels<'s>(args: &WhereArgs, settings: &'s Settings) -> Vec<&'s Peer> {
    let pairs = settings.pairs.iter();
    let named = pairs.filter(|it| args.pair.as_ref().is_none_or(|name| *name == it.name));
    named.flat_map(|pair| &pair.peers).filter(|peer| peer.tunnel().is_some()).collect()
}

fn tunnel(peer: &Peer, running: Option<&PeerSnapshot>) -> Shown {
    let (port, device) = peer.tunnel().map(|it| (it.port, it.device.clone())).unwrap_or_default();
    let idle = OpenVpnSnapshot { state: "not running".into(), port, device, ..Default::default() };
    Shown {
        name: peer.name.clone(),
        addresses: peer.networks().map(|(first, bits)| format!("{first}/{bits}")).collect(),
        public_key: String::new(),
        created: String::new(),
        expires: None,
        limit: None,
        reach: Vec::new(),
        counters: running.cloned().map(Counters::of),
        openvpn: Some(running.and_then(|it| it.openvpn.clone()).unwrap_or(idle)),
        config: None,
        in_force: None,
    }
}

/// A line, and one for each client that OpenVPN names.
pub(super) fn print(client: &Shown) {
    let addresses = client.addresses.join(", ");
    let until = client.expires.as_ref().map_or(String::new(), |it| format!(" until {it}"));
    let bytes = client.counters.as_ref().map_or(String::new(), |it| {
        format!("  received {} bytes, sent {}", it.received_bytes, it.sent_bytes)
    });
    let name = &client.name;
    let Some(openvpn) = &client.openvpn else {
        println!("{name:<24} {addresses:<32} since {}{until}{bytes}", client.created);
        return;
    };
    let OpenVpnSnapshot { port, state, clients, .. } = openvpn;
    println!("{name:<24} {addresses:<32} OpenVPN at port {port}: {state}{bytes}");
    for it in clients {
        println!("  {:<22} {:<32} from {}", it.name, it.address, it.endpoint);
    }
}
