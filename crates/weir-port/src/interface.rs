//! What there is to know and to set about a network interface.

mod counters;
mod features;

pub use counters::{DeviceLosses, DeviceLost, LinkCounters};
pub use features::Offloads;

use std::fs;
use std::io;
use std::path::Path;

use crate::sys::interface_request::{InterfaceRequest, ethtool};
use crate::sys::socket::Socket;

/// Request numbers of netdevice(7).
const SIOCGIFNAME: libc::c_ulong = 0x8910;
const SIOCGIFFLAGS: libc::c_ulong = 0x8913;
const SIOCSIFFLAGS: libc::c_ulong = 0x8914;
const SIOCGIFMTU: libc::c_ulong = 0x8921;
const SIOCSIFMTU: libc::c_ulong = 0x8922;
const SIOCSIFHWADDR: libc::c_ulong = 0x8924;
const SIOCGIFHWADDR: libc::c_ulong = 0x8927;
const SIOCGIFINDEX: libc::c_ulong = 0x8933;
const SIOCSIFTXQLEN: libc::c_ulong = 0x8943;

/// An interface in the network namespace of the thread that found it.
#[derive(Debug)]
pub struct Interface {
    name: String,
    socket: Socket,
}

impl Interface {
    /// The interface of this name.
    ///
    /// # Errors
    /// `ENODEV` when there is none.
    pub fn find(name: &str) -> io::Result<Self> {
        let socket = Socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let interface = Self { name: name.to_owned(), socket };
        interface.index()?;
        Ok(interface)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    ///
    /// # Errors
    /// It is gone.
    pub fn index(&self) -> io::Result<i32> {
        Ok(self.ask(SIOCGIFINDEX)?.i32())
    }

    /// Largest network-layer packet, in bytes.
    ///
    /// # Errors
    /// It is gone.
    pub fn mtu(&self) -> io::Result<u32> {
        Ok(self.ask(SIOCGIFMTU)?.i32().max(0) as u32)
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// The device does not take this value, or privilege is missing.
    pub fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.tell(SIOCSIFMTU, |request| request.with_i32(mtu as i32))
    }

    /// Its Ethernet address.
    ///
    /// # Errors
    /// It is gone.
    pub fn mac(&self) -> io::Result<[u8; 6]> {
        let value = self.ask(SIOCGIFHWADDR)?.value;
        Ok([value[2], value[3], value[4], value[5], value[6], value[7]])
    }

    /// Sets its Ethernet address; many devices want to be down for it.
    ///
    /// # Errors
    /// The device refuses.
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        self.tell(SIOCSIFHWADDR, |request| {
            let mut request = request.with_u16(libc::ARPHRD_ETHER);
            request.value[2..8].copy_from_slice(&mac);
            request
        })
    }

    /// Whether it is switched on and its link works.
    ///
    /// # Errors
    /// It is gone.
    pub fn is_running(&self) -> io::Result<bool> {
        Ok(i32::from(self.flags()?) & libc::IFF_RUNNING != 0)
    }

    /// Whether it is switched on, with or without a link.
    ///
    /// # Errors
    /// It is gone.
    pub fn is_up(&self) -> io::Result<bool> {
        Ok(i32::from(self.flags()?) & libc::IFF_UP != 0)
    }

    /// Whether it can carry frames: up, and its link too.
    ///
    /// # Errors
    /// It is gone.
    pub fn has_link(&self) -> io::Result<bool> {
        let both = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(i32::from(self.flags()?) & both == both)
    }

    /// The name that the kernel shows for it: another than this one where this is an altname.
    ///
    /// # Errors
    /// It is gone.
    pub fn kernel_name(&self) -> io::Result<String> {
        let index = self.index()?;
        // The answer comes in the place of the name.
        let mut request = InterfaceRequest::new(&self.name)?.with_i32(index);
        request.run(self.socket.fd(), SIOCGIFNAME)?;
        Ok(request.name().to_owned())
    }

    /// Switches it on.
    ///
    /// # Errors
    /// Privilege is missing.
    pub fn set_up(&self) -> io::Result<()> {
        let flags = self.flags()?;
        self.tell(SIOCSIFFLAGS, |request| request.with_u16(flags | libc::IFF_UP as u16))
    }

    /// Sets how many frames its queue holds towards the device.
    ///
    /// # Errors
    /// Privilege is missing.
    pub fn set_transmit_queue_len(&self, frames: u32) -> io::Result<()> {
        self.tell(SIOCSIFTXQLEN, |request| request.with_i32(frames as i32))
    }

    /// The kernel driver's name, version and firmware version.
    ///
    /// # Errors
    /// The driver does not tell.
    pub fn driver(&self) -> io::Result<Driver> {
        const ETHTOOL_GDRVINFO: u32 = 3;
        // struct ethtool_drvinfo: command, then 32-byte strings.
        let mut command = [0u32; 49];
        command[0] = ETHTOOL_GDRVINFO;
        ethtool(self.socket.fd(), &self.name, &mut command)?;
        let text = |word: usize| {
            let bytes = command[word..word + 8].iter().flat_map(|word| word.to_ne_bytes());
            let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(Driver { name: text(1), version: text(9), firmware: text(17), bus: text(25) })
    }

    /// Queues in use to receive by, and to send by (`ethtool -l`).
    ///
    /// # Errors
    /// The driver does not tell; then there is one of each.
    pub fn queues(&self) -> io::Result<(u32, u32)> {
        const ETHTOOL_GCHANNELS: u32 = 0x3c;
        // struct ethtool_channels: command, four limits, then receive, transmit, other, combined.
        let mut command = [0u32; 9];
        command[0] = ETHTOOL_GCHANNELS;
        ethtool(self.socket.fd(), &self.name, &mut command)?;
        Ok((command[5] + command[8], command[6] + command[8]))
    }

    /// Makes the kernel send nothing of its own by IPv6 on this interface: no duplicate address
    /// detection, router solicitations or multicast reports. No error where there is no IPv6.
    ///
    /// # Errors
    /// The setting exists but cannot be written.
    pub fn quiet_ipv6(&self) -> io::Result<()> {
        let path = self.ipv6_path();
        if !Path::new(&path).exists() {
            return Ok(());
        }
        fs::write(path, "1")
    }

    /// Makes the kernel take and route IPv6 on this interface without an address or a router of its
    /// own choice. No error where there is no IPv6.
    ///
    /// # Errors
    /// The settings exist but cannot be written.
    pub fn take_ipv6(&self) -> io::Result<()> {
        const ADDRESS_BY_NOBODY: &str = "1";
        let settings =
            [("addr_gen_mode", ADDRESS_BY_NOBODY), ("accept_ra", "0"), ("disable_ipv6", "0")];
        for (name, value) in settings {
            let path = format!("/proc/sys/net/ipv6/conf/{}/{name}", self.name);
            if Path::new(&path).exists() {
                fs::write(path, value)?;
            }
        }
        Ok(())
    }

    /// The setting that [`Interface::quiet_ipv6`] changes; `None` where there is no IPv6.
    pub fn ipv6_setting(&self) -> Option<String> {
        fs::read_to_string(self.ipv6_path()).ok().map(|text| text.trim().to_owned())
    }

    /// Sets it as [`Interface::ipv6_setting`] told it. Addresses that it took do not come back.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_ipv6(&self, setting: &str) -> io::Result<()> {
        fs::write(self.ipv6_path(), setting)
    }

    /// Whether the kernel drops what comes in by it from addresses that its routes have elsewhere
    /// (`rp_filter`; the stricter of the interface's setting and of all interfaces').
    ///
    /// # Errors
    /// The settings cannot be read.
    pub fn reverse_path_filter(&self) -> io::Result<bool> {
        let all = fs::read_to_string(reverse_path("all"))?;
        let own = fs::read_to_string(reverse_path(&self.name))?;
        Ok([all, own].iter().any(|setting| setting.trim() != "0"))
    }

    /// Has it take what comes, as far as the setting of all interfaces lets it.
    ///
    /// # Errors
    /// The setting cannot be written.
    pub fn switch_reverse_path_filter_off(&self) -> io::Result<()> {
        fs::write(reverse_path(&self.name), "0")
    }

    fn ipv6_path(&self) -> String {
        format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", self.name)
    }

    fn flags(&self) -> io::Result<u16> {
        Ok(self.ask(SIOCGIFFLAGS)?.u16())
    }

    fn ask(&self, number: libc::c_ulong) -> io::Result<InterfaceRequest> {
        let mut request = InterfaceRequest::new(&self.name)?;
        request.run(self.socket.fd(), number)?;
        Ok(request)
    }

    fn tell(
        &self,
        number: libc::c_ulong,
        fill: impl FnOnce(InterfaceRequest) -> InterfaceRequest,
    ) -> io::Result<()> {
        fill(InterfaceRequest::new(&self.name)?).run(self.socket.fd(), number)
    }
}

fn reverse_path(name: &str) -> String {
    format!("/proc/sys/net/ipv4/conf/{name}/rp_filter")
}

/// Who drives an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// `veth`, `mlx5_core`, ...
    pub name: String,
    /// Driver version.
    pub version: String,
    /// Firmware version; empty for software devices.
    pub firmware: String,
    /// Bus address; empty for software devices.
    pub bus: String,
}
