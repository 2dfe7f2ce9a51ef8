//! Numbers that stand in a buffer.

use super::Inspection;
use crate::rule::step::{
    AS_WRITTEN, Arithmetic, ByteJump, ByteOrder, ByteTest, Comparison, Origin, Read,
};

impl Inspection<'_, '_> {
    pub(super) fn byte_test(&self, test: &ByteTest, here: usize) -> bool {
        let Some((number, _)) = self.read(&test.read, here) else { return false };
        let (number, value) = (number as u64, self.value(test.value) as u64);
        let holds = match test.comparison {
            Comparison::Less => number < value,
            Comparison::LessOrEqual => number <= value,
            Comparison::Greater => number > value,
            Comparison::GreaterOrEqual => number >= value,
            Comparison::Equal => number == value,
            Comparison::And => number & value != 0,
            Comparison::Xor => number ^ value != 0,
        };
        holds != test.is_negated
    }

    /// Where the jump ends.
    pub(super) fn byte_jump(&self, jump: &ByteJump, here: usize) -> Option<usize> {
        let (number, end) = match self.start_of(&jump.read, here)? {
            // Of no bytes it is 0, also behind the last.
            start if start == self.buffer.bytes.len() && self.is_of_none(&jump.read) => (0, start),
            _ => self.read(&jump.read, here)?,
        };
        let mut by = number.wrapping_mul(jump.multiplier as i64);
        if jump.aligns {
            by = by.wrapping_add(3) & !3;
        }
        by = by.wrapping_add(self.value(jump.post_offset));
        let length = self.buffer.bytes.len();
        let base = match jump.from {
            Origin::Here => end,
            Origin::Beginning => 0,
            Origin::End => length,
        };
        let to = (base as i64).checked_add(by)?.max(0);
        usize::try_from(to).ok().filter(|to| *to <= length)
    }

    /// What `byte_math` makes of a number, whose mask is for the result; and where it ends.
    pub(super) fn reckon(
        &self,
        read: &Read,
        here: usize,
        operator: Arithmetic,
        operand: i64,
    ) -> Option<(i64, usize)> {
        // Of binary ones it takes four bytes at most, as Suricata 8.0.7 does.
        let is_taken = read.text_base.is_some() || (1..=4).contains(&self.value(read.bytes));
        let (number, end) = self.read_plain(read, here).filter(|_| is_taken)?;
        Some((masked(arithmetic(number, operator, operand)?, read.mask), end))
    }

    /// The number with its mask, and where it ends.
    pub(super) fn read(&self, read: &Read, here: usize) -> Option<(i64, usize)> {
        let (number, end) = self.read_plain(read, here)?;
        Some((masked(number, read.mask), end))
    }

    fn is_little(&self, order: ByteOrder) -> bool {
        match order {
            ByteOrder::Big => false,
            ByteOrder::Little => true,
            ByteOrder::OfCall => self.buffer.is_little,
        }
    }

    /// Where a number begins; `None`: before the buffer.
    fn start_of(&self, read: &Read, here: usize) -> Option<usize> {
        let base = if read.is_relative { here as i64 } else { 0 };
        // Of a variable, 32 bits count as an offset.
        let offset = i64::from(self.value(read.offset) as i32);
        usize::try_from(base.checked_add(offset)?).ok()
    }

    /// Whether it is a number of no bytes, and not of digits.
    fn is_of_none(&self, read: &Read) -> bool {
        read.text_base.is_none() && self.value(read.bytes) == 0
    }

    /// The number as it stands there, and where it ends.
    fn read_plain(&self, read: &Read, here: usize) -> Option<(i64, usize)> {
        let start = self.start_of(read, here)?;
        let count = usize::try_from(self.value(read.bytes)).ok()?;
        let length = self.buffer.bytes.len();
        if start >= length || count > length - start {
            return None;
        }
        // Of no bytes, it is the digits that stand there.
        let is_open = count == 0 && read.text_base.is_some();
        let end = if is_open { length } else { start + count };
        let bytes = &self.buffer.bytes[start..end];
        let (number, used) = match read.text_base {
            Some(base) => text(bytes, base)?,
            None if count > 8 => return None,
            None => (binary(bytes, self.is_little(read.order)), count),
        };
        Some((number as i64, start + used))
    }
}

/// The bits of a mask, moved down to the first.
fn masked(number: i64, mask: Option<u64>) -> i64 {
    match mask {
        Some(mask) => ((number as u64 & mask) >> mask.trailing_zeros().min(63)) as i64,
        None => number,
    }
}

fn binary(bytes: &[u8], is_little: bool) -> u64 {
    let append = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    match is_little {
        true => bytes.iter().rev().fold(0, append),
        false => bytes.iter().fold(0, append),
    }
}

/// A number in digits, as `strtoull` reads it: with blanks and a sign before it, and so negative
/// numbers from the top down; and how many bytes that took.
fn text(bytes: &[u8], base: u32) -> Option<(u64, usize)> {
    let is_blank = |it: &u8| matches!(it, b' ' | b'\t'..=b'\r');
    let digit = |it: Option<&u8>, base| char::from(*it?).to_digit(base);
    let mut used = bytes.iter().take_while(|it| is_blank(it)).count();
    let sign = bytes.get(used).filter(|it| matches!(it, b'+' | b'-'));
    used += usize::from(sign.is_some());
    let says_hex = matches!(bytes.get(used..), Some([b'0', b'x' | b'X', next, ..])
        if next.is_ascii_hexdigit());
    let base = match (base, bytes.get(used)) {
        (AS_WRITTEN, _) if says_hex => 16,
        (AS_WRITTEN, Some(b'0')) => 8,
        (AS_WRITTEN, _) => 10,
        (base, _) => base,
    };
    used += if says_hex && base == 16 { 2 } else { 0 };
    let first = used;
    let mut number = 0_u64;
    while let Some(digit) = digit(bytes.get(used), base) {
        number = number.checked_mul(base.into())?.checked_add(digit.into())?;
        used += 1;
    }
    let number = if sign == Some(&b'-') { number.wrapping_neg() } else { number };
    (used > first).then_some((number, used))
}

fn arithmetic(number: i64, operator: Arithmetic, operand: i64) -> Option<i64> {
    let (number, operand) = (number as u64, operand as u64);
    let result = match operator {
        Arithmetic::Add => number.wrapping_add(operand),
        Arithmetic::Subtract => number.wrapping_sub(operand),
        Arithmetic::Multiply => number.wrapping_mul(operand),
        Arithmetic::Divide => number.checked_div(operand)?,
        Arithmetic::ShiftLeft => {
            u32::try_from(operand).ok().and_then(|it| number.checked_shl(it)).unwrap_or(0)
        }
        Arithmetic::ShiftRight => {
            u32::try_from(operand).ok().and_then(|it| number.checked_shr(it)).unwrap_or(0)
        }
    };
    Some(result as i64)
}
