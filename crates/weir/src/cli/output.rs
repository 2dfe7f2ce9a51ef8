//! A file that appears whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Where a command writes to. A regular file is written beside its place, and removed when it is
/// dropped before [`OutputFile::keep`]; what stood there stays until then.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    /// Absent: standard output, a pipe, a device.
    place: Option<UnfinishedFile>,
}

#[derive(Debug)]
struct UnfinishedFile {
    path: PathBuf,
    unfinished: PathBuf,
    is_kept: bool,
}

impl OutputFile {
    /// Opens what `path` names, for its owner alone; `-` is standard output. Where `force` says so,
    /// a file of that name is replaced in the end.
    ///
    /// # Errors
    /// There is such a file, or it cannot be written.
    pub fn create(path: &Path, force: bool) -> Result<Self> {
        if path == Path::new("-") {
            let file = io::stdout().as_fd().try_clone_to_owned().context("standard output")?;
            return Ok(Self { file: file.into(), place: None });
        }
        let cannot = || format!("{}: cannot write there", path.display());
        match fs::metadata(path) {
            Ok(there) if there.is_file() && !force => {
                bail!("{}: there is such a file; --force overwrites it", path.display())
            }
            Ok(there) if !there.is_file() => {
                let file = OpenOptions::new().write(true).open(path).with_context(cannot)?;
                return Ok(Self { file, place: None });
            }
            _ => {}
        }
        let mut name = path.file_name().with_context(cannot)?.to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let unfinished = path.with_file_name(name);
        let mut options = OpenOptions::new();
        // A new file: never through a link that somebody put there.
        let _ = fs::remove_file(&unfinished);
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&unfinished).with_context(cannot)?;
        let place = UnfinishedFile { path: path.to_owned(), unfinished, is_kept: false };
        Ok(Self { file, place: Some(place) })
    }

    /// The file, to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its length; 0 of what is no file.
    pub fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |it| it.len())
    }

    /// Whether nothing was written to it yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// The folder went away.
    pub fn keep(mut self) -> Result<()> {
        if let Some(place) = &mut self.place {
            fs::rename(&place.unfinished, &place.path)
                .with_context(|| format!("{}: cannot write there", place.path.display()))?;
            place.is_kept = true;
        }
        Ok(())
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn nothing_is_written_through_a_link_that_somebody_put_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("x.pcapng"), folder.path().join("other"));
        fs::write(&other, "untouched").unwrap();
        let unfinished = folder.path().join(format!("x.pcapng.{}.part", std::process::id()));
        for link in [&path, &unfinished] {
            std::os::unix::fs::symlink(&other, link).unwrap();
        }
        let output = OutputFile::create(&path, true).unwrap();
        output.file().write_all(b"packets").unwrap();
        output.keep().unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
        assert_eq!(fs::read_to_string(&path).unwrap(), "packets");
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcapng");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let output = OutputFile::create(&path, false).unwrap();
        output.file().write_all(b"half").unwrap();
        drop(output);
        assert_eq!(names(), 0);
        for (text, force) in [("first", false), ("second", true)] {
            let output = OutputFile::create(&path, force).unwrap();
            output.file().write_all(text.as_bytes()).unwrap();
            output.keep().unwrap();
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), (text, 1));
        }
        assert!(OutputFile::create(&path, false).unwrap_err().to_string().contains("--force"));
        drop(OutputFile::create(&path, true).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "second", "a failed one changes nothing");
    }
}
