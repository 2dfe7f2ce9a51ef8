//! `weir serve` over the gateways of a lab, and a client that asks it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::gateways::NAMES;
use crate::process::Running;
use crate::topology::{Lab, Side};

/// Who `weir serve` becomes: a number that no account has, and the group of the stores.
pub(crate) const ACCOUNT: u32 = 64_999;

/// It answers by then.
const PATIENCE: Duration = Duration::from_secs(20);

/// A `weir serve` at work.
#[derive(Debug)]
pub(crate) struct Serve {
    running: Running,
    address: SocketAddr,
    link: String,
}

/// Where the gateway of a side keeps its store.
pub(crate) fn store_folder(lab: &Lab, side: Side) -> PathBuf {
    lab.folder().join("state").join(NAMES[side.index()]).join("store")
}

impl Serve {
    /// Starts one over these folders; its token is in `folder`.
    ///
    /// # Errors
    /// It does not start; its own words.
    pub(crate) fn start(
        program: &Path,
        folder: &Path,
        run_folders: &[PathBuf],
        stores: &[PathBuf],
    ) -> Result<Self> {
        // Taken for a moment, so that the kernel finds one that is free.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(program);
        command.args(["serve", "--user", &format!("{ACCOUNT}:{ACCOUNT}")]);
        command.args(["--listen", &address.to_string(), "--token-file"]);
        command.arg(folder.join("token"));
        for folder in run_folders {
            command.arg("--run-dir").arg(folder);
        }
        for store in stores {
            command.arg("--store").arg(store);
        }
        let mut running = Running::start(&mut command)?;
        running.wait_for("#token=", PATIENCE)?;
        let link = running.stdout().trim().to_owned();
        Ok(Self { running, address, link })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.running.id()
    }

    /// Leaves it running; the link that lets a browser in.
    pub(crate) fn detach(self) -> String {
        self.running.detach();
        self.link
    }

    /// A connection that has asked for `path`.
    pub(crate) fn ask(&self, path: &str) -> Result<TcpStream> {
        let (_, token) = self.link.split_once("#token=").context("the link has a token")?;
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let host = self.address;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
             Connection: close\r\n\r\n"
        )?;
        Ok(stream)
    }

    /// What it answers, head and body.
    ///
    /// # Errors
    /// It does not, or refuses.
    pub(crate) fn get(&self, path: &str) -> Result<String> {
        let mut answer = Vec::new();
        self.ask(path)?.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let head = answer.lines().next().unwrap_or_default();
        ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        Ok(answer)
    }
}
