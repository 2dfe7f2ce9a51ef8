//! Names of capture files: `trace-%n-%t.pcapng` becomes `trace-00001-20260131T235959Z.pcapng`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

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
                    Some('t') => name += &compact_utc(time),
                    // An interface name may hold what a path may not.
                    Some('i') => name += &interface.replace('/', "_"),
                    other => name.extend(other),
                },
            }
        }
        self.folder.join(name)
    }
}

/// `20260131T235959Z`.
fn compact_utc(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// The Gregorian date of a day since 1 January 1970, counted in eras of 400 years that begin in
/// March, so that leap days come last.
fn civil_date(days: u64) -> (u64, u64, u64) {
    const DAYS_BEFORE_EPOCH: u64 = 719_468;
    const DAYS_OF_ERA: u64 = 146_097;
    let days = days + DAYS_BEFORE_EPOCH;
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn times_are_gregorian_utc() {
        assert_eq!(compact_utc(at(0)), "19700101T000000Z");
        // date -u -d @1709251199: 29 February of a leap year.
        assert_eq!(compact_utc(at(1_709_251_199)), "20240229T235959Z");
        assert_eq!(compact_utc(at(1_709_251_200)), "20240301T000000Z");
        assert_eq!(compact_utc(at(4_107_542_400)), "21000301T000000Z");
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
