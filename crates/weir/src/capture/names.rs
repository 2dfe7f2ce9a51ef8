//! Names of capture files: `trace-%n-%t.pcapng` becomes `trace-00001-20260131T235959Z.pcapng`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::utc;

/// A file name with places for a running number and a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    folder: PathBuf,
    name: String,
}

impl NamePattern {
    /// Reads `path`. `%n` in its last part stands for the file's number, `%t` for the UTC time of
    /// its beginning, `%i` for the interface, `%%` for a percent sign. A name for several files
    /// that has no number gets `_%n_%t` before its first dot.
    ///
    /// # Errors
    /// Another letter behind a percent sign, or no file name at all; says so.
    pub fn new(path: &Path, several: bool) -> Result<Self, String> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            format!("{} is not a file name (UTF-8, not ending in `/`)", path.display())
        })?;
        let mut letters = name.chars();
        while let Some(letter) = letters.next() {
            if letter == '%' && !matches!(letters.next(), Some('n' | 't' | 'i' | '%')) {
                return Err(format!(
                    "{name}: behind `%` stands n (number), t (time), i (interface) or %"
                ));
            }
        }
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let numbered = name.replace("%%", "").contains("%n");
        let name = if several && !numbered {
            let dot = name.find('.').filter(|at| *at > 0).unwrap_or(name.len());
            format!("{}_%n_%t{}", &name[..dot], &name[dot..])
        } else {
            name.to_owned()
        };
        Ok(Self { folder, name })
    }

    /// The name of file `number`, begun at `time`.
    pub fn path(&self, number: u32, time: SystemTime, interface: &str) -> PathBuf {
        let mut name = String::new();
        let mut letters = self.name.chars();
        while let Some(letter) = letters.next() {
            match (letter, letter == '%') {
                (_, false) => name.push(letter),
                (_, true) => match letters.next() {
                    Some('n') => name += &format!("{number:05}"),
                    Some('t') => name += &utc::compact(time),
                    // An interface name may hold what a path may not.
                    Some('i') => name += &interface.replace('/', "_"),
                    other => name.extend(other),
                },
            }
        }
        self.folder.join(name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn several_files_get_a_number_where_the_user_gave_no_place() {
        let name = |path: &str, several| {
            NamePattern::new(Path::new(path), several).unwrap().path(7, at(0), "p0")
        };
        assert_eq!(name("a/x.pcapng", false), Path::new("a/x.pcapng"));
        assert_eq!(name("a/x.pcapng", true), Path::new("a/x_00007_19700101T000000Z.pcapng"));
        assert_eq!(name("x.pcapng.zst", true), Path::new("x_00007_19700101T000000Z.pcapng.zst"));
        assert_eq!(name("%i-%n.pcapng", true), Path::new("p0-00007.pcapng"));
        assert_eq!(name("100%%", true), Path::new("100%_00007_19700101T000000Z"));
    }

    #[test]
    fn unknown_places_are_refused() {
        for path in ["a-%H.pcapng", "a%", "..", "/"] {
            assert!(NamePattern::new(Path::new(path), false).is_err(), "{path}");
        }
    }
}
