//! Configuration: text -> `file` (as written) -> `settings` (typed, whole) or `problem`s.

pub mod address;
pub mod export;
mod fastpath;
pub mod file;
pub mod key;
pub mod keying;
pub mod policy;
pub mod problem;
pub mod resolve;
pub mod rollout;
pub mod settings;

mod watching;

use std::io::Read;
use std::path::Path;

pub use key::Keys;
pub use problem::Problems;
pub use resolve::KeyAccess;
pub use settings::Settings;

/// A configuration that may be used, with its warnings.
#[derive(Debug)]
pub struct Loaded {
    /// What it means.
    pub settings: Settings,
    /// Its keys; `None` only by [`KeyAccess::IfPermitted`], when one may not be read.
    pub keys: Option<Keys>,
    /// Warnings.
    pub problems: Problems,
}

/// Reads the file at `path`, and the keys that it names.
///
/// # Errors
/// Everything that is wrong with it; see [`Problems`].
pub fn load(path: &Path, access: KeyAccess) -> Result<Loaded, Problems> {
    let source = read_source(path).map_err(|what| {
        let mut problems = Problems::new(path, "");
        problems.error_in_file(what, "name a readable TOML file; `weir check --help` has one");
        problems
    })?;
    let mut problems = Problems::new(path, &source);
    let directory = path.parent().unwrap_or(Path::new("."));
    let Some(settings) = understand(&source, directory, &mut problems) else {
        return Err(problems);
    };
    let keys = resolve::read_keys(&settings, access, &mut problems);
    if problems.refused() {
        return Err(problems);
    }
    Ok(Loaded { settings, keys, problems })
}

/// What `source` means, without reading a key or touching the machine. Never panics, whatever the
/// text (a fuzz target).
pub fn understand(source: &str, directory: &Path, problems: &mut Problems) -> Option<Settings> {
    let file = file::parse(source, problems);
    resolve::resolve(file, directory, problems)
}

fn read_source(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read it: {error}");
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(file::FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > file::FILE_BYTES_MAX {
        return Err(format!("it is longer than {} MiB", file::FILE_BYTES_MAX >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        format!("it is not UTF-8 text (byte {})", error.utf8_error().valid_up_to())
    })
}
