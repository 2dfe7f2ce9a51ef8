//! Several ports on one interface, one a worker: the kernel hands each frame to one of them, by a
//! program of the sockets' fanout group (bpf/steer.bpf.c, docs/adr/0025).
//!
//! ```text
//!   host port --> flow's hash ------------------+-> PacketPort 0, 1, ... of the group
//!   wire port --> SPI's lowest bits, or hash ---+
//! ```
//!
//! AF_XDP knows no groups: there an XDP program of the same steps redirects a frame to one of
//! several sockets of the queue that it came by ([`crate::XdpPort::open_several`]).
//!
//! A group's members are numbered in the order in which they joined; when the interface goes down
//! and up again the kernel joins them again in the order in which they were opened. So ports are
//! opened in the order of their workers, and closed together.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap, MapData, MapError, XskMap};
use aya::programs::{ProgramError, SocketFilter, Xdp};
use aya::{Ebpf, EbpfError, EbpfLoader};
use weir_wire::frame::Link;
use weir_wire::ip::Ipv6Header;
use weir_wire::parse::{Network, parse};

use crate::sys::program::test_run;
use crate::sys::socket::Socket;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// Workers of one pair, at most: the four lowest bits of an SPI tell one from the other.
pub const WORKERS_MAX: usize = 16;

/// Prefixes of peers, at most.
pub const PREFIXES_MAX: usize = 65_536;

/// UDP ports of tunnels, at most.
pub const TUNNEL_PORTS_MAX: usize = 8;

/// Associations of front ends, at most.
pub const SPIS_MAX: usize = 16_384;

/// All headers that a program looks at, without IPv6 extension headers: Ethernet, two VLAN tags,
/// the longest IPv4 header, ports.
const HEADERS_MAX: usize = 14 + 8 + 60 + TRANSPORT_LEN;

/// Ports, and an SPI behind them.
const TRANSPORT_LEN: usize = 12;

/// Where an IPv6 header names the one behind it.
const IPV6_NEXT_HEADER: usize = 6;

const HOST: &str = "weir_steer_host";
const WIRE: &str = "weir_steer_wire";

/// A port of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteeredSide {
    /// The host's.
    Host,
    /// The wire's.
    Wire,
}

/// What the program must know of a pair.
#[derive(Clone, Debug, Default)]
pub struct SteeringOptions {
    /// Its workers, 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// UDP port of handshakes, which worker 0 takes.
    pub keying_port: Option<u16>,
    /// The gateway's own addresses, two at most; what comes to them and is no ESP, worker 0 takes.
    pub own: Vec<IpAddr>,
    /// Whether front ends may choose SPIs ([`Steering::take_spi`]).
    pub has_front_ends: bool,
    /// UDP ports at which datagrams carry packets, [`TUNNEL_PORTS_MAX`] at most: their source ports
    /// tell nothing of a flow's other direction.
    pub tunnel_ports: Vec<u16>,
    /// Whether the ports are AF_XDP sockets, not packet sockets.
    pub bypasses_kernel: bool,
}

/// Why frames cannot be steered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteeringError {
    /// The kernel did not take the program.
    #[error("the kernel refuses the steering program: {0}; run as root, on Linux 5.17 or later")]
    Load(#[from] EbpfError),
    /// Likewise.
    #[error("the kernel refuses the steering program: {0}; run as root, on Linux 5.17 or later")]
    Program(#[from] ProgramError),
    /// A table of it cannot be written.
    #[error("the kernel's tables of {PREFIXES_MAX} prefixes of peers and {SPIS_MAX} SPIs: {0}")]
    Map(#[from] MapError),
    /// The process may have no more files.
    #[error("the steering program cannot be shared: {0}; raise the limit of open files")]
    Descriptor(io::Error),
}

/// Which worker has the flow of a packet that no port received as it is: one made whole from
/// fragments. The programs that steer frames answer, by the same tables.
#[derive(Debug)]
pub struct FlowWorkers {
    host: OwnedFd,
    wire: OwnedFd,
}

impl FlowWorkers {
    /// The worker that a packet from `side` would come to, from its Ethernet header on.
    ///
    /// # Errors
    /// The kernel refuses to run the program.
    pub fn worker_of(&self, side: SteeredSide, packet: &[u8]) -> io::Result<usize> {
        let program = match side {
            SteeredSide::Host => &self.host,
            SteeredSide::Wire => &self.wire,
        };
        Ok(test_run(program.as_fd(), &steered_headers(packet))? as usize)
    }
}

/// What a program looks at of a packet: the outer VLAN tag is off, as the kernel takes it off what
/// it receives, and so are IPv6 extension headers, of which there may be more than a frame has.
fn steered_headers(packet: &[u8]) -> Vec<u8> {
    let parsed = parse(packet, Link::Ethernet, packet.len() as u32);
    let (network, transport) = (parsed.network_offset.into(), parsed.transport_offset.into());
    let ipv6 = network..network + Ipv6Header::LEN;
    let is_chained = parsed.network == Network::Ipv6 && transport > ipv6.end;
    let mut headers = match (is_chained, packet.get(ipv6.clone()), packet.get(transport..)) {
        (true, Some(header), Some(rest)) => {
            let mut bare = header.to_vec();
            bare[IPV6_NEXT_HEADER] = parsed.protocol;
            [&packet[..network], &bare, &rest[..rest.len().min(TRANSPORT_LEN)]].concat()
        }
        _ => packet[..packet.len().min(HEADERS_MAX)].to_vec(),
    };
    if let Some([0x81, 0x00] | [0x88, 0xa8]) = headers.get(12..14)
        && headers.len() >= 16
    {
        headers.drain(12..16);
    }
    headers
}

/// The programs of both ports of a pair, and the tables that they share.
pub struct Steering {
    // Holds the programs.
    object: Ebpf,
    peers: LpmTrie<MapData, [u8; 16], u32>,
    spis: HashMap<MapData, u32, u32>,
    openings: Array<MapData, u32>,
}

impl std::fmt::Debug for Steering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steering").finish_non_exhaustive()
    }
}

impl Steering {
    /// Loads the programs, without a peer: all workers share everything.
    ///
    /// # Errors
    /// [`SteeringError`].
    pub fn load(options: &SteeringOptions) -> Result<Self, SteeringError> {
        let workers = options.workers.clamp(1, WORKERS_MAX) as u32;
        let keying_port = u32::from(options.keying_port.unwrap_or(0));
        let mut own = [[0_u8; 16]; 2];
        for (place, address) in own.iter_mut().zip(&options.own) {
            *place = mapped(*address);
        }
        let mut tunnel_ports = [0_u16; TUNNEL_PORTS_MAX];
        for (place, port) in tunnel_ports.iter_mut().zip(&options.tunnel_ports) {
            *place = *port;
        }
        let has_front_ends = u32::from(options.has_front_ends);
        let mut loader = EbpfLoader::new();
        loader
            .override_global("has_front_ends", &has_front_ends, true)
            .override_global("workers", &workers, true)
            .override_global("keying_port", &keying_port, true)
            .override_global("tunnel_ports", &tunnel_ports, true)
            .override_global("own", &own, true);
        let mut object = loader.load(OBJECT)?;
        let mut map = |name: &str| {
            object.take_map(name).ok_or_else(|| MapError::InvalidName { name: name.into() })
        };
        let (peers, spis) = (LpmTrie::try_from(map("peers")?)?, HashMap::try_from(map("spis")?)?);
        let openings = Array::try_from(map("openings")?)?;
        for name in [HOST, WIRE] {
            let program = object.program_mut(name).ok_or(ProgramError::NotLoaded)?;
            <&mut SocketFilter>::try_from(program)?.load()?;
        }
        Ok(Self { object, peers, spis, openings })
    }

    /// The program of the host port's group.
    ///
    /// # Errors
    /// Never, once it was loaded.
    pub fn host(&self) -> Result<BorrowedFd<'_>, SteeringError> {
        self.program(HOST)
    }

    /// The program of the wire port's group.
    ///
    /// # Errors
    /// Never, once it was loaded.
    pub fn wire(&self) -> Result<BorrowedFd<'_>, SteeringError> {
        self.program(WIRE)
    }

    /// Who tells which worker has a packet's flow.
    ///
    /// # Errors
    /// [`SteeringError`]: no descriptor is left.
    pub fn flow_workers(&self) -> Result<FlowWorkers, SteeringError> {
        let cloned =
            |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(SteeringError::Descriptor);
        Ok(FlowWorkers { host: cloned(self.host()?)?, wire: cloned(self.wire()?)? })
    }

    /// Loads the XDP program of a side, which shares frames out among `sockets`, by worker and
    /// queue; not attached yet.
    ///
    /// # Errors
    /// [`SteeringError`].
    pub(crate) fn bypass(
        &mut self,
        side: SteeredSide,
        sockets: &[Vec<&Socket>],
    ) -> Result<&mut Xdp, SteeringError> {
        let (map, program) = match side {
            SteeredSide::Host => ("host_sockets", "weir_bypass_host"),
            SteeredSide::Wire => ("wire_sockets", "weir_bypass_wire"),
        };
        let missing = || MapError::InvalidName { name: map.into() };
        let mut places = XskMap::try_from(self.object.map_mut(map).ok_or_else(missing)?)?;
        for (worker, of_queues) in (0..).zip(sockets) {
            for (queue, socket) in (0..).zip(of_queues) {
                places.set(queue * WORKERS_MAX as u32 + worker, socket.fd(), 0)?;
            }
        }
        let program = self.object.program_mut(program).ok_or(ProgramError::NotLoaded)?;
        let program: &mut Xdp = program.try_into()?;
        program.load()?;
        Ok(program)
    }

    fn program(&self, name: &str) -> Result<BorrowedFd<'_>, SteeringError> {
        let program = self.object.program(name).ok_or(ProgramError::NotLoaded)?;
        Ok(<&SocketFilter>::try_from(program)?.fd()?.as_fd())
    }

    /// Has `workers` of them share what lies behind a prefix: `address` IPv4-mapped, of which the
    /// first `bits` count.
    ///
    /// # Errors
    /// [`SteeringError::Map`]: the table is full.
    pub fn share(
        &mut self,
        address: [u8; 16],
        bits: u8,
        workers: usize,
    ) -> Result<(), SteeringError> {
        let key = Key::new(u32::from(bits), address);
        Ok(self.peers.insert(&key, workers as u32, 0)?)
    }

    /// Has all workers share what lies behind a prefix, unless a wider one is in the table.
    ///
    /// # Errors
    /// [`SteeringError::Map`]. A prefix that is not there is no error.
    pub fn forget(&mut self, address: [u8; 16], bits: u8) -> Result<(), SteeringError> {
        removed(self.peers.remove(&Key::new(u32::from(bits), address)))
    }

    /// Whether there are peers whose ESP in UDP is opened. Without an own address it may be for
    /// anyone; with one it is for that, whatever is said here.
    ///
    /// # Errors
    /// [`SteeringError::Map`].
    pub fn open_in_udp(&mut self, opens: bool) -> Result<(), SteeringError> {
        Ok(self.openings.set(0, u32::from(opens), 0)?)
    }

    /// Has `worker` take the ESP packets of an SPI whose lowest bits do not name it.
    ///
    /// # Errors
    /// [`SteeringError::Map`]: the table is full.
    pub fn take_spi(&mut self, spi: u32, worker: usize) -> Result<(), SteeringError> {
        Ok(self.spis.insert(spi, worker as u32, 0)?)
    }

    /// Has the lowest bits of an SPI count again.
    ///
    /// # Errors
    /// [`SteeringError::Map`]. An SPI that is not there is no error.
    pub fn forget_spi(&mut self, spi: u32) -> Result<(), SteeringError> {
        removed(self.spis.remove(&spi))
    }

    /// Runs a program once on a frame that no port received; which worker would get it.
    ///
    /// # Errors
    /// The kernel refuses: frames are bounded by a page.
    pub fn trial(&self, program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<usize> {
        Ok(test_run(program, frame)? as usize)
    }
}

/// What was not there is gone, too.
fn removed(result: Result<(), MapError>) -> Result<(), SteeringError> {
    match result {
        Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(())
        }
        other => Ok(other?),
    }
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
