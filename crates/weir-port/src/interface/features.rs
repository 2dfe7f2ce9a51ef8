//! Offloads of an interface, as `ethtool -k` shows the old, well-known ones, and its driver's
//! private flags (`ethtool --show-priv-flags`).

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
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GPFLAGS: u32 = 0x27;
const ETHTOOL_SPFLAGS: u32 = 0x28;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
/// `ETH_SS_PRIV_FLAGS`.
const STRING_SET_PRIVATE_FLAGS: u32 = 2;
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

    /// Whether the driver's private flag of this name is set; `None` when it has no such flag.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn private_flag(&self, flag: &str) -> io::Result<Option<bool>> {
        let Some(bit) = self.private_flag_bit(flag)? else { return Ok(None) };
        Ok(Some(self.ethtool_value(ETHTOOL_GPFLAGS)? & bit != 0))
    }

    /// Sets or clears the driver's private flag of this name.
    ///
    /// # Errors
    /// `Unsupported` when there is no such flag; the driver refuses.
    pub fn set_private_flag(&self, flag: &str, on: bool) -> io::Result<()> {
        let bit = self.private_flag_bit(flag)?.ok_or(io::ErrorKind::Unsupported)?;
        let flags = self.ethtool_value(ETHTOOL_GPFLAGS)?;
        let flags = if on { flags | bit } else { flags & !bit };
        self.ethtool_command(&mut [ETHTOOL_SPFLAGS, flags])
    }

    fn private_flag_bit(&self, flag: &str) -> io::Result<Option<u32>> {
        /// `ETH_GSTRING_LEN`, in words of `struct ethtool_gstrings`.
        const NAME_WORDS: usize = 8;
        // `struct ethtool_sset_info`: a mask of 64 bits asks for one set's count.
        let mut info = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        let mask = (1u64 << STRING_SET_PRIVATE_FLAGS).to_ne_bytes();
        info[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
        info[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
        if let Err(error) = self.ethtool_command(&mut info) {
            let none = error.raw_os_error() == Some(libc::EOPNOTSUPP);
            return if none { Ok(None) } else { Err(error) };
        }
        // The flags are a 32-bit word.
        let count = if info[2] | info[3] == 0 { 0 } else { info[4].min(32) };
        if count == 0 {
            return Ok(None);
        }
        let mut names = vec![0; 3 + NAME_WORDS * 32];
        names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, STRING_SET_PRIVATE_FLAGS, count]);
        self.ethtool_command(&mut names)?;
        let position = names[3..].chunks_exact(NAME_WORDS).take(count as usize).position(|words| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            bytes.split(|byte| *byte == 0).next() == Some(flag.as_bytes())
        });
        Ok(position.map(|position| 1 << position))
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
