//! Which applications are looked for, and which of them are taken apart.

use super::TransportProtocol;
use crate::rule::Protocol;

/// Applications that somebody does not want looked for, or taken apart (Suricata's
/// `app-layer.protocols.NAME.enabled`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplicationChoice {
    /// Those not looked for, over TCP and over UDP; a bit each.
    off: [u64; 2],
    /// Those that are known, and not taken apart.
    unparsed: u64,
}

/// How much of an application somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It is not looked for.
    Nothing,
    /// It is known, and not taken apart.
    Name,
}

impl ApplicationChoice {
    /// Limits an application, by its name in rules, over TCP, UDP or both. Names that are none
    /// change nothing.
    pub fn limit(&mut self, name: &str, [is_tcp, is_udp]: [bool; 2], wanted: Wanted) {
        let Some(protocol) = Protocol::from_name(name).filter(|it| it.is_application()) else {
            return;
        };
        match wanted {
            Wanted::Name => self.unparsed |= bit(protocol),
            Wanted::Nothing => {
                for (off, _) in self.off.iter_mut().zip([is_tcp, is_udp]).filter(|it| it.1) {
                    *off |= bit(protocol);
                }
            }
        }
    }

    /// Whether it is not looked for over that.
    pub(crate) fn is_off(self, transport: TransportProtocol, protocol: Protocol) -> bool {
        self.off[usize::from(transport == TransportProtocol::Udp)] & bit(protocol) != 0
    }

    /// Whether it is known, and not taken apart.
    pub(crate) fn is_unparsed(self, protocol: Protocol) -> bool {
        self.unparsed & bit(protocol) != 0
    }
}

fn bit(protocol: Protocol) -> u64 {
    // There are fewer than 64.
    1 << (protocol as u64 % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_are_switched_off_by_their_names_and_what_carries_them() {
        let mut choice = ApplicationChoice::default();
        choice.limit("dns", [false, true], Wanted::Nothing);
        choice.limit("ftp", [true, true], Wanted::Name);
        choice.limit("tcp", [true, true], Wanted::Nothing);
        choice.limit("no such", [true, true], Wanted::Nothing);
        assert!(choice.is_off(TransportProtocol::Udp, Protocol::Dns));
        assert!(!choice.is_off(TransportProtocol::Tcp, Protocol::Dns));
        assert!(choice.is_unparsed(Protocol::Ftp) && !choice.is_unparsed(Protocol::Dns));
        assert!(!choice.is_off(TransportProtocol::Tcp, Protocol::Tcp));
    }
}
