//! A stamp beside a key's file: the key sealed, and below which number its gateway began last.
//!
//! ```text
//!   a-to-b.key        the key
//!   a-to-b.key.used   FINGERPRINT NUMBER, a line for each association made of it; the last counts
//! ```
//!
//! A state directory that was emptied takes any key for a new one, and one that was restored from a
//! backup goes back; neither knows as much as the stamp. It is written at each start, after the
//! state file and before a number is used. Not seen: a backup that was made since the last start,
//! and a key that is copied without its stamp.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use weir_engine::esp::sa::Fingerprint;

/// A longer one is written anew, with the last line of each association.
const BYTES_MAX: u64 = 64 << 10;

/// Below which number the key's gateway began last; `None`: it never did.
///
/// # Errors
/// The stamp cannot be read.
pub(super) fn read(path: &Path, key: Fingerprint) -> io::Result<Option<u64>> {
    let wanted = key.to_string();
    Ok(lines(path)?.into_iter().rev().find(|(key, _)| *key == wanted).map(|(_, number)| number))
}

/// Stamps the key, and waits for the disk.
///
/// # Errors
/// The folder cannot be written, or the disk refuses.
pub(super) fn write(path: &Path, key: Fingerprint, number: u64) -> io::Result<()> {
    let options = || {
        let mut options = OpenOptions::new();
        options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        options
    };
    let is_new = !path.exists();
    let mut file = options().append(true).create(true).open(path)?;
    // Behind what a crash may have cut short.
    let begin = if is_new || fs::read(path)?.ends_with(b"\n") { "" } else { "\n" };
    file.write_all(format!("{begin}{key} {number}\n").as_bytes())?;
    file.sync_all()?;
    if file.metadata()?.len() > BYTES_MAX {
        let mut kept: Vec<(String, u64)> = Vec::new();
        for (key, number) in lines(path)? {
            kept.retain(|(other, _)| *other != key);
            kept.push((key, number));
        }
        let next = path.with_added_extension("next");
        let mut file = options().write(true).create(true).truncate(true).open(&next)?;
        kept.iter().try_for_each(|(key, number)| writeln!(file, "{key} {number}"))?;
        file.sync_all()?;
        fs::rename(&next, path)?;
    } else if !is_new {
        return Ok(());
    }
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The whole lines of a stamp; what a crash cut short is none.
fn lines(path: &Path) -> io::Result<Vec<(String, u64)>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut text = String::new();
    file.take(2 * BYTES_MAX).read_to_string(&mut text)?;
    let parse = |line: &str| {
        let (key, number) = line.strip_suffix('\n')?.split_once(' ')?;
        Some((key.to_owned(), number.parse().ok()?))
    };
    Ok(text.split_inclusive('\n').filter_map(parse).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [Fingerprint; 2] = [Fingerprint([1; 8]), Fingerprint([2; 8])];

    #[test]
    fn the_last_line_of_each_association_counts_and_a_stamp_stays_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a-to-b.key.used");
        assert_eq!(read(&path, KEYS[0]).unwrap(), None);
        write(&path, KEYS[1], 7).unwrap();
        for number in 1..3000 {
            write(&path, KEYS[0], number).unwrap();
        }
        assert_eq!(read(&path, KEYS[0]).unwrap(), Some(2999));
        assert_eq!(read(&path, KEYS[1]).unwrap(), Some(7));
        assert!(fs::metadata(&path).unwrap().len() <= BYTES_MAX);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_line_cut_short_spoils_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.used");
        write(&path, KEYS[0], 7).unwrap();
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], &whole[..5]].concat()).unwrap();
        assert_eq!(read(&path, KEYS[0]).unwrap(), Some(7));
        write(&path, KEYS[1], 8).unwrap();
        assert_eq!(read(&path, KEYS[1]).unwrap(), Some(8));
    }
}
