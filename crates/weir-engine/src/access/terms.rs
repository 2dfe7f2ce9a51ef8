//! What else a line may ask for: the service, the kind of queue pair, the time.

use std::sync::Arc;

use weir_wire::bth::{self, Opcode};
use weir_wire::frame::Time;
use weir_wire::parse::{MacAddress, Parsed};

use super::policy::Lacking;
use crate::meter::Observation;

/// The bits of a P_Key that name the partition; the other one is about membership.
const PARTITION: u16 = 0x7fff;

/// The first of the opcodes that are a manufacturer's own.
const MANUFACTURERS: u8 = 0xc0;

const NS_PER_MINUTE: u64 = 60_000_000_000;
const MINUTES_PER_DAY: u64 = 24 * 60;
/// 1970 began on a Thursday; days count from Monday.
const FIRST_DAY: u64 = 3;

/// How a queue pair transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QueuePairType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Dynamically connected, where it can be told: by the opcodes that are left to manufacturers
    /// (IBTA Vol 1 s9.2), of which nobody publishes what they ask.
    Dct,
}

impl QueuePairType {
    /// All of them.
    pub const ALL: [QueuePairType; 5] = [Self::Rc, Self::Uc, Self::Ud, Self::Xrc, Self::Dct];

    /// Its name in configuration and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::Xrc => "xrc",
            Self::Dct => "dct",
        }
    }

    /// What the opcode says; `None`: another kind, a reserved one, or a notification.
    #[inline]
    pub const fn of(opcode: Opcode) -> Option<Self> {
        match opcode.service() {
            bth::Service::ReliableConnection => Some(Self::Rc),
            bth::Service::UnreliableConnection => Some(Self::Uc),
            bth::Service::UnreliableDatagram => Some(Self::Ud),
            bth::Service::ExtendedReliableConnection => Some(Self::Xrc),
            bth::Service::Other if opcode.0 >= MANUFACTURERS => Some(Self::Dct),
            _ => None,
        }
    }

    /// What a REQ asks for (IBTA Vol 1 s12.6.5).
    pub(super) const fn of_request(transport_service: u8) -> Option<Self> {
        match transport_service {
            0 => Some(Self::Rc),
            1 => Some(Self::Uc),
            3 => Some(Self::Xrc),
            _ => None,
        }
    }
}

/// A set of [`QueuePairType`]s, or all there are and may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairTypes(u8);

impl QueuePairTypes {
    /// Every one, unknown ones too.
    pub const ALL: QueuePairTypes = QueuePairTypes(u8::MAX);

    /// Those of `list`.
    pub fn of(list: impl IntoIterator<Item = QueuePairType>) -> Self {
        Self(list.into_iter().fold(0, |set, it| set | 1 << it as u8))
    }

    fn contains(self, kind: QueuePairType) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

/// Service identifiers, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Services {
    /// The lowest.
    pub first: u64,
    /// The highest.
    pub last: u64,
}

/// Hours of the week, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// Days that it begins on: bit 0 is Monday.
    pub days: u8,
    /// Minute of the day that it begins at.
    pub from: u16,
    /// Minute that it ends at; not after `from`: on the next day.
    pub until: u16,
}

impl Hours {
    fn hold(self, now: Time) -> bool {
        let minutes = now.0 / NS_PER_MINUTE;
        let (day, minute) =
            ((minutes / MINUTES_PER_DAY + FIRST_DAY) % 7, minutes % MINUTES_PER_DAY);
        let minute = minute as u16;
        let is_on = |day: u64| self.days & 1 << day != 0;
        if self.from < self.until {
            return is_on(day) && (self.from..self.until).contains(&minute);
        }
        is_on(day) && minute >= self.from || is_on((day + 6) % 7) && minute < self.until
    }
}

/// What a line asks for beside addresses and operations. The default: nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Kinds of queue pairs.
    pub qp_types: QueuePairTypes,
    /// What the connection serves; empty: anything, and what nobody knows.
    pub services: Arc<[Services]>,
    /// Outer VLANs, 0 for frames without a tag; empty: any.
    pub vlans: Arc<[u16]>,
    /// Partitions: the low 15 bits of P_Keys; empty: any.
    pub partitions: Arc<[u16]>,
    /// Until when the line holds.
    pub expires: Option<Time>,
    /// When it holds; empty: always.
    pub hours: Arc<[Hours]>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            qp_types: QueuePairTypes::ALL,
            services: Arc::new([]),
            vlans: Arc::new([]),
            partitions: Arc::new([]),
            expires: None,
            hours: Arc::new([]),
        }
    }
}

/// What is known of a request's connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// How it transports.
    pub qp_type: Option<QueuePairType>,
    /// What it serves.
    pub service: Option<u64>,
    /// What is not known is no hindrance to a line that passes.
    pub is_open: bool,
    /// In which outer VLAN; 0: in none.
    pub vlan: u16,
    /// In which partition.
    pub partition: Option<u16>,
    /// MAC addresses of who asks, and whom.
    pub macs: Option<[MacAddress; 2]>,
    /// When.
    pub now: Time,
}

impl Asked {
    /// Of a connection of which nothing is known, in 1970.
    pub const NOTHING: Asked = Asked {
        qp_type: None,
        service: None,
        is_open: false,
        vlan: 0,
        partition: None,
        macs: None,
        now: Time(0),
    };

    /// What the packet's link and transport headers tell.
    pub(super) fn of_packet(packet: &Observation<'_>) -> Self {
        Self::of(packet.parsed, packet.now)
    }

    /// The same of a packet that came at `now`.
    pub(super) fn of(parsed: &Parsed, now: Time) -> Self {
        let Parsed { link, rdma, .. } = parsed;
        let vlan = if link.vlan_count == 0 { 0 } else { link.vlan_tci[0] & 0xfff };
        let partition = rdma.as_ref().map(|it| it.partition_key.0 & PARTITION);
        let macs = Some([link.source, link.destination]);
        Self { vlan, partition, macs, now, ..Self::NOTHING }
    }

    /// The other way.
    pub(super) fn turned(&self) -> Self {
        Self { macs: self.macs.map(|[from, to]| [to, from]), ..*self }
    }
}

impl Terms {
    /// Whether they are met; `passes`: by a line that lets pass.
    #[inline]
    pub(super) fn are_met(&self, asked: &Asked, passes: bool) -> bool {
        self.lacking(asked, passes).iter().all(|(lacks, _)| !lacks)
    }

    /// Each of them, and whether it is not met.
    pub(super) fn lacking(&self, asked: &Asked, passes: bool) -> [(bool, Lacking); 5] {
        let unknown = asked.is_open && passes;
        let is_kind = || asked.qp_type.map_or(unknown, |it| self.qp_types.contains(it));
        let serves = |id: u64| self.services.iter().any(|it| (it.first..=it.last).contains(&id));
        let is_in = |it: u16| self.partitions.contains(&it);
        let kind = self.qp_types == QueuePairTypes::ALL || is_kind();
        let service = self.services.is_empty() || asked.service.map_or(unknown, serves);
        let vlan = self.vlans.is_empty() || self.vlans.contains(&asked.vlan);
        let partition = self.partitions.is_empty() || asked.partition.is_some_and(is_in);
        let time = !self.are_timed() || self.hold(asked.now);
        [
            (!kind, Lacking::QueuePairType),
            (!service, Lacking::Service),
            (!vlan, Lacking::Vlan),
            (!partition, Lacking::Partition),
            (!time, Lacking::Time),
        ]
    }

    /// Whether they name kinds or services.
    pub(super) fn are_named(&self) -> bool {
        self.qp_types != QueuePairTypes::ALL || !self.services.is_empty() || self.name_partitions()
    }

    /// Whether they name partitions.
    pub(super) fn name_partitions(&self) -> bool {
        !self.partitions.is_empty()
    }

    /// Whether they do not always hold.
    pub(super) fn are_timed(&self) -> bool {
        self.expires.is_some() || !self.hours.is_empty()
    }

    /// Whether the line holds at `now`.
    pub(super) fn hold(&self, now: Time) -> bool {
        self.expires.is_none_or(|end| now < end)
            && (self.hours.is_empty() || self.hours.iter().any(|it| it.hold(now)))
    }

    /// When to look again whether they hold.
    pub(super) fn look_again(&self, now: Time) -> Time {
        let never = Time(u64::MAX);
        let minute = Time((now.0 / NS_PER_MINUTE + 1) * NS_PER_MINUTE);
        let by_hours = if self.hours.is_empty() { never } else { minute };
        let by_end = self.expires.filter(|end| now < *end).unwrap_or(never);
        by_hours.min(by_end)
    }

    /// Whether they are met wherever those of `other` are.
    pub(super) fn cover(&self, other: &Terms) -> bool {
        let holds = |it: &Services| {
            self.services.iter().any(|mine| mine.first <= it.first && mine.last >= it.last)
        };
        let serves = !other.services.is_empty() && other.services.iter().all(holds);
        let all = |mine: &[u16], others: &[u16]| {
            mine.is_empty() || (!others.is_empty() && others.iter().all(|it| mine.contains(it)))
        };
        self.qp_types.0 & other.qp_types.0 == other.qp_types.0
            && all(&self.vlans, &other.vlans)
            && all(&self.partitions, &other.partitions)
            && (self.services.is_empty() || serves)
            && (!self.are_timed() || (self.expires, &self.hours) == (other.expires, &other.hours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 2026-01-05, at this hour and minute.
    fn monday(hour: u64, minute: u64) -> Time {
        Time(1_767_571_200_000_000_000 + (hour * 60 + minute) * NS_PER_MINUTE)
    }

    #[test]
    fn hours_hold_on_their_days_and_over_midnight() {
        let work = Hours { days: 0b1_1111, from: 8 * 60, until: 18 * 60 };
        assert!(work.hold(monday(8, 0)) && work.hold(monday(17, 59)));
        assert!(!work.hold(monday(7, 59)) && !work.hold(monday(18, 0)));
        let saturday = monday(5 * 24 + 12, 0);
        assert!(!work.hold(saturday));
        let night = Hours { days: 0b1, from: 22 * 60, until: 6 * 60 };
        assert!(night.hold(monday(23, 0)) && night.hold(monday(24 + 5, 59)));
        assert!(!night.hold(monday(5, 59)) && !night.hold(monday(24 + 6, 0)));
        let always = Hours { days: 0x7f, from: 0, until: 0 };
        assert!((0..168).all(|hour| always.hold(monday(hour, 30))));
    }

    #[test]
    fn terms_cover_what_is_narrower() {
        let services = |first, last| Terms {
            services: Arc::new([Services { first, last }]),
            ..Terms::default()
        };
        let any = Terms::default();
        assert!(any.cover(&services(1, 2)) && !services(1, 2).cover(&any));
        assert!(services(1, 9).cover(&services(3, 4)) && !services(3, 4).cover(&services(1, 9)));
        let rc = Terms { qp_types: QueuePairTypes::of([QueuePairType::Rc]), ..Terms::default() };
        assert!(any.cover(&rc) && !rc.cover(&any));
        let ends = Terms { expires: Some(Time(5)), ..Terms::default() };
        assert!(any.cover(&ends) && !ends.cover(&any) && ends.cover(&ends));
    }
}
