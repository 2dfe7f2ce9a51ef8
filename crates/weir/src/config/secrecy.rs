//! Who else may read a file that holds a secret: key files, TLS keys, a configuration with a key
//! in it. What others may read or write is refused, as ssh refuses it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::problem::Problems;
use super::settings::{Peer, Settings, Tunnel};

/// Why the file's secret is none: others may read or write it, or another user owns it. `None`
/// where only its owner (root or this user) and a group of ours can.
pub(super) fn exposure(metadata: &Metadata) -> Option<String> {
    if metadata.mode() & 0o007 != 0 {
        return Some("is open to every user".into());
    }
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != own {
        return Some(format!("belongs to user {}", metadata.uid()));
    }
    let has_group = metadata.mode() & 0o070 != 0;
    (has_group && !is_ours(metadata.gid())).then(|| format!("is open to group {}", metadata.gid()))
}

fn is_ours(group: u32) -> bool {
    let others = rustix::process::getgroups().unwrap_or_default();
    group == 0
        || group == rustix::process::getegid().as_raw()
        || others.iter().any(|it| it.as_raw() == group)
}

/// Refuses TLS keys and configurations of OpenVPN's servers that others may read, and a
/// configuration file at `path` that others may read though a key stands in it. Files that are
/// absent are somebody else's finding.
pub(super) fn check(path: &Path, settings: &Settings, problems: &mut Problems) {
    if settings.associations().any(|it| it.key.is_inline()) {
        refuse(path, "a key stands in it, and it", problems);
    }
    for key in settings.tls_keys() {
        refuse(key, &format!("TLS key {}", key.display()), problems);
    }
    let peers = settings.pairs.iter().flat_map(|it| &it.peers);
    for Tunnel { server, .. } in peers.filter_map(Peer::tunnel) {
        refuse(server, &format!("a key stands in {}, and it", server.display()), problems);
    }
}

fn refuse(path: &Path, what: &str, problems: &mut Problems) {
    let Some(exposure) = std::fs::metadata(path).ok().and_then(|it| exposure(&it)) else { return };
    problems.error_in_file(format!("{what} {exposure}"), remedy(path));
}

/// What to do about it.
pub(super) fn remedy(path: &Path) -> String {
    let path = path.display();
    format!("chown root: {path}; chmod 600 {path}; and change the key, others had it")
}
