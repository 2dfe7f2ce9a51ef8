//! Which hosts announce the GUID of one channel adapter. REQ and REP of connection management carry
//! it (Local CA GUID, IBTA Vol 1 s12.6.5, s12.6.8), and no two adapters have the same: hosts that
//! announce one in turn are its owner and somebody who pretends to be (Warren 2012).
//!
//! A host is the same as long as its MAC address or its IP address (RoCE v1: its GID) is: it may
//! have several addresses or VLANs behind one MAC, and a bond may go over to another port with its
//! address. An adapter, or a virtual machine with one, that moved to another host stays there. So
//! what counts is a host that announces the GUID again soon after another one did.

use weir_wire::frame::Time;

use super::NS_PER_S;
use super::table::Table;
use crate::shared::Unshared;

/// GUIDs that one worker remembers.
const ENTRIES_MAX: usize = 1 << 12;
/// Hosts that are remembered of each.
const HOSTS: usize = 4;
/// A host that was silent for longer than this may have got the adapter back.
const RETURN_NS: u64 = 60 * NS_PER_S;

/// That a host announced a GUID (by what stands for it in the table), and when it last did.
pub(crate) type GuidChange = ((u64, Host), Time);

/// Who announces a GUID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(super) mac: [u8; 6],
    pub(super) address: u128,
}

impl Host {
    fn is_same(&self, other: &Self) -> bool {
        let has_mac = self.mac != [0; 6];
        (has_mac && self.mac == other.mac) || self.address == other.address
    }
}

/// A host that announced a GUID.
#[derive(Clone, Copy, Debug, Default)]
struct Announcer {
    host: Host,
    /// When it last did; 0: the place is free.
    last: Time,
}

/// GUIDs, and the hosts that announced each of late.
#[derive(Debug)]
pub(super) struct Guids {
    announcers: Table<[Announcer; HOSTS]>,
    unshared: Unshared<(u64, Host), Time>,
}

impl Guids {
    pub(super) fn new(seed: u64) -> Self {
        Self { announcers: Table::new(ENTRIES_MAX, seed), unshared: Unshared::new(seed) }
    }

    /// Takes in that a host announces a GUID; whether another host has it too. 0 is no GUID.
    pub(super) fn announce(&mut self, now: Time, guid: u64, host: Host) -> bool {
        if guid == 0 {
            return false;
        }
        let key = self.announcers.key(guid);
        self.unshared.change((key, host), |it| *it = now);
        self.put(now, key, host)
    }

    /// Keeps announcements for other workers from now on: those of two hosts may come to two.
    pub(super) fn share(&mut self) {
        self.unshared.share();
    }

    pub(super) fn take_shared(&mut self) -> Vec<GuidChange> {
        self.unshared.take()
    }

    /// Takes in what another worker saw, which marks it itself.
    pub(super) fn add_shared(&mut self, changes: &[GuidChange]) {
        for ((key, host), at) in changes {
            self.put(*at, *key, *host);
        }
    }

    /// Whether the host did so within [`RETURN_NS`] before, and another one since; or whether it is
    /// one of more than [`HOSTS`] within that time. Another worker's announcement may come late,
    /// and then says nothing of those that were made after it.
    fn put(&mut self, at: Time, key: u64, host: Host) -> bool {
        let announcers = self.announcers.enter_key(at, key).0;
        let places = || announcers.iter().enumerate();
        let known = places()
            .filter(|(_, it)| it.last != Time(0) && it.host.is_same(&host))
            .max_by_key(|(_, it)| it.last);
        let oldest = places().min_by_key(|(_, it)| it.last);
        let Some((place, before)) = known.or(oldest).map(|(place, it)| (place, *it)) else {
            return false;
        };
        if known.is_none() && at < before.last {
            return false;
        }
        let is_interrupted =
            known.is_none() || places().any(|(other, it)| other != place && it.last > before.last);
        announcers[place] = Announcer { host, last: at.max(before.last) };
        is_interrupted && before.last != Time(0) && at.since_ns(before.last) < RETURN_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: u64 = 0x0002_c903_0012_3456;

    fn host(mac: u8, address: u128) -> Host {
        Host { mac: [2, 0, 0, 0, 0, mac], address }
    }

    /// GUIDs, and the time, which goes on by a second an announcement.
    struct Given {
        guids: Guids,
        now: Time,
    }

    impl Given {
        fn new() -> Self {
            Self { guids: Guids::new(7), now: Time(1_000 * NS_PER_S) }
        }

        fn announce(&mut self, host: Host) -> bool {
            self.now = self.now.plus_ns(NS_PER_S);
            self.guids.announce(self.now, GUID, host)
        }

        /// How many of these announcements are conflicts.
        fn conflicts(&mut self, hosts: &[Host]) -> usize {
            hosts.iter().filter(|it| self.announce(**it)).count()
        }
    }

    #[test]
    fn two_hosts_that_announce_one_guid_in_turn_are_a_conflict_each_time_one_returns() {
        let (one, other) = (host(1, 1), host(2, 2));
        let mut given = Given::new();
        assert_eq!(given.conflicts(&[one, one, other, other]), 0, "it may have moved");
        assert!(given.announce(one) && !given.announce(one), "the first is back");
        assert!(given.announce(other));
    }

    #[test]
    fn honest_hosts_are_no_conflict() {
        let honest: [(&str, &[Host]); 4] = [
            ("several addresses", &[host(1, 1), host(1, 2), host(1, 1), host(1, 2)]),
            ("a bond that goes over and back", &[host(1, 1), host(2, 1), host(1, 1), host(2, 1)]),
            ("moved once", &[host(1, 1), host(1, 1), host(2, 2), host(2, 2)]),
            ("moved on", &[host(1, 1), host(2, 2), host(3, 3), host(4, 4)]),
        ];
        for (case, hosts) in honest {
            assert_eq!(Given::new().conflicts(hosts), 0, "{case}");
        }
        let mut given = Given::new();
        given.conflicts(&[host(1, 1), host(2, 2)]);
        given.now = given.now.plus_ns(RETURN_NS);
        assert!(!given.announce(host(1, 1)), "moved back later");
    }

    #[test]
    fn more_hosts_than_are_remembered_are_a_conflict_too() {
        let hosts: Vec<Host> = (1..=8).map(|it| host(it, it.into())).collect();
        assert_eq!(Given::new().conflicts(&hosts), 8 - HOSTS);
    }

    #[test]
    fn each_guid_is_by_itself_and_zero_is_none() {
        let mut guids = Guids::new(7);
        for turn in 1..100 {
            let host = host(turn % 2, u128::from(turn % 2));
            let now = Time(1_000 * NS_PER_S + u64::from(turn));
            assert!(!guids.announce(now, 0, host));
            assert!(!guids.announce(now, GUID + u64::from(turn % 2), host), "its own");
        }
    }

    #[test]
    fn what_another_worker_saw_counts_at_its_time() {
        let (one, other) = (host(1, 1), host(2, 2));
        let at = |second: u64| Time(1_000 * NS_PER_S + second);
        let mut workers = [Guids::new(7), Guids::new(7)];
        workers.iter_mut().for_each(Guids::share);
        let [here, there] = &mut workers;
        assert!(!here.announce(at(1), GUID, one) && !there.announce(at(2), GUID, other));
        here.add_shared(&there.take_shared());
        there.add_shared(&here.take_shared());
        assert!(here.announce(at(3), GUID, one), "back after the other worker's");
        // It moved at 10, and what the first host did before that is told late.
        let mut workers = [Guids::new(7), Guids::new(7)];
        workers.iter_mut().for_each(Guids::share);
        let [here, there] = &mut workers;
        for second in 1..9 {
            assert!(!here.announce(at(second), GUID, one));
        }
        assert!(!there.announce(at(10), GUID, other));
        there.add_shared(&here.take_shared());
        assert!(!there.announce(at(11), GUID, other), "nothing came between");
    }
}
