//! `[store]`: what the gateway remembers, for whom and how long.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use weir_store::sqlite::Retention;

use super::problem::Problems;

/// MiB of the file unless configured: about three million records.
const SIZE_MIB_DEFAULT: u32 = 1024;
/// The least: below it, roll-ups alone fill the file.
const SIZE_MIB_MIN: u32 = 8;
/// The most: 4 TiB.
const SIZE_MIB_MAX: u32 = 4 << 20;
/// A week of records: long enough to look into what last weekend did.
const RECORDS_DAYS_DEFAULT: u32 = 7;
/// A month by minutes.
const MINUTES_DAYS_DEFAULT: u32 = 31;
/// A year by hours, and a month to compare with the year before.
const HOURS_DAYS_DEFAULT: u32 = 400;
/// Ten years.
const DAYS_MAX: u32 = 3660;

const DAY_S: u64 = 86_400;

/// `[store]`, as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format of the file")]
pub struct Written {
    pub path: Option<Spanned<PathBuf>>,
    pub group: Option<String>,
    pub operate: Option<Spanned<bool>>,
    pub administer: Option<Spanned<bool>>,
    pub size_mib: Option<Spanned<u32>>,
    pub records_days: Option<Spanned<u32>>,
    pub minutes_days: Option<Spanned<u32>>,
    pub hours_days: Option<Spanned<u32>>,
}

/// Where the gateway remembers, for whom and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The file.
    pub path: PathBuf,
    /// Name or number of the group that may read it and ask for the status; absent: nobody else.
    pub group: Option<String>,
    /// Whether that group may also block addresses, by a socket that takes no other command.
    pub operate: bool,
    /// Whether it may also have evidence and try configurations there. Implies trust as in root:
    /// a configuration says which files are read and which programs run.
    pub administer: bool,
    /// Its bounds.
    pub retention: Retention,
}

/// The store of a file. Paths start at `directory`; without one, it lies below `state_dir`.
pub(super) fn resolve(
    table: Option<&Written>,
    directory: &Path,
    state_dir: &Path,
    gateway: &str,
    problems: &mut Problems,
) -> Option<Store> {
    let table = table?;
    let mut bounded = |key: &str, written: &Option<Spanned<u32>>, default: u32, least, most| {
        let Some(written) = written else { return u64::from(default) };
        let value = *written.get_ref();
        if !(least..=most).contains(&value) {
            let remedy = format!("write a number from {least} to {most}");
            problems.error(written.span(), format!("{key} = {value}"), remedy);
        }
        u64::from(value)
    };
    let mib = bounded("size_mib", &table.size_mib, SIZE_MIB_DEFAULT, SIZE_MIB_MIN, SIZE_MIB_MAX);
    let mut days = |key, written, default| bounded(key, written, default, 1, DAYS_MAX) * DAY_S;
    let retention = Retention {
        size_bytes_max: mib << 20,
        records_s: days("records_days", &table.records_days, RECORDS_DAYS_DEFAULT),
        minutes_s: days("minutes_days", &table.minutes_days, MINUTES_DAYS_DEFAULT),
        hours_s: days("hours_days", &table.hours_days, HOURS_DAYS_DEFAULT),
    };
    let path = match &table.path {
        Some(path) => directory.join(path.get_ref()),
        None => state_dir.join("store").join(format!("{gateway}.sqlite")),
    };
    if let (Some(operate), None) = (&table.operate, &table.group)
        && *operate.get_ref()
    {
        let remedy = "add group = \"weir\", the group of `weir serve`";
        problems.error(operate.span(), "operate = true, and no group may", remedy);
    }
    let operate = table.operate.as_ref().is_some_and(|it| *it.get_ref());
    let administer = table.administer.as_ref().filter(|it| *it.get_ref());
    if let Some(administer) = administer.filter(|_| !operate) {
        let remedy = "add operate = true: it goes by the same socket";
        problems.error(administer.span(), "administer = true, and nobody may operate", remedy);
    }
    let administer = administer.is_some();
    Some(Store { path, group: table.group.clone(), operate, administer, retention })
}
