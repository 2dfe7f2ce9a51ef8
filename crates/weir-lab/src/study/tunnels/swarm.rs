//! Many WireGuard clients in one process: each its own key, handshake and socket; one thread seals
//! and sends for all of them, since a thousand processes would measure themselves.
//!
//! Their streams are UDP, each at most a little above what its user wants. Nobody answers: what
//! host A receives by source says what each tunnel kept.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use base64ct::{Base64, Encoding};
use weir_engine::esp::seal::SealingSa;
use weir_engine::policy::{Encapsulation, Mode};
use weir_engine::tunnel::PeerSettings;
use weir_engine::tunnel::handshake::Terms;
use weir_engine::tunnel::key::{Entropy, Identity, PresharedKey, PublicKey};
use weir_engine::tunnel::path::Path;
use weir_engine::tunnel::rekey::Limits;
use weir_engine::tunnel::state::{Effect, Install, Now, Tunnel};

use crate::interrupt;
use crate::netns::Namespace;
use crate::topology::{GATEWAY_V4, HOST_V4};
use crate::traffic::bypass::on_own_thread;
use crate::vpn::PORT;

/// What is offered to each tunnel, Mb/s: a little more than its user wants.
const OFFERED_MBPS: f64 = 55.0;
/// Bytes of an inner packet.
const PACKET: usize = 1420;
/// Packets of one client in a row.
const ROW: usize = 4;
/// UDP port of the streams.
const STREAM_PORT: u16 = 5300;
/// A handshake's answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Handshakes of one client, at most: a busy server asks for cookies, or loses some.
const ATTEMPTS: usize = 10;

/// One client, its tunnel up.
struct Client {
    socket: UdpSocket,
    sealing: SealingSa,
    packet: Vec<u8>,
    sent_bytes: u64,
}

/// Clients that are up.
pub(super) struct Swarm {
    clients: Vec<Client>,
}

/// Whom all clients call.
pub(super) struct Server {
    pub(super) public: PublicKey,
    pub(super) preshared: PresharedKey,
}

/// The kernel's.
struct Random;

impl Entropy for Random {
    fn fill(&mut self, bytes: &mut [u8]) {
        let mut rest = bytes;
        // It gives fewer bytes only when a signal comes.
        while !rest.is_empty() {
            let flags = rustix::rand::GetRandomFlags::empty();
            let count = rustix::rand::getrandom(&mut *rest, flags).unwrap_or(0);
            rest = &mut rest[count..];
        }
    }
}

/// The address of client `number` in its tunnel.
pub(super) fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 100, (number / 250) as u8, (number % 250 + 1) as u8)
}

/// Fresh identities.
///
/// # Errors
/// The cipher library refuses one.
pub(super) fn identities(count: usize) -> Result<Vec<Identity>> {
    let make = |_| Identity::new(Random.seed()).context("the cipher library refuses a key");
    (0..count).map(make).collect()
}

/// A preshared key for all, and its text.
pub(super) fn preshared() -> (PresharedKey, String) {
    let bytes = Random.seed();
    let text = Base64::encode_string(&bytes[..]);
    (PresharedKey::new(bytes), text)
}

impl Swarm {
    /// Handshakes of all of them, one after the other, out of `namespace`.
    ///
    /// # Errors
    /// One gets no answer.
    pub(super) fn connect(
        namespace: &Namespace,
        identities: &[Identity],
        server: &Server,
    ) -> Result<Self> {
        let clients = on_own_thread(|| {
            namespace.enter()?;
            let mut clients = Vec::new();
            for (number, identity) in identities.iter().enumerate() {
                interrupt::check()?;
                let client = Client::connect(number, identity, server);
                clients.push(client.with_context(|| format!("client {}", number + 1))?);
            }
            Ok(clients)
        })?;
        Ok(Self { clients })
    }

    /// Sends for all until `over`.
    fn send(&mut self, over: &AtomicBool) -> Result<()> {
        let begun = Instant::now();
        let mut sealed = vec![0; PACKET + 64];
        while !over.load(Ordering::Relaxed) {
            let allowed = begun.elapsed().as_secs_f64() * OFFERED_MBPS * 1e6 / 8.0;
            let mut moved = false;
            for client in &mut self.clients {
                for _ in 0..ROW {
                    if client.sent_bytes as f64 > allowed {
                        break;
                    }
                    client.send(&mut sealed)?;
                    moved = true;
                }
            }
            if !moved {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    /// Gb/s by client and second that host A received.
    ///
    /// # Errors
    /// A socket breaks, or `poll` ends it.
    pub(super) fn run(
        &mut self,
        host: &Namespace,
        seconds: u32,
        poll: &mut dyn FnMut(f64) -> Result<()>,
    ) -> Result<Vec<Vec<f64>>> {
        let receiver = on_own_thread(|| {
            host.enter()?;
            let socket = UdpSocket::bind((HOST_V4[0], STREAM_PORT))?;
            // What is lost between kernel and this program is no tunnel's loss.
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20)?;
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            Ok(socket)
        })?;
        let count = self.clients.len();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| self.send(&over));
            let receiving = scope.spawn(|| receive(&receiver, count, seconds, &over));
            let begun = Instant::now();
            let polled = loop {
                std::thread::sleep(Duration::from_millis(20));
                let polled = poll(begun.elapsed().as_secs_f64());
                if polled.is_err() || receiving.is_finished() {
                    break polled;
                }
            };
            over.store(true, Ordering::Relaxed);
            let sent = sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let samples = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            polled.and(sent).and(samples)
        })
    }
}

impl Client {
    fn connect(number: usize, identity: &Identity, server: &Server) -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(SocketAddr::from((GATEWAY_V4[0], PORT)))?;
        socket.set_read_timeout(Some(ANSWER))?;
        let install = handshake(&socket, identity, server)?;
        let mut sealing = SealingSa::new(&install.seal, None)?;
        // These keys end with the trial: nothing is written to a disk.
        if let Some(state) = sealing.reservation_needed() {
            sealing.extend_reservation(&state);
        }
        socket.set_nonblocking(true)?;
        Ok(Self { socket, sealing, packet: inner_packet(address(number)), sent_bytes: 0 })
    }

    fn send(&mut self, sealed: &mut [u8]) -> Result<()> {
        if let Some(state) = self.sealing.reservation_needed() {
            self.sealing.extend_reservation(&state);
        }
        let length = self.sealing.packet_len(self.packet.len());
        self.sealing.seal_to(&self.packet, 4, &mut sealed[..length])?;
        match self.socket.send(&sealed[..length]) {
            Ok(_) => self.sent_bytes += self.packet.len() as u64,
            // The port's queue is full: later.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("a client cannot send"),
        }
        Ok(())
    }
}

fn handshake(socket: &UdpSocket, identity: &Identity, server: &Server) -> Result<Box<Install>> {
    let path = Path::to(IpAddr::V4(GATEWAY_V4[0]), PORT);
    let limits = Limits::default();
    let mut answer = vec![0; 2048];
    for _ in 0..ATTEMPTS {
        let mut tunnel = Tunnel::new(identity.clone(), limits, Box::new(Random));
        let begun = Instant::now();
        let now = || -> Result<Now> {
            let elapsed_ns = begun.elapsed().as_nanos() as u64 + 1_000_000_000;
            let unix = SystemTime::now().duration_since(UNIX_EPOCH)?;
            Ok(Now { elapsed_ns, unix_ns: unix.as_nanos() as u64 })
        };
        let settings = PeerSettings {
            public_key: server.public,
            preshared: server.preshared.clone(),
            path: Some(path.clone()),
            terms: Terms {
                mode: Mode::WireGuard,
                encapsulation: Encapsulation::Esp,
                ml_kem: false,
                workers: 1,
            },
            replay_window: 1024,
            path_mtu_max: 0,
        };
        let mut effects = Vec::new();
        tunnel.configure(now()?, limits, vec![settings], &mut effects);
        tunnel.tick(now()?, &mut effects);
        for effect in effects.drain(..) {
            if let Effect::Send { datagram, .. } = effect {
                socket.send(&datagram)?;
            }
        }
        let Ok(length) = socket.recv(&mut answer) else { continue };
        tunnel.handle(now()?, &path, &answer[..length], &mut effects);
        for effect in effects {
            if let Effect::Install(install) = effect {
                return Ok(install);
            }
        }
    }
    bail!("no handshake after {ATTEMPTS} attempts")
}

/// An IPv4 packet with UDP, from a client to host A.
fn inner_packet(from: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x5a; PACKET];
    packet[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet[2..4].copy_from_slice(&(PACKET as u16).to_be_bytes());
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&HOST_V4[0].octets());
    let sum = weir_wire::checksum::ipv4_header(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet[20..22].copy_from_slice(&40_000_u16.to_be_bytes());
    packet[22..24].copy_from_slice(&STREAM_PORT.to_be_bytes());
    packet[24..26].copy_from_slice(&((PACKET - 20) as u16).to_be_bytes());
    // IPv4 allows no checksum.
    packet[26..28].fill(0);
    packet
}

fn receive(
    socket: &UdpSocket,
    count: usize,
    seconds: u32,
    over: &AtomicBool,
) -> Result<Vec<Vec<f64>>> {
    let mut samples = vec![Vec::new(); count];
    let mut bytes = vec![0_u64; count];
    let mut packet = vec![0; 2048];
    let mut last = Instant::now();
    while samples[0].len() < seconds as usize && !over.load(Ordering::Relaxed) {
        if let Ok((length, SocketAddr::V4(from))) = socket.recv_from(&mut packet) {
            let [_, _, high, low] = from.ip().octets();
            let number = usize::from(high) * 250 + usize::from(low).saturating_sub(1);
            if let Some(sum) = bytes.get_mut(number) {
                *sum += length as u64;
            }
        }
        let lasted = last.elapsed().as_secs_f64();
        if lasted >= 1.0 {
            for (samples, sum) in samples.iter_mut().zip(&mut bytes) {
                samples.push(std::mem::take(sum) as f64 * 8.0 / lasted / 1e9);
            }
            last = Instant::now();
        }
    }
    ensure!(!samples[0].is_empty(), "no whole second");
    Ok(samples)
}
