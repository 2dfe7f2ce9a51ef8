//! The control socket: a Unix socket that only its owner may open, one line of JSON in, one out.
//!
//! One thread serves it, one connection at a time; a request is at most 4 KiB, and who is slow is
//! cut off after two seconds. The daemon's main loop answers; this file only carries.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::api::dto::{Request, Response};

/// Bytes of a request, at most.
pub const REQUEST_BYTES_MAX: u64 = 4096;

/// Bytes of a response that a client reads, at most.
pub const RESPONSE_BYTES_MAX: u64 = 64 << 20;

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long the main loop may take for an answer; it asks every worker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A request on its way to the main loop, and the way back.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub request: Request,
    /// Where the answer goes.
    pub answer: Sender<Response>,
}

/// The socket; removed from the file system when dropped.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl ControlSocket {
    /// Opens the socket at `path` and hands every request to `ask`, which returns false when the
    /// daemon has ended. A socket that a dead gateway left behind is replaced: the caller holds
    /// the gateway's lock.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open(path: &Path, ask: impl Fn(Question) -> bool + Send + 'static) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                match serve(stream, &ask) {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => tracing::debug!(%error, "control connection ended early"),
                }
            }
        })?;
        Ok(Self { path: path.to_owned(), thread: Some(thread) })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The thread sits in `accept`: a connection wakes it, and `ask` tells it to end.
        if let Ok(mut stream) = UnixStream::connect(&self.path) {
            let _ = stream.write_all(b"{\"command\":\"status\"}\n");
        }
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: UnixStream, ask: &impl Fn(Question) -> bool) -> io::Result<bool> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let response = match serde_json::from_str::<Request>(&line) {
        Ok(request) => {
            let (answer, answers) = channel();
            if !ask(Question { request, answer }) {
                return Ok(false);
            }
            answers
                .recv_timeout(ANSWER_TIMEOUT)
                .unwrap_or_else(|_| Response::Error("the gateway is busy; ask again".into()))
        }
        Err(error) => Response::Error(format!("no request of this gateway: {error}")),
    };
    let mut line = serde_json::to_vec(&response)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(true)
}

/// Asks the gateway behind `path`.
///
/// # Errors
/// Nothing listens there, or what answers is no gateway.
pub fn ask(path: &Path, request: Request) -> io::Result<Response> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT + PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream.take(RESPONSE_BYTES_MAX)).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::dto::Snapshot;

    fn answering() -> (tempfile::TempDir, PathBuf, ControlSocket) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gw.sock");
        let ended = directory.path().join("ended");
        let socket = ControlSocket::open(&path, move |question| {
            let _ = question.answer.send(Response::Status(Box::<Snapshot>::default()));
            !ended.exists()
        });
        (directory, path, socket.unwrap())
    }

    fn end(directory: &tempfile::TempDir) {
        std::fs::write(directory.path().join("ended"), "").unwrap();
    }

    #[test]
    fn a_request_is_answered_and_the_socket_is_the_owners_alone() {
        let (directory, path, socket) = answering();
        assert!(matches!(ask(&path, Request::Status), Ok(Response::Status(_))));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        end(&directory);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn nonsense_and_endless_requests_get_an_error_and_the_next_client_an_answer() {
        let (directory, path, _socket) = answering();
        for request in [b"hello\n".to_vec(), b"{}\n".to_vec(), vec![b'x'; 10_000]] {
            let mut stream = UnixStream::connect(&path).unwrap();
            let _ = stream.write_all(&request);
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            assert!(answer.is_empty() || answer.contains("error"), "{answer}");
        }
        assert!(matches!(ask(&path, Request::Status), Ok(Response::Status(_))));
        end(&directory);
    }
}
