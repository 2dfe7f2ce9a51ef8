//! A store that keeps all that a test puts into it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_store::sqlite::{AlertRow, Retention, Store, StoreOptions};

const DAY_S: u64 = 86_400;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

pub(crate) fn start(path: &Path) -> Store {
    let retention = Retention {
        size_bytes_max: 1 << 30,
        records_s: 20 * DAY_S,
        minutes_s: 20 * DAY_S,
        hours_s: 20 * DAY_S,
    };
    Store::start(StoreOptions { path: path.to_owned(), group: None, retention }, vec![]).unwrap()
}

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// An hour that is over.
pub(crate) fn begin_s() -> u64 {
    now_s() / 3600 * 3600 - 7200
}

/// 10.0.0.0 and so many more.
pub(crate) fn address(number: u32) -> [u8; 16] {
    std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).to_ipv6_mapped().octets()
}

/// Of this rule, from 10.0.0.`source`.
pub(crate) fn alert(sid: u32, source: u8, time_s: u64) -> AlertRow {
    AlertRow {
        number: 0,
        note: None,
        is_suppressed: false,
        time_ns: time_s * SECOND_NS,
        pair: "port0".into(),
        sid,
        severity: 2,
        action: "blocked".into(),
        signature: format!("rule {sid}"),
        category: "test".into(),
        protocol: "TCP".into(),
        source: address(source.into()),
        source_port: 0,
        destination: address(9),
        destination_port: 0,
        event: "{}".into(),
    }
}
