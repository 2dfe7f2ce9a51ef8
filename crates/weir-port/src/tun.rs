//! A tunnel device whose other end a daemon of the gateway's own holds (OpenVPN): IP packets that
//! we send by it are read by the daemon, and what the daemon writes is received from it, by a
//! [`crate::PacketPort`].
//!
//! The device is there before the daemon and longer than it: the guard stays on it, and a daemon
//! that is killed and started again finds it as it was.

use std::io;

use crate::interface::Interface;
use crate::netlink::{Netlink, RTM_DELLINK};
use crate::packet::{OpenError, Opening};
use crate::sys::tun;

/// `struct ifinfomsg`.
const LINK_HEADER_LEN: usize = 16;
/// Packets that wait for the daemon: 4 ms of 250,000 a second.
const QUEUE_PACKETS: u32 = 1000;

/// A tunnel device of ours. Dropping it removes it.
#[derive(Debug)]
pub struct TunDevice {
    name: String,
    index: i32,
}

impl TunDevice {
    /// Makes the device `name` in the calling thread's network namespace, or takes over the one
    /// that a killed gateway left, and switches it on. The user numbered `owner` may open its
    /// other end.
    ///
    /// # Errors
    /// [`OpenError`]: no `/dev/net/tun`, no privilege, or a daemon still holds it.
    pub fn open(name: &str, mtu: u32, owner: u32) -> Result<Self, OpenError> {
        let opening = Opening(name);
        opening.step("create the tunnel device", tun::create_persistent(name, owner))?;
        let interface = opening.step("find it", Interface::find(name))?;
        let index = opening.step("read its number", interface.index())?;
        let device = Self { name: name.to_owned(), index };
        opening.step("set its MTU", interface.set_mtu(mtu))?;
        opening.step("set its queue length", interface.set_transmit_queue_len(QUEUE_PACKETS))?;
        opening.step("switch its IPv6 off", interface.quiet_ipv6())?;
        opening.step("switch it on", interface.set_up())?;
        Ok(device)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TunDevice {
    fn drop(&mut self) {
        let mut link = vec![0; LINK_HEADER_LEN];
        link[4..8].copy_from_slice(&self.index.to_ne_bytes());
        let removed = Netlink::open().and_then(|mut it| it.request(RTM_DELLINK, 0, &link));
        // Somebody else removed it, or it stays, shut, for the next start to take over.
        drop::<io::Result<_>>(removed.map(drop));
    }
}
