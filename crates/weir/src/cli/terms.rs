//! The options that choose packets by what only RDMA has, for every command that takes them.

use clap::Args;
use weir_wire::bth::{Opcode, PartitionKey, Qpn};

use crate::capture::{Selection, opcode_named};

/// RDMA terms. A packet must meet each that is given; of several values of one, any; of the marks
/// (bad ICRC, NAK, CNP), any.
#[derive(Clone, Debug, Args)]
pub struct RdmaTerms {
    /// RDMA packets to this queue pair, or from it where the packet says so (hex as 0x11)
    #[arg(long, value_name = "NUMBER", value_parser = queue_pair)]
    pub qp: Vec<Qpn>,
    /// RDMA packets with this opcode: name (rc_write_only) or number
    #[arg(long, value_name = "OPCODE", value_parser = opcode_named)]
    pub opcode: Vec<Opcode>,
    /// RDMA packets with this partition key, membership bit included (0xffff)
    #[arg(long, value_name = "KEY", value_parser = partition_key)]
    pub pkey: Vec<PartitionKey>,
    /// RDMA packets whose ICRC is wrong
    #[arg(long)]
    pub bad_icrc: bool,
    /// RDMA negative acknowledgments, RNR NAKs included
    #[arg(long)]
    pub nak: bool,
    /// RDMA congestion notification packets
    #[arg(long)]
    pub cnp: bool,
}

impl RdmaTerms {
    /// What they choose.
    pub fn selection(&self) -> Selection {
        Selection {
            queue_pairs: self.qp.clone(),
            opcodes: self.opcode.clone(),
            partition_keys: self.pkey.clone(),
            bad_icrc: self.bad_icrc,
            nak: self.nak,
            cnp: self.cnp,
        }
    }
}

/// A number, decimal or hexadecimal.
pub(super) fn number(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("{text} is no number (decimal, or hex as 0x1f)"))
}

fn queue_pair(text: &str) -> Result<Qpn, String> {
    match number(text)? {
        value @ 0..=0xff_ffff => Ok(Qpn::new(value)),
        _ => Err("a queue pair number has 24 bits".to_owned()),
    }
}

fn partition_key(text: &str) -> Result<PartitionKey, String> {
    let wide = |_| "a partition key has 16 bits".to_owned();
    Ok(PartitionKey(u16::try_from(number(text)?).map_err(wide)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_too_wide_for_their_field_are_refused() {
        assert_eq!(queue_pair("0x11"), Ok(Qpn::new(17)));
        assert!(queue_pair("0x1000000").is_err());
        assert_eq!(partition_key("65535"), Ok(PartitionKey(0xffff)));
        assert!(partition_key("0x10000").is_err());
    }
}
