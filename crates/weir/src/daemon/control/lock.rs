//! One gateway to a pair of ports: a lock file per gateway name, in its run directory and in its
//! state directory, and one per interface, where all gateways of the machine look. They are held as
//! long as the process lives; a killed process loses its locks by itself.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use weir_port::Interface;
use weir_store::clock;

use crate::config::Settings;

/// How long a gateway that was killed may take to end: its threads and its memory go first.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Where the locks of interfaces are, whatever run directory a gateway has.
const PORTS_DIR: &str = "/run/weir";

/// How long somebody may hold a lock who looks whether it is held (`weir status`).
const GLANCE: Duration = Duration::from_millis(200);

/// Between two tries.
const LOOK: Duration = Duration::from_millis(20);

/// Locks that the process holds. Their files go with them.
#[derive(Debug)]
pub struct Locks {
    files: Vec<(PathBuf, File)>,
}

impl Drop for Locks {
    fn drop(&mut self) {
        for (path, _) in self.files.iter().filter(|it| is_at(&it.1, &it.0)) {
            let _ = fs::remove_file(path);
        }
    }
}

impl Locks {
    /// Takes the lock of every name in `names`, in `run_dir`; waits `patience` for others to let
    /// go.
    ///
    /// # Errors
    /// Another process holds one (the text says which), or the directory cannot be written.
    pub fn take(run_dir: &Path, names: &[String], patience: Duration) -> Result<Self> {
        let until = clock::now() + patience;
        // Those that are taken are given back where a later one is not to be had.
        let mut taken = Self { files: Vec::with_capacity(names.len()) };
        for name in names {
            taken.files.push(take_one(run_dir, name, until)?);
        }
        Ok(taken)
    }
}

/// Whether a file is the one that others find at that path.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |it: std::io::Result<fs::Metadata>| it.ok().map(|it| (it.dev(), it.ino()));
    let own = number(file.metadata());
    own.is_some() && own == number(fs::metadata(path))
}

fn take_one(run_dir: &Path, name: &str, until: Instant) -> Result<(PathBuf, File)> {
    let path = run_dir.join(format!("{name}.lock"));
    // One that its owner removed meanwhile is nobody's lock any more.
    let mut file = loop {
        let file = lock(&path, name, until)?;
        if is_at(&file, &path) {
            break file;
        }
    };
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())?;
    Ok((path, file))
}

/// Opens a lock's file, made where there is none, and locks it.
fn lock(path: &Path, name: &str, until: Instant) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot open the lock file {}; are you root?", path.display()))?;
    let locked = loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if clock::now() < until => std::thread::sleep(LOOK),
            locked => break locked,
        }
    };
    match locked {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let _ = (&file).take(64).read_to_string(&mut owner);
            bail!(
                "`{name}` belongs to a gateway that runs already (process {}); stop that one first",
                owner.trim()
            );
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// Nobody else runs a gateway of this name, or on these ports, while it is held. Waits no longer
/// than for those who only look whether a gateway runs.
///
/// # Errors
/// Somebody does, or the directory cannot be written.
pub fn all_locks(settings: &Settings) -> Result<[Locks; 2]> {
    Ok([name_lock(settings, GLANCE)?, port_locks(settings, GLANCE)?])
}

/// One gateway a name.
///
/// # Errors
/// As [`Locks::take`].
pub fn name_lock(settings: &Settings, patience: Duration) -> Result<Locks> {
    let run_dir = &settings.gateway.run_dir;
    std::fs::create_dir_all(run_dir)
        .with_context(|| format!("cannot make {}; are you root?", run_dir.display()))?;
    let names = std::slice::from_ref(&settings.gateway.name);
    let mut locks = Locks::take(run_dir, names, patience)?;
    let state_dir = &settings.gateway.state_dir;
    // Where there is none, nobody has state there.
    if state_dir.is_dir() && state_dir != run_dir {
        let mut others = Locks::take(state_dir, names, patience)?;
        locks.files.append(&mut others.files);
    }
    Ok(locks)
}

/// One gateway an interface; an interface's name is its own in each network namespace.
///
/// # Errors
/// As [`Locks::take`].
pub fn port_locks(settings: &Settings, patience: Duration) -> Result<Locks> {
    let interfaces = settings.pairs.iter().flat_map(|pair| [&pair.host, &pair.wire]);
    let names: Vec<String> = interfaces.map(|name| port_name(name)).collect();
    let directory = Path::new(PORTS_DIR);
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {PORTS_DIR}; are you root?"))?;
    Locks::take(directory, &names, patience)
}

/// The name of an interface's lock, by whatever name the interface is called.
fn port_name(interface: &str) -> String {
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let namespace: String =
        namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let kernel_name = Interface::find(interface).and_then(|it| it.kernel_name());
    let name = kernel_name.unwrap_or_else(|_| interface.to_owned());
    format!("port-{name}-{namespace}")
}

/// The process of the gateway that an interface belongs to, if one runs on it.
pub fn gateway_on(interface: &str) -> Option<String> {
    let path = Path::new(PORTS_DIR).join(format!("{}.lock", port_name(interface)));
    let file = File::open(path).ok()?;
    let Err(TryLockError::WouldBlock) = file.try_lock_shared() else { return None };
    let mut owner = String::new();
    let _ = (&file).take(64).read_to_string(&mut owner);
    Some(owner.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_with_the_first_ones_process_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["gw".to_owned(), "p0".to_owned()];
        let take = |names: &[String], patience| Locks::take(directory.path(), names, patience);
        let first = take(&names, Duration::ZERO).unwrap();
        let error = take(&names[1..], Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("`p0`"), "{error}");
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        // Who waits gets it as soon as the first one ends.
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| take(&names, Duration::from_secs(60)));
            std::thread::sleep(3 * LOOK);
            assert!(!waiting.is_finished());
            drop(first);
            let second = waiting.join().unwrap().unwrap();
            // It is the one that others find.
            assert!(take(&names, Duration::ZERO).is_err());
            drop(second);
        });
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left");
    }
}
