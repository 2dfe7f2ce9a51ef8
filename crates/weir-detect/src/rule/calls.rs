//! Numbers in the byte order of DCE/RPC's calls (`dce`), and what they say of the rule.

use super::Protocol;
use super::keywords::Collected;

impl Collected {
    /// A number in the byte order of a call: outside of a buffer it makes the rule one about calls.
    pub(super) fn take_order(&mut self, is_extracted: bool) -> Result<(), String> {
        let is_of_calls = |it: Protocol| matches!(it, Protocol::Dcerpc | Protocol::Smb);
        let own = self.protocol.filter(|it| it.is_application());
        let mut of_buffer = self.sticky.iter().flat_map(|it| crate::buffers::protocols(*it));
        let is_here = match self.is_in_buffer() {
            true => {
                !is_extracted
                    || own.is_some_and(is_of_calls)
                    || of_buffer.any(|it| it == Protocol::Dcerpc)
            }
            false => own.is_none_or(is_of_calls),
        };
        self.is_of_calls |= !self.is_in_buffer();
        if is_here { Ok(()) } else { Err("dce: only calls of DCE/RPC say that".to_owned()) }
    }

    /// The protocol of the rule, whose header says `written`.
    pub(super) fn protocol(&self, written: Protocol) -> Protocol {
        match self.stream_of {
            Some(protocol) => protocol,
            None if self.is_of_calls && !written.is_application() => Protocol::Dcerpc,
            None => written,
        }
    }
}
