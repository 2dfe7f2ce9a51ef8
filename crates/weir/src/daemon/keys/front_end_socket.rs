//! The Unix socket that front ends connect to: SEQPACKET, so that datagrams keep their ends. Only
//! root and the gateway's own user may connect. One thread accepts, and one reads for each client;
//! what they read goes to the supervisor.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recv, send, shutdown, socket_with, sockopt,
};

/// Connections at a time; a further one is closed at once. charon has two.
const CLIENTS_MAX: usize = 64;

/// Bytes of a datagram; a longer one is cut, and what is cut off is never carried out.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// What a client did.
#[derive(Debug)]
pub enum ClientEvent {
    /// It connected.
    Opened(Arc<Client>),
    /// It said this.
    Said(u64, Vec<u8>),
    /// It is gone.
    Closed(u64),
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    number: u64,
    socket: OwnedFd,
}

impl Client {
    /// Unique in this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Sends a datagram, or drops it when the client does not read: the gateway does not wait, as
    /// a kernel would not.
    pub fn send(&self, datagram: &[u8]) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if let Err(error) = send(&self.socket, datagram, flags) {
            tracing::debug!(%error, client = self.number, "a front end does not read");
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// The listening socket; removed from the file system when dropped.
#[derive(Debug)]
pub struct FrontEndSocket {
    path: PathBuf,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FrontEndSocket {
    /// Opens the socket at `path`. One that a dead gateway left behind is replaced: the caller
    /// holds the gateway's lock.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn open(
        path: &Path,
        events: impl Fn(ClientEvent) -> bool + Clone + Send + 'static,
    ) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = unix_socket()?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listen(&listener, 16)?;
        let ended = Arc::new(AtomicBool::new(false));
        let (watched, connected) = (ended.clone(), Arc::new(AtomicUsize::new(0)));
        let accepting = move || {
            for number in 0.. {
                let accepted = accept_with(&listener, SocketFlags::CLOEXEC);
                if watched.load(Ordering::Acquire) {
                    return;
                }
                let Ok(socket) = accepted else { continue };
                if !may_connect(&socket) || connected.load(Ordering::Acquire) >= CLIENTS_MAX {
                    tracing::warn!("a front end was turned away: not root, or 64 are connected");
                    continue;
                }
                connected.fetch_add(1, Ordering::AcqRel);
                let (connected, events) = (connected.clone(), events.clone());
                let reading = move || {
                    read(number, socket, &events);
                    connected.fetch_sub(1, Ordering::AcqRel);
                };
                let _ = std::thread::Builder::new().name("front end".into()).spawn(reading);
            }
        };
        let thread = std::thread::Builder::new().name("front ends".into()).spawn(accepting)?;
        Ok(Self { path: path.to_owned(), ended, thread: Some(thread) })
    }
}

impl Drop for FrontEndSocket {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // The thread sits in `accept`: a connection wakes it.
        let woken = unix_socket()
            .and_then(|socket| Ok(connect(&socket, &SocketAddrUnix::new(&self.path)?)?));
        let _ = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken.is_ok()) {
            let _ = thread.join();
        }
    }
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn may_connect(socket: &OwnedFd) -> bool {
    sockopt::socket_peercred(socket)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

/// Hands on what a client says, until it goes or the daemon has ended.
fn read(number: u64, socket: OwnedFd, events: &impl Fn(ClientEvent) -> bool) {
    let client = Arc::new(Client { number, socket });
    let reader = match client.socket.try_clone() {
        Ok(reader) => reader,
        Err(_) => return,
    };
    if !events(ClientEvent::Opened(client)) {
        return;
    }
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let heard = match recv(&reader, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => break,
            Ok((len, _)) => ClientEvent::Said(number, buffer[..len].to_vec()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
        };
        if !events(heard) {
            return;
        }
    }
    events(ClientEvent::Closed(number));
}
