//! `weir vpn rotate`: a client gets new keys; what was before stays until the gateway took them.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use weir_engine::tunnel::key::Identity;

use super::{
    RotateArgs, Shown, VpnPair, client_config, enter, hand_over, random_key, remove, shown,
    write_secret,
};
use crate::cli::print_json;
use crate::config::keying;
use crate::config::vpn::Client;

pub(super) fn rotate(args: &RotateArgs) -> Result<ExitCode> {
    let name = &args.client.name;
    let place = args.client.place()?;
    let written = place.settings.keying.as_ref().context("the configuration has no [keying]")?;
    let gateway = keying::read_identity(&written.identity_file)
        .map_err(|error| anyhow::anyhow!("{error}; {}", error.remedy()))?;
    let _lock = place.lock()?;
    let clients = place.clients()?;
    let before = clients.iter().find(|(known, _)| known == name);
    let (_, before) = before.with_context(|| format!("there is no client `{name}`"))?;
    let secret = random_key()?;
    let identity = Identity::new(secret.clone()).context("the cipher library refuses the key")?;
    let preshared = random_key()?;
    let public_key = keying::public_text(&identity.public());
    let client = Client { public_key, ..before.clone() };
    let config = client_config(name, &client, &secret, &preshared, &gateway, &place);
    if let Some(path) = &args.output {
        write_secret(path, config.as_bytes())?;
    }
    let backup = Backup::of(&place, name)?;
    let taken = enter(&place, name, &client, &preshared).and_then(|()| place.put_in_force());
    let in_force = match taken {
        Ok(in_force) => in_force,
        Err(error) => {
            args.output.iter().for_each(|path| drop(fs::remove_file(path)));
            backup.restore(&place, name)?;
            return Err(error.context(format!("client `{name}` keeps the keys that it had")));
        }
    };
    if args.client.of.options.json {
        print_json(&Shown {
            config: args.output.is_none().then(|| config.to_string()),
            in_force: Some(in_force),
            ..shown(name, &client)
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    hand_over(name, &config, args.output.as_deref(), args.qr, in_force)
}

/// A client's files as they were.
struct Backup(Vec<(PathBuf, zeroize::Zeroizing<Vec<u8>>)>);

impl Backup {
    fn of(place: &VpnPair, name: &str) -> Result<Self> {
        let folder = &place.vpn.clients;
        let paths = [Client::secret_file(folder, name), Client::file(folder, name)];
        let read = |path: PathBuf| {
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok((path, bytes.into()))
        };
        paths.into_iter().map(read).collect::<Result<_>>().map(Self)
    }

    fn restore(&self, place: &VpnPair, name: &str) -> Result<()> {
        let _ = remove(place, name);
        for (path, bytes) in &self.0 {
            let _ = fs::remove_file(path);
            write_secret(path, bytes)?;
        }
        Ok(())
    }
}
