//! Times as people and logs write them (RFC 3339), in UTC, proleptic Gregorian.

use std::time::{Duration, SystemTime};

const NS_PER_S: u64 = 1_000_000_000;
/// From the beginning of an era (1 March of year 0) to 1 January 1970.
const DAYS_BEFORE_EPOCH: u64 = 719_468;
const DAYS_OF_ERA: u64 = 146_097;

/// `20260131T235959Z`.
pub fn compact(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// `2026-01-31 23:59:59 UTC`, of nanoseconds since 1970.
pub fn shown(time_ns: u64) -> String {
    let written = written(time_ns);
    format!("{} {} UTC", &written[..10], &written[11..19])
}

/// `2026-01-31T23:59:59.123Z`, of nanoseconds since 1970.
pub fn written(time_ns: u64) -> String {
    let seconds = time_ns / NS_PER_S;
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let milliseconds = time_ns / 1_000_000 % 1000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Nanoseconds since 1970 of a time as RFC 3339 or EVE writes it (`2026-01-31T23:59:59.5+0100`; UTC
/// where it names no zone), or of seconds since 1970 (`1767225600.25`).
pub fn read(text: &str) -> Option<u64> {
    let Some((date, rest)) = text.split_once(['T', ' ']) else {
        return seconds_and_fraction(text);
    };
    let mut date = date.splitn(3, '-').map(|word| word.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let valid = (1970..=2500).contains(&year) && (1..=12).contains(&month);
    let days = valid.then(|| days_since_epoch(year, month, day))?;
    if (year, month, day) != civil_date(days) {
        return None;
    }
    let (time, offset_s) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => (&rest[..at], zone(&rest[at..])?),
        None => (rest, 0),
    };
    let mut words = time.splitn(3, ':');
    let mut below = |limit: u64| words.next()?.parse::<u64>().ok().filter(|it| *it < limit);
    let (hour, minute) = (below(24)?, below(60)?);
    let within = seconds_and_fraction(words.next()?).filter(|ns| *ns < 61 * NS_PER_S)?;
    let seconds = (days * 86_400 + hour * 3600 + minute * 60).checked_add_signed(-offset_s)?;
    seconds.checked_mul(NS_PER_S)?.checked_add(within)
}

/// Seconds east of Greenwich.
fn zone(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, digits) = text.split_at_checked(1)?;
    let digits = digits.replace(':', "");
    if digits.len() != 4 {
        return None;
    }
    let number: i64 = digits.parse().ok().filter(|it| *it >= 0)?;
    let seconds = number / 100 * 3600 + number % 100 * 60;
    Some(if sign == "-" { -seconds } else { seconds })
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

/// The date of a day since 1 January 1970, counted in eras of 400 years that begin in March, so
/// that leap days come last.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE_EPOCH;
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

/// The inverse of [`civil_date`], from 1970 on.
fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year / 400, year % 400);
    let day = (153 * month + 2) / 5 + day.saturating_sub(1);
    (era * DAYS_OF_ERA + year * 365 + year / 4 - year / 100 + day).saturating_sub(DAYS_BEFORE_EPOCH)
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
