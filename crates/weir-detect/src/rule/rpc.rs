//! `rpc`: a call of ONC RPC (RFC 5531), by program, version and procedure.

/// A call in a UDP datagram, or at the beginning of a TCP segment behind the record's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RpcTest {
    program: u32,
    version: Option<u32>,
    procedure: Option<u32>,
}

/// Bytes up to the end of the procedure's number, and those of the whole fixed head.
const CALL_LEN: usize = 28;
const MARK_LEN: usize = 4;

impl RpcTest {
    /// `rpc:100000,*,3`
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let wrong = || format!("`{value}` behind rpc: program, version and procedure");
        let parts: Vec<&str> = value.split(',').map(str::trim).collect();
        let any_or = |text: &str| match text {
            "*" => Ok(None),
            number => number.parse().map(Some).map_err(|_| wrong()),
        };
        let (program, rest) = parts.split_first().ok_or_else(wrong)?;
        let mut test =
            Self { program: program.parse().map_err(|_| wrong())?, version: None, procedure: None };
        match rest {
            [] => {}
            [version] => test.version = any_or(version)?,
            [version, procedure] => {
                (test.version, test.procedure) = (any_or(version)?, any_or(procedure)?);
            }
            _ => return Err(wrong()),
        }
        Ok(test)
    }

    /// Whether the payload of a packet is such a call.
    pub(crate) fn holds(&self, payload: &[u8], is_tcp: bool) -> bool {
        let call = payload.get(if is_tcp { MARK_LEN } else { 0 }..).unwrap_or_default();
        let word = |at: usize| {
            let bytes = call.get(at * 4..at * 4 + 4)?;
            Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        call.len() >= CALL_LEN
            && word(1) == Some(0)
            && word(3) == Some(self.program)
            && self.version.is_none_or(|it| word(4) == Some(it))
            && self.procedure.is_none_or(|it| word(5) == Some(it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_by_its_numbers() {
        let words = [7_u32, 0, 2, 100_000, 2, 3, 0, 0];
        let call: Vec<u8> = words.iter().flat_map(|it| it.to_be_bytes()).collect();
        let marked = [&[0x80, 0, 0, 32], call.as_slice()].concat();
        let holds = |value: &str| RpcTest::parse(value).unwrap().holds(&call, false);
        assert!(holds("100000,2,3") && holds("100000,*,3") && holds("100000"));
        assert!(!holds("100000,3,*") && !holds("100003,*,*"));
        assert!(RpcTest::parse("100000, 2").unwrap().holds(&marked, true));
        assert!(RpcTest::parse("*,2,3").is_err() && RpcTest::parse("1,2,3,4").is_err());
    }
}
