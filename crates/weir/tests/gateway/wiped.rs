//! Keys that ended are in the gateway's memory no longer. The judge reads all of it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use weir_lab::gateways::{NAMES, run_folder};
use weir_lab::vpn::{Client, Concentrator};

use super::keying::keyed;
use super::*;

/// A piece of memory is read at a time, with so much of the one before.
const CHUNK_LEN: usize = 1 << 20;

/// Where `secret` stands in the memory of process `id`: the names of the regions.
fn places(id: u32, secret: &[u8]) -> Vec<String> {
    let memory = File::open(format!("/proc/{id}/mem")).unwrap();
    let regions = fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
    let mut found = Vec::new();
    for line in regions.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // What the process may write; rings of packets are shared with the kernel, and long.
        if !fields[1].starts_with("rw") {
            continue;
        }
        let (from, to) = fields[0].split_once('-').unwrap();
        let [from, to] = [from, to].map(|it| u64::from_str_radix(it, 16).unwrap());
        let mut at = from;
        while at < to {
            let len = usize::try_from(to - at).unwrap().min(CHUNK_LEN + secret.len());
            let mut bytes = vec![0; len];
            if memory.read_exact_at(&mut bytes, at).is_ok() {
                let finder = memchr::memmem::Finder::new(secret);
                let here = finder.find_iter(&bytes).filter(|it| *it < CHUNK_LEN);
                found.extend(here.map(|it| {
                    let near = &bytes[it.saturating_sub(16)..(it + 48).min(bytes.len())];
                    let region = fields.get(5).unwrap_or(&"anonymous");
                    format!("{region} {:#x}: {near:02x?}", at + it as u64)
                }));
            }
            at += CHUNK_LEN as u64;
        }
    }
    found
}

/// Whether the memory of a process can be read at all.
fn is_readable(test: &str, id: u32) -> bool {
    match File::open(format!("/proc/{id}/mem")) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: {test}: the memory of a process cannot be read: {error}");
            false
        }
    }
}

#[test]
fn keys_of_associations_that_expired_are_not_in_memory() {
    let test = "keys_of_associations_that_expired";
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    let gateways = sealing_gateways(&lab, &keyed(Protection::Sealed, "rekey_after_s = 2\n", ""));
    let [id, _] = gateways.process_ids();
    if !is_readable(test, id) {
        return;
    }
    let keys = || -> HashSet<Vec<u8>> {
        let mut command = Command::new(WEIR);
        command.args(["sa", "export", NAMES[0], "--esp-sa", "--run-dir"]);
        let said = process::run(command.arg(run_folder(&lab, Side::A)), PATIENCE).unwrap().stdout;
        let hex = said.lines().map(|line| line.split("\"0x").nth(2).unwrap());
        // Without the salt behind it.
        hex.map(|it| bytes_of(&it.split('"').next().unwrap()[..64])).collect()
    };
    let mut first = keys();
    assert!(!first.is_empty());
    assert!(first.iter().any(|key| !places(id, key).is_empty()), "the judge finds keys in use");
    interrupt::until("the end of the first keys", 2 * PATIENCE, || {
        wait_until_it_flows(&lab);
        let now = keys();
        Ok(first.is_disjoint(&now))
    })
    .unwrap();
    interrupt::until("memory without the first keys", PATIENCE, || {
        wait_until_it_flows(&lab);
        first.retain(|key| !places(id, key).is_empty());
        Ok(first.is_empty())
    })
    .unwrap_or_else(|error| {
        let left: Vec<_> = first.iter().map(|key| places(id, key)).collect();
        panic!("{error:#}: {left:?}")
    });
}

#[test]
fn a_revoked_clients_preshared_key_is_not_in_memory() {
    let test = "a_revoked_clients_preshared_key";
    if let Err(missing) = weir_lab::wireguard::program().and(process::require(&["wg"])) {
        return eprintln!("SKIPPED: {test}: {missing}");
    }
    let Some(Stand { _turn, lab }) = stand(test) else { return };
    let mut gateway = Concentrator::start(&lab, WEIR.as_ref(), "").unwrap();
    let id = gateway.daemon().id();
    if !is_readable(test, id) {
        return;
    }
    let file = gateway.add("laptop").unwrap();
    let line = file.lines().find_map(|it| it.strip_prefix("PresharedKey = ")).unwrap().to_owned();
    let secret = base64_of(&line);
    let client = Client::start(&lab, 0, &file).unwrap();
    let host = lab.host_v4(Side::A).to_string();
    interrupt::until("answer through the tunnel", PATIENCE, || {
        Ok(ping(Client::namespace(&lab), &host, 1, 56)?.answered > 0)
    })
    .unwrap();
    assert!(!places(id, &secret).is_empty(), "the judge finds a key in use");
    drop(client);
    gateway.vpn("revoke", &["laptop"]).unwrap();
    let mut left = Vec::new();
    interrupt::until("memory without the key", PATIENCE, || {
        left = places(id, &secret);
        left.extend(places(id, line.as_bytes()).into_iter().map(|it| format!("as text: {it}")));
        Ok(left.is_empty())
    })
    .unwrap_or_else(|error| panic!("{error:#}: {left:?}"));
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// What base64 says, by coreutils.
fn base64_of(text: &str) -> Vec<u8> {
    let mut command = Command::new("sh");
    command.args(["-c", "base64 -d | od -An -v -tx1 | tr -d ' \\n'"]);
    let said = process::run_with_input(&mut command, &format!("{text}\n"), PATIENCE).unwrap();
    bytes_of(said.stdout.trim())
}
