//! Which frames the kernel puts into a receive ring, and how much of each: classic BPF on the
//! socket (Linux Documentation/networking/filter.rst).
//!
//! A filter sees the frame as the kernel holds it: from the Ethernet header on (no virtio header
//! before it), its outer VLAN tag taken out and kept beside it. Expressions are compiled by libpcap
//! for a live handle on the interface, which knows that and looks for the tag where it is.

use std::io;

use crate::sys::filter_compiler::{self, CompilerError};
use crate::sys::socket::{FilterInstruction, Socket};

/// RoCE v1 (IBTA Annex A16).
const ETHERTYPE_ROCE_V1: u32 = 0x8915;
/// RoCE v2 (IBTA Annex A17).
const UDP_PORT_ROCE_V2: u32 = 4791;

/// A classic BPF program. What it rejects never reaches the ring, and Linux counts it nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFilter {
    program: Vec<FilterInstruction>,
}

/// Why an expression is not a filter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// libpcap is not on this machine.
    #[error(
        "filter expressions are compiled by libpcap, which cannot be loaded ({reason}); install \
         it (Debian: libpcap0.8)"
    )]
    NoCompiler {
        /// The loader's reason.
        reason: String,
    },
    /// libpcap refuses the interface.
    #[error("{interface}: libpcap cannot open it: {reason}")]
    Interface {
        /// As named by the caller.
        interface: String,
        /// libpcap's words.
        reason: String,
    },
    /// The expression is wrong.
    #[error("filter `{expression}`: {reason}; `man pcap-filter` describes the language")]
    Expression {
        /// As given.
        expression: String,
        /// libpcap's words.
        reason: String,
    },
}

impl KernelFilter {
    /// Every frame.
    pub fn everything() -> Self {
        Self { program: vec![accept()] }
    }

    /// No frame.
    pub fn nothing() -> Self {
        Self { program: vec![reject()] }
    }

    /// What the pcap-filter(7) `expression` takes on `interface`, which must be in the calling
    /// thread's network namespace.
    ///
    /// # Errors
    /// [`FilterError`]: libpcap is missing, the interface is, or the expression is wrong.
    pub fn compile(interface: &str, expression: &str) -> Result<Self, FilterError> {
        let program = filter_compiler::compile(interface, expression).map_err(|error| {
            let interface = interface.to_owned();
            match error {
                CompilerError::Library(reason) => FilterError::NoCompiler { reason },
                CompilerError::Interface(reason) => FilterError::Interface { interface, reason },
                CompilerError::Expression(reason) => {
                    FilterError::Expression { expression: expression.to_owned(), reason }
                }
            }
        })?;
        Ok(Self { program })
    }

    /// All that may be RDMA: RoCE v1 and v2. What the program cannot see to its end (a second VLAN
    /// tag, IPv6 extension headers) passes too, to be looked at by the caller.
    pub fn rdma() -> Self {
        const ACCEPT: u8 = 22;
        const REJECT: u8 = 23;
        let jump = |at: u8, to: u8| to - at - 1;
        let equal = |at: u8, value: u32, yes: u8, no: u8| FilterInstruction {
            code: JUMP_EQUAL,
            yes: jump(at, yes),
            no: jump(at, no),
            value,
        };
        let program = vec![
            load(LOAD_HALF, 12),
            equal(1, ETHERTYPE_ROCE_V1, ACCEPT, 2),
            equal(2, 0x8100, ACCEPT, 3),
            equal(3, 0x88a8, ACCEPT, 4),
            equal(4, 0x9100, ACCEPT, 5),
            equal(5, 0x0800, 7, 6),
            equal(6, 0x86dd, 15, REJECT),
            // IPv4: UDP, the first fragment, by the header's own length.
            load(LOAD_BYTE, 23),
            equal(8, 17, 9, REJECT),
            load(LOAD_HALF, 20),
            FilterInstruction { code: JUMP_SET, yes: jump(10, REJECT), no: 0, value: 0x1fff },
            load(LOAD_INDEX_HEADER_LEN, 14),
            load(LOAD_HALF_INDEXED, 16),
            equal(13, UDP_PORT_ROCE_V2, ACCEPT, REJECT),
            reject(),
            // IPv6: UDP at once; neither TCP nor ICMP; the rest may be extension headers.
            load(LOAD_BYTE, 20),
            equal(16, 17, 17, 19),
            load(LOAD_HALF, 56),
            equal(18, UDP_PORT_ROCE_V2, ACCEPT, REJECT),
            equal(19, 6, REJECT, 20),
            equal(20, 58, REJECT, 21),
            equal(21, 59, REJECT, ACCEPT),
            accept(),
            reject(),
        ];
        debug_assert_eq!(program.len(), usize::from(REJECT) + 1);
        Self { program }
    }

    /// The same frames, of each at most its first `bytes`.
    pub fn with_snap_len(mut self, bytes: u32) -> Self {
        for instruction in &mut self.program {
            if instruction.code == RETURN && instruction.value != 0 {
                instruction.value = bytes.max(1);
            }
        }
        self
    }

    pub(super) fn attach(&self, socket: &Socket) -> io::Result<()> {
        socket.attach_filter(&self.program)
    }
}

const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_HALF_INDEXED: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_IND) as u16;
/// X = 4 * (byte & 15): an IPv4 header's length.
const LOAD_INDEX_HEADER_LEN: u16 = (libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_SET: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

fn load(code: u16, value: u32) -> FilterInstruction {
    FilterInstruction { code, yes: 0, no: 0, value }
}

fn accept() -> FilterInstruction {
    load(RETURN, u32::MAX)
}

fn reject() -> FilterInstruction {
    load(RETURN, 0)
}
