//! Times as people and logs write them (RFC 3339), in UTC.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

const NS_PER_S: u64 = 1_000_000_000;

/// `20260131T235959Z`.
pub fn compact(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    at(since.as_nanos() as u64).strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// `2026-01-31 23:59:59 UTC`, of nanoseconds since 1970.
pub fn shown(time_ns: u64) -> String {
    at(time_ns).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// `2026-01-31T23:59:59.123Z`, of nanoseconds since 1970.
pub fn written(time_ns: u64) -> String {
    at(time_ns).strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

fn at(time_ns: u64) -> Timestamp {
    // All 64 bits are before the year 2600.
    Timestamp::from_nanosecond(time_ns.into()).unwrap_or_default()
}

/// Nanoseconds since 1970 of a time as RFC 3339 or EVE writes it (`2026-01-31T23:59:59.5+0100`; UTC
/// where it names no zone), or of seconds since 1970 (`1767225600.25`).
pub fn read(text: &str) -> Option<u64> {
    if !text.contains(['T', 't', ' ']) {
        return seconds_and_fraction(text);
    }
    let zoned = text.parse::<Timestamp>().ok();
    let time = zoned.or_else(|| Offset::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok())?;
    time.as_nanosecond().try_into().ok()
}

fn seconds_and_fraction(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<9}")[..9].parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(NS_PER_S)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_gregorian_utc() {
        let at = |seconds| compact(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "19700101T000000Z");
        // date -u -d @1709251199: 29 February of a leap year.
        assert_eq!(at(1_709_251_199), "20240229T235959Z");
        assert_eq!(at(1_709_251_200), "20240301T000000Z");
        assert_eq!(at(4_107_542_400), "21000301T000000Z");
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(shown(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(shown(951_782_399_000_000_000), "2000-02-28 23:59:59 UTC");
        assert_eq!(shown(951_782_400_999_999_999), "2000-02-29 00:00:00 UTC");
        assert_eq!(shown(1_709_251_200_000_000_000), "2024-03-01 00:00:00 UTC");
        assert_eq!(shown(4_102_444_799_000_000_000), "2099-12-31 23:59:59 UTC");
    }

    #[test]
    fn what_is_written_reads_as_it_was() {
        for day in 0..80_000 {
            let ns = (day * 86_400 + day % 86_400) * NS_PER_S + 123_000_000;
            assert_eq!(read(&written(ns)), Some(ns), "{}", written(ns));
        }
    }

    #[test]
    fn zones_fractions_and_plain_seconds_are_read() {
        // date -u -d '2026-01-31T23:59:59+01:00' +%s
        for text in [
            "2026-01-31T23:59:59.25+0100",
            "2026-01-31 22:59:59.25",
            "2026-01-31T22:59:59.250000Z",
            "2026-01-31T17:29:59.25-05:30",
            "1769900399.25",
        ] {
            assert_eq!(read(text), Some(1_769_900_399_250_000_000), "{text}");
        }
        for wrong in ["", "now", "2026-02-30T00:00:00Z", "2026-01-01T24:00:00", "1.", "-5"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
