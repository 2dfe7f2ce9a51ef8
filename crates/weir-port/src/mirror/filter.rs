//! A frame filter in the kernel: classic BPF, as libpcap makes it for frames in memory, made into a
//! program that the guard calls before it copies (bpf/mirror.bpf.h).
//!
//! ```text
//!   classic BPF (Linux Documentation/networking/filter.rst)     eBPF (RFC 9669)
//!     A, X, M[16]                                                 r7, r8, stack
//!     load from the frame                                         helper, stack, byte order
//!     shorter than what it looks at, division by zero             not taken
//!     return                                                      cb[0] |= answer, next program
//! ```
//!
//! The kernel keeps a frame's outer VLAN tag beside it, and the filter was made for a frame with
//! its tag in place. So the program stands there twice, once for each, and in the second every
//! offset is led to where the byte is.
//!
//! Nothing here ends a program early: one that did would let the frame past the guard.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::FIRST_MAIN;
use crate::packet::{FilterInstruction, FrameFilter};
use crate::sys::program::{self, Instruction};

/// A filter that the guard calls, until this is dropped.
#[derive(Debug)]
pub(super) struct KernelFrameFilter {
    programs: OwnedFd,
    place: u32,
}

impl KernelFrameFilter {
    /// Has the guard call `filter` for the mirror of `place`, by its table of programs. `None`: it
    /// has no form that the kernel takes.
    ///
    /// # Errors
    /// The kernel refuses the program or its table.
    pub(super) fn start(
        filter: &FrameFilter,
        programs: BorrowedFd<'_>,
        place: u32,
    ) -> io::Result<Option<Self>> {
        let ending = Ending::Next { programs, place };
        let Some(code) = assemble(filter.program(), &ending) else { return Ok(None) };
        let program = program::load_classifier(&code)?;
        program::put_program(programs, place, program.as_fd())?;
        Ok(Some(Self { programs: programs.try_clone_to_owned()?, place }))
    }
}

impl Drop for KernelFrameFilter {
    fn drop(&mut self) {
        // The mirror copies nothing any more; a filter that stayed would answer nobody.
        let _ = program::take_program(self.programs.as_fd(), self.place);
    }
}

/// What the program does with its answer.
enum Ending<'a> {
    /// Notes it for the mirror, and calls what comes next in the guard's table.
    Next { programs: BorrowedFd<'a>, place: u32 },
    /// Returns it.
    #[cfg(test)]
    Return,
}

/// Where the bytes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layout {
    /// All in the packet.
    Plain,
    /// The outer VLAN tag beside it.
    Tagged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// An instruction of the filter, in one of the two copies.
    At(Layout, usize),
    /// A place within what one instruction became.
    Within(usize),
    Taken,
    Refused,
}

// Registers. Helpers leave 6 to 9 alone.
const CONTEXT: u8 = 6;
const A: u8 = 7;
const X: u8 = 8;
const FRAME: u8 = 10;

// On the stack, from its top.
const MEMORY: i16 = -64;
const MEMORY_WORDS: u32 = 16;
/// What was loaded, before its byte order is changed.
const LOADED: i16 = -72;
/// The first 16 bytes of a tagged frame: addresses and tag.
const HEAD: i16 = -88;

/// Bytes of both addresses: the outer tag comes behind them.
const TAG_AT: u32 = 12;
const TAG_LEN: u32 = 4;
const TAG_END: u32 = TAG_AT + TAG_LEN;

// Fields of `struct __sk_buff` (linux/bpf.h).
const LEN: i16 = 0;
const VLAN_PRESENT: i16 = 20;
const VLAN_TCI: i16 = 24;
const VLAN_PROTO: i16 = 28;
/// `cb[0]`: the filters' answers; `cb[1]`: which program of the guard comes behind them.
const ANSWERS: i16 = 48;
const MAIN: i16 = 52;

// Operations.
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JUMP64: u8 = 0x05;
const JUMP32: u8 = 0x06;
const REGISTER: u8 = 0x08;
const MOVE: u8 = 0xb0;
const ADD: u8 = 0x00;
const SUBTRACT: u8 = 0x10;
const OR: u8 = 0x40;
const AND: u8 = 0x50;
const SHIFT_LEFT: u8 = 0x60;
const TO_BIG_ENDIAN: u8 = ALU32 | 0xd0 | REGISTER;
const ALWAYS: u8 = JUMP64;
const EQUAL: u8 = 0x10;
const GREATER: u8 = 0x20;
const NOT_EQUAL: u8 = 0x50;
const LESS: u8 = 0xa0;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LOAD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const STORE: u8 = 0x63;
const STORE_HALF: u8 = 0x6b;
const STORE_BYTE: u8 = 0x73;
const STORE_DOUBLE_VALUE: u8 = 0x7a;
const LOAD_VALUE_64: u8 = 0x18;
const MAP: u8 = 1;

// Helpers (linux/bpf.h).
const TAIL_CALL: i32 = 12;
const SKB_LOAD_BYTES: i32 = 26;

const DROP: i32 = 2;

/// What `filter` is for the kernel; `None`: it has an instruction that has no form there, or jumps
/// too far.
fn assemble(filter: &[FilterInstruction], ending: &Ending<'_>) -> Option<Vec<Instruction>> {
    let mut it = Assembler::default();
    it.put(ALU64 | MOVE | REGISTER, CONTEXT, 1, 0, 0);
    for register in [A, X] {
        it.put(ALU32 | MOVE, register, 0, 0, 0);
    }
    if filter.iter().any(|it| it.uses_memory()) {
        for word in (0..MEMORY_WORDS as i16).step_by(2) {
            it.put(STORE_DOUBLE_VALUE, FRAME, 0, MEMORY + 4 * word, 0);
        }
    }
    it.put(LOAD, 1, CONTEXT, VLAN_PRESENT, 0);
    let tagged = it.within();
    it.jump(JUMP32 | NOT_EQUAL, 1, 0, 0, tagged);
    it.filter(filter, Layout::Plain)?;
    it.place(tagged);
    it.head();
    it.filter(filter, Layout::Tagged)?;
    it.end(ending);
    it.finish()
}

#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    labels: Vec<(Label, usize)>,
    /// Instructions whose offset is still missing.
    jumps: Vec<(usize, Label)>,
    within: usize,
}

impl Assembler {
    fn put(&mut self, operation: u8, target: u8, source: u8, offset: i16, value: i32) {
        self.code.push(Instruction::new(operation, target, source, offset, value));
    }

    fn jump(&mut self, operation: u8, target: u8, source: u8, value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.put(operation, target, source, 0, value);
    }

    fn go(&mut self, to: Label) {
        self.jump(ALWAYS, 0, 0, 0, to);
    }

    fn within(&mut self) -> Label {
        self.within += 1;
        Label::Within(self.within)
    }

    fn place(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    fn filter(&mut self, filter: &[FilterInstruction], layout: Layout) -> Option<()> {
        for (at, instruction) in filter.iter().enumerate() {
            self.place(Label::At(layout, at));
            let FilterInstruction { code, yes, no, value } = *instruction;
            let to =
                |skipped: u32| Some(Label::At(layout, at + 1 + usize::try_from(skipped).ok()?));
            match code & 0x07 {
                0x00 => self.load(code, value, layout)?,
                0x01 => self.load_index(code, value, layout)?,
                0x02 => self.put(STORE, FRAME, A, word(value)?, 0),
                0x03 => self.put(STORE, FRAME, X, word(value)?, 0),
                0x04 => self.arithmetic(code, value)?,
                0x05 if code & 0xf0 == 0 => self.go(to(value)?),
                0x05 => {
                    let compared = (code & 0xf0) as u8;
                    if compared > 0x40 {
                        return None;
                    }
                    let (source, value) = operand(code, value);
                    self.jump(JUMP32 | compared | source.0, A, source.1, value, to(yes.into())?);
                    self.go(to(no.into())?);
                }
                0x06 if code & 0x18 == 0x10 => {
                    self.jump(JUMP32 | NOT_EQUAL, A, 0, 0, Label::Taken);
                    self.go(Label::Refused);
                }
                0x06 => self.go(if value == 0 { Label::Refused } else { Label::Taken }),
                _ if code & 0xf8 == 0x80 => self.put(ALU32 | MOVE | REGISTER, A, X, 0, 0),
                _ => self.put(ALU32 | MOVE | REGISTER, X, A, 0, 0),
            }
        }
        Some(())
    }

    fn load(&mut self, code: u16, value: u32, layout: Layout) -> Option<()> {
        let len = match code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            _ => 1,
        };
        match code & 0xe0 {
            0x00 => self.put(ALU32 | MOVE, A, 0, 0, value as i32),
            0x20 => self.load_at(value, len, layout, A)?,
            0x40 => self.load_behind_index(value, len, layout)?,
            0x60 => self.put(LOAD, A, FRAME, word(value)?, 0),
            0x80 => self.frame_len(layout, A),
            _ => return None,
        }
        Some(())
    }

    fn load_index(&mut self, code: u16, value: u32, layout: Layout) -> Option<()> {
        match code & 0xe0 {
            0x00 => self.put(ALU32 | MOVE, X, 0, 0, value as i32),
            0x60 => self.put(LOAD, X, FRAME, word(value)?, 0),
            0x80 => self.frame_len(layout, X),
            // An IPv4 header's length.
            0xa0 => {
                self.load_at(value, 1, layout, X)?;
                self.put(ALU32 | AND, X, 0, 0, 15);
                self.put(ALU32 | SHIFT_LEFT, X, 0, 0, 2);
            }
            _ => return None,
        }
        Some(())
    }

    fn frame_len(&mut self, layout: Layout, target: u8) {
        self.put(LOAD, target, CONTEXT, LEN, 0);
        if layout == Layout::Tagged {
            self.put(ALU32 | ADD, target, 0, 0, TAG_LEN as i32);
        }
    }

    /// Loads `len` bytes at `offset`.
    fn load_at(&mut self, offset: u32, len: u32, layout: Layout, target: u8) -> Option<()> {
        i32::try_from(offset.checked_add(len)?).ok()?;
        let in_head = match layout {
            Layout::Plain => 0,
            Layout::Tagged => TAG_END.saturating_sub(offset).min(len),
        };
        for byte in 0..in_head as i16 {
            self.put(LOAD_BYTE, 1, FRAME, HEAD + offset as i16 + byte, 0);
            self.put(STORE_BYTE, FRAME, 1, LOADED + byte, 0);
        }
        if in_head < len {
            let shift = if layout == Layout::Tagged { TAG_LEN } else { 0 };
            self.put(ALU32 | MOVE, 2, 0, 0, (offset + in_head - shift) as i32);
            self.call_load(LOADED + in_head as i16, len - in_head);
        }
        self.take_loaded(len, target);
        Some(())
    }

    /// Loads `len` bytes at X + `offset`, to A.
    fn load_behind_index(&mut self, offset: u32, len: u32, layout: Layout) -> Option<()> {
        let done = self.within();
        self.put(ALU32 | MOVE, 1, 0, 0, offset as i32);
        self.put(ALU32 | MOVE | REGISTER, 2, X, 0, 0);
        self.put(ALU64 | ADD | REGISTER, 2, 1, 0, 0);
        self.jump(JUMP64 | GREATER, 2, 0, i32::MAX - 4, Label::Refused);
        if layout == Layout::Tagged {
            // Where part of it is the tag, which is not in the packet.
            for at in TAG_AT + 1 - len..TAG_END {
                let next = self.within();
                self.jump(JUMP64 | NOT_EQUAL, 2, 0, at as i32, next);
                self.load_at(at, len, layout, A)?;
                self.go(done);
                self.place(next);
            }
            let before = self.within();
            self.jump(JUMP64 | LESS, 2, 0, TAG_END as i32, before);
            self.put(ALU64 | SUBTRACT, 2, 0, 0, TAG_LEN as i32);
            self.place(before);
        }
        self.call_load(LOADED, len);
        self.take_loaded(len, A);
        self.place(done);
        Some(())
    }

    /// Has `len` bytes of the packet from the offset in register 2 put on the stack.
    fn call_load(&mut self, to: i16, len: u32) {
        self.put(ALU64 | MOVE | REGISTER, 1, CONTEXT, 0, 0);
        self.put(ALU64 | MOVE | REGISTER, 3, FRAME, 0, 0);
        self.put(ALU64 | ADD, 3, 0, 0, to.into());
        self.put(ALU64 | MOVE, 4, 0, 0, len as i32);
        self.put(CALL, 0, 0, 0, SKB_LOAD_BYTES);
        self.jump(JUMP64 | NOT_EQUAL, 0, 0, 0, Label::Refused);
    }

    fn take_loaded(&mut self, len: u32, target: u8) {
        let load = match len {
            4 => LOAD,
            2 => LOAD_HALF,
            _ => LOAD_BYTE,
        };
        self.put(load, target, FRAME, LOADED, 0);
        if len > 1 {
            self.put(TO_BIG_ENDIAN, target, 0, 0, 8 * len as i32);
        }
    }

    /// Writes what a tagged frame begins with; every frame has its addresses.
    fn head(&mut self) {
        self.put(ALU32 | MOVE, 2, 0, 0, 0);
        self.call_load(HEAD, TAG_AT);
        // The type is kept in network byte order, the rest is not.
        self.put(LOAD, 1, CONTEXT, VLAN_PROTO, 0);
        self.put(STORE_HALF, FRAME, 1, HEAD + TAG_AT as i16, 0);
        self.put(LOAD, 1, CONTEXT, VLAN_TCI, 0);
        self.put(TO_BIG_ENDIAN, 1, 0, 0, 16);
        self.put(STORE_HALF, FRAME, 1, HEAD + TAG_AT as i16 + 2, 0);
    }

    fn arithmetic(&mut self, code: u16, value: u32) -> Option<()> {
        let operation = (code & 0xf0) as u8;
        if operation > 0xa0 {
            return None;
        }
        let (source, mut operand) = operand(code, value);
        match operation {
            // Divided by: what is zero here is an error, there it is not.
            0x30 | 0x90 if source.0 == 0 && value == 0 => return None,
            0x30 | 0x90 if source.0 != 0 => self.jump(JUMP32 | EQUAL, X, 0, 0, Label::Refused),
            // Shifted by.
            0x60 | 0x70 => operand &= 31,
            // Negated: there is no other.
            0x80 => {
                self.put(ALU32 | operation, A, 0, 0, 0);
                return Some(());
            }
            _ => {}
        }
        self.put(ALU32 | operation | source.0, A, source.1, 0, operand);
        Some(())
    }

    fn end(&mut self, ending: &Ending<'_>) {
        let bit = match ending {
            Ending::Next { place, .. } => 1 << place,
            #[cfg(test)]
            Ending::Return => 1,
        };
        // What nothing leads to the kernel does not take.
        if self.jumps.iter().any(|(_, to)| *to == Label::Taken) {
            self.place(Label::Taken);
            self.put(LOAD, 1, CONTEXT, ANSWERS, 0);
            self.put(ALU32 | OR, 1, 0, 0, bit);
            self.put(STORE, CONTEXT, 1, ANSWERS, 0);
        }
        self.place(Label::Refused);
        match ending {
            Ending::Next { programs, place } => {
                for next in (place + 1..FIRST_MAIN).map(Some).chain([None]) {
                    self.call_program(*programs, next);
                }
                // The guard itself is gone.
                self.put(ALU32 | MOVE, 0, 0, 0, DROP);
            }
            #[cfg(test)]
            Ending::Return => self.put(LOAD, 0, CONTEXT, ANSWERS, 0),
        }
        self.put(EXIT, 0, 0, 0, 0);
    }

    /// Goes on with a program of the guard's table, if it is there; `None`: what `cb[1]` says.
    fn call_program(&mut self, programs: BorrowedFd<'_>, index: Option<u32>) {
        self.put(ALU64 | MOVE | REGISTER, 1, CONTEXT, 0, 0);
        self.put(LOAD_VALUE_64, 2, MAP, 0, programs.as_raw_fd());
        self.put(0, 0, 0, 0, 0);
        match index {
            Some(index) => self.put(ALU32 | MOVE, 3, 0, 0, index as i32),
            None => self.put(LOAD, 3, CONTEXT, MAIN, 0),
        }
        self.put(CALL, 0, 0, 0, TAIL_CALL);
    }

    fn finish(mut self) -> Option<Vec<Instruction>> {
        self.labels.sort_unstable();
        for (at, to) in &self.jumps {
            let found = self.labels.binary_search_by_key(to, |(label, _)| *label).ok()?;
            let offset = self.labels[found].1 as i64 - *at as i64 - 1;
            self.code[*at].set_offset(i16::try_from(offset).ok()?);
        }
        Some(self.code)
    }
}

/// The second operand: the flag and register of X, or a number.
fn operand(code: u16, value: u32) -> ((u8, u8), i32) {
    if code & 0x08 == 0 { ((0, 0), value as i32) } else { ((REGISTER, X), 0) }
}

/// Where a word of the scratch memory is.
fn word(index: u32) -> Option<i16> {
    (index < MEMORY_WORDS).then(|| MEMORY + 4 * index as i16)
}

#[cfg(test)]
mod tests;
