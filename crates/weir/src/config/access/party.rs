//! Who is meant by `from` and `to`, and by groups.
//!
//! ```toml
//! [[group]]
//! name = "storage"
//! members = ["10.0.0.0/28", "fd00::7"]  # addresses, prefixes, GIDs, MAC addresses; "vlan:100":
//! #                                       outer VLAN ID (0: untagged frames); "p_key:0x8005": the
//! #                                       partition; "peer:gw-b": what this [[peer]] protects, or
//! #                                       the addresses of the VPN client or tunnel of that name;
//! #                                       several
//! members_file = "storage.txt"          # [none] file with more members, one a line; `#` begins a
//! #                                       comment; read again at each reload
//! ```

use std::collections::BTreeMap;
use std::fs::File as OpenFile;
use std::io::Read;
use std::path::Path;

use toml::Spanned;
use weir_engine::access::{MEMBERS_MAX, Marks, Party};
use weir_engine::policy;
use weir_wire::parse::MacAddress;

use super::super::address::Prefix;
use super::super::file::{File, Selector, Several};
use super::super::openvpn;
use super::super::problem::Problems;
use super::super::resolve::check_name;
use super::super::settings::Pair;
use super::super::vpn::Client;
use super::{Group, terms};

/// Bytes of a file of members, at most: a million prefixes of IPv6.
const MEMBERS_FILE_BYTES_MAX: u64 = 48 << 20;
/// Lines of a file of members that are complained of, at most.
const COMPLAINTS_MAX: usize = 5;

/// What a member begins with that names a peer.
const PEER: &str = "peer:";
/// The same, of a VLAN and a partition.
const VLAN: &str = "vlan:";
const P_KEY: &str = "p_key:";

/// The groups, and the peers that members may name.
pub(super) struct Groups<'f> {
    /// `None`: clients that are gone were its only members.
    groups: BTreeMap<&'f str, Option<Party>>,
    peers: BTreeMap<String, Vec<policy::Prefix>>,
    /// Whether there are clients, which come and go while lines that name them stay.
    has_clients: bool,
}

/// Members as they are read.
#[derive(Default)]
struct Members {
    prefixes: Vec<policy::Prefix>,
    marks: Marks,
    /// Clients that are gone.
    gone: Vec<String>,
}

impl Members {
    /// Who they are, called `name`; `None`: all of them are gone.
    fn into_party(self, name: &str) -> Option<Party> {
        if self.are_nobody() && !self.gone.is_empty() {
            return None;
        }
        Some(Party::with_marks(self.prefixes, self.marks).called(name))
    }

    fn are_nobody(&self) -> bool {
        self.prefixes.is_empty() && self.marks.is_empty()
    }
}

impl<'f> Groups<'f> {
    /// Those of `file`, with the clients of `pairs`; `directory` is where files of members are
    /// looked for.
    pub(super) fn of(
        file: &'f File,
        pairs: &[Pair],
        directory: &Path,
        problems: &mut Problems,
    ) -> Self {
        let peers = file.peers.iter().map(|(_, peer)| {
            let protects = peer.protects.0.iter().map(|it| match it.get_ref() {
                Selector::Everything => policy::Prefix::ALL,
                Selector::Prefix(prefix) => compiled(*prefix),
            });
            (peer.name.get_ref().clone(), protects.collect())
        });
        let peers = clients(pairs).into_iter().chain(peers).collect();
        let has_clients = pairs.iter().any(|it| it.vpn.is_some() || it.openvpn.is_some());
        let mut groups = Self { groups: BTreeMap::new(), peers, has_clients };
        for (_, group) in &file.groups {
            let name = group.name.get_ref().as_str();
            check_name(&group.name, problems);
            if name.parse::<Prefix>().is_ok() {
                let what = format!("a group is named `{name}`, which is an address");
                problems.error(group.name.span(), what, "give it another name");
            }
            let members = groups.members(group, directory, problems);
            if groups.groups.insert(name, members.into_party(name)).is_some() {
                let what = format!("a second group is named `{name}`");
                problems.error(group.name.span(), what, "give it a name of its own");
            }
        }
        groups
    }

    fn members(&self, group: &Group, directory: &Path, problems: &mut Problems) -> Members {
        let mut members = Members::default();
        for member in group.members.iter().flat_map(|it| &it.0) {
            if let Err(what) = self.add(member.get_ref(), &mut members) {
                problems.error(member.span(), what, "correct the address");
            }
        }
        let name = group.name.get_ref();
        if let Some(file) = &group.members_file {
            match read(&directory.join(file.get_ref())) {
                Ok(text) => self.add_lines(&text, file, &mut members, problems),
                Err(what) => {
                    let what = format!("group `{name}`: cannot read `{}`: {what}", file.get_ref());
                    problems.error(file.span(), what, "name a readable file, a member a line");
                }
            }
        }
        if members.are_nobody() && members.gone.is_empty() {
            problems.error(
                group.name.span(),
                format!("group `{name}` has no members"),
                "name some, or remove the group and the lines that are about it",
            );
        }
        self.warn_of_gone(&members, &group.name, problems);
        members
    }

    fn warn_of_gone(&self, members: &Members, of: &Spanned<String>, problems: &mut Problems) {
        for name in &members.gone {
            let what = format!("`{}` names the client `{name}`, which there is not", of.get_ref());
            let remedy = "it stands for nobody: add the client, or correct the name";
            problems.warning(of.span(), what, remedy);
        }
    }

    fn add_lines(
        &self,
        text: &str,
        file: &Spanned<String>,
        members: &mut Members,
        problems: &mut Problems,
    ) {
        let mut complaints = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let member = line.split('#').next().unwrap_or_default().trim();
            if member.is_empty() {
                continue;
            }
            let what = match self.add(member, members) {
                Ok(()) if members.prefixes.len() > MEMBERS_MAX => {
                    format!("more than {MEMBERS_MAX} members")
                }
                Ok(()) => continue,
                Err(what) => what,
            };
            let what = format!("{}, line {number}: {what}", file.get_ref());
            problems.error(file.span(), what, "correct that line");
            complaints += 1;
            if complaints == COMPLAINTS_MAX || members.prefixes.len() > MEMBERS_MAX {
                return;
            }
        }
    }

    /// Takes in a member that is no group.
    fn add(&self, text: &str, members: &mut Members) -> Result<(), String> {
        if let Some(mac) = mac(text) {
            members.marks.macs.push(mac);
        } else if let Some(number) = text.strip_prefix(VLAN) {
            members.marks.vlans.push(terms::vlan(number)?);
        } else if let Some(key) = text.strip_prefix(P_KEY) {
            members.marks.partitions.push(terms::partition(key)?);
        } else if let Some(name) = text.strip_prefix(PEER) {
            match self.peers.get(name) {
                Some(protects) => members.prefixes.extend_from_slice(protects),
                // To revoke one must not make the configuration wrong.
                None if self.has_clients => members.gone.push(name.to_owned()),
                None => return Err(format!("there is no [[peer]] `{name}`")),
            }
        } else {
            members.prefixes.push(compiled(text.parse::<Prefix>()?));
        }
        Ok(())
    }

    /// Who is meant by `from` or `to` of line `name`; `None`: nobody, for all of them are clients
    /// that are gone.
    pub(super) fn party(
        &self,
        key: &str,
        written: Option<&Several<String>>,
        name: &Spanned<String>,
        problems: &mut Problems,
    ) -> Option<Party> {
        let Some(Several(list)) = written else { return Some(Party::any()) };
        if list.is_empty() {
            let what = format!("line `{}`: `{key}` names nobody", name.get_ref());
            problems.error(name.span(), what, "name somebody, or leave it out for anybody");
        }
        // A group alone is shared, not copied.
        if let [only] = list.as_slice()
            && let Some(group) = self.groups.get(only.get_ref().as_str())
        {
            return group.clone();
        }
        let mut members = Members::default();
        for member in list {
            let text = member.get_ref().as_str();
            if let Some(group) = self.groups.get(text) {
                let Some(group) = group else {
                    members.gone.push(text.to_owned());
                    continue;
                };
                members.prefixes.extend_from_slice(group.prefixes());
                members.marks.extend(group.marks());
                continue;
            }
            let is_name = !text.contains([':', '/']) && text.parse::<Prefix>().is_err();
            match self.add(text, &mut members) {
                Ok(()) => {}
                Err(_) if is_name => problems.error(
                    member.span(),
                    format!("`{text}` is no address, and no [[group]] has that name"),
                    "add the group, or write an address, a prefix or a GID",
                ),
                Err(error) => problems.error(member.span(), error, "correct the address"),
            }
        }
        self.warn_of_gone(&members, name, problems);
        let names: Vec<&str> = list.iter().map(|it| it.get_ref().as_str()).collect();
        members.into_party(&names.join(", "))
    }
}

/// Addresses of the clients and tunnels of `pairs`, by name. What cannot be read is complained of
/// where clients are enrolled.
fn clients(pairs: &[Pair]) -> BTreeMap<String, Vec<policy::Prefix>> {
    let mut found = BTreeMap::new();
    for pair in pairs {
        let folder = pair.vpn.as_ref().map(|it| Client::read_all(&it.clients));
        for (name, client) in folder.into_iter().flatten().flatten() {
            found.insert(name, client.addresses.into_iter().map(compiled).collect());
        }
        let folder = pair.openvpn.as_ref().map(|it| openvpn::read_all(&it.tunnels));
        for (name, tunnel) in folder.into_iter().flatten().flatten() {
            found.insert(name, tunnel.networks.into_iter().map(compiled).collect());
        }
    }
    found
}

/// A regular file's text, of bounded length.
fn read(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err("it is no file".to_owned());
    }
    if about.len() > MEMBERS_FILE_BYTES_MAX {
        return Err(format!("it has more than {} MiB", MEMBERS_FILE_BYTES_MAX >> 20));
    }
    let mut text = String::new();
    let file = OpenFile::open(path).map_err(failed)?;
    file.take(MEMBERS_FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// A MAC address as `02:77:00:00:00:0a`; `None`: it is none.
pub fn mac(text: &str) -> Option<MacAddress> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|it| it.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| !part.contains('+'))?;
    }
    parts.next().is_none().then_some(MacAddress(bytes))
}

fn compiled(prefix: Prefix) -> policy::Prefix {
    policy::Prefix::new(prefix.network(), prefix.length_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_six_bytes_and_nothing_else() {
        assert_eq!(mac("02:77:00:00:00:0a"), Some(MacAddress([2, 0x77, 0, 0, 0, 10])));
        for text in ["", "02:77:00:00:00", "02:77:00:00:00:0a:1", "2:77:0:0:0:a", "fd00::7"] {
            assert_eq!(mac(text), None, "{text}");
        }
        assert_eq!(mac("+2:77:00:00:00:0a"), None);
    }
}
