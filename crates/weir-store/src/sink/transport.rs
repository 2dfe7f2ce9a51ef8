//! Ways to a collector: UDP, and TCP with or without TLS as non-blocking streams.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore};

/// How long an answer to a TCP connection request may take. The collector's thread waits for it,
/// and its queue with it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Where and how a collector is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Datagrams; what is lost is lost.
    Udp(String),
    /// A TCP connection (RFC 7011 s10.4).
    Tcp(String),
    /// TLS over TCP (RFC 7011 s11).
    Tls(String, TlsFiles),
}

/// PEM files of a TLS connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities that may have signed the collector's certificate.
    pub authorities: PathBuf,
    /// Our own certificate chain and its key, for collectors that demand one.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// What is wrong with an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// A PEM file.
    #[error("{path}: {what}; name a readable PEM file")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why it is of no use.
        what: String,
    },
    /// The certificate and key, or the name.
    #[error("TLS to {address}: {what}; check certificate, key and the collector's name")]
    Tls {
        /// The collector.
        address: String,
        /// Why.
        what: String,
    },
}

impl Endpoint {
    /// `host:port`.
    pub fn address(&self) -> &str {
        match self {
            Self::Udp(address) | Self::Tcp(address) | Self::Tls(address, _) => address,
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = match self {
            Self::Udp(_) => "udp",
            Self::Tcp(_) => "tcp",
            Self::Tls(..) => "tls",
        };
        write!(formatter, "{scheme}://{}", self.address())
    }
}

/// The first address that `address` resolves to.
fn resolve(address: &str) -> io::Result<SocketAddr> {
    let mut addresses = address.to_socket_addrs()?;
    addresses.next().ok_or_else(|| io::Error::new(ErrorKind::NotFound, "no address of that name"))
}

/// A UDP socket that sends to `address`.
///
/// # Errors
/// The name is not known, or no socket is to be had.
pub fn udp(address: &str) -> io::Result<UdpSocket> {
    let to = resolve(address)?;
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    Ok(socket)
}

/// Everything that TLS to one collector needs, read once.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsClient {
    /// Reads the files. The collector must prove to be the host of `address`.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn new(address: &str, files: &TlsFiles) -> Result<Self, EndpointError> {
        let failed = |what: String| EndpointError::Tls { address: address.to_owned(), what };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.authorities)? {
            roots.add(certificate).map_err(|error| failed(error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?
            .with_root_certificates(roots);
        let config = match &files.certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key_path)) => {
                let key = PrivateKeyDer::from_pem_file(key_path).map_err(|error| {
                    EndpointError::Pem { path: key_path.clone(), what: error.to_string() }
                })?;
                builder
                    .with_client_auth_cert(certificates(chain)?, key)
                    .map_err(|error| failed(error.to_string()))?
            }
        };
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| failed(error.to_string()))?;
        Ok(Self { config: Arc::new(config), name })
    }

    /// A session that has not begun.
    ///
    /// # Errors
    /// The library refuses.
    pub fn connection(&self) -> io::Result<ClientConnection> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(io::Error::other)
    }
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, EndpointError> {
    let failed = |what: String| EndpointError::Pem { path: path.clone(), what };
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(BufReader::new(file)).collect();
    let found = found.map_err(|error| failed(error.to_string()))?;
    if found.is_empty() {
        return Err(failed("no certificate in it".to_owned()));
    }
    Ok(found)
}

/// A non-blocking stream to a collector.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Bytes given to the socket so far.
    written: u64,
}

impl Stream {
    /// Connects; the TLS handshake goes on with the first writes.
    ///
    /// # Errors
    /// The name is not known, or nobody answers there.
    pub fn connect(address: &str, tls: Option<&TlsClient>) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&resolve(address)?, CONNECT_TIMEOUT)?;
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let tls = match tls {
            None => None,
            Some(client) => Some(Box::new(client.connection()?)),
        };
        Ok(Self { socket, tls, written: 0 })
    }

    /// Takes what of `bytes` it can; 0 when it can take none now.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => {
                let count = would_block(self.socket.write(bytes))?;
                self.written += count as u64;
                Ok(count)
            }
            Some(tls) if tls.is_handshaking() => Ok(0),
            Some(tls) => tls.writer().write(bytes),
        }
    }

    /// Moves what is on its way, and learns whether the collector hung up.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn progress(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            // A collector says nothing (RFC 7011 s10.4): what arrives is its farewell.
            let mut ignored = [0; 64];
            return match self.socket.read(&mut ignored) {
                Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
                result => would_block(result).map(drop),
            };
        };
        loop {
            match tls.read_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    let state = tls.process_new_packets().map_err(refused)?;
                    if state.peer_has_closed() {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                    let _ = would_block(tls.reader().read(&mut [0; 64]))?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while tls.wants_write() {
            match would_block(tls.write_tls(&mut self.socket))? {
                0 => break,
                count => self.written += count as u64,
            }
        }
        Ok(())
    }

    /// Whether the kernel has all that was written.
    pub fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.wants_write() && !tls.is_handshaking())
    }

    /// Bytes that the kernel has and the collector's host has not acknowledged; `None`: not known.
    pub fn unacknowledged(&self) -> Option<u64> {
        send_queue_bytes(&self.socket)
    }

    /// Bytes given to the kernel so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Ends the session in order, as far as that goes without waiting.
    pub fn close(mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        let _ = self.progress();
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }
}

/// Why the other end is not believed, with what to do about it.
fn refused(error: rustls::Error) -> io::Error {
    let said = error.to_string();
    let remedy = match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "its certificate must name the host as the configuration does (subjectAltName)"
            }
            CertificateError::UnknownIssuer => "`authority_file` must hold who signed it",
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => {
                "look at the certificate's dates, and at the clock here"
            }
            _ if said.contains("CaUsedAsEndEntity") => {
                "that is an authority's certificate: the server needs one that is none \
                 (basicConstraints CA:FALSE)"
            }
            _ => "look at its certificate",
        },
        _ => return io::Error::other(error),
    };
    io::Error::other(format!("{said}: {remedy}"))
}

fn would_block(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        other => other,
    }
}

/// The kernel's count of unacknowledged bytes of a TCP socket, from its table of sockets: the
/// system call for it (SIOCOUTQ) has no safe form.
fn send_queue_bytes(socket: &TcpStream) -> Option<u64> {
    let (local, peer) = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
    let table = match local {
        SocketAddr::V4(_) => "/proc/thread-self/net/tcp",
        SocketAddr::V6(_) => "/proc/thread-self/net/tcp6",
    };
    let (local, peer) = (table_form(&local), table_form(&peer));
    let text = std::fs::read_to_string(table).ok()?;
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == local && words.next()? == peer).then_some(())?;
        let (queued, _) = words.nth(1)?.split_once(':')?;
        u64::from_str_radix(queued, 16).ok()
    })
}

/// An address as the kernel's table has it: words in the machine's byte order, in hexadecimal.
fn table_form(address: &SocketAddr) -> String {
    let words = match address {
        SocketAddr::V4(address) => address.ip().octets().to_vec(),
        SocketAddr::V6(address) => address.ip().octets().to_vec(),
    };
    let (words, _) = words.as_chunks::<4>();
    let hex: String =
        words.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect();
    format!("{hex}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_kernel_says_how_much_is_not_acknowledged() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(any) else {
                eprintln!("SKIPPED: {any} cannot be bound");
                continue;
            };
            let address = listener.local_addr().unwrap().to_string();
            let mut stream = Stream::connect(&address, None).unwrap();
            let (mut accepted, _) = listener.accept().unwrap();
            // Nobody reads: the peer's window fills, then our queue.
            while stream.write(&[7; 4096]).unwrap() > 0 {}
            let queued = stream.unacknowledged().expect("our socket is in the table");
            assert!(queued > 0 && queued < stream.written(), "{queued} of {}", stream.written());
            let mut rest = stream.written();
            let mut buffer = vec![0; 1 << 16];
            while rest > 0 {
                rest -= accepted.read(&mut buffer).unwrap() as u64;
            }
            // All was read, so all was acknowledged or is about to be.
            while stream.unacknowledged() != Some(0) {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_certificate_that_is_refused_is_said_with_what_to_do() {
        let said = |why| refused(rustls::Error::InvalidCertificate(why)).to_string();
        // As the verifier of chains names it.
        let authority = rustls::OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity")));
        for (why, remedy) in [
            (CertificateError::Other(authority), "CA:FALSE"),
            (CertificateError::UnknownIssuer, "authority_file"),
            (CertificateError::NotValidForName, "subjectAltName"),
            (CertificateError::Expired, "the clock"),
            (CertificateError::Revoked, "look at its certificate"),
        ] {
            let said = said(why.clone());
            assert!(said.contains(remedy), "{said}");
        }
        let other = refused(rustls::Error::DecryptError).to_string();
        assert_eq!(other, rustls::Error::DecryptError.to_string());
    }

    #[test]
    fn a_collector_that_hangs_up_is_noticed_before_the_next_message() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut stream = Stream::connect(&address, None).unwrap();
        drop(listener.accept().unwrap());
        let lost = loop {
            if let Err(error) = stream.progress() {
                break error;
            }
        };
        assert_eq!(lost.kind(), ErrorKind::UnexpectedEof);
    }
}
