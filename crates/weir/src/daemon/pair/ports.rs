//! The ports of a pair, opened as their driver and its traffic want them.

use anyhow::{Context, Result};
use weir_engine::policy::Policy;
use weir_port::{
    Fanout, FanoutMode, Interface, KernelFilter, PacketOptions, PacketPort, Port, SteeredSide,
    Steering, TapOptions, TapPort, XdpOptions, XdpPort,
};

use crate::config::settings::{Driver, Pair};
use crate::daemon::pair::fast_path::FastPathControl;
use crate::daemon::pair::gate::SharedGate;
use crate::daemon::pair::relay::Ports;

/// Slots of the host port's ring. Hosts send RoCE frames, which fit a slot, and super-packets,
/// which fit none: smaller slots than the MTU's hold twice as many frames in the same memory,
/// 40 ms of 100,000 a second.
const HOST_RING_SLOTS: usize = 4096;
/// Bytes of frames in the wire port's ring, whose slots take one of the MTU: 2,559 at MTU 9000,
/// 25 ms of 100,000 frames a second. With the host port's 19 MiB an idle gateway stays below 64.
const WIRE_RING_BYTES: usize = 22 << 20;
/// Slots of it at most: 9 ms of the 500,000 frames a second of a TCP stream at MTU 1500. Twice as
/// many cost that stream 5 %, for all of a ring is used in turn and none of it stays in a cache.
const WIRE_RING_SLOTS_MAX: usize = 4608;
/// The longest RoCE frame: Ethernet, IPv6, UDP, BTH, RETH, immediate data, 4096 bytes, ICRC.
const ROCE_FRAME_LEN_MAX: usize = 14 + 40 + 8 + 12 + 16 + 4 + 4096 + 4;
const ETHERNET_LEN: usize = 14;

/// Opens the ports of `pair`, which `fast_path` may take flows from, behind `gate`.
///
/// # Errors
/// Which cannot be opened, and why.
pub fn open(
    pair: &Pair,
    policy: &Policy,
    fast_path: Option<&FastPathControl>,
    gate: Option<&SharedGate>,
) -> Result<Ports> {
    // The fast path's filter, or the gate's, is the first that lets a frame in.
    let is_filtered = fast_path.is_some() || gate.is_some();
    let filter = is_filtered.then(KernelFilter::nothing);
    let one = |interface: &str, side, options: PacketOptions| -> Result<Box<dyn Port + Send>> {
        let options = PacketOptions { filter: filter.clone(), ..options };
        Ok(match pair.driver {
            Driver::Packet => {
                let port = PacketPort::open(interface, options)?;
                match (fast_path, gate) {
                    // It asks the gate itself.
                    (Some(fast_path), _) => port.filter_fast_path(fast_path.kernel()),
                    (None, Some(gate)) => gate.filter(&port),
                    (None, None) => Ok(()),
                }
                .with_context(|| format!("{interface}: cannot filter its socket"))?;
                Box::new(port)
            }
            Driver::Xdp => {
                let options = XdpOptions::default();
                Box::new(match gate {
                    Some(gate) => {
                        gate.open(|gate| XdpPort::open_behind(interface, &options, gate, side))?
                    }
                    None => XdpPort::open(interface, &options)?,
                })
            }
        })
    };
    Ok(Ports {
        host: one(&pair.host, SteeredSide::Host, host_options(pair)?)?,
        wire: one(&pair.wire, SteeredSide::Wire, wire_options(pair)?)?,
        own: own_port(pair, policy)?,
        kernel: Vec::new(),
    })
}

/// Opens the ports of `pair` for each of its workers, in their order, which `steering` shares the
/// frames out among, and of whose `fast_paths`, if there are any, each may take its worker's flows.
/// Frames are taken once all are open.
///
/// # Errors
/// As [`open`].
pub fn open_several(
    pair: &Pair,
    policy: &Policy,
    steering: &mut Steering,
    fast_paths: &[FastPathControl],
    gate: Option<&SharedGate>,
) -> Result<Vec<Ports>> {
    match pair.driver {
        Driver::Packet => open_groups(pair, policy, steering, fast_paths, gate),
        Driver::Xdp => open_queues(pair, policy, steering, gate),
    }
}

/// All queues of each port, which the workers share by a socket each on every queue.
fn open_queues(
    pair: &Pair,
    policy: &Policy,
    steering: &mut Steering,
    gate: Option<&SharedGate>,
) -> Result<Vec<Ports>> {
    let (options, workers) = (XdpOptions::default(), pair.workers);
    let mut open = |interface: &str, side: SteeredSide| {
        let steering = (&mut *steering, side);
        match gate {
            Some(gate) => gate.open(|gate| {
                XdpPort::open_several(interface, &options, workers, steering, Some(gate))
            }),
            None => XdpPort::open_several(interface, &options, workers, steering, None),
        }
    };
    let host = open(&pair.host, SteeredSide::Host)?;
    let wire = open(&pair.wire, SteeredSide::Wire)?;
    let mut own = own_port(pair, policy)?;
    let mut ports = |(host, wire): (XdpPort, XdpPort)| {
        let (host, wire) = (Box::new(host), Box::new(wire));
        Ports { host, wire, own: own.take(), kernel: Vec::new() }
    };
    Ok(host.into_iter().zip(wire).map(&mut ports).collect())
}

/// A group of sockets at each port, one a worker.
fn open_groups(
    pair: &Pair,
    policy: &Policy,
    steering: &Steering,
    fast_paths: &[FastPathControl],
    gate: Option<&SharedGate>,
) -> Result<Vec<Ports>> {
    let mut opened = Vec::new();
    for worker in 0..pair.workers {
        let one = |interface: &str, options: PacketOptions, program| -> Result<PacketPort> {
            let group = Interface::find(interface)?.index()? as u16;
            let options = PacketOptions {
                fanout: Some(Fanout { group, mode: FanoutMode::Program }),
                filter: Some(KernelFilter::nothing()),
                ..options
            };
            let mut port = PacketPort::open(interface, options)?;
            if worker == 0 {
                port.steer_by(program)
                    .with_context(|| format!("{interface}: cannot steer its frames"))?;
            }
            Ok(port)
        };
        let host = one(&pair.host, host_options(pair)?, steering.host()?)?;
        opened.push((host, one(&pair.wire, wire_options(pair)?, steering.wire()?)?));
    }
    let mut own = own_port(pair, policy)?;
    let mut fast_paths = fast_paths.iter();
    let mut start = |(mut host, mut wire): (PacketPort, PacketPort)| -> Result<Ports> {
        let fast_path = fast_paths.next();
        for port in [&mut host, &mut wire] {
            match (fast_path, gate) {
                // It asks the gate itself.
                (Some(fast_path), _) => port.filter_fast_path(fast_path.kernel())?,
                (None, Some(gate)) => gate.filter(port)?,
                (None, None) => port.start_receiving()?,
            }
        }
        let (host, wire) = (Box::new(host), Box::new(wire));
        Ok(Ports { host, wire, own: own.take(), kernel: Vec::new() })
    };
    opened.into_iter().map(&mut start).collect()
}

fn host_options(pair: &Pair) -> Result<PacketOptions> {
    let host_mtu = Interface::find(&pair.host)?.mtu()? as usize;
    Ok(PacketOptions {
        ring_slots: HOST_RING_SLOTS,
        slot_frame_len: Some(ROCE_FRAME_LEN_MAX.min(host_mtu + ETHERNET_LEN)),
        ..PacketOptions::default()
    })
}

fn wire_options(pair: &Pair) -> Result<PacketOptions> {
    let frame_len = Interface::find(&pair.wire)?.mtu()? as usize + ETHERNET_LEN;
    let ring_slots = (WIRE_RING_BYTES / frame_len).min(WIRE_RING_SLOTS_MAX);
    Ok(PacketOptions { ring_slots, ..PacketOptions::default() })
}

/// Towards the gateway's own kernel, if it has an address.
fn own_port(pair: &Pair, policy: &Policy) -> Result<Option<Box<dyn Port + Send>>> {
    let Some(own) = &policy.own else { return Ok(None) };
    let options = TapOptions {
        mtu: policy.wire_mtu.into(),
        mac: Some(own.mac.0),
        addresses: own.addresses.clone(),
        ..TapOptions::default()
    };
    Ok(Some(Box::new(TapPort::open(&pair.own_port(), &options)?)))
}
