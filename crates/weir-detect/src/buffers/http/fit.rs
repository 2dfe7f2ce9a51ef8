//! Letters beyond ASCII in a request's path, as servers of Microsoft's fit them into one byte: `/`
//! may come in two bytes that need but one, or as wide as a letter of Chinese. What is taken for
//! what was seen of Suricata 8.0.7 (`personality: IDS`).

/// What stands for what fits nowhere.
const NONE: u8 = b'?';

/// Letters that follow each other from one on.
#[rustfmt::skip]
const FITTING: [(u32, &[u8]); 62] = [
    (0x100, b"AaAaAaCcCcCcCcDd?dEeEeEeEeEeGgGgGgGgHhHhIiIiIiIiIi??JjKk?LlLlLl??LlNnNnNn"),
    (0x14c, b"OoOoOo??RrRrRrSsSsSs??TtTtTtUuUuUuUuUuUuWwYy?Z?Zz"), (0x180, b"b"),
    (0x197, b"I??l"), (0x19f, b"OOo"), (0x1ab, b"t??TUu"), (0x1b6, b"z"), (0x1c0, b"|??!"),
    (0x1cd, b"AaIiOoUuUuUuUuUu?Aa"), (0x1e4, b"GgGgKkOoOo??j"), (0x261, b"g"), (0x2b9, b"'\"?'"),
    (0x2c4, b"^"), (0x2c8, b"'??`?_"), (0x300, b"`?^~"), (0x30e, b"\""), (0x331, b"__"),
    (0x37e, b";"), (0x393, b"G"), (0x398, b"T"), (0x3a3, b"S??F??O"), (0x3b1, b"a??de"),
    (0x3c0, b"p??st?f"), (0x4bb, b"h"), (0x589, b":"), (0x2000, b"       "), (0x2010, b"--"),
    (0x2017, b"="), (0x2032, b"'??`"), (0x2044, b"/"), (0x2074, b"45678"),
    (0x207f, b"n0123456789"), (0x20a7, b"P"), (0x2102, b"C"),
    (0x2107, b"E??gHHHh?IILl?N??PPQRRR"), (0x2124, b"Z"), (0x2128, b"Z?K?BCeeEF?Mo"),
    (0x2212, b"-??/\\*??v"), (0x221e, b"8"), (0x2223, b"|"), (0x2229, b"n"), (0x2236, b":"),
    (0x223c, b"~"), (0x2261, b"=??=="), (0x2303, b"^"), (0x2320, b"()"), (0x2329, b"<>"),
    (0x2500, b"-"), (0x250c, b"+"), (0x2510, b"+"), (0x2514, b"+"), (0x2518, b"+"),
    (0x251c, b"+"), (0x252c, b"-"), (0x2534, b"-"), (0x253c, b"+"), (0x2550, b"-?++++++++++++"),
    (0x2564, b"------+++"), (0x2584, b"_"), (0x3000, b" "), (0x3008, b"<>"), (0x301a, b"[]"),
];

/// `path` with a byte for each letter. One in UTF-8 that takes more bytes than it needs counts,
/// too; what is no UTF-8 fits nowhere.
pub(super) fn fitted(path: Vec<u8>) -> Vec<u8> {
    if path.is_ascii() {
        return path;
    }
    let mut fitted = Vec::with_capacity(path.len());
    let mut rest = path.as_slice();
    while let Some((letter, length)) = next(rest) {
        fitted.push(letter.map_or(NONE, fit));
        rest = &rest[length..];
    }
    fitted
}

/// The next letter, if it is one, and how many bytes it takes.
fn next(bytes: &[u8]) -> Option<(Option<u32>, usize)> {
    let first = *bytes.first()?;
    let (mut letter, more) = match first {
        0..0x80 => return Some((Some(first.into()), 1)),
        0xc0..0xe0 => (u32::from(first & 0x1f), 1),
        0xe0..0xf0 => (u32::from(first & 0x0f), 2),
        0xf0..0xf8 => (u32::from(first & 0x07), 3),
        _ => return Some((None, 1)),
    };
    for at in 1..=more {
        match bytes.get(at) {
            Some(byte) if byte >> 6 == 2 => letter = letter << 6 | u32::from(byte & 0x3f),
            _ => return Some((None, at)),
        }
    }
    Some((Some(letter), 1 + more))
}

fn fit(letter: u32) -> u8 {
    match letter {
        narrow @ 0..=0xff => narrow as u8,
        // Latin letters as wide as others.
        wide @ 0xff01..=0xff5e => (wide - 0xfee0) as u8,
        other => {
            let place = FITTING.partition_point(|it| it.0 <= other).checked_sub(1);
            let run = place.map(|it| FITTING[it]);
            let byte = run.and_then(|it| it.1.get((other - it.0) as usize));
            byte.copied().unwrap_or(NONE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Suricata 8.0.7 has them.
    #[test]
    fn letters_fit_into_a_byte() {
        for (path, expected) in [
            (&b"/a\xc0\xafb"[..], &b"/a/b"[..]),
            (b"/a\xc1\x9cb", b"/a\\b"),
            (b"/a\xe0\x80\xafb", b"/a/b"),
            (b"/a\xef\xbc\x8fb", b"/a/b"),
            (b"/\xc3\xa9", b"/\xe9"),
            (b"/\xe2\x82\xac", b"/?"),
            (b"/\xf0\x9f\x98\x80", b"/?"),
            (b"/a\xc1\x81", b"/aA"),
            (b"/a\xc0b", b"/a?b"),
            (b"/\xff", b"/?"),
            (b"/\xef\xbc\xa1\xc4\x80", b"/AA"),
            (b"/plain", b"/plain"),
        ] {
            assert_eq!(fitted(path.to_vec()), expected, "{path:?}");
        }
    }
}
