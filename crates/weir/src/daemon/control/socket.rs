//! The control socket: a Unix socket that only its owner may open, one line of JSON in, one out.
//!
//! One thread serves it, one connection at a time; a request is at most 1 MiB, and who is slow is
//! cut off after two seconds. The daemon's main loop answers; this file only carries. A request
//! whose answer takes long - packets, whose file is passed along (SCM_RIGHTS), or a configuration
//! that is read - has a thread that waits for it: nobody else has to.

use std::fs;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Gid, chown};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use weir_store::clock;

use crate::api::blocks::BlocksRequest;
use crate::api::dto::{Request, Response};

/// Bytes of a request, at most: a configuration of thousands of peers.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Bytes that are taken at once.
const CHUNK_BYTES: usize = 4096;

/// Bytes of a response that a client reads, at most.
pub const RESPONSE_BYTES_MAX: u64 = 64 << 20;

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long an answer may take: counters that every worker is to publish first; a configuration,
/// which a thread of its own reads: tens of thousands of rules take seconds, and longer on a busy
/// machine.
const fn patience(request: &Request) -> Duration {
    match request {
        Request::Reload(_) | Request::Rollback | Request::Configure { .. } | Request::Keys(_) => {
            Duration::from_secs(120)
        }
        _ => Duration::from_secs(30),
    }
}

/// Whether whoever asks waits in a thread of its own.
const fn takes_long(request: &Request) -> bool {
    matches!(
        request,
        Request::EvidenceCut(_)
            | Request::Evidence { .. }
            | Request::Reload(_)
            | Request::Configure { .. }
            | Request::Keys(_)
    )
}

/// Threads that wait for slow answers, at most, over all sockets.
const WAITERS_MAX: usize = 16;

/// How many do.
static WAITERS: AtomicUsize = AtomicUsize::new(0);

/// Between two looks at whether the other side of a long request is still there.
const LOOK: Duration = Duration::from_millis(100);

/// A request on its way to the main loop, and the way back.
#[derive(Debug)]
pub struct Question {
    /// What is asked.
    pub request: Request,
    /// Where the answer goes.
    pub answer: Sender<Response>,
    /// The file that was passed along.
    pub output: Option<Output>,
}

/// A client's file. Writing fails once the client is gone.
#[derive(Debug)]
pub struct Output {
    file: fs::File,
    is_abandoned: Arc<AtomicBool>,
}

impl Output {
    /// `file`, until `is_abandoned`.
    pub fn new(file: fs::File, is_abandoned: Arc<AtomicBool>) -> Self {
        Self { file, is_abandoned }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_abandoned.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
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
        Self::open_for(path, check_peer, ask)
    }

    fn open_for(
        path: &Path,
        may_connect: fn(&UnixStream) -> io::Result<()>,
        ask: impl Fn(Question) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = listen(path)?;
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                if let Err(error) = may_connect(&stream) {
                    tracing::warn!(%error, "a control connection was refused");
                    continue;
                }
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

/// What a group may do by a socket of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Block addresses and remark on alerts.
    Operate,
    /// That, have evidence, and tell and change the configuration.
    Administer,
}

impl Rights {
    fn include(self, request: &Request) -> bool {
        match request {
            Request::Operate { .. } | Request::Remark { .. } | Request::Suppress { .. } => true,
            Request::Configure { .. } | Request::Evidence { .. } => self == Self::Administer,
            _ => false,
        }
    }
}

/// Opens the socket at `path` for `group`, which has `rights` there and no others.
///
/// # Errors
/// The directory cannot be written, or the socket not be given to the group.
pub fn open_for_operators(
    path: &Path,
    (group, rights): (u32, Rights),
    ask: impl Fn(Question) -> bool + Send + 'static,
) -> io::Result<ControlSocket> {
    // The socket's mode and group decide who may connect: peer credentials name only the first
    // group of a process.
    let socket = ControlSocket::open_for(
        path,
        |_| Ok(()),
        move |mut question| {
            if !rights.include(&question.request) {
                let refused = match rights {
                    Rights::Operate => {
                        "this gateway takes blocks of addresses and remarks here, and nothing \
                         else: `[store] administer` says whether it does"
                    }
                    Rights::Administer => "this is not asked here",
                };
                let _ = question.answer.send(Response::Error(refused.to_owned()));
                // Asked all the same, so that the thread learns when the daemon has ended.
                question.request = Request::Blocks(BlocksRequest::List);
            }
            ask(question)
        },
    )?;
    chown(path, None, Some(Gid::from_raw(group)))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    Ok(socket)
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

/// A socket at `path` to which only its owner can connect. Its mode is set before it listens, so
/// that there is no moment at which others could.
pub(in crate::daemon) fn listen(path: &Path) -> io::Result<UnixListener> {
    const BACKLOG: i32 = 128;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Whether root or the gateway's own user connected, whatever the file's mode has become.
fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    let (uid, own) = (peer.uid, rustix::process::geteuid());
    if !uid.is_root() && uid != own {
        let what = format!("user {} is neither root nor the gateway's own", uid.as_raw());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

fn serve(mut stream: UnixStream, ask: &impl Fn(Question) -> bool) -> io::Result<bool> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (line, passed) = read_request(&stream)?;
    let request = match serde_json::from_slice::<Request>(&line) {
        Ok(request) => request,
        Err(error) => {
            let response = Response::Error(format!("no request of this gateway: {error}"));
            respond(&mut stream, &response)?;
            return Ok(true);
        }
    };
    let takes_long = takes_long(&request);
    let patience = patience(&request);
    let is_abandoned = Arc::new(AtomicBool::new(false));
    let output = passed.map(|fd| Output::new(fd.into(), is_abandoned.clone()));
    let busy = || Response::Error("the gateway is busy; ask again".into());
    let waiter = takes_long.then(Waiter::enter);
    if let Some(None) = waiter {
        respond(&mut stream, &busy())?;
        return Ok(true);
    }
    let (answer, answers) = channel();
    if !ask(Question { request, answer, output }) {
        return Ok(false);
    }
    if let Some(waiter) = waiter.flatten() {
        let wait = move || {
            let _waiter = waiter;
            wait_for_answer(stream, &answers, &is_abandoned);
        };
        std::thread::Builder::new().name("control wait".into()).spawn(wait)?;
    } else {
        respond(&mut stream, &answers.recv_timeout(patience).unwrap_or_else(|_| busy()))?;
    }
    Ok(true)
}

/// A thread that waits for an answer, counted while it does.
struct Waiter;

impl Waiter {
    /// One more, unless there are as many as may be.
    fn enter() -> Option<Self> {
        let one_more = |count: usize| (count < WAITERS_MAX).then_some(count + 1);
        let entered = WAITERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        entered.ok().map(|_| Self)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        WAITERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A line, or as much as there is of one, and a descriptor that came with it.
fn read_request(stream: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let (mut line, mut passed) = (Vec::new(), None);
    let end = clock::now() + PATIENCE;
    while line.last() != Some(&b'\n') && line.len() < REQUEST_BYTES_MAX {
        if clock::now() >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut chunk = [0; CHUNK_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let room = CHUNK_BYTES.min(REQUEST_BYTES_MAX - line.len());
        let got = rustix::net::recvmsg(
            stream,
            &mut [IoSliceMut::new(&mut chunk[..room])],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                passed = descriptors.last().or(passed);
            }
        }
        if got.bytes == 0 {
            break;
        }
        line.extend_from_slice(&chunk[..got.bytes]);
    }
    Ok((line, passed))
}

/// Passes the answer on when it comes; until then, looks whether anyone still wants it.
fn wait_for_answer(
    mut stream: UnixStream,
    answers: &Receiver<Response>,
    is_abandoned: &AtomicBool,
) {
    loop {
        match answers.recv_timeout(LOOK) {
            Ok(response) => {
                let _ = respond(&mut stream, &response);
                return;
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        if rustix::net::recv(&stream, &mut [0; 1], flags).is_ok_and(|(_, count)| count == 0) {
            is_abandoned.store(true, Ordering::Relaxed);
            return;
        }
    }
}

fn respond(stream: &mut UnixStream, response: &Response) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Asks the gateway behind `path`.
///
/// # Errors
/// Nothing listens there, or what answers is no gateway.
pub fn ask(path: &Path, request: &Request) -> io::Result<Response> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience(request) + PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream.take(RESPONSE_BYTES_MAX)).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Asks the gateway behind `path` for something that it writes to `output`, which may take long.
/// `go_on` is called ten times a second until the answer comes; when it says no, the gateway is
/// left, and stops.
///
/// # Errors
/// Nothing listens there, what answers is no gateway, it went away, or `go_on` said no
/// (`Interrupted`).
pub fn ask_for_output(
    path: &Path,
    request: &Request,
    output: BorrowedFd<'_>,
    go_on: &mut dyn FnMut() -> bool,
) -> io::Result<Response> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    let passed = [output];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&passed));
    let sent =
        rustix::net::sendmsg(&stream, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(&line[sent..])?;
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    while answer.last() != Some(&b'\n') {
        match stream.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => answer.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if !go_on() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok(serde_json::from_slice(&answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::blocks::BlocksSnapshot;
    use crate::api::dto::{ConfigureRequest, CutRequest, Snapshot};

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
        assert!(matches!(ask(&path, &Request::Status), Ok(Response::Status(_))));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        end(&directory);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn operators_may_block_and_do_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gw.operate");
        let ended = directory.path().join("ended");
        let own_group = rustix::process::getegid().as_raw();
        let rights = (own_group, Rights::Operate);
        let _socket = open_for_operators(&path, rights, move |question| {
            let _ = question.answer.send(Response::Blocks(BlocksSnapshot::default()));
            !ended.exists()
        });
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let configure = Request::Configure { by: "eve".into(), configure: ConfigureRequest::Show };
        let cut = Request::Evidence { by: "eve".into(), cut: CutRequest::default() };
        let list = Request::Blocks(BlocksRequest::List);
        for refused in [Request::Status, Request::Rollback, list, configure, cut] {
            assert!(matches!(ask(&path, &refused), Ok(Response::Error(_))), "{refused:?}");
        }
        let list = Request::Operate { by: "eve".into(), blocks: BlocksRequest::List };
        assert!(matches!(ask(&path, &list), Ok(Response::Blocks(_))));
        end(&directory);
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
        assert!(matches!(ask(&path, &Request::Status), Ok(Response::Status(_))));
        end(&directory);
    }
}
