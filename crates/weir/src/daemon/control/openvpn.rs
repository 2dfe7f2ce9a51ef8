//! OpenVPN's daemons, which end tunnels of a pair (docs/adr/0170): their devices, their start,
//! their restart, their end with the gateway, and what they say of their clients.
//!
//! ```text
//!   wire --> punt --> TAP of the own address --> openvpn, as nobody --> device --> plain --> host
//! ```
//!
//! A daemon has no privilege from its first instruction: the device is made for it, its
//! configuration comes by a pipe, and the kernel kills it when this process is gone, however that
//! ended.

use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use weir_port::{PacketOptions, PacketPort, Port, TunDevice};
use weir_store::clock;
use zeroize::Zeroizing;

use crate::api::dto::{OpenVpnClientSnapshot, OpenVpnSnapshot, PairSnapshot};
use crate::config::openvpn::read_bounded;
use crate::config::settings::{Pair, Settings, Tunnel};

/// Whom daemons run as: "nobody" and its group, on every Linux.
const NOBODY: u32 = 65_534;
/// Slots of a device's ring: 10 ms of 100,000 packets a second.
const RING_SLOTS: usize = 1024;
/// A daemon that ends is started again after so long, twice as long each time.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// A daemon that ran so long begins with the shortest again.
const STEADY: Duration = Duration::from_secs(60);
/// Between two questions for its clients.
const ASK_PERIOD: Duration = Duration::from_secs(1);
/// How long a daemon may take to end before it is killed.
const END_PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
/// How long to wait for a device that the daemon of a killed gateway still holds.
const DEVICE_PATIENCE: Duration = Duration::from_secs(5);
const LINE_BYTES_MAX: u64 = 4096;
/// Clients of a daemon that are shown.
const CLIENTS_MAX: usize = 1024;
/// What a daemon says when it listens, and when it serves: with a static key, once its client came.
const LISTENS: &str = " link remote: ";
const SERVES: &str = "Initialization Sequence Completed";
/// The last line of its list of clients, and what it prints for each signal that we send.
const LIST_ENDS: &str = "END";
const INTERRUPTED: &str = "event_wait";

/// All tunnels of a gateway. Dropping it ends the daemons and removes the devices.
#[derive(Debug, Default)]
pub struct Tunnels {
    // The daemons end before their devices go.
    daemons: Vec<Daemon>,
    devices: Vec<TunDevice>,
    asked: Option<Instant>,
}

impl Tunnels {
    /// Makes the devices. No daemon runs yet.
    ///
    /// # Errors
    /// A device cannot be made, or is still held.
    pub fn make(settings: &Settings) -> Result<Self> {
        let mut made = Self::default();
        for (_, name, tunnel) in tunnels(settings) {
            let begun = clock::now();
            let device = loop {
                let mtu = u32::from(tunnel.mtu_bytes);
                match TunDevice::open(&tunnel.device, mtu, NOBODY) {
                    Err(error) if begun.elapsed() < DEVICE_PATIENCE && is_held(&error) => {
                        std::thread::sleep(LOOK);
                    }
                    device => break device,
                }
            };
            made.devices.push(device.with_context(|| format!("tunnel {name}"))?);
        }
        Ok(made)
    }

    /// Starts the daemons.
    ///
    /// # Errors
    /// No thread to be had.
    pub fn start(&mut self, settings: &Settings) -> Result<()> {
        for (pair, name, tunnel) in tunnels(settings) {
            let local = pair.addresses.first().map(|it| it.address);
            self.daemons.push(Daemon::start(name.to_owned(), tunnel.clone(), local)?);
        }
        Ok(())
    }

    /// Asks the daemons for their clients, now and then.
    pub fn tick(&mut self, now: Instant) {
        if self.daemons.is_empty()
            || self.asked.is_some_and(|asked| now.duration_since(asked) < ASK_PERIOD)
        {
            return;
        }
        self.asked = Some(now);
        for daemon in &self.daemons {
            let state = daemon.shared.lock();
            // Before it serves, the signal would end it.
            if state.shown.state == State::Serving.name() {
                state.signal(Signal::USR2);
            }
        }
    }

    /// Adds what the daemons do to what the status shows of their peers.
    pub fn show(&self, pairs: &mut [PairSnapshot]) {
        let mut peers = pairs.iter_mut().flat_map(|pair| &mut pair.peers);
        for daemon in &self.daemons {
            // In the order of the pairs and of their peers, as these are.
            if let Some(peer) = peers.find(|it| it.name == daemon.name) {
                peer.openvpn = Some(daemon.shared.lock().shown.clone());
            }
        }
    }
}

/// Opens ports on the devices of `pair`, in the order of its peers, before their daemons run.
///
/// # Errors
/// A device is gone.
pub fn open_ports(pair: &Pair) -> Result<Vec<Box<dyn Port + Send>>> {
    let open = |device: &str| -> Result<Box<dyn Port + Send>> {
        let options = PacketOptions {
            ring_slots: RING_SLOTS,
            promiscuous: false,
            ..PacketOptions::default()
        };
        Ok(Box::new(PacketPort::open(device, options)?))
    };
    devices(pair).into_iter().map(open).collect()
}

/// The tunnel devices of `pair`, in the order of its peers.
pub fn devices(pair: &Pair) -> Vec<&str> {
    let tunnels = pair.peers.iter().filter_map(|peer| peer.tunnel());
    tunnels.map(|tunnel| tunnel.device.as_str()).collect()
}

fn tunnels(settings: &Settings) -> impl Iterator<Item = (&Pair, &str, &Tunnel)> {
    settings.pairs.iter().flat_map(|pair| {
        let peers = pair.peers.iter();
        peers.filter_map(move |peer| Some((pair, peer.name.as_str(), peer.tunnel()?)))
    })
}

fn is_held(error: &weir_port::OpenError) -> bool {
    error.source.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Listening,
    Serving,
    Ended,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Listening => "listening",
            Self::Serving => "serving",
            Self::Ended => "ended",
        }
    }
}

/// A daemon and the thread that looks after it.
#[derive(Debug)]
struct Daemon {
    name: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_stopped: AtomicBool,
    state: Mutex<Seen>,
}

/// What is known of a daemon.
#[derive(Debug, Default)]
struct Seen {
    /// While it runs, and until it was waited for.
    pid: Option<Pid>,
    shown: OpenVpnSnapshot,
    /// A list of its clients that is being told.
    told: Vec<OpenVpnClientSnapshot>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }
}

impl Seen {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // It may have ended just now; it was not waited for, so it is nobody else.
            let _ = kill_process(pid, signal);
        }
    }

    fn set(&mut self, state: State) {
        self.shown.state = state.name().to_owned();
    }

    /// Takes in a line that it said.
    fn hear(&mut self, line: &str) {
        if let Some(client) = client(line) {
            if self.told.len() < CLIENTS_MAX {
                self.told.push(client);
            }
        } else if line == LIST_ENDS {
            self.shown.clients = std::mem::take(&mut self.told);
        } else if line.contains(SERVES) {
            self.set(State::Serving);
        } else if !is_of_list(line) && !line.starts_with(INTERRUPTED) && !line.is_empty() {
            if line.contains(LISTENS) && self.shown.state == State::Starting.name() {
                self.set(State::Listening);
            }
            line.clone_into(&mut self.shown.last_line);
        }
    }
}

impl Daemon {
    fn start(name: String, tunnel: Tunnel, local: Option<IpAddr>) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        {
            let mut seen = shared.lock();
            (seen.shown.port, seen.shown.device) = (tunnel.port, tunnel.device.clone());
            seen.set(State::Starting);
        }
        let (theirs, label) = (Arc::clone(&shared), name.clone());
        let thread = std::thread::Builder::new()
            .name(format!("ovpn {name}"))
            .spawn(move || keep(&label, &tunnel, local, &theirs))?;
        Ok(Self { name, shared, thread: Some(thread) })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        let begun = clock::now();
        let mut signal = Signal::TERM;
        while !thread.is_finished() {
            self.shared.lock().signal(signal);
            if begun.elapsed() > END_PATIENCE {
                signal = Signal::KILL;
            }
            std::thread::sleep(LOOK);
        }
        let _ = thread.join();
    }
}

/// Runs the daemon until it is stopped, anew whenever it ends. The thread that started it must live
/// as long: the kernel kills it with that.
fn keep(name: &str, tunnel: &Tunnel, local: Option<IpAddr>, shared: &Shared) {
    let mut backoff = BACKOFF_MIN;
    while !shared.is_stopped() {
        let begun = clock::now();
        shared.lock().set(State::Starting);
        if let Err(error) = run(tunnel, local, shared) {
            shared.lock().shown.last_line = format!("{error:#}");
        }
        if shared.is_stopped() {
            return;
        }
        backoff = if begun.elapsed() > STEADY { BACKOFF_MIN } else { backoff };
        let said = {
            let mut seen = shared.lock();
            seen.set(State::Ended);
            seen.shown.clients.clear();
            seen.shown.restarts += 1;
            seen.shown.last_line.clone()
        };
        tracing::warn!(
            tunnel = name,
            said,
            again_in_ms = backoff.as_millis() as u64,
            "OpenVPN ended"
        );
        let until = clock::now() + backoff;
        while clock::now() < until && !shared.is_stopped() {
            std::thread::sleep(LOOK);
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Runs the daemon once, to its end.
fn run(tunnel: &Tunnel, local: Option<IpAddr>, shared: &Shared) -> Result<()> {
    let text = Zeroizing::new(read_bounded(&tunnel.server).map_err(anyhow::Error::msg)?);
    let (said, mut child) = spawn(tunnel, local)?;
    {
        let mut seen = shared.lock();
        (seen.pid, seen.shown.pid) = (Pid::from_raw(child.id() as i32), Some(child.id()));
    }
    let given = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    listen(said, shared);
    loop {
        let mut seen = shared.lock();
        if child.try_wait()?.is_some() {
            (seen.pid, seen.shown.pid) = (None, None);
            break;
        }
        drop(seen);
        std::thread::sleep(LOOK);
    }
    Ok(given.transpose().map(drop)?)
}

fn listen(said: PipeReader, shared: &Shared) {
    let mut said = BufReader::new(said);
    let mut line = Vec::new();
    loop {
        line.clear();
        match said.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => shared.lock().hear(String::from_utf8_lossy(&line).trim_end()),
        }
    }
}

fn spawn(tunnel: &Tunnel, local: Option<IpAddr>) -> Result<(PipeReader, Child)> {
    let (said, says) = std::io::pipe()?;
    let mut command = Command::new("setpriv");
    let nobody = NOBODY.to_string();
    command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", "--no-new-privs"]);
    command.args(["--inh-caps=-all", "--bounding-set=-all", "--pdeathsig", "KILL", "--"]);
    command.args(["openvpn", "--config", "stdin"]);
    command.args(daemon_options(tunnel, local));
    command.current_dir(Path::new("/"));
    let child = command
        .stdin(Stdio::piped())
        .stdout(says.try_clone()?)
        .stderr(says)
        .spawn()
        .context("cannot run `setpriv` (Debian: util-linux)")?;
    Ok((said, child))
}

/// What overrules the file: the device is there and is not for the daemon to set up.
fn daemon_options(tunnel: &Tunnel, local: Option<IpAddr>) -> Vec<String> {
    let mut options: Vec<String> = ["--dev", &tunnel.device, "--dev-type", "tun"]
        .into_iter()
        .chain(["--port", &tunnel.port.to_string()])
        .chain(["--ifconfig-noexec", "--route-noexec", "--disable-dco", "--persist-tun"])
        .chain(["--persist-key", "--suppress-timestamps", "--status-version", "2"])
        .chain(["--script-security", "0", "--verb", "3"])
        .map(str::to_owned)
        .collect();
    if let Some(local) = local {
        options.extend(["--local".to_owned(), local.to_string()]);
    }
    options
}

/// A line about a client, by version 2 of OpenVPN's status: name, its address outside, inside
/// (IPv4, IPv6), bytes received and sent, since when (text, seconds since 1970), and more.
fn client(line: &str) -> Option<OpenVpnClientSnapshot> {
    let mut fields = line.strip_prefix("CLIENT_LIST,")?.split(',');
    let mut text = || fields.next().map(str::to_owned);
    let (name, endpoint, address, _v6) = (text()?, text()?, text()?, text()?);
    let (received, sent, _since) = (text()?, text()?, text()?);
    Some(OpenVpnClientSnapshot {
        name,
        endpoint,
        address,
        received_bytes: received.parse().ok()?,
        sent_bytes: sent.parse().ok()?,
        connected_unix_seconds: text()?.parse().ok()?,
    })
}

/// Whether the line is another one of the status.
fn is_of_list(line: &str) -> bool {
    let begins = [
        "TITLE,",
        "TIME,",
        "HEADER,",
        "ROUTING_TABLE,",
        "GLOBAL_STATS,",
        // Of a daemon with a static key.
        "OpenVPN STATISTICS",
        "Updated,",
        "TUN/TAP ",
        "TCP/UDP ",
        "Auth read bytes,",
    ];
    begins.iter().any(|it| line.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemons_words_become_its_state_and_its_clients() {
        let mut seen = Seen::default();
        seen.set(State::Starting);
        seen.hear("UDPv4 link remote: [AF_UNSPEC]");
        assert_eq!(seen.shown.state, "listening");
        let said = "UDPv4 link local (bound): [AF_INET]192.0.2.1:1194\n\
                    Initialization Sequence Completed\n\
                    TITLE,OpenVPN 2.6.14\n\
                    HEADER,CLIENT_LIST,Common Name,Real Address\n\
                    CLIENT_LIST,client-1,192.0.2.2:36311,10.98.0.2,,5432,4321,\
                    2026-11-24 21:00:00,1795467600,UNDEF,0,0,AES-256-GCM\n\
                    ROUTING_TABLE,10.98.0.2,client-1,192.0.2.2:36311,x,1\n\
                    END\n\
                    event_wait : Interrupted system call (fd=-1,code=4)";
        said.lines().for_each(|line| seen.hear(line));
        assert_eq!(seen.shown.state, "serving");
        let [client] = &seen.shown.clients[..] else { panic!("{seen:?}") };
        assert_eq!(
            (client.name.as_str(), client.endpoint.as_str()),
            ("client-1", "192.0.2.2:36311")
        );
        assert_eq!((client.received_bytes, client.sent_bytes), (5432, 4321));
        assert_eq!(client.connected_unix_seconds, 1_795_467_600);
        assert_eq!(seen.shown.last_line, "UDPv4 link local (bound): [AF_INET]192.0.2.1:1194");
        // The next list takes its place.
        seen.hear("END");
        assert!(seen.shown.clients.is_empty());
        seen.hear("CLIENT_LIST,half");
        assert!(seen.told.is_empty());
    }
}
