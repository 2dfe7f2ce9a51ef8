//! What may be asked: time, addresses, and questions to all stores at once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use weir_store::clock;
use weir_store::sqlite::{QUERY_TIME_MAX, QueryError, Range, Reader};

use crate::gateways::Places;

/// Seconds asked for where nothing is said.
pub const LAST_S_DEFAULT: u64 = 3600;

/// The last second that can be asked for: the end of the year 9999.
pub const TIME_S_MAX: u64 = 253_402_300_799;

/// A range from what was asked: from and until, or the last so many seconds.
///
/// # Errors
/// The range is empty, too long or beyond the year 9999; a sentence for whoever asked.
pub fn range(from: Option<u64>, until: Option<u64>, last: Option<u64>) -> Result<Range, String> {
    let now_s = clock::seconds();
    // The second that runs belongs to it.
    let until_s = until.unwrap_or(now_s + 1);
    let last = last.unwrap_or(LAST_S_DEFAULT);
    if last > TIME_S_MAX {
        return Err(format!("last = {last}: write seconds, {TIME_S_MAX} at most"));
    }
    let from_s = from.unwrap_or(until_s.saturating_sub(last));
    if from_s >= until_s || until_s > TIME_S_MAX {
        return Err(format!(
            "the time from {from_s} until {until_s} is empty or out of range: write seconds since \
             1970, `from` before `until`"
        ));
    }
    Ok(Range { from_s, until_s })
}

/// The first and the last address of `text`: an address, a prefix, or `lid 0x1f`.
///
/// # Errors
/// It is none of these; a sentence for whoever asked.
pub fn addresses(text: &str) -> Result<([u8; 16], [u8; 16]), String> {
    let wrong = || {
        format!("`{text}` is no address: write 192.0.2.1, 192.0.2.0/24, 2001:db8::1 or lid 0x1f")
    };
    if let Some(lid) = text.strip_prefix("lid ") {
        let digits = lid.trim().trim_start_matches("0x");
        let lid = u16::from_str_radix(digits, 16).map_err(|_| wrong())?;
        let address = u128::from(lid).to_be_bytes();
        return Ok((address, address));
    }
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u32>().map_err(|_| wrong())?)),
        None => (text, None),
    };
    let (bits, spare) = match address.parse::<IpAddr>().map_err(|_| wrong())? {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped().to_bits(), 96),
        IpAddr::V6(v6) => (v6.to_bits(), 0),
    };
    let length = length.map_or(128, |length| length.saturating_add(spare));
    if length > 128 {
        return Err(wrong());
    }
    let host = u128::MAX.checked_shr(length).unwrap_or(0);
    Ok(((bits & !host).to_be_bytes(), (bits | host).to_be_bytes()))
}

/// Asks each store of `places`, or the one named `gateway`. What does not answer is named in the
/// problems.
pub fn each<T>(
    places: &Places,
    gateway: Option<&str>,
    ask: impl Fn(&str, &Reader) -> Result<Vec<T>, QueryError>,
) -> (Vec<T>, Vec<String>) {
    each_for(places, gateway, QUERY_TIME_MAX, ask)
}

/// Asks likewise, where a question to a store may take so `long`.
pub fn each_for<T>(
    places: &Places,
    gateway: Option<&str>,
    long: Duration,
    ask: impl Fn(&str, &Reader) -> Result<Vec<T>, QueryError>,
) -> (Vec<T>, Vec<String>) {
    let (mut rows, mut problems) = (Vec::new(), places.problems());
    let stores = places.stores();
    problems.extend(gateway.and_then(|wanted| unknown(wanted, &stores)));
    for (name, path) in &stores {
        if gateway.is_some_and(|wanted| wanted != name) {
            continue;
        }
        let reader = Reader::open_for(path, long).map_err(QueryError::from);
        let answer = reader.and_then(|it| ask(name, &it));
        match answer {
            Ok(answer) => rows.extend(answer),
            Err(error) => problems.push(format!("{name}: {error}")),
        }
    }
    (rows, problems)
}

/// What to say of a gateway that none of `stores` is of.
fn unknown(gateway: &str, stores: &BTreeMap<String, PathBuf>) -> Option<String> {
    if stores.contains_key(gateway) {
        return None;
    }
    let names: Vec<_> = stores.keys().map(String::as_str).collect();
    let there_are = match names.as_slice() {
        [] => "there is none at all".to_owned(),
        [name] => format!("there is that of {name}"),
        _ => format!("there are those of {}", names.join(", ")),
    };
    Some(format!("no store of a gateway `{gateway}`: {there_are}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_has_no_store_is_said_with_those_that_have() {
        let folder = tempfile::tempdir().unwrap();
        let asked = |names: &[&str], gateway| {
            let file = |name: &&str| folder.path().join(format!("{name}.sqlite"));
            names.iter().for_each(|name| std::fs::write(file(name), "").unwrap());
            let places = Places { run_folders: vec![], stores: vec![folder.path().to_owned()] };
            each(&places, Some(gateway), |_, _| Ok(vec![()]))
        };
        let said = |text: &str| (vec![], vec![text.to_owned()]);
        assert_eq!(asked(&[], "x"), said("no store of a gateway `x`: there is none at all"));
        assert_eq!(asked(&["a"], "x"), said("no store of a gateway `x`: there is that of a"));
        let both = "no store of a gateway `x`: there are those of a, b";
        assert_eq!(asked(&["b"], "x"), said(both));
        assert_eq!(asked(&[], "a"), (vec![()], vec![]));
    }

    #[test]
    fn prefixes_span_their_addresses() {
        let (first, last) = addresses("192.0.2.0/24").unwrap();
        assert_eq!(
            (first[12..].to_vec(), last[12..].to_vec()),
            (vec![192, 0, 2, 0], vec![192, 0, 2, 255])
        );
        assert_eq!(addresses("10.0.0.7").unwrap().0, addresses("10.0.0.7/32").unwrap().1);
        let (first, last) = addresses("::/0").unwrap();
        assert_eq!((first, last), ([0; 16], [255; 16]));
        assert_eq!(addresses("lid 0x1f").unwrap().0[14..], [0, 31]);
        for wrong in ["", "x", "10.0.0.0/33", "::/129", "lid x", "10.0.0.0/4294967295"] {
            assert!(addresses(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_are_not_empty() {
        assert_eq!(range(Some(5), Some(9), None).unwrap(), Range { from_s: 5, until_s: 9 });
        assert_eq!(range(None, Some(100), Some(40)).unwrap().from_s, 60);
        assert!(range(Some(9), Some(9), None).is_err());
        assert!(range(None, Some(u64::MAX), None).is_err());
        assert!(range(None, None, Some(TIME_S_MAX)).is_ok());
        assert!(range(None, None, Some(TIME_S_MAX + 1)).is_err());
    }
}
