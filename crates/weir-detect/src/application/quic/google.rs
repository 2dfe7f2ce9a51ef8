//! What a client says first in Google's versions of QUIC: tags with values, in clear.

use crate::digest;

/// Bytes of a hash behind the packet number.
pub(super) const HASH_LEN: usize = 12;
const STREAM: u8 = 0x80;
const HAS_LENGTH: u8 = 0x20;
/// Name, count of tags and what is reserved, and of each tag its name and where its value ends.
const HEAD_LEN: usize = 8;
const TAG_LEN: usize = 8;
/// Tags, at most.
const TAGS_MAX: usize = 128;

/// A client's hello.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) server_name: Option<Vec<u8>>,
    pub(super) user_agent: Option<Vec<u8>>,
    /// The names of its tags, in their order.
    pub(super) tags: Vec<String>,
}

impl Hello {
    /// Of the frames behind a packet number; an error: they are no frames.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<Self>, ()> {
        let Some((kind, rest)) = bytes.get(HASH_LEN..).and_then(<[u8]>::split_first) else {
            return Err(());
        };
        if kind & STREAM == 0 {
            return Ok(None);
        }
        let offset = match kind >> 2 & 7 {
            0 => 0,
            more => usize::from(more) + 1,
        };
        let rest = rest.get(usize::from(kind & 3) + 1 + offset..).ok_or(())?;
        let data = match rest {
            [high, low, rest @ ..] if kind & HAS_LENGTH != 0 => {
                rest.get(..usize::from(u16::from_be_bytes([*high, *low]))).ok_or(())?
            }
            _ if kind & HAS_LENGTH != 0 => return Err(()),
            _ => rest,
        };
        Ok(Self::of_tags(data))
    }

    fn of_tags(data: &[u8]) -> Option<Self> {
        let (head, rest) = data.split_at_checked(HEAD_LEN)?;
        let count = usize::from(u16::from_le_bytes([head[4], head[5]]));
        if !head.starts_with(b"CHLO") || count > TAGS_MAX {
            return None;
        }
        let (index, values) = rest.split_at_checked(count * TAG_LEN)?;
        let (mut hello, mut from) = (Self::default(), 0);
        for tag in index.chunks_exact(TAG_LEN) {
            let to = u32::from_le_bytes([tag[4], tag[5], tag[6], tag[7]]) as usize;
            let value = values.get(from..to)?;
            from = to;
            let name = tag[..4].strip_suffix(&[0]).unwrap_or(&tag[..4]);
            match name {
                b"SNI" => hello.server_name = Some(value.to_vec()),
                b"UAID" => hello.user_agent = Some(value.to_vec()),
                _ => {}
            }
            hello.tags.push(String::from_utf8_lossy(name).into_owned());
        }
        Some(hello)
    }

    /// CYU: the version's number and the names of the tags, and its digest; of versions that
    /// Suricata knows by number.
    pub(super) fn fingerprint(&self, version: u32) -> Option<(String, Vec<u8>)> {
        let number = match &version.to_be_bytes() {
            b"Q043" => "43",
            b"Q044" | b"Q045" => "44",
            b"Q046" => "46",
            _ => return None,
        };
        let line = format!("{number},{}", self.tags.join("-"));
        let hash = digest::hex(&digest::md5(line.as_bytes()));
        Some((line, hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_by_its_tags() {
        let mut frames = vec![0; HASH_LEN];
        frames.extend(b"\xa0\x01\0\x26CHLO\x02\0\0\0SNI\0\x05\0\0\0UAID\x0a\0\0\0a.orgagent...");
        frames[HASH_LEN + 3] = 34;
        let hello = Hello::read(&frames).unwrap().unwrap();
        assert_eq!(hello.server_name.as_deref(), Some(&b"a.org"[..]));
        assert_eq!(hello.user_agent.as_deref(), Some(&b"agent"[..]));
        let line = |version: &[u8; 4]| {
            hello.fingerprint(u32::from_be_bytes(*version)).map(|it| it.0).unwrap_or_default()
        };
        let versions = [b"Q039", b"Q043", b"Q044", b"Q045", b"Q046"];
        let lines = ["", "43,SNI-UAID", "44,SNI-UAID", "44,SNI-UAID", "46,SNI-UAID"];
        assert_eq!(versions.map(line), lines);
        for length in 0..HASH_LEN + 4 {
            assert!(Hello::read(&frames[..length]).is_err(), "{length}");
        }
    }
}
