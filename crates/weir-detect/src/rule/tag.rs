//! `tag`: packets behind one that a rule matched, which are told too.

/// `tag:session`, `tag:host,5,seconds,src`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) whom: Tagged,
    pub(crate) limit: TagLimit,
}

/// Whose packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tagged {
    /// Those of the flow, both ways.
    Session,
    /// Those from and to who sent the packet.
    Source,
    /// Those from and to whom it was sent to.
    Destination,
}

/// How many, the packet that matched among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagLimit {
    Packets(u64),
    Bytes(u64),
    Seconds(u64),
}

/// Packets of a tag, at most (Suricata 8.0.7); as many where a rule says nothing.
const PACKETS_MAX: u64 = 256;

/// Reads what stands behind `tag`.
pub(super) fn tag(value: &str) -> Result<Tag, String> {
    let words: Vec<&str> = value.split(',').map(str::trim).collect();
    let wrong = || format!("`{value}` behind tag");
    let (whom, rest) = words.split_first().ok_or_else(wrong)?;
    let (limit, rest) = match rest {
        [] => (TagLimit::Packets(PACKETS_MAX), rest),
        [count, metric, rest @ ..] => {
            let count = u64::from(count.parse::<u32>().map_err(|_| wrong())?);
            let limit = match *metric {
                "packets" => TagLimit::Packets(count.min(PACKETS_MAX)),
                "bytes" => TagLimit::Bytes(count),
                "seconds" => TagLimit::Seconds(count),
                _ => return Err(wrong()),
            };
            (limit, rest)
        }
        [_] => return Err(wrong()),
    };
    let whom = match (*whom, rest) {
        ("session", [] | ["src" | "dst"]) => Tagged::Session,
        ("host", [] | ["dst"]) => Tagged::Destination,
        ("host", ["src"]) => Tagged::Source,
        _ => return Err(wrong()),
    };
    Ok(Tag { whom, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_says_whose_packets_and_how_many() {
        use {TagLimit as L, Tagged as T};
        for (text, whom, limit) in [
            ("session", T::Session, L::Packets(256)),
            ("host", T::Destination, L::Packets(256)),
            ("session, 5, packets", T::Session, L::Packets(5)),
            ("session,500,packets,dst", T::Session, L::Packets(256)),
            ("host,0,seconds,src", T::Source, L::Seconds(0)),
            ("host,700,bytes,dst", T::Destination, L::Bytes(700)),
        ] {
            assert_eq!(tag(text), Ok(Tag { whom, limit }), "{text}");
        }
        for wrong in [
            "",
            "foo,1,packets",
            "Session",
            "host,src",
            "session,5",
            "session,x,packets",
            "session,5,foo",
            "host,5,packets,src,1",
            "session,4294967296,packets",
        ] {
            assert!(tag(wrong).is_err(), "{wrong}");
        }
    }
}
