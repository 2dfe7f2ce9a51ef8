//! The files that alerts go to, before they are opened: whether they can be, and their folders.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD};
use weir_store::sink::{EveFile, EvePlace};

use crate::config::{Problems, Settings};

/// Who is in the folder's group may read.
const FOLDER_MODE: u32 = 0o750;

/// Finds files of `[rules]` that a gateway could not write. Nothing is made.
pub fn check(settings: &Settings, problems: &mut Problems) {
    let Some(eve) = settings.detection.as_ref().and_then(|it| it.eve.as_ref()) else { return };
    // Who may not write may still ask what is wrong: root runs the gateway.
    let is_root = rustix::process::geteuid().is_root();
    for (key, path) in named(eve) {
        let Err(error) = can_write(path) else { continue };
        if is_root || error.kind() != io::ErrorKind::PermissionDenied {
            problems.error_in_file(
                format!("{key}: {} cannot be written: {error}", path.display()),
                "make its folder, or name another file; below systemd's ProtectSystem=strict, \
                 /var/log/weir (LogsDirectory) and what ReadWritePaths names can be written",
            );
        }
    }
}

/// Makes the folders of `eve`'s files that are missing, as far as their parents are there.
///
/// # Errors
/// The disk refuses.
pub fn make_folders(eve: &EveFile) -> io::Result<()> {
    for (_, path) in named(eve) {
        let Some(folder) = path.parent() else { continue };
        match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
            Err(error) if !folder.is_dir() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The files; what a socket is at is somebody else's.
fn named(eve: &EveFile) -> impl Iterator<Item = (&'static str, &Path)> {
    let file = (eve.place == EvePlace::File).then_some(("eve", eve.path.as_path()));
    file.into_iter().chain(eve.fast.as_deref().map(|it| ("fast", it)))
}

/// Whether `path` can be written, or made: a pipe is not opened for it, which would wait.
fn can_write(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if path.exists() {
        return may(path, Access::WRITE_OK);
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let below = match folder.exists() {
        true => folder,
        false => folder.parent().unwrap_or(Path::new("/")),
    };
    if below.exists() && !below.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    may(below, Access::WRITE_OK | Access::EXEC_OK)
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use weir_store::sink::EveRecords;
    use weir_store::sink::eve_dns::DnsVersion;

    use super::*;

    #[test]
    fn a_folder_is_made_where_its_parent_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let in_folder = |name: &str| folder.path().join(name);
        let made = in_folder("log/eve.json");
        can_write(&made).unwrap();
        assert!(!in_folder("log").exists(), "a look makes nothing");
        let eve = EveFile {
            path: made.clone(),
            place: EvePlace::File,
            bytes_max: 1 << 20,
            records: EveRecords::All,
            fast: Some(in_folder("log/fast.log")),
            dns: DnsVersion::default(),
        };
        make_folders(&eve).unwrap();
        let mode = fs::metadata(in_folder("log")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
        fs::write(&made, "").unwrap();
        can_write(&made).unwrap();
        make_folders(&eve).unwrap();
        for wrong in ["no/such/eve.json", "log", "log/eve.json/eve.json"] {
            assert!(can_write(&in_folder(wrong)).is_err(), "{wrong}");
        }
        assert!(make_folders(&EveFile { path: in_folder("no/such/eve.json"), ..eve }).is_err());
    }
}
