//! `[pair.vpn]`: standard WireGuard clients that end on this gateway.
//!
//! Each client is a file of its own in the folder `clients`, `NAME.toml`, with the secret that it
//! shares with the gateway beside it (`NAME.psk`, mode 600). `weir vpn` makes and removes them; the
//! configuration takes in what is there whenever it is read. A client's own private key is nowhere
//! on the gateway.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use weir_engine::policy::REACHES_MAX;

use super::address::Prefix;
use super::file::{self, Mode, PEERS_MAX, Sealing};
use super::keying;
use super::offload::Offload;
use super::problem::Problems;
use super::rate::Rate;
use super::reach::Reach;
use super::settings::{Pair, Peer, PeerKeys, Protects, REPLAY_WINDOW_DEFAULT, Settings, Vpn};

/// The ending of a client's file, and of its secret's.
const FILE_ENDING: &str = "toml";
const SECRET_ENDING: &str = "psk";

/// Until clients whose time is over are cut off, where that failed.
const EXPIRY_RETRY: SignedDuration = SignedDuration::from_secs(5);

/// A client's file is no longer.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// What a client's file says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// Who it is: base64, as WireGuard writes keys.
    pub public_key: String,
    /// Its addresses inside the tunnel. What it sends from others is dropped.
    pub addresses: Vec<Prefix>,
    /// When it was made (RFC 3339).
    pub created: String,
    /// When it is cut off (RFC 3339); absent: when it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// What it sends by the tunnel; none: what the pair's `routes` say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Prefix>,
    /// Its name servers; none: the pair's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<IpAddr>,
    /// What it may send and be sent; none: as much as comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Rate>,
    /// Where it may send; none: anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<Reach>,
}

impl Client {
    /// The file of the client `name`.
    pub fn file(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}.{FILE_ENDING}"))
    }

    /// The file of the secret that it shares with the gateway.
    pub fn secret_file(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}.{SECRET_ENDING}"))
    }

    /// When it is cut off.
    ///
    /// # Errors
    /// It is no time.
    pub fn expiry(&self) -> Result<Option<Timestamp>, String> {
        let wrong = |text: &String| format!("expires = {text:?} is no time (RFC 3339)");
        self.expires.as_ref().map(|text| text.parse().map_err(|_| wrong(text))).transpose()
    }

    /// Every client in `folder`, by name; none where there is no such folder.
    ///
    /// # Errors
    /// What is wrong, with its file.
    pub fn read_all(folder: &Path) -> Result<Vec<(String, Client)>, String> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(format!("cannot read {}: {error}", folder.display())),
        };
        let mut names = BTreeSet::new();
        for entry in entries {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.extension().is_some_and(|it| it == FILE_ENDING)
                && let Some(name) = path.file_stem().and_then(|it| it.to_str())
                && !name.starts_with('.')
            {
                names.insert(name.to_owned());
            }
        }
        names.into_iter().map(|name| Ok((name.clone(), Self::read(folder, &name)?))).collect()
    }

    fn read(folder: &Path, name: &str) -> Result<Self, String> {
        let path = Self::file(folder, name);
        let failed = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
        let length = fs::metadata(&path).map_err(|error| failed(&error))?.len();
        if length > FILE_BYTES_MAX {
            return Err(failed(&"it is longer than 16 KiB"));
        }
        let text = fs::read_to_string(&path).map_err(|error| failed(&error))?;
        toml::from_str(&text).map_err(|error| failed(&error.message()))
    }
}

/// `[pair.vpn]` as it is meant.
pub(super) fn resolve(pair: &file::Pair, directory: &Path, problems: &mut Problems) -> Option<Vpn> {
    let written = pair.vpn.as_ref()?;
    let span = written.clients.span();
    if pair.address.0.is_empty() {
        let what = "[pair.vpn] in a pair without an `address`: clients need one to speak to";
        problems.error(span.clone(), what, "give the pair an outer `address` on the wire");
    }
    if written.pool.0.is_empty() {
        let remedy = "add the network that clients get addresses of: pool = \"10.9.0.0/24\"";
        problems.error(span, "[pair.vpn] without a `pool`", remedy);
    }
    let list = |several: &file::Several<Prefix>| -> Vec<Prefix> {
        several.0.iter().map(|it: &Spanned<Prefix>| *it.get_ref()).collect()
    };
    Some(Vpn {
        clients: directory.join(written.clients.get_ref()),
        pool: list(&written.pool),
        endpoint: written.endpoint.get_ref().clone(),
        dns: written.dns.0.iter().map(|it: &Spanned<IpAddr>| *it.get_ref()).collect(),
        routes: list(&written.routes),
        masquerade: masquerade(written, pair, problems),
        next_expiry: None,
    })
}

/// The address that the host sees clients under.
fn masquerade(written: &file::Vpn, pair: &file::Pair, problems: &mut Problems) -> Option<Ipv4Addr> {
    let address = written.masquerade.as_ref()?;
    let ip = *address.get_ref();
    let mut refuse = |what: &str, remedy| {
        problems.error(address.span(), format!("masquerade = \"{ip}\" {what}"), remedy);
    };
    if ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() || ip.is_broadcast() {
        refuse("is no address of a station", "write a free one of the host's own network");
    } else if written.pool.0.iter().any(|it| it.get_ref().contains(ip.into())) {
        refuse("is of the pool", "write a free one of the host's own network");
    } else if pair.address.0.iter().any(|own| own.get_ref().address == ip) {
        refuse("is the pair's address on the wire", "write a free one of the host's own network");
    }
    Some(ip)
}

impl Vpn {
    /// Whether the time of a client is over at `now`. It says so again after a while, unless the
    /// clients were read anew meanwhile.
    pub fn has_ended(&mut self, now: Timestamp) -> bool {
        let is_over = self.next_expiry.is_some_and(|expiry| expiry <= now);
        if is_over {
            self.next_expiry = now.checked_add(EXPIRY_RETRY).ok();
        }
        is_over
    }
}

/// Puts the clients that are there now behind the peers of their pairs.
pub(super) fn enrol(settings: &mut Settings, problems: &mut Problems) {
    let now = Timestamp::now();
    let has_keying = settings.keying.is_some();
    for pair in &mut settings.pairs {
        let Some(vpn) = &pair.vpn else { continue };
        if !has_keying {
            let remedy = "add [keying] with `identity_file`; `weir keys identity FILE` makes one";
            problems.error_in_file("[pair.vpn], and no [keying]", remedy);
        }
        match Client::read_all(&vpn.clients) {
            Ok(clients) => enrol_in(pair, clients, now, problems),
            Err(what) => problems.error_in_file(what, "correct the file, or remove it"),
        }
    }
}

fn enrol_in(
    pair: &mut Pair,
    clients: Vec<(String, Client)>,
    now: Timestamp,
    problems: &mut Problems,
) {
    let Some(vpn) = pair.vpn.clone() else { return };
    if pair.peers.len() + clients.len() > PEERS_MAX {
        let what = format!("{} clients and {} peers", clients.len(), pair.peers.len());
        problems.error_in_file(what, format!("{PEERS_MAX} together at most"));
        return;
    }
    let mut taken: BTreeSet<String> = pair.peers.iter().map(|peer| peer.name.clone()).collect();
    let mut held: Vec<Prefix> = pair.peers.iter().flat_map(prefixes).collect();
    let mut next_expiry: Option<Timestamp> = None;
    for (name, client) in clients {
        let path = Client::file(&vpn.clients, &name);
        let mut refuse = |what: String, remedy: &str| {
            problems.error_in_file(format!("{}: {what}", path.display()), remedy);
        };
        if !taken.insert(name.clone()) {
            refuse("a peer has this name".into(), "rename the client's files");
        }
        if client.reach.len() > REACHES_MAX {
            let remedy = "write wider networks";
            refuse(format!("its list of access has more than {REACHES_MAX} entries"), remedy);
        }
        if client.addresses.is_empty() {
            refuse("it has no address".into(), "make it anew: `weir vpn revoke`, `weir vpn add`");
        }
        for address in &client.addresses {
            if let Some(other) = held.iter().find(|it| it.overlaps(address)) {
                let remedy = "every address belongs to one peer: make the client anew";
                refuse(format!("{address} overlaps {other} of another peer"), remedy);
            }
        }
        held.extend(&client.addresses);
        match client.expiry() {
            // Its address stays its own until it is revoked.
            Ok(Some(expiry)) if expiry <= now => continue,
            Ok(Some(expiry)) => next_expiry = Some(next_expiry.map_or(expiry, |it| it.min(expiry))),
            Ok(None) => {}
            Err(what) => refuse(what, "write it as 2026-12-31T00:00:00Z"),
        }
        match keying::public_key(&client.public_key) {
            Ok(public_key) => pair.peers.push(peer(&vpn, name, public_key, client)),
            Err(what) => refuse(what, "make the client anew"),
        }
    }
    if let Some(vpn) = &mut pair.vpn {
        vpn.next_expiry = next_expiry;
    }
}

fn prefixes(peer: &Peer) -> Vec<Prefix> {
    match &peer.protects {
        Protects::Prefixes(list) => list.clone(),
        Protects::Everything => Vec::new(),
    }
}

fn peer(
    vpn: &Vpn,
    name: String,
    public_key: weir_engine::tunnel::key::PublicKey,
    client: Client,
) -> Peer {
    let secret = Client::secret_file(&vpn.clients, &name);
    Peer {
        name,
        endpoint: None,
        mode: Mode::WireGuard,
        encapsulation: file::Encapsulation::Esp,
        spread: false,
        sealing: Sealing::Require,
        offload: Offload::None,
        auto_lacks: None,
        is_in_nic: false,
        rate_limit: client.limit.map(Rate::bits_per_second),
        reaches: client.reach,
        tag: None,
        protects: Protects::Prefixes(client.addresses),
        replay_window_packets: REPLAY_WINDOW_DEFAULT,
        extended_sequence: true,
        keys: PeerKeys::Agreed { public_key, preshared: Some(secret), ml_kem: false },
        workers: 1,
    }
}

/// The first free address of each network of `pool`; the network's own, the one behind it and an
/// IPv4 network's last are left out.
///
/// # Errors
/// The network that has none.
pub fn free_addresses(pool: &[Prefix], held: &BTreeSet<IpAddr>) -> Result<Vec<Prefix>, Prefix> {
    /// A pool is searched no further.
    const TRIED_MAX: u128 = 1 << 20;
    let free_of = |network: &Prefix| {
        let width = if network.network().is_ipv4() { 32 } else { 128 };
        let size =
            1_u128.checked_shl(width - u32::from(network.length_bits())).unwrap_or(u128::MAX);
        let last = size.saturating_sub(1 + u128::from(width == 32));
        let address = |number: u128| match network.network() {
            IpAddr::V4(v4) => IpAddr::from((u32::from(v4) + number as u32).to_be_bytes()),
            IpAddr::V6(v6) => IpAddr::from((u128::from(v6) + number).to_be_bytes()),
        };
        let found = (2..=last.min(TRIED_MAX)).map(address).find(|it| !held.contains(it));
        found.and_then(|it| it.to_string().parse().ok()).ok_or(*network)
    };
    pool.iter().map(free_of).collect()
}

#[cfg(test)]
mod tests {
    use base64ct::{Base64, Encoding};

    use super::*;

    fn pool(text: &str) -> Vec<Prefix> {
        vec![text.parse().unwrap()]
    }

    #[test]
    fn addresses_are_given_in_order_until_the_pool_is_empty() {
        let pool = pool("10.9.0.0/29");
        let mut held = BTreeSet::new();
        for expected in ["10.9.0.2", "10.9.0.3", "10.9.0.4", "10.9.0.5", "10.9.0.6"] {
            let given = free_addresses(&pool, &held).unwrap();
            assert_eq!(given[0].network().to_string(), expected);
            held.insert(given[0].network());
        }
        assert_eq!(free_addresses(&pool, &held), Err(pool[0]));
        held.remove(&"10.9.0.4".parse().unwrap());
        assert_eq!(free_addresses(&pool, &held).unwrap()[0].to_string(), "10.9.0.4/32");
    }

    #[test]
    fn a_client_is_served_until_its_time_is_over_and_not_a_nanosecond_longer() {
        let at = |second: i128| Timestamp::from_nanosecond(second * 1_000_000_000).unwrap();
        let just_before = |time: Timestamp| time - SignedDuration::from_nanos(1);
        let text = "[gateway]\nname = \"gw\"\n[[pair]]\nhost = \"h\"\nwire = \"w\"\n\
                    address = \"192.0.2.1/24\"\n[pair.vpn]\nclients = \"none\"\n\
                    pool = \"10.9.0.0/24\"\nendpoint = \"192.0.2.1:51840\"\n\
                    [keying]\nidentity_file = \"id\"\n";
        let client = |last: u8, expires: Option<Timestamp>| Client {
            public_key: Base64::encode_string(&[last; 32]),
            addresses: pool(&format!("10.9.0.{last}/32")),
            created: at(0).to_string(),
            expires: expires.map(|it| it.to_string()),
            routes: Vec::new(),
            dns: Vec::new(),
            limit: None,
            reach: Vec::new(),
        };
        let served = |now: Timestamp| {
            let mut problems = Problems::default();
            let settings = crate::config::understand(text, Path::new("."), &mut problems);
            let mut pair = settings.expect("a configuration").pairs.remove(0);
            let clients = [("a", None), ("b", Some(at(100))), ("c", Some(at(200)))];
            let clients = clients.into_iter().zip(2..);
            let clients = clients.map(|((name, end), last)| (name.to_owned(), client(last, end)));
            enrol_in(&mut pair, clients.collect(), now, &mut problems);
            let names: String = pair.peers.iter().map(|peer| peer.name.as_str()).collect();
            (names, pair.vpn.unwrap())
        };
        for (now, names, next) in [
            (at(1), "abc", Some(at(100))),
            (just_before(at(100)), "abc", Some(at(100))),
            (at(100), "ac", Some(at(200))),
            (just_before(at(200)), "ac", Some(at(200))),
            (at(200), "a", None),
        ] {
            let (served, mut vpn) = served(now);
            assert_eq!((served.as_str(), vpn.next_expiry), (names, next), "{now}");
            // When it is looked for, by the clients as they were read.
            let Some(end) = next else { continue };
            assert!(!vpn.has_ended(just_before(end)), "{now}");
            assert!(vpn.has_ended(end), "{now}");
            // Unless they were read again, it is tried again.
            let again = end + EXPIRY_RETRY;
            assert!(!vpn.has_ended(just_before(again)) && vpn.has_ended(again));
        }
    }

    #[test]
    fn a_wide_ipv6_pool_gives_single_addresses() {
        let given = free_addresses(&pool("fd00:9::/64"), &BTreeSet::new()).unwrap();
        assert_eq!(given[0].to_string(), "fd00:9::2/128");
    }
}
