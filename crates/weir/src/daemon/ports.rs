//! The ports of a pair, opened as their driver and its traffic want them.

use anyhow::{Context, Result};
use weir_engine::policy::Policy;
use weir_port::{
    Interface, KernelFilter, PacketOptions, PacketPort, Port, TapOptions, TapPort, XdpOptions,
    XdpPort,
};

use super::carry::Carrier;
use super::relay::Ports;
use crate::config::settings::{Driver, Pair};

/// Slots of the host port's ring. Hosts send RoCE frames, which fit a slot, and super-packets,
/// which fit none: smaller slots than the MTU's hold twice as many frames in the same memory,
/// 40 ms of 100,000 a second.
const HOST_RING_SLOTS: usize = 4096;
/// Slots of the wire port's ring, each for a frame of the MTU: 24 MiB at MTU 9000, 25 ms of 100,000
/// frames a second. With the host port's 19 MiB an idle gateway stays below 64.
const WIRE_RING_SLOTS: usize = 2560;
/// The longest RoCE frame: Ethernet, IPv6, UDP, BTH, RETH, immediate data, 4096 bytes, ICRC.
const ROCE_FRAME_LEN_MAX: usize = 14 + 40 + 8 + 12 + 16 + 4 + 4096 + 4;
const ETHERNET_LEN: usize = 14;
/// The longest name of an interface.
const INTERFACE_NAME_MAX: usize = 15;

/// Opens the ports of `pair`, which `carrier` may take flows from.
///
/// # Errors
/// Which cannot be opened, and why.
pub fn open(pair: &Pair, policy: &Policy, carrier: Option<&Carrier>) -> Result<Ports> {
    // The fast path's filter is the first that lets a frame in: it counts them all.
    let filter = carrier.map(|_| KernelFilter::nothing());
    let one = |interface: &str, options: PacketOptions| -> Result<Box<dyn Port + Send>> {
        let options = PacketOptions { filter: filter.clone(), ..options };
        Ok(match pair.driver {
            Driver::Packet => {
                let port = PacketPort::open(interface, options)?;
                if let Some(carrier) = carrier {
                    port.filter_fast_path(carrier.kernel())
                        .with_context(|| format!("{interface}: cannot filter its socket"))?;
                }
                Box::new(port)
            }
            Driver::Xdp => Box::new(XdpPort::open(interface, &XdpOptions::default())?),
        })
    };
    let host_mtu = Interface::find(&pair.host)?.mtu()? as usize;
    let host = PacketOptions {
        ring_slots: HOST_RING_SLOTS,
        slot_frame_len: Some(ROCE_FRAME_LEN_MAX.min(host_mtu + ETHERNET_LEN)),
        ..PacketOptions::default()
    };
    let own = match &policy.own {
        None => None,
        Some(own) => {
            let mut name = format!("weir-{}", pair.name);
            name.truncate(INTERFACE_NAME_MAX);
            let options = TapOptions {
                mtu: policy.wire_mtu.into(),
                mac: Some(own.mac.0),
                addresses: own.addresses.clone(),
                ..TapOptions::default()
            };
            Some(Box::new(TapPort::open(&name, &options)?) as Box<dyn Port + Send>)
        }
    };
    let wire = PacketOptions { ring_slots: WIRE_RING_SLOTS, ..PacketOptions::default() };
    Ok(Ports {
        host: one(&pair.host, host)?,
        wire: one(&pair.wire, wire)?,
        own,
        kernel: Vec::new(),
    })
}
