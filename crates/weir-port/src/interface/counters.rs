//! The kernel's own counters of an interface.

use std::io;

use super::Interface;
use crate::netlink::{FLAG_DUMP, Netlink, RTM_GETLINK, attribute, u32_at, u64_at};

const IFINFO_LEN: usize = 16;
const IFLA_STATS64: u16 = 23;

const RTM_GETQDISC: u16 = 38;
/// `struct tcmsg`.
const TC_LEN: usize = 20;
/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
/// `drops` in `struct gnet_stats_queue`.
const DROPS_OFFSET: usize = 8;

impl Interface {
    /// Frames that queue or device dropped on their way out, since there is an interface. The
    /// queue's part wraps at 2^32.
    ///
    /// # Errors
    /// It is gone, or the kernel does not tell.
    pub fn lost_leaving(&self) -> io::Result<u64> {
        let (mut netlink, index) = (Netlink::open()?, self.index()?);
        let device = LinkCounters::read(&mut netlink, index)?.tx_dropped;
        let all = netlink.request(RTM_GETQDISC, FLAG_DUMP, &[0; TC_LEN])?;
        let queue = all.iter().find_map(|message| {
            let (head, attributes) = message.body.split_at_checked(TC_LEN)?;
            let is_root = (u32_at(head, 4), u32_at(head, 12)) == (Some(index as u32), Some(ROOT));
            let stats = attribute(attribute(attributes, TCA_STATS2)?, TCA_STATS_QUEUE);
            u32_at(stats.filter(|_| is_root)?, DROPS_OFFSET)
        });
        Ok(device + u64::from(queue.unwrap_or(0)))
    }
}

/// A part of `struct rtnl_link_stats64`, by its names there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames received.
    pub rx_packets: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received frames that the kernel dropped before a socket saw them: no memory, or the
    /// processor's backlog full. Without a guard also frames that no protocol wanted.
    pub rx_dropped: u64,
    /// Frames dropped on their way out.
    pub tx_dropped: u64,
    /// Received frames that overran the device's ring.
    pub rx_over_errors: u64,
    /// Received frames with a wrong frame check sequence.
    pub rx_crc_errors: u64,
    /// Received frames that overran the device's memory.
    pub rx_fifo_errors: u64,
    /// Received frames for which the host gave the device no buffer in time.
    pub rx_missed_errors: u64,
}

/// What a device or its driver lost since this was opened.
#[derive(Debug)]
pub struct DeviceLosses {
    netlink: Netlink,
    index: i32,
    at_open: LinkCounters,
}

/// Frames that a device lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLost {
    /// On their way in.
    pub arriving: u64,
    /// On their way out, those included that it refused with a word to the sender.
    pub leaving: u64,
}

impl DeviceLosses {
    /// Begins to count at `interface`.
    ///
    /// # Errors
    /// There is none of this name, or the kernel does not answer.
    pub fn open(interface: &str) -> io::Result<Self> {
        let (mut netlink, index) = (Netlink::open()?, Interface::find(interface)?.index()?);
        let at_open = LinkCounters::read(&mut netlink, index)?;
        Ok(Self { netlink, index, at_open })
    }

    /// What was lost so far. Waits for whoever changes an interface.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn read(&mut self) -> io::Result<DeviceLost> {
        let since = LinkCounters::read(&mut self.netlink, self.index)?.since(&self.at_open);
        Ok(DeviceLost { arriving: since.rx_lost(), leaving: since.tx_dropped })
    }
}

impl LinkCounters {
    /// Reads them for interface number `index`.
    pub(crate) fn read(netlink: &mut Netlink, index: i32) -> io::Result<Self> {
        let mut body = vec![0; IFINFO_LEN];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let answer = netlink.request(RTM_GETLINK, 0, &body)?;
        let stats = answer
            .first()
            .and_then(|message| attribute(message.body.get(IFINFO_LEN..)?, IFLA_STATS64))
            .ok_or_else(|| io::Error::other("the kernel gave no interface counters"))?;
        let field = |number: usize| u64_at(stats, number * 8).unwrap_or_default();
        Ok(Self {
            rx_packets: field(0),
            tx_packets: field(1),
            rx_bytes: field(2),
            tx_bytes: field(3),
            rx_dropped: field(6),
            tx_dropped: field(7),
            rx_over_errors: field(11),
            rx_crc_errors: field(12),
            rx_fifo_errors: field(14),
            rx_missed_errors: field(15),
        })
    }

    /// Received frames lost below any socket.
    pub fn rx_lost(&self) -> u64 {
        self.rx_dropped + self.rx_over_errors + self.rx_fifo_errors + self.rx_missed_errors
    }

    /// What was counted after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            rx_packets: less(self.rx_packets, earlier.rx_packets),
            tx_packets: less(self.tx_packets, earlier.tx_packets),
            rx_bytes: less(self.rx_bytes, earlier.rx_bytes),
            tx_bytes: less(self.tx_bytes, earlier.tx_bytes),
            rx_dropped: less(self.rx_dropped, earlier.rx_dropped),
            tx_dropped: less(self.tx_dropped, earlier.tx_dropped),
            rx_over_errors: less(self.rx_over_errors, earlier.rx_over_errors),
            rx_crc_errors: less(self.rx_crc_errors, earlier.rx_crc_errors),
            rx_fifo_errors: less(self.rx_fifo_errors, earlier.rx_fifo_errors),
            rx_missed_errors: less(self.rx_missed_errors, earlier.rx_missed_errors),
        }
    }
}
