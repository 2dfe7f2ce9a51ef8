//! Services, kinds of queue pairs, an end and hours: what a line asks for beside addresses.
//!
//! ```toml
//! service = "nvme-of"                  # [any] nvme-of | nfs-rdma | iser | smb-direct; a port, as
//! #                                      tcp/4420 or tcp/5000-5100 (rdma_cm's port spaces: tcp,
//! #                                      udp, ib, ipoib); or a service ID, as
//! #                                      0x0000000001061144; several
//! qp_type = "rc"                       # [any] rc | uc | ud | xrc | dct; several
//! vlan = 100                           # [any] outer VLAN ID; 0: untagged frames; several
//! p_key = 0x8005                       # [any] partition, for full and limited members; several
//! expires = "2026-12-31T18:00:00Z"     # [never] from this time on, the line does not apply
//! hours = "mon-fri 08:00-18:00"        # [always] UTC; days [every]; may pass midnight; several
//! ```

use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;
use weir_engine::access::{self, Hours, QueuePairTypes, Services, Terms};
use weir_wire::frame::Time;

use super::super::file::Several;
use super::super::problem::Problems;
use super::Line;
use crate::utc;

/// Names for services that many use, with their ports in rdma_cm's space `tcp` (IANA: nvme and
/// nvme-disc, nfsrdma, iscsi-target and iscsi, microsoft-ds and smbdirect).
const WELL_KNOWN: [(&str, &[u16]); 4] = [
    ("nvme-of", &[4420, 8009]),
    ("nfs-rdma", &[20049]),
    ("iser", &[3260, 860]),
    ("smb-direct", &[445, 5445]),
];

/// Port spaces of rdma_cm, as its service identifiers bear them.
const PORT_SPACES: [(&str, u64); 4] =
    [("tcp", 0x0106), ("udp", 0x0111), ("ib", 0x013f), ("ipoib", 0x0002)];

/// The highest number of a VLAN (IEEE 802.1Q).
const VLAN_MAX: u16 = 4094;
const VLAN_REMEDY: &str = "write a number from 0 (no tag) to 4094";
/// The bits of a P_Key that name the partition (IBTA Vol 1 s10.9.1).
const PARTITION: u16 = 0x7fff;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const MINUTES_PER_DAY: u16 = 24 * 60;

/// How a queue pair transports: see [`access::QueuePairType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the engine's say what they are")]
pub enum QueuePairType {
    Rc,
    Uc,
    Ud,
    Xrc,
    Dct,
}

impl From<QueuePairType> for access::QueuePairType {
    fn from(kind: QueuePairType) -> Self {
        match kind {
            QueuePairType::Rc => Self::Rc,
            QueuePairType::Uc => Self::Uc,
            QueuePairType::Ud => Self::Ud,
            QueuePairType::Xrc => Self::Xrc,
            QueuePairType::Dct => Self::Dct,
        }
    }
}

/// What `line` asks for.
pub(super) fn resolve(line: &Line, problems: &mut Problems) -> Terms {
    let mut terms = Terms::default();
    check_some("service", &line.service, &line.name, problems);
    check_some("qp_type", &line.qp_type, &line.name, problems);
    check_some("hours", &line.hours, &line.name, problems);
    check_some("vlan", &line.vlan, &line.name, problems);
    check_some("p_key", &line.p_key, &line.name, problems);
    let vlans = line.vlan.iter().flat_map(|it| &it.0);
    for vlan in vlans.clone().filter(|it| *it.get_ref() > VLAN_MAX) {
        let what = format!("there is no VLAN {}", vlan.get_ref());
        problems.error(vlan.span(), what, VLAN_REMEDY);
    }
    terms.vlans = vlans.map(|it| *it.get_ref()).collect();
    let keys = line.p_key.iter().flat_map(|it| &it.0);
    terms.partitions = keys.map(|it| *it.get_ref() & PARTITION).collect();
    if let Some(Several(kinds)) = &line.qp_type {
        terms.qp_types = QueuePairTypes::of(kinds.iter().map(|it| (*it.get_ref()).into()));
    }
    let mut services = Vec::new();
    for text in line.service.iter().flat_map(|it| &it.0) {
        match services_of(text.get_ref()) {
            Some(found) => services.extend(found),
            None => problems.error(
                text.span(),
                format!("`{}` is no service", text.get_ref()),
                "write nvme-of, nfs-rdma, iser, smb-direct, tcp/PORT, or an identifier 0x...",
            ),
        }
    }
    terms.services = services.into();
    if let Some(text) = &line.expires {
        match utc::read(text.get_ref()) {
            Some(time) => terms.expires = Some(Time(time)),
            None => problems.error(
                text.span(),
                format!("`{}` is no time", text.get_ref()),
                "write it as 2026-12-31T18:00:00Z",
            ),
        }
    }
    let mut hours = Vec::new();
    for text in line.hours.iter().flat_map(|it| &it.0) {
        match hours_of(text.get_ref()) {
            Some(found) => hours.push(found),
            None => problems.error(
                text.span(),
                format!("`{}` are no hours", text.get_ref()),
                "write them as mon-fri 08:00-18:00, in UTC",
            ),
        }
    }
    terms.hours = hours.into();
    terms
}

fn check_some<T>(
    key: &str,
    list: &Option<Several<T>>,
    name: &Spanned<String>,
    problems: &mut Problems,
) {
    if list.as_ref().is_some_and(|it| it.0.is_empty()) {
        let what = format!("line `{}`: `{key}` names none", name.get_ref());
        problems.error(name.span(), what, "name some, or leave it out for all");
    }
}

/// The VLAN that `text` names.
///
/// # Errors
/// What it should be.
pub fn vlan(text: &str) -> Result<u16, String> {
    let number = u16::from_str(text).ok().filter(|it| *it <= VLAN_MAX);
    number.ok_or_else(|| format!("there is no VLAN `{text}`: {VLAN_REMEDY}"))
}

/// The partition that a P_Key names.
///
/// # Errors
/// What it should be.
pub fn partition(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let partition = number.map(|it| it & PARTITION);
    partition.map_err(|_| format!("`{text}` is no P_Key: write it as 0x8005"))
}

/// The service identifiers that `text` means.
pub fn services_of(text: &str) -> Option<Vec<Services>> {
    let one = |id| Services { first: id, last: id };
    if let Some((_, ports)) = WELL_KNOWN.iter().find(|(name, _)| *name == text) {
        let tcp = PORT_SPACES[0].1 << 16;
        return Some(ports.iter().map(|port| one(tcp | u64::from(*port))).collect());
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return Some(vec![one(u64::from_str_radix(digits, 16).ok()?)]);
    }
    let (space, ports) = text.split_once('/')?;
    let (_, space) = PORT_SPACES.iter().find(|(name, _)| *name == space)?;
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (first, last) = (u16::from_str(first).ok()?, u16::from_str(last).ok()?);
    let id = |port| space << 16 | u64::from(port);
    (first <= last).then(|| vec![Services { first: id(first), last: id(last) }])
}

/// `mon-fri 08:00-18:00`, the days left out: every day.
fn hours_of(text: &str) -> Option<Hours> {
    let (days, hours) = text.split_once(' ').unwrap_or(("mon-sun", text));
    let (from, until) = hours.split_once('-')?;
    let (from, until) = (minute_of(from)?, minute_of(until)?);
    Some(Hours { days: days_of(days)?, from: from % MINUTES_PER_DAY, until })
}

/// `mon-fri`, `sat,sun`, `fri-mon`.
fn days_of(text: &str) -> Option<u8> {
    let day = |name: &str| DAYS.iter().position(|it| *it == name);
    text.split(',').try_fold(0, |set, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let count = (last + DAYS.len() - first) % DAYS.len();
        Some((0..=count).fold(set, |set, it| set | 1 << ((first + it) % DAYS.len())))
    })
}

fn minute_of(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let total = hour * 60 + minute;
    (hour <= 24 && minute < 60 && total <= MINUTES_PER_DAY).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_named_by_use_port_and_identifier() {
        let ids = |text| services_of(text).map(|it| it.iter().map(|it| it.first).collect());
        assert_eq!(ids("nfs-rdma"), Some(vec![0x0106_4e51]));
        assert_eq!(ids("tcp/20049"), Some(vec![0x0106_4e51]));
        assert_eq!(ids("0x10"), Some(vec![0x10]));
        let range = services_of("udp/5-9").unwrap()[0];
        assert_eq!((range.first, range.last), (0x0111_0005, 0x0111_0009));
        for text in ["", "http", "tcp/", "tcp/70000", "tcp/9-5", "sctp/1", "0xzz"] {
            assert_eq!(services_of(text), None, "{text}");
        }
    }

    #[test]
    fn hours_are_read_with_and_without_days() {
        let hours = |days, from, until| Some(Hours { days, from, until });
        assert_eq!(hours_of("mon-fri 08:00-18:30"), hours(0x1f, 480, 1110));
        assert_eq!(hours_of("sat,sun 22:00-06:00"), hours(0x60, 1320, 360));
        assert_eq!(hours_of("fri-mon 00:00-24:00"), hours(0x71, 0, 1440));
        assert_eq!(hours_of("08:00-18:00"), hours(0x7f, 480, 1080));
        for text in ["", "8-18", "mon", "moon 08:00-09:00", "08:00-25:00", "08:60-09:00"] {
            assert_eq!(hours_of(text), None, "{text}");
        }
    }
}
