//! Numbers of TCP that wrap (RFC 9293 s3.4): sequence numbers, acknowledgments, timestamps.

/// Whether `a` comes before `b`.
pub(crate) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Whether `a` is `b`, or comes before it.
pub(crate) fn not_behind(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) <= 0
}

/// The one that comes later.
pub(crate) fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}
