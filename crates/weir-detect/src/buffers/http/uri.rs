//! A request's target as servers understand it: decoded, its path put straight.

use super::fit::fitted;

/// `raw` without scheme and host, percent signs decoded, `.`, `..`, `//` and backslashes resolved;
/// its letters fitted into a byte each; with `keeps_separators`, letters, a backslash, `%2f` and
/// `//` stay in the path as they are.
pub(super) fn normalized(raw: &[u8], keeps_separators: bool) -> Vec<u8> {
    let target = without_authority(raw);
    let query_at = target.iter().position(|it| matches!(it, b'?' | b'#')).unwrap_or(target.len());
    let (path, query) = target.split_at(query_at);
    let path = decoded(path, keeps_separators);
    let path = if keeps_separators { path } else { fitted(path) };
    let mut normalized = straightened(&path, keeps_separators);
    normalized.extend(decoded(query, false));
    normalized
}

/// What stands between the scheme and the path of a target that has both.
pub(super) fn authority(raw: &[u8]) -> Option<&[u8]> {
    let at = raw.windows(3).position(|it| it == b"://")?;
    if !raw[..at].iter().all(is_of_scheme) {
        return None;
    }
    let rest = &raw[at + 3..];
    let end = rest.iter().position(|it| matches!(it, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// The host of `user@host:port` (RFC 3986 s3.2).
pub(super) fn host_of(authority: &[u8]) -> &[u8] {
    let from = authority.iter().rposition(|it| *it == b'@').map_or(0, |it| it + 1);
    without_port(&authority[from..])
}

/// The host of `host:port`, as headers have it: what looks like a user there is part of the name
/// to servers. A bracket that does not stand first is so too.
pub(super) fn without_port(host: &[u8]) -> &[u8] {
    let bracket = host.first().filter(|it| **it == b'[');
    let end = match bracket.and_then(|_| host.iter().position(|it| *it == b']')) {
        Some(bracket) => bracket + 1,
        None => host.iter().position(|it| *it == b':').unwrap_or(host.len()),
    };
    &host[..end]
}

fn without_authority(raw: &[u8]) -> &[u8] {
    match authority(raw) {
        Some(authority) => {
            let at = raw.windows(3).position(|it| it == b"://").unwrap_or_default() + 3;
            &raw[at + authority.len()..]
        }
        None => without_scheme(raw),
    }
}

/// `scheme:/path` without the scheme, as Suricata has it: it names no host.
fn without_scheme(raw: &[u8]) -> &[u8] {
    let scheme = raw.iter().take_while(|it| is_of_scheme(it)).count();
    match &raw[scheme..] {
        [b':', path @ ..] if scheme > 0 && path.starts_with(b"/") => path,
        _ => raw,
    }
}

/// RFC 3986 s3.1.
fn is_of_scheme(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(byte)
}

fn decoded(bytes: &[u8], keeps_separators: bool) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut rest = bytes;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if let (b'%', [high, low, after @ ..]) = (byte, behind)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            match (high << 4 | low) as u8 {
                b'/' | b'\\' if keeps_separators => decoded.push(*byte),
                byte => {
                    decoded.push(byte);
                    rest = after;
                }
            }
        } else if let (b'%', [b'u' | b'U', wide @ ..]) = (byte, behind)
            && let Some((byte, after)) = of_wide(wide)
        {
            decoded.push(byte);
            rest = after;
        } else {
            decoded.push(*byte);
        }
    }
    decoded
}

/// The byte that servers of Microsoft's take the four digits behind `%u` for, and what follows.
fn of_wide(digits: &[u8]) -> Option<(u8, &[u8])> {
    let (wide, after) = digits.split_at_checked(4)?;
    let text = std::str::from_utf8(wide).ok().filter(|_| wide.iter().all(u8::is_ascii_hexdigit))?;
    let byte = match u16::from_str_radix(text, 16).ok()? {
        narrow @ 0..=0xff => narrow as u8,
        // Latin letters as wide as others.
        full @ 0xff01..=0xff5e => (full - 0xfee0) as u8,
        _ => b'?',
    };
    Some((byte, after))
}

/// A path without dots for segments (RFC 3986 s5.2.4), each separator one slash. As Suricata has
/// it, the slash before such dots at its end is lost: nothing is left of `/.`.
fn straightened(path: &[u8], keeps_separators: bool) -> Vec<u8> {
    let mut slashed: Vec<u8> = Vec::with_capacity(path.len());
    let is_turned = |byte: u8| byte == b'\\' && !keeps_separators;
    for byte in path.iter().map(|it| if is_turned(*it) { b'/' } else { *it }) {
        if keeps_separators || !(byte == b'/' && slashed.ends_with(b"/")) {
            slashed.push(byte);
        }
    }
    let mut straight: Vec<u8> = Vec::with_capacity(slashed.len());
    let mut rest = slashed.as_slice();
    let mut was_dots = false;
    while !matches!((rest, was_dots), (b"" | b"." | b"..", _) | (b"/", true)) {
        let before = rest;
        for dots in [b"./".as_slice(), b"../"] {
            rest = rest.strip_prefix(dots).unwrap_or(rest);
        }
        for (dots, goes_up) in [(b"/.".as_slice(), false), (b"/..", true)] {
            match rest.strip_prefix(dots) {
                Some(behind) if behind.is_empty() || behind.starts_with(b"/") => rest = behind,
                _ => continue,
            }
            if goes_up {
                let slash = straight.iter().rposition(|it| *it == b'/');
                straight.truncate(slash.unwrap_or_default());
            }
        }
        was_dots = rest.len() < before.len();
        if !was_dots {
            let end = rest[1..].iter().position(|it| *it == b'/').map_or(rest.len(), |it| 1 + it);
            straight.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
    }
    straight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_may_stay_as_they_are() {
        let kept = |raw: &str| String::from_utf8(normalized(raw.as_bytes(), true)).unwrap();
        assert_eq!(kept("/a%2fb/%61%5c"), "/a%2fb/a%5c");
        assert_eq!(kept("//a\\b///c/../d?x=%2F"), "//a\\b///d?x=/");
    }

    #[test]
    fn targets_are_decoded_and_put_straight() {
        for (raw, expected) in [
            ("/a/b", "/a/b"),
            ("/a//b/./c/", "/a/b/c/"),
            ("/a/../b", "/b"),
            ("/../../b", "/b"),
            ("/a\\b", "/a/b"),
            ("/%61?q=%2f+%zz", "/a?q=/+%zz"),
            ("http://host:80/a", "/a"),
            ("h2+x.y://host/a", "/a"),
            ("ftp:/q/a", "/q/a"),
            ("a+b:/q", "/q"),
            ("ftp:q/a", "ftp:q/a"),
            (":/q", ":/q"),
            ("a b:/q", "a b:/q"),
            ("/r?u=http://x/", "/r?u=http://x/"),
            ("*", "*"),
            ("--\\a", "--/a"),
            ("/", "/"),
            // As Suricata 8.0.7 has them.
            ("a//b/../c", "a/c"),
            ("a/../b", "/b"),
            ("../a", "a"),
            ("/a/...", "/a/..."),
            ("/a/b/", "/a/b/"),
            ("/a/b/../", "/a"),
            ("/a/.//", "/a"),
            ("/a/..", ""),
            ("/.?x", "?x"),
            ("/%2F..%2F", ""),
            ("/%u0041%uff21%u2603b", "/AA?b"),
        ] {
            let found = normalized(raw.as_bytes(), false);
            assert_eq!(String::from_utf8(found).unwrap(), expected, "{raw}");
        }
        assert_eq!(authority(b"http://a.b:80/x").map(host_of), Some(b"a.b".as_slice()));
        assert_eq!(authority(b"http://u:p@a.b:80/x").map(host_of), Some(b"a.b".as_slice()));
        assert_eq!(host_of(b"[2001:db8::1]:80"), b"[2001:db8::1]");
        // As Suricata 8.0.7 has them, and nginx.
        assert_eq!(without_port(b"a].example:80"), b"a].example");
        assert_eq!(without_port(b"a@b:80@c"), b"a@b");
    }
}
