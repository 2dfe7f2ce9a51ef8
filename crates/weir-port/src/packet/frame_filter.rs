//! pcap-filter expressions applied here, to frames in memory: what the kernel does for a capture,
//! for frames that no socket hands over (a mirror's, an evidence ring's).
//!
//! libpcap compiles to classic BPF (Linux Documentation/networking/filter.rst): no loops, so a
//! program ends after as many steps as it has instructions.

use super::FilterError;
use crate::sys::filter_compiler::{self, CompilerError};
pub(crate) use crate::sys::socket::FilterInstruction;

/// A compiled expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameFilter {
    program: Vec<FilterInstruction>,
}

const CLASS: u16 = 0x07;
const LOAD: u16 = 0x00;
const LOAD_INDEX: u16 = 0x01;
const STORE: u16 = 0x02;
const STORE_INDEX: u16 = 0x03;
const ARITHMETIC: u16 = 0x04;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;
const MEMORY_WORDS: usize = 16;

/// The two registers and the scratch memory.
#[derive(Default)]
struct Machine {
    a: u32,
    x: u32,
    memory: [u32; MEMORY_WORDS],
}

impl FrameFilter {
    /// What the pcap-filter(7) `expression` takes of Ethernet frames.
    ///
    /// # Errors
    /// [`FilterError`]: libpcap is missing, or the expression is wrong.
    pub fn compile(expression: &str) -> Result<Self, FilterError> {
        let program = filter_compiler::compile_for_frames(expression).map_err(|error| {
            let expression = expression.to_owned();
            match error {
                CompilerError::Library(reason) => FilterError::NoCompiler { reason },
                CompilerError::Interface(reason) | CompilerError::Expression(reason) => {
                    FilterError::Expression { expression, reason }
                }
            }
        })?;
        Ok(Self { program })
    }

    pub(crate) fn program(&self) -> &[FilterInstruction] {
        &self.program
    }

    /// Whether it takes a frame of `original_len` bytes of which `bytes` are there. A frame that is
    /// shorter than what the program looks at is not taken, as in the kernel.
    pub fn takes(&self, bytes: &[u8], original_len: u32) -> bool {
        self.run(bytes, original_len).is_some_and(|value| value != 0)
    }

    fn run(&self, bytes: &[u8], original_len: u32) -> Option<u32> {
        let mut machine = Machine::default();
        let mut at = 0;
        while let Some(instruction) = self.program.get(at) {
            at += 1;
            let FilterInstruction { code, yes, no, value } = *instruction;
            match code & CLASS {
                LOAD => machine.a = machine.load(code, value, bytes, original_len)?,
                LOAD_INDEX => machine.x = machine.load_index(code, value, bytes, original_len)?,
                STORE => *machine.memory.get_mut(value as usize)? = machine.a,
                STORE_INDEX => *machine.memory.get_mut(value as usize)? = machine.x,
                ARITHMETIC => machine.a = machine.arithmetic(code, value)?,
                JUMP => {
                    let jumped = match machine.holds(code, value)? {
                        None => value as usize,
                        Some(true) => yes.into(),
                        Some(false) => no.into(),
                    };
                    at = at.checked_add(jumped)?;
                }
                RETURN if code & 0x18 == 0x10 => return Some(machine.a),
                RETURN => return Some(value),
                // Transfers between the registers.
                _ if code & 0xf8 == 0x80 => machine.a = machine.x,
                _ => machine.x = machine.a,
            }
        }
        None
    }
}

impl FilterInstruction {
    /// Whether it reads or writes the scratch memory.
    pub(crate) fn uses_memory(&self) -> bool {
        match self.code & CLASS {
            STORE | STORE_INDEX => true,
            LOAD | LOAD_INDEX => self.code & 0xe0 == 0x60,
            _ => false,
        }
    }
}

impl Machine {
    fn load(&self, code: u16, value: u32, bytes: &[u8], original_len: u32) -> Option<u32> {
        let offset = match code & 0xe0 {
            0x00 => return Some(value),
            0x20 => value as usize,
            0x40 => (self.x as usize).checked_add(value as usize)?,
            0x60 => return self.memory.get(value as usize).copied(),
            0x80 => return Some(original_len),
            _ => return None,
        };
        let bytes = bytes.get(offset..)?;
        Some(match code & 0x18 {
            0x00 => u32::from_be_bytes(*bytes.first_chunk()?),
            0x08 => u16::from_be_bytes(*bytes.first_chunk()?).into(),
            _ => (*bytes.first()?).into(),
        })
    }

    fn load_index(&self, code: u16, value: u32, bytes: &[u8], original_len: u32) -> Option<u32> {
        match code & 0xe0 {
            0x00 => Some(value),
            0x60 => self.memory.get(value as usize).copied(),
            0x80 => Some(original_len),
            // An IPv4 header's length.
            0xa0 => Some(u32::from(bytes.get(value as usize)? & 15) * 4),
            _ => None,
        }
    }

    fn arithmetic(&self, code: u16, value: u32) -> Option<u32> {
        let (a, b) = (self.a, if code & 0x08 == 0 { value } else { self.x });
        Some(match code & 0xf0 {
            0x00 => a.wrapping_add(b),
            0x10 => a.wrapping_sub(b),
            0x20 => a.wrapping_mul(b),
            0x30 => a.checked_div(b)?,
            0x40 => a | b,
            0x50 => a & b,
            0x60 => a.wrapping_shl(b),
            0x70 => a.wrapping_shr(b),
            0x80 => a.wrapping_neg(),
            0x90 => a.checked_rem(b)?,
            0xa0 => a ^ b,
            _ => return None,
        })
    }

    /// Whether a jump's condition holds; `Some(None)`: it has none.
    fn holds(&self, code: u16, value: u32) -> Option<Option<bool>> {
        let b = if code & 0x08 == 0 { value } else { self.x };
        Some(match code & 0xf0 {
            0x00 => None,
            0x10 => Some(self.a == b),
            0x20 => Some(self.a > b),
            0x30 => Some(self.a >= b),
            0x40 => Some(self.a & b != 0),
            _ => return None,
        })
    }
}
