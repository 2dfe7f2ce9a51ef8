//! A request's target as servers understand it: decoded, its path put straight.

/// `raw` without scheme and host, percent signs decoded, `.`, `..`, `//` and backslashes resolved.
pub(super) fn normalized(raw: &[u8]) -> Vec<u8> {
    let target = without_authority(raw);
    let query_at = target.iter().position(|it| matches!(it, b'?' | b'#')).unwrap_or(target.len());
    let (path, query) = target.split_at(query_at);
    let mut normalized = straightened(&decoded(path));
    normalized.extend(decoded(query));
    normalized
}

/// Host of a target that names one (`http://host:port/path`).
pub(super) fn authority(raw: &[u8]) -> Option<&[u8]> {
    let at = raw.windows(3).position(|it| it == b"://")?;
    if !raw[..at].iter().all(u8::is_ascii_alphabetic) {
        return None;
    }
    let rest = &raw[at + 3..];
    let end = rest.iter().position(|it| matches!(it, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    Some(&rest[..end])
}

fn without_authority(raw: &[u8]) -> &[u8] {
    match authority(raw) {
        Some(authority) => {
            let at = raw.windows(3).position(|it| it == b"://").unwrap_or_default() + 3;
            &raw[at + authority.len()..]
        }
        None => raw,
    }
}

fn decoded(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut rest = bytes;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if let (b'%', [high, low, after @ ..]) = (byte, behind)
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            decoded.push((high << 4 | low) as u8);
            rest = after;
        } else {
            decoded.push(*byte);
        }
    }
    decoded
}

fn straightened(path: &[u8]) -> Vec<u8> {
    if !path.starts_with(b"/") && !path.starts_with(b"\\") {
        return path.iter().map(|it| if *it == b'\\' { b'/' } else { *it }).collect();
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut last_is_open = false;
    for part in path.split(|it| matches!(it, b'/' | b'\\')).skip(1) {
        last_is_open = false;
        match part {
            b"" | b"." => last_is_open = true,
            b".." => {
                parts.pop();
                last_is_open = true;
            }
            part => parts.push(part),
        }
    }
    let mut straight = vec![b'/'];
    straight.extend(parts.join(&b'/'));
    if last_is_open && straight.len() > 1 {
        straight.push(b'/');
    }
    straight
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("/r?u=http://x/", "/r?u=http://x/"),
            ("*", "*"),
            ("--\\a", "--/a"),
            ("/", "/"),
        ] {
            let found = normalized(raw.as_bytes());
            assert_eq!(String::from_utf8(found).unwrap(), expected, "{raw}");
        }
        assert_eq!(authority(b"http://a.b:80/x"), Some(b"a.b:80".as_slice()));
    }
}
