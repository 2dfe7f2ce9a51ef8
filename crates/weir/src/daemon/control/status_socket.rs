//! The socket on which `weir serve` reads how a gateway, or `weir collect`, does. It takes no
//! commands: it says one thing, whoever asks.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Gid, chown};
use serde::Serialize;

use crate::daemon::control::socket;

/// How long a client may take to read.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tells whoever connects what was published last, a line of JSON, and hangs up.
#[derive(Debug)]
pub struct StatusSocket<T> {
    path: PathBuf,
    last: Arc<Mutex<Arc<T>>>,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Serialize + Default + Send + Sync + 'static> StatusSocket<T> {
    /// Listens at `path`, for its owner and `group`. The caller knows that nobody else does: a
    /// socket that stands there was left by a process that was killed.
    ///
    /// # Errors
    /// The folder cannot be written, or the group is not the process's to give.
    pub fn open(path: &Path, group: Option<u32>) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = socket::listen(path)?;
        // To connect takes the right to write.
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        if let Some(group) = group {
            chown(path, None, Some(Gid::from_raw(group)))?;
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        let last = Arc::new(Mutex::new(Arc::new(T::default())));
        let is_ending = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("status".into()).spawn({
            let (last, is_ending) = (Arc::clone(&last), Arc::clone(&is_ending));
            move || {
                for stream in listener.incoming() {
                    if is_ending.load(Ordering::Relaxed) {
                        return;
                    }
                    let status = Arc::clone(&last.lock().unwrap_or_else(PoisonError::into_inner));
                    if let Err(error) = stream.and_then(|it| tell(it, &*status)) {
                        tracing::debug!(%error, "a reader of the status left early");
                    }
                }
            }
        })?;
        Ok(Self { path: path.to_owned(), last, is_ending, thread: Some(thread) })
    }

    /// Puts `status` in the place of the one before.
    pub fn publish(&self, status: T) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(status);
    }
}

fn tell(mut stream: UnixStream, status: &impl Serialize) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(status)?;
    line.push(b'\n');
    stream.write_all(&line)
}

impl<T> Drop for StatusSocket<T> {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        // The thread sits in `accept`.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
