//! The configuration that a command is about: a file, or what a running gateway has in force.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::status::{ask_status, find_socket};
use crate::api::dto::{ConfigureRequest, Request, Response};
use crate::config::{Problems, Source};
use crate::daemon::control::socket;

/// Where a command finds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    /// The file; `None`: a running gateway's.
    pub(super) file: Option<&'a Path>,
    /// That gateway's name; needed where several run.
    pub(super) gateway: Option<&'a str>,
    /// Where gateways keep their control sockets.
    pub(super) run_dir: &'a Path,
}

impl Target<'_> {
    /// The configuration, as written, or what is wrong with its file.
    ///
    /// # Errors
    /// No gateway answers.
    pub(super) fn source(&self) -> Result<std::result::Result<Source, Problems>> {
        match self.file {
            Some(file) => Ok(Source::read(file)),
            None => self.in_force(),
        }
    }

    fn in_force(&self) -> Result<std::result::Result<Source, Problems>> {
        let path = ask_status(self.run_dir, self.gateway)?.configuration.path;
        let request =
            Request::Configure { by: "weir".to_owned(), configure: ConfigureRequest::Show };
        let socket = find_socket(self.run_dir, self.gateway)?;
        let shown = match socket::ask(&socket, &request)? {
            Response::Configured(shown) => shown,
            Response::Error(error) => bail!("the gateway says: {error}"),
            _ => bail!("the gateway answers another question: is it an older one?"),
        };
        Ok(match shown.text {
            Some(text) => {
                let directory: PathBuf = shown.configuration.directory;
                Ok(Source { path, directory, text })
            }
            // A gateway keeps the text to itself when a key stands in it.
            None => Source::read(&path),
        })
    }
}
