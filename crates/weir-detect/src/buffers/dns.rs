//! DNS messages (RFC 1035): the names that they ask for.

/// Operations that there are (RFC 1035, 1996, 2136, 8490).
pub(crate) const OPCODE_MAX: u16 = 6;
/// Questions of one message that are looked at, at most.
const QUESTIONS_MAX: usize = 16;
/// Records of a section that are looked at, at most.
const RECORDS_MAX: usize = 64;
/// Bytes of a name, at most (RFC 1035 s2.3.4, dots in the place of lengths).
const NAME_LEN_MAX: usize = 255;
/// Compression pointers followed for one name, at most.
const POINTERS_MAX: usize = 16;

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) is_response: bool,
    pub(crate) opcode: u16,
    pub(crate) response_code: u16,
    /// The bit Z, which must be 0 (RFC 1035 s4.1.1): 0 or 1.
    pub(crate) reserved: u16,
    /// Types that are asked for.
    pub(crate) types: Vec<u16>,
    /// Names of answers, authorities and additional records.
    pub(crate) records: [Vec<Vec<u8>>; 3],
    /// Names as `www.example.org`, in the case in which they were sent.
    pub(crate) questions: Vec<Vec<u8>>,
}

/// The message that `bytes` are, whatever its flags; `None` where they are none.
pub(crate) fn parse(bytes: &[u8]) -> Option<Message> {
    let header: &[u8; 12] = bytes.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let flags = word(2);
    let opcode = flags >> 11 & 15;
    let questions = usize::from(word(4));
    let reserved = flags >> 6 & 1;
    let is_response = flags & 0x8000 != 0;
    if questions == 0 && !is_response {
        return None;
    }
    let response_code = flags & 15;
    let mut message =
        Message { is_response, opcode, response_code, reserved, ..Message::default() };
    let mut at = header.len();
    for _ in 0..questions.min(QUESTIONS_MAX) {
        let (name, end) = name(bytes, at)?;
        message.questions.push(name);
        at = end + 4;
        let kind = bytes.get(end..at)?;
        message.types.push(u16::from_be_bytes([kind[0], kind[1]]));
    }
    if is_response {
        let counts = [word(6), word(8), word(10)].map(usize::from);
        read_records(bytes, at, counts, &mut message.records);
    }
    Some(message)
}

/// The names of records from `at` on, as far as they can be read.
fn read_records(bytes: &[u8], mut at: usize, counts: [usize; 3], into: &mut [Vec<Vec<u8>>; 3]) {
    for (count, names) in counts.into_iter().zip(into) {
        for _ in 0..count.min(RECORDS_MAX) {
            let Some((name, end)) = name(bytes, at) else { return };
            let Some([high, low]) = bytes.get(end + 8..end + 10) else { return };
            names.push(name);
            at = end + 10 + usize::from(u16::from_be_bytes([*high, *low]));
        }
    }
}

/// The name at `at`, and where it ends there.
fn name(bytes: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let mut name = Vec::new();
    let (mut end, mut pointers) = (None, 0);
    loop {
        let length = usize::from(*bytes.get(at)?);
        match length >> 6 {
            0 if length == 0 => return Some((name, end.unwrap_or(at + 1))),
            0 => {
                let label = bytes.get(at + 1..at + 1 + length)?;
                if !name.is_empty() {
                    name.push(b'.');
                }
                name.extend_from_slice(label);
                if name.len() > NAME_LEN_MAX {
                    return None;
                }
                at += 1 + length;
            }
            3 if pointers < POINTERS_MAX => {
                pointers += 1;
                end = end.or(Some(at + 2));
                at = (length & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &[u8]) -> Vec<u8> {
        [b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", name, b"\x00\x01\x00\x01"].concat()
    }

    #[test]
    fn names_are_read_with_dots() {
        let message = parse(&query(b"\x03www\x07eXample\x03org\x00")).unwrap();
        assert_eq!(message.questions, [b"www.eXample.org".to_vec()]);
        assert!(!message.is_response);
    }

    #[test]
    fn what_is_no_message_is_none() {
        assert_eq!(parse(b"GET / HTTP/1.1\r\n\r\n"), None);
        assert_eq!(parse(&query(b"\x3fwww")), None);
        assert_eq!(parse(&query(b"\xc0\x0c")), None, "a name that points at itself");
        assert_eq!(parse(&[0; 11]), None);
    }
}
