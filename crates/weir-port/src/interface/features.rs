//! Offloads of an interface, as `ethtool -k` shows the old, well-known ones, and its driver's
//! private flags (`ethtool --show-priv-flags`) and counters (`ethtool -S`).

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
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GPFLAGS: u32 = 0x27;
const ETHTOOL_SPFLAGS: u32 = 0x28;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GSTATS: u32 = 0x1d;
/// `ETH_SS_STATS`.
const STRING_SET_STATISTICS: u32 = 1;
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

    /// The driver's own counters (`ethtool -S`), in its order; none where it has none.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn statistics(&self) -> io::Result<Vec<(String, u64)>> {
        /// The driver may find more counters between the two calls, and the kernel tells them all.
        const SPARE: usize = 512;
        let names = self.string_set(STRING_SET_STATISTICS)?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // `struct ethtool_stats`: command, count, and two words a counter.
        let mut values = vec![0; 2 + 2 * (names.len() + SPARE)];
        values[..2].copy_from_slice(&[ETHTOOL_GSTATS, names.len() as u32]);
        self.ethtool_command(&mut values)?;
        let count = values[1] as usize;
        let number = |words: &[u32]| {
            let [a, b] = [words[0], words[1]].map(u32::to_ne_bytes);
            u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
        };
        Ok(names.into_iter().zip(values[2..].chunks_exact(2).map(number)).take(count).collect())
    }

    fn private_flag_bit(&self, flag: &str) -> io::Result<Option<u32>> {
        let names = self.string_set(STRING_SET_PRIVATE_FLAGS)?;
        // The flags are a 32-bit word.
        Ok(names.iter().take(32).position(|name| name == flag).map(|position| 1 << position))
    }

    /// The names in a set of the driver's; none where it has no such set.
    fn string_set(&self, set: u32) -> io::Result<Vec<String>> {
        /// `ETH_GSTRING_LEN`, in words of `struct ethtool_gstrings`.
        const NAME_WORDS: usize = 8;
        /// Room for names that come up between the two calls.
        const SPARE: usize = 512;
        /// No driver has so many.
        const NAMES_MAX: usize = 1 << 16;
        // `struct ethtool_sset_info`: a mask of 64 bits asks for one set's count.
        let mut info = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        let mask = (1u64 << set).to_ne_bytes();
        info[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
        info[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
        if let Err(error) = self.ethtool_command(&mut info) {
            let none = error.raw_os_error() == Some(libc::EOPNOTSUPP);
            return if none { Ok(Vec::new()) } else { Err(error) };
        }
        let count = if info[2] | info[3] == 0 { 0 } else { (info[4] as usize).min(NAMES_MAX) };
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut names = vec![0; 3 + NAME_WORDS * (count + SPARE)];
        names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, set, count as u32]);
        self.ethtool_command(&mut names)?;
        let text = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        };
        Ok(names[3..].chunks_exact(NAME_WORDS).take(count).map(text).collect())
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
