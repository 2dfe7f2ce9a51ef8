//! Configuration: text -> `file` (as written) -> `settings` (typed, whole) or `problem`s.

pub mod access;
pub mod address;
mod combine;
mod endpoint;
pub mod export;
mod fastpath;
pub mod file;
mod front_end;
pub mod key;
pub mod keying;
pub mod labels;
pub mod marking;
pub mod offload;
pub mod openvpn;
mod overlap;
pub mod policy;
pub mod problem;
pub mod rate;
pub mod reach;
pub mod resolve;
pub mod rollout;
pub mod rules;
mod secrecy;
pub mod settings;
mod several;

pub mod sinks;
pub mod store;
pub mod tag;
mod transport;
pub mod vpn;
mod watching;
mod wireguard;
mod workers;

use std::io::Read;
use std::path::{Path, PathBuf};

pub use key::Keys;
pub use problem::Problems;
pub use resolve::{KeyAccess, OF_NAMES, is_name};
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

/// A configuration's text and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file that problems name.
    pub path: PathBuf,
    /// Where relative key files start.
    pub directory: PathBuf,
    /// As written.
    pub text: String,
}

impl Source {
    /// The file at `path`.
    ///
    /// # Errors
    /// It cannot be read, is too long, or is no text.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        let text = read_source(path).map_err(|what| {
            let mut problems = Problems::new(path, "");
            problems.error_in_file(what, "name a readable TOML file; `weir check --help` has one");
            problems
        })?;
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).to_owned();
        Ok(Self { path: path.to_owned(), directory, text })
    }

    /// What the text means, with warnings; no key is read.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn understand(&self) -> Result<(Settings, Problems), Problems> {
        let mut problems = Problems::new(&self.path, &self.text);
        match understand(&self.text, &self.directory, &mut problems) {
            Some(mut settings) => {
                openvpn::enrol(&mut settings, &mut problems);
                vpn::enrol(&mut settings, &mut problems);
                if problems.refused() { Err(problems) } else { Ok((settings, problems)) }
            }
            None => Err(problems),
        }
    }

    /// The same with the keys.
    ///
    /// # Errors
    /// Everything that is wrong with it, or with the key files.
    pub fn load(&self, access: KeyAccess) -> Result<Loaded, Problems> {
        self.load_with(access, None)
    }

    /// The same, with the rules of `kept` where there are such: their files are not read.
    ///
    /// # Errors
    /// The same.
    pub fn load_with(
        &self,
        access: KeyAccess,
        kept: Option<&rules::Detection>,
    ) -> Result<Loaded, Problems> {
        let (mut settings, mut problems) = self.understand()?;
        match kept {
            Some(kept) => rules::keep(&mut settings, kept),
            None => rules::load(&mut settings, &mut problems),
        }
        rules::check_outputs(&self.path, &settings, &mut problems);
        watching::compile_filters(&settings, &mut problems);
        keying::refuse_samples(&settings.pairs, &mut problems);
        secrecy::check(&self.path, &settings, &mut problems);
        let mut keys = resolve::read_keys(&settings, access, &mut problems);
        keys.iter_mut().for_each(|keys| keys.directory.clone_from(&self.directory));
        if problems.refused() {
            return Err(problems);
        }
        Ok(Loaded { settings, keys, problems })
    }
}

/// Reads the file at `path`, and the keys that it names.
///
/// # Errors
/// Everything that is wrong with it; see [`Problems`].
pub fn load(path: &Path, access: KeyAccess) -> Result<Loaded, Problems> {
    Source::read(path)?.load(access)
}

/// What `source` means, without reading a key or touching the machine; of its files, only those of
/// groups' members are read. Never panics, whatever the text (a fuzz target).
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
