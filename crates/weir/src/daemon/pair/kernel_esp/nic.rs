//! A NIC beneath the kernel's ESP: what it is asked for, and what becomes of that.
//!
//! A NIC that does all of it (`packet`, docs/adr/0035) is believed as far as it is counted: before
//! the first packet of a host leaves, empty ones under a random key must have been sealed for every
//! network that it was told; later, what left for it three seconds ago.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weir_engine::esp::silent::silent_packet_for_nic;
use weir_port::{NicPackets, Outgoing, PacketPort, Port};
use weir_store::clock;
use weir_wire::frame;
use weir_xfrm::program::{OFFLOAD_INBOUND, OFFLOAD_PACKET};
use weir_xfrm::uapi::Offload;

use super::tunnel::{Direction, Kernel, KernelTunnel, random_association};
use crate::config::offload::NIC_WINDOW_MAX;

/// Where what tries a NIC comes from: addresses for documentation (RFC 5737, RFC 3849).
const TRIED_FROM: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 250)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x250)),
];
/// How long a NIC's counters may lag behind: drivers read them every second.
const LAG: Duration = Duration::from_secs(3);
/// How often it is asked what was dropped, where nothing is in doubt.
const ASKED_EVERY: Duration = Duration::from_secs(1);
/// How long an association that sealed stays when another does, for its counters.
pub(super) const RETIRED_FOR: Duration = Duration::from_secs(5);

/// What a NIC does of a peer's ESP.
#[derive(Debug)]
pub struct Nic {
    /// Number of the wire port.
    pub interface: u32,
    /// How much.
    pub work: Work,
    /// Whether the peer goes without when the NIC refuses; else the kernel seals.
    pub is_demanded: bool,
    /// Whether it took the last association that was installed.
    pub took: Cell<Option<bool>>,
}

/// How much a NIC does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// AES-GCM.
    Cipher,
    /// All of ESP, for packets to these networks.
    Everything(Vec<(IpAddr, u8)>),
}

impl Nic {
    /// One that is asked for that much.
    pub fn new(interface: u32, work: Work, is_demanded: bool) -> Self {
        Self { interface, work, is_demanded, took: Cell::new(None) }
    }

    /// As an association or a policy asks for it.
    pub(super) fn request(&self, direction: Option<Direction>) -> Offload {
        let inbound = if direction == Some(Direction::In) { OFFLOAD_INBOUND } else { 0 };
        let packet = if self.networks().is_some() { OFFLOAD_PACKET } else { 0 };
        Offload { interface: self.interface as i32, flags: inbound | packet, ..Offload::default() }
    }

    /// Where packets go that it does all of.
    pub(super) fn networks(&self) -> Option<&[(IpAddr, u8)]> {
        match &self.work {
            Work::Cipher => None,
            Work::Everything(networks) => Some(networks),
        }
    }
}

/// The nearest window that mlx5 has.
pub(super) fn window(packets: u32) -> u32 {
    1 << packets.clamp(1, NIC_WINDOW_MAX).ilog2()
}

/// Sees that the NIC seals what goes to each of its networks.
pub(super) fn prove(
    tunnel: &KernelTunnel,
    kernel: &mut Kernel<'_>,
    port: &mut PacketPort,
    packets: &NicPackets,
) -> Result<()> {
    let parameters = random_association()?;
    tunnel.install_policies(kernel.socket)?;
    tunnel.install(kernel.socket, Direction::Out, &parameters)?;
    kernel.guard.let_out_to_nic(packets)?;
    let result = prove_with(tunnel, kernel, port, packets, parameters.spi.value());
    kernel.guard.shut_to_nic(packets)?;
    tunnel.remove(kernel.socket, Direction::Out, parameters.spi.value())?;
    tunnel.seal_nothing(kernel.socket)?;
    result
}

fn prove_with(
    tunnel: &KernelTunnel,
    kernel: &mut Kernel<'_>,
    port: &mut PacketPort,
    packets: &NicPackets,
    spi: u32,
) -> Result<()> {
    let ends = packets.networks.iter().flat_map(|(address, len)| [*address, last(*address, *len)]);
    let ends: BTreeSet<IpAddr> = ends.collect();
    for destination in &ends {
        let source = TRIED_FROM[usize::from(destination.is_ipv6())];
        let packet =
            silent_packet_for_nic(source, *destination, &[], 0).context("of two families")?;
        let parts = [IoSlice::new(&packet)];
        port.transmit(&[Outgoing { parts: &parts, offload: frame::Offload::default() }]);
    }
    let wanted = ends.len() as u64;
    let begun = clock::now();
    let (mut left, mut sealed) = (0, 0);
    while begun.elapsed() < LAG {
        left = kernel.guard.left_to_nic(packets)?;
        sealed = tunnel.read(kernel.socket, Direction::Out, spi)?.used.packets;
        if (left, sealed) == (wanted, wanted) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(
        left == wanted,
        "the kernel gave the NIC {left} of {wanted} empty packets to seal; is the port up? \
         `nstat -a '*Xfrm*'` tells more"
    );
    bail!(
        "of {wanted} empty packets to the first and last address of each network in `protects`, \
         the NIC says to have sealed {sealed}: it does not match networks (mlx5 before Linux \
         6.15), or the kernel does not tell what it seals (6.12 does); write offload = \"crypto\""
    )
}

/// The last address of a network.
fn last(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(it) => {
            let behind = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            Ipv4Addr::from_bits(it.to_bits() | behind).into()
        }
        IpAddr::V6(it) => {
            let behind = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            Ipv6Addr::from_bits(it.to_bits() | behind).into()
        }
    }
}

/// Packets on their way through a NIC, since there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Given to it, as the guard saw.
    pub(super) left: u64,
    /// Sealed, as it says.
    pub(super) sealed: u64,
}

/// What left for a NIC to seal, as it was ten times a second.
#[derive(Debug, Default)]
pub(super) struct Handed {
    then: VecDeque<(Instant, u64)>,
    /// Where the counting began, and what was dropped by then; `None`: it begins with what is told
    /// next.
    base: Option<(Counted, u64)>,
    /// When it was asked last what was dropped; what was sealed before that, and the answer, until
    /// they are made use of.
    asked: Option<(Instant, Option<(u64, u64)>)>,
    unsealed: u64,
}

impl Handed {
    /// Begins anew: associations went before their last packets were counted.
    pub(super) fn begin_anew(&mut self) {
        self.then.clear();
        (self.base, self.asked) = (None, None);
    }

    /// Whether the NIC has sealed everything by now that had left [`LAG`] ago. `dropped` tells what
    /// queue and driver dropped before it, whosever it was; asked when there is a doubt, and once a
    /// second: no more of it can have been for the NIC than was not sealed, and the rest is no
    /// excuse later.
    ///
    /// # Errors
    /// It has not: packets left in clear, and it is never believed again. Or nobody tells what was
    /// dropped.
    pub(super) fn check(
        &mut self,
        now: Instant,
        counted: Counted,
        dropped: impl Fn() -> Result<u64>,
    ) -> Result<()> {
        let (base, _) = match self.base {
            Some(base) => base,
            None => *self.base.insert((counted, dropped()?)),
        };
        let left = counted.left.saturating_sub(base.left);
        let sealed = counted.sealed.saturating_sub(base.sealed);
        let dropped_before = self.forget_drops_of_others(now, (left, sealed), &dropped)?;
        let mut due = None;
        while let Some((_, left)) = self.then.pop_front_if(|(at, _)| now - *at >= LAG) {
            due = Some(left);
        }
        self.then.push_back((now, left));
        let Some(due) = due.filter(|due| *due > sealed) else { return Ok(()) };
        let accounted = sealed + dropped()?.saturating_sub(dropped_before);
        match due.checked_sub(accounted) {
            None | Some(0) => Ok(()),
            Some(unsealed) => {
                self.unsealed = unsealed;
                bail!(
                    "PLAINTEXT LEFT: of {due} packets that the NIC was given to seal, it says to \
                     have sealed {sealed}, {} s later",
                    LAG.as_secs()
                )
            }
        }
    }

    /// Moves what was dropped before, so that what was since is no more than can have been dropped
    /// of what left for the NIC. Returns it.
    fn forget_drops_of_others(
        &mut self,
        now: Instant,
        (left, sealed): (u64, u64),
        dropped: &impl Fn() -> Result<u64>,
    ) -> Result<u64> {
        let Some((_, dropped_before)) = &mut self.base else { return Ok(0) };
        match &mut self.asked {
            Some((at, _)) if now - *at >= ASKED_EVERY => self.asked = None,
            // Asked a moment ago: what had left by then is among what has left by now.
            Some((_, answer)) => {
                if let Some((sealed_then, dropped_then)) = answer.take() {
                    let since = dropped_then.saturating_sub(*dropped_before);
                    let for_nic = left.saturating_sub(sealed_then);
                    *dropped_before = dropped_then - since.min(for_nic);
                }
            }
            None => {}
        }
        if self.asked.is_none() {
            self.asked = Some((now, Some((sealed, dropped()?))));
        }
        Ok(*dropped_before)
    }

    /// Packets that left in clear; above 0 the NIC gets no more.
    pub(super) fn unsealed(&self) -> u64 {
        self.unsealed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_may_lag_behind_and_not_fall_behind() {
        let begun = clock::now();
        let at = |tenths: u64| begun + Duration::from_millis(100 * tenths);
        // What was there before does not count.
        let counted = |left, sealed| Counted { left: 5 + left, sealed: 3 + sealed };
        let dropped = || Ok(7);
        let mut handed = Handed::default();
        for tenths in 0..100u64 {
            let sealed = (10 * tenths).saturating_sub(299);
            handed.check(at(tenths), counted(10 * tenths, sealed), dropped).unwrap();
        }
        assert_eq!(handed.unsealed(), 0);
        // One packet was not sealed, and no more came.
        let begun = || {
            let mut handed = Handed::default();
            handed.check(at(0), counted(0, 0), dropped).unwrap();
            handed
        };
        let found = |handed: &mut Handed, dropped| {
            let counted = counted(10, 9);
            (1..100).find(|tenths| handed.check(at(*tenths), counted, || Ok(dropped)).is_err())
        };
        let mut handed = begun();
        assert_eq!(found(&mut handed, 7), Some(31));
        handed.begin_anew();
        assert_eq!(handed.unsealed(), 1, "for good");
        // Nor did it come to the NIC.
        assert_eq!(found(&mut begun(), 8), None);
        let mut handed = begun();
        handed.check(at(1), counted(10, 9), dropped).unwrap();
        handed.begin_anew();
        assert_eq!(found(&mut handed, 7), None);
    }

    #[test]
    fn what_was_dropped_of_others_is_no_excuse_for_a_nic_that_stops() {
        let begun = clock::now();
        let (mut handed, dropped) = (Handed::default(), Cell::new(0));
        let found = (0..2000u64).find(|tenths| {
            let left = 1000 * tenths;
            // It falls silent after twenty seconds; a million packets of others went before.
            let sealed = left.min(200_000);
            dropped.set(if *tenths < 100 { 0 } else { 1_000_000 });
            let at = begun + Duration::from_millis(100 * tenths);
            handed.check(at, Counted { left, sealed }, || Ok(dropped.get())).is_err()
        });
        assert!(found.is_some_and(|tenths| (230..=242).contains(&tenths)), "{found:?}");
    }

    #[test]
    fn what_was_dropped_of_its_own_stays_an_excuse_however_late_it_shows() {
        // A driver that reads its counters every second, and one that does at once.
        for each in [10, 1] {
            let begun = clock::now();
            let (mut handed, dropped) = (Handed::default(), Cell::new(0));
            let mut lost = 0;
            for tenths in 0..1000u64 {
                // Ten of a thousand are dropped now and then; from the middle on none come any
                // more.
                let left = 1000 * tenths.min(500);
                lost += if tenths % 50 == 7 && tenths < 500 { 10 } else { 0 };
                dropped.set(lost + 5 * tenths);
                let sealed = (1000 * (tenths / each * each).min(500)).saturating_sub(lost);
                let at = begun + Duration::from_millis(100 * tenths);
                handed.check(at, Counted { left, sealed }, || Ok(dropped.get())).unwrap();
            }
            assert_eq!(handed.unsealed(), 0);
        }
    }

    #[test]
    fn a_network_is_tried_at_both_its_ends() {
        let last = |address: &str, len| last(address.parse().unwrap(), len).to_string();
        assert_eq!(last("10.2.0.0", 24), "10.2.0.255");
        assert_eq!(last("10.2.0.7", 32), "10.2.0.7");
        assert_eq!(last("0.0.0.0", 0), "255.255.255.255");
        assert_eq!(last("fd00:2::", 64), "fd00:2::ffff:ffff:ffff:ffff");
        assert_eq!(last("::1", 128), "::1");
    }

    #[test]
    fn windows_are_those_that_the_nic_has() {
        assert_eq!([64, 192, 256, 1024].map(window), [64, 128, 256, 256]);
    }
}
