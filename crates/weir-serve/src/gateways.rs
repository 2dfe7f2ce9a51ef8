//! Where gateways are: their status sockets in run directories, their stores in folders.

use std::collections::BTreeMap;
use std::io;
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
        files(&self.run_folders, "operate")
    }

    /// Places that may not be looked into, a sentence each.
    pub fn problems(&self) -> Vec<String> {
        let shut = |place: &&PathBuf| {
            let read = std::fs::read_dir(place).err().map(|error| error.kind());
            read == Some(io::ErrorKind::PermissionDenied)
        };
        let places = self.run_folders.iter().chain(&self.stores).filter(shut);
        let said = |place: &PathBuf| {
            let place = place.display();
            format!("{place} may not be looked into: see `[store] group` and `--user USER:GROUP`")
        };
        places.map(said).collect()
    }

    /// The stores, likewise.
    pub fn stores(&self) -> BTreeMap<String, PathBuf> {
        files(&self.stores, "sqlite")
    }
}

/// Files that end so, in these folders or named themselves, by what stands before the ending.
fn files(places: &[PathBuf], ending: &str) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut add = |path: PathBuf| {
        let is_one = path.extension().is_some_and(|it| it == ending);
        let name = path.file_stem().and_then(|it| it.to_str()).map(str::to_owned);
        if let (true, Some(name), true) = (is_one, name, found.len() < GATEWAYS_MAX) {
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
