//! Which packets are wanted, by what only RDMA has. The gateway's own walk decides.

use weir_wire::bth::{Opcode, PartitionKey, Qpn};
use weir_wire::ext::{self, Syndrome};
use weir_wire::frame::Frame;
use weir_wire::icrc::{self, IcrcStatus};
use weir_wire::parse::{Parsed, Rdma, parse_frame};

/// Terms; a packet must meet each that is given. Several values of one term: any of them. The marks
/// (bad ICRC, NAK, CNP) are one term: any of those asked for.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Destination queue pairs, or source queue pairs where a packet names one (DETH).
    pub queue_pairs: Vec<Qpn>,
    /// BTH opcodes.
    pub opcodes: Vec<Opcode>,
    /// Partition keys, membership bit included.
    pub partition_keys: Vec<PartitionKey>,
    /// Packets whose ICRC is wrong.
    pub bad_icrc: bool,
    /// Negative acknowledgments: NAKs and RNR NAKs.
    pub nak: bool,
    /// Congestion notification packets.
    pub cnp: bool,
}

impl Selection {
    /// Whether every packet is wanted.
    pub fn is_everything(&self) -> bool {
        let marks = self.bad_icrc || self.nak || self.cnp;
        self.queue_pairs.is_empty()
            && self.opcodes.is_empty()
            && self.partition_keys.is_empty()
            && !marks
    }

    /// Whether `frame` is wanted.
    pub fn takes(&self, frame: &Frame<'_>) -> bool {
        if self.is_everything() {
            return true;
        }
        let parsed = parse_frame(frame);
        let Some(rdma) = &parsed.rdma else { return false };
        let bytes = frame.bytes();
        (self.opcodes.is_empty() || self.opcodes.contains(&rdma.opcode))
            && (self.partition_keys.is_empty() || self.partition_keys.contains(&rdma.partition_key))
            && self.takes_queue_pair(bytes, rdma)
            && self.takes_mark(bytes, &parsed, rdma)
    }

    fn takes_queue_pair(&self, bytes: &[u8], rdma: &Rdma) -> bool {
        self.queue_pairs.is_empty()
            || self.queue_pairs.contains(&rdma.destination_qp)
            || ext::deth(bytes, rdma).is_some_and(|it| self.queue_pairs.contains(&it.source_qp()))
    }

    fn takes_mark(&self, bytes: &[u8], parsed: &Parsed, rdma: &Rdma) -> bool {
        let nak = || {
            let syndrome = ext::aeth(bytes, rdma).map(|aeth| aeth.syndrome());
            matches!(syndrome, Some(Syndrome::Nak(_) | Syndrome::RnrNak { .. }))
        };
        !(self.bad_icrc || self.nak || self.cnp)
            || self.cnp && rdma.opcode == Opcode::CNP
            || self.nak && nak()
            || self.bad_icrc && icrc::check(bytes, parsed) == IcrcStatus::Invalid
    }
}

/// The opcode that `text` names: a number (`10`, `0x0a`) or a name in any spelling of blanks and
/// letters (`RC WRITE Only`, `rc_write_only`).
///
/// # Errors
/// There is none; names a few that there are.
pub fn opcode_named(text: &str) -> Result<Opcode, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    if let Ok(number) = number {
        return Ok(Opcode(number));
    }
    // "RDMA" is what nobody writes: `rc_write_only`.
    let plain = |name: &str| name.to_lowercase().replace(['_', '-'], " ").replace("rdma ", "");
    let wanted = plain(text);
    let known = || (0..=u8::MAX).map(Opcode).filter(|opcode| opcode.name() != "reserved");
    known().find(|opcode| plain(opcode.name()) == wanted).ok_or_else(|| {
        let near: Vec<&str> = known()
            .map(Opcode::name)
            .filter(|name| wanted.split(' ').all(|word| plain(name).contains(word)))
            .take(6)
            .collect();
        let hint = if near.is_empty() {
            "names are such as rc_write_only, ud_send_only, cnp; or give its number".to_owned()
        } else {
            format!("is it one of: {}?", near.join(", "))
        };
        format!("no opcode is called {text}; {hint}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_named_in_any_spelling() {
        for text in ["RC WRITE Only", "rc_write_only", "RC-Write-Only", "10", "0x0a"] {
            assert_eq!(opcode_named(text), Ok(Opcode::RC_WRITE_ONLY), "{text}");
        }
        assert_eq!(opcode_named("cnp"), Ok(Opcode::CNP));
        assert!(opcode_named("rc write").unwrap_err().contains("RC RDMA WRITE First"));
        assert!(opcode_named("256").is_err());
    }
}
