//! Where gateways are: their status sockets in run directories, their stores in folders.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::status::Status;

/// Gateways of one machine that are looked at, at most.
pub const GATEWAYS_MAX: usize = 64;

/// Bytes of a status, at most: some thousand peers.
const STATUS_BYTES_MAX: u64 = 32 << 20;

/// What a gateway may take to say it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders with `NAME.status` sockets.
    pub run_folders: Vec<PathBuf>,
    /// Stores, or folders with `NAME.sqlite` files.
    pub stores: Vec<PathBuf>,
}

impl Places {
    /// The status sockets, by the gateways' names.
    pub fn sockets(&self) -> BTreeMap<String, PathBuf> {
        files(&self.run_folders, "status")
    }

    /// The sockets by which addresses are blocked, likewise.
    pub fn operate_sockets(&self) -> BTreeMap<String, PathBuf> {
        // Beside the status sockets, so that one name is one gateway's.
        let beside = self.sockets().into_iter().map(|it| (it.0, it.1.with_extension("operate")));
        beside.filter(|it| it.1.exists()).collect()
    }

    /// Places that may not be looked into, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let shut = |place: &&PathBuf| {
            let read = std::fs::read_dir(place).err().map(|error| error.kind());
            read == Some(io::ErrorKind::PermissionDenied)
        };
        let places: BTreeSet<&PathBuf> = self.run_folders.iter().chain(&self.stores).collect();
        let places = places.into_iter().filter(shut);
        let said = |place: &PathBuf| {
            let place = place.display();
            format!("{place} may not be looked into: see `[store] group` and `--user USER:GROUP`")
        };
        let left_out = all(&self.stores, "sqlite").len().saturating_sub(GATEWAYS_MAX);
        let many = (left_out > 0).then(|| {
            format!("{left_out} stores are left out: {GATEWAYS_MAX}, by name, are looked at")
        });
        places.map(said).chain(many).collect()
    }

    /// The stores, likewise.
    pub fn stores(&self) -> BTreeMap<String, PathBuf> {
        files(&self.stores, "sqlite")
    }
}

/// The first [`GATEWAYS_MAX`] of [`all`], by name.
fn files(places: &[PathBuf], ending: &str) -> BTreeMap<String, PathBuf> {
    all(places, ending).into_iter().take(GATEWAYS_MAX).collect()
}

/// Files that end so, in these folders or named themselves, by what stands before the ending.
fn all(places: &[PathBuf], ending: &str) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::<String, PathBuf>::new();
    let mut add = |path: PathBuf| {
        let is_one = path.extension().is_some_and(|it| it == ending);
        let name = path.file_stem().and_then(|it| it.to_str()).map(str::to_owned);
        if let (true, Some(mut name), true) = (is_one, name, may_be_opened(&path)) {
            // Of two of one name in two folders, the second is called by its folder, too.
            if found.values().any(|it| is_same(it, &path)) {
                return;
            }
            if found.contains_key(&name) {
                let folder = path.parent().unwrap_or(Path::new(".")).display();
                name = format!("{name} ({folder})");
            }
            found.insert(name, path);
        }
    };
    for place in places {
        match std::fs::read_dir(place) {
            Ok(entries) => entries.flatten().for_each(|entry| add(entry.path())),
            Err(_) => add(place.clone()),
        }
    }
    found
}

/// Whether two paths are of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Whether it is a file or a socket: whoever opens a pipe waits until somebody writes to it. What
/// cannot be looked at is opened, and says why it cannot.
fn may_be_opened(path: &Path) -> bool {
    path.metadata().map_or(true, |it| it.is_file() || it.file_type().is_socket())
}

/// What the gateway behind `socket` published last.
///
/// # Errors
/// Nobody listens there, it takes too long, or what it says is no status.
pub async fn ask(socket: &Path) -> io::Result<Status> {
    let read = async {
        let stream = UnixStream::connect(socket).await?;
        let mut text = Vec::new();
        stream.take(STATUS_BYTES_MAX).read_to_end(&mut text).await?;
        io::Result::Ok(text)
    };
    let text = tokio::time::timeout(PATIENCE, read).await??;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_a_file_nor_a_socket_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe.sqlite");
        std::fs::create_dir(folder.path().join("folder.sqlite")).unwrap();
        std::os::unix::fs::symlink("loop.sqlite", folder.path().join("loop.sqlite")).unwrap();
        std::fs::write(folder.path().join("gw.sqlite"), "").unwrap();
        let mode = rustix::fs::Mode::from(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("gw.status"));
        let here = vec![folder.path().to_owned(), pipe];
        let places = Places { run_folders: here.clone(), stores: here };
        let named = |files: BTreeMap<String, PathBuf>| files.into_keys().collect::<Vec<_>>();
        assert_eq!(named(places.stores()), ["gw", "loop"], "what cannot be looked at says why");
        assert_eq!(named(places.sockets()), ["gw"]);
    }

    #[test]
    fn stores_of_one_name_in_two_folders_are_both_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|it| folder.path().join(it));
        for place in [&a, &b] {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join("gw.sqlite"), "").unwrap();
        }
        // One that is named twice is one.
        let stores = vec![a.clone(), b.clone(), b.join("../a/gw.sqlite")];
        let places = Places { run_folders: vec![], stores };
        let names: Vec<_> = places.stores().into_keys().collect();
        assert_eq!(names, ["gw".to_owned(), format!("gw ({})", b.display())]);
    }

    #[test]
    fn of_too_many_stores_the_first_by_name_are_looked_at_and_the_rest_is_said() {
        let folder = tempfile::tempdir().unwrap();
        for number in (0..GATEWAYS_MAX + 3).rev() {
            std::fs::write(folder.path().join(format!("gw{number:03}.sqlite")), "").unwrap();
        }
        let places = Places { run_folders: vec![], stores: vec![folder.path().to_owned()] };
        let stores = places.stores();
        assert_eq!((stores.len(), stores.keys().next_back().unwrap().as_str()), (64, "gw063"));
        assert_eq!(places.problems(), ["3 stores are left out: 64, by name, are looked at"]);
    }
}
