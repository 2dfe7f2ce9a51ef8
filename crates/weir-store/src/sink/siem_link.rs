//! A connection to a sink: TCP, bare or within TLS. Writes wait, for a little; looks do not.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use rustls::ClientConnection;

use super::transport::TlsClient;
use crate::clock;

/// How long an answer to a connection request, a handshake, and a write may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Link {
    /// Connects, and proves who is there by `tls`.
    ///
    /// # Errors
    /// Nobody answers, or it is somebody else.
    pub(super) fn open(address: &str, tls: Option<&TlsClient>) -> io::Result<Self> {
        let unknown = || io::Error::new(ErrorKind::NotFound, "no address of that name");
        let to: SocketAddr = address.to_socket_addrs()?.next().ok_or_else(unknown)?;
        let mut socket = TcpStream::connect_timeout(&to, PATIENCE)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        let mut tls = tls.map(TlsClient::connection).transpose()?.map(Box::new);
        let end = clock::now() + PATIENCE;
        while let Some(connection) = tls.as_mut().filter(|it| it.is_handshaking()) {
            connection.complete_io(&mut socket)?;
            if connection.is_handshaking() && clock::now() >= end {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(Self { socket, tls })
    }

    /// Gives all of `bytes` to the kernel.
    ///
    /// # Errors
    /// The connection is lost, or takes nothing.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.socket.write_all(bytes) };
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = tls.writer().write(rest)?;
            rest = &rest[taken..];
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            }
        }
        Ok(())
    }

    /// Says that nothing more comes, and waits until the other side says the same: it has read all
    /// by then. What it said itself is read, as a connection that is shut over unread bytes is
    /// reset, and what was sent last is lost with it.
    ///
    /// # Errors
    /// It does not say so in time, or the connection is lost.
    pub(super) fn close(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            }
        }
        self.socket.shutdown(Shutdown::Write)?;
        let end = clock::now() + PATIENCE;
        while self.socket.read(&mut [0; 1024])? > 0 {
            if clock::now() >= end {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Whether the other side has neither closed nor reset the connection. A sink says nothing
    /// else, but for the tickets of TLS.
    pub(super) fn is_open(&mut self) -> bool {
        let Self { socket, tls } = self;
        if socket.set_nonblocking(true).is_err() {
            return false;
        }
        let heard = match tls {
            None => socket.peek(&mut [0; 1]).map(|count| count > 0),
            Some(tls) => hear(tls, socket),
        };
        let is_open = match heard {
            Ok(is_open) => is_open,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        is_open && socket.set_nonblocking(false).is_ok()
    }
}

/// Takes in what the other side says; false: its farewell.
fn hear(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<bool> {
    loop {
        if tls.read_tls(socket)? == 0 {
            return Ok(false);
        }
        let state = tls.process_new_packets().map_err(io::Error::other)?;
        if state.peer_has_closed() {
            return Ok(false);
        }
        // What it says is nothing to us, and must not fill the memory.
        let _ = tls.reader().read(&mut [0; 1024]);
    }
}
