//! Offloads of an interface, as `ethtool -k` shows the old, well-known ones.

use std::io;

use super::Interface;
use crate::sys::interface_request::ethtool;

/// Offload switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// Receive checksums are verified.
    pub rx_checksum: bool,
    /// Transmit checksums are completed.
    pub tx_checksum: bool,
    /// Frames are gathered from several buffers.
    pub scatter_gather: bool,
    /// TCP super-packets are cut by the device.
    pub tso: bool,
    /// Super-packets are cut late, in software.
    pub gso: bool,
    /// Received segments are put together.
    pub gro: bool,
    /// The adapter puts TCP segments together, losing their borders; a gateway must switch it off.
    pub lro: bool,
}

const ETHTOOL_GRXCSUM: u32 = 0x14;
const ETHTOOL_GTXCSUM: u32 = 0x16;
const ETHTOOL_GSG: u32 = 0x18;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GGRO: u32 = 0x2b;
const FLAG_LRO: u32 = 1 << 15;

impl Interface {
    /// The offloads as they are set.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn offloads(&self) -> io::Result<Offloads> {
        Ok(Offloads {
            rx_checksum: self.ethtool_value(ETHTOOL_GRXCSUM)? != 0,
            tx_checksum: self.ethtool_value(ETHTOOL_GTXCSUM)? != 0,
            scatter_gather: self.ethtool_value(ETHTOOL_GSG)? != 0,
            tso: self.ethtool_value(ETHTOOL_GTSO)? != 0,
            gso: self.ethtool_value(ETHTOOL_GGSO)? != 0,
            gro: self.ethtool_value(ETHTOOL_GGRO)? != 0,
            lro: self.ethtool_value(ETHTOOL_GFLAGS)? & FLAG_LRO != 0,
        })
    }

    /// Sets the offloads that differ from `offloads`.
    ///
    /// # Errors
    /// The device does not let one of them be set; those before it in the structure are set.
    pub fn set_offloads(&self, offloads: &Offloads) -> io::Result<()> {
        let now = self.offloads()?;
        // A command that sets follows the one that gets.
        for (was, wanted, get) in [
            (now.rx_checksum, offloads.rx_checksum, ETHTOOL_GRXCSUM),
            (now.tx_checksum, offloads.tx_checksum, ETHTOOL_GTXCSUM),
            (now.scatter_gather, offloads.scatter_gather, ETHTOOL_GSG),
            (now.tso, offloads.tso, ETHTOOL_GTSO),
            (now.gso, offloads.gso, ETHTOOL_GGSO),
            (now.gro, offloads.gro, ETHTOOL_GGRO),
        ] {
            if was != wanted {
                self.ethtool_command(&mut [get + 1, u32::from(wanted)])?;
            }
        }
        if now.lro != offloads.lro {
            let flags = self.ethtool_value(ETHTOOL_GFLAGS)? ^ FLAG_LRO;
            self.ethtool_command(&mut [ETHTOOL_SFLAGS, flags])?;
        }
        Ok(())
    }

    /// `struct ethtool_value`: command and data.
    fn ethtool_value(&self, command: u32) -> io::Result<u32> {
        let mut value = [command, 0];
        self.ethtool_command(&mut value)?;
        Ok(value[1])
    }

    fn ethtool_command(&self, command: &mut [u32]) -> io::Result<()> {
        ethtool(self.socket.fd(), &self.name, command)
    }
}
