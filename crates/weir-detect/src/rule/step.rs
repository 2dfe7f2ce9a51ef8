//! What a rule asks of one buffer, step by step: contents, patterns, numbers in the bytes.

use std::sync::Arc;

use crate::alert::TextScope;

/// A number in a rule that a step before may have read from the packet (`byte_extract`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// As written.
    Fixed(i64),
    /// What the variable of this index holds.
    Variable(usize),
}

/// One thing asked of a buffer. Later steps may count from where an earlier one ended.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Content(Content),
    Pcre(Pcre),
    IsDataAt { at: Value, is_relative: bool, is_negated: bool },
    ByteTest(ByteTest),
    ByteJump(ByteJump),
    ByteExtract { read: Read, variable: usize, multiplier: u64, align: i64 },
    ByteMath { read: Read, operator: Arithmetic, operand: Value, variable: usize },
    Size(super::number::Numbers),
    Dataset(crate::dataset::DatasetTest),
    Asn1(super::asn1::Asn1Test),
    Entropy(Entropy),
    Base64 { bytes: Option<u32>, offset: u32, is_relative: bool, then: Vec<Step> },
}

impl Step {
    /// Whether it asks for the entropy of all that is looked at.
    pub(crate) fn is_entropy(&self) -> bool {
        matches!(self, Self::Entropy(_))
    }

    /// Whether something must not be there.
    pub(crate) fn is_negated(&self) -> bool {
        match self {
            Self::Content(content) => content.is_negated,
            Self::Pcre(pcre) => pcre.is_negated,
            Self::IsDataAt { is_negated, .. } => *is_negated,
            _ => false,
        }
    }

    /// Whether it asks where the bytes end.
    pub(crate) fn asks_end(&self) -> bool {
        match self {
            Self::Content(content) => content.ends,
            // Of an expression nobody knows.
            Self::Pcre(_) => true,
            _ => false,
        }
    }

    /// Whether it leaves something, in a set, a flow or an event.
    pub(crate) fn puts_something(&self) -> bool {
        match self {
            Self::Dataset(_) | Self::Entropy(_) => true,
            Self::Pcre(pcre) => !pcre.captures.is_empty(),
            Self::Base64 { then, .. } => then.iter().any(Self::puts_something),
            _ => false,
        }
    }

    /// Whether something is written over it.
    pub(crate) fn replaces(&self) -> bool {
        matches!(self, Self::Content(content) if content.replacement.is_some())
    }
}

/// How evenly the values of bytes are spread, in bits a byte: from 0 to 8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Entropy {
    pub(crate) offset: usize,
    pub(crate) bytes: Option<usize>,
    pub(crate) first: f64,
    pub(crate) last: f64,
    /// Whether the ends belong to it.
    pub(crate) with_ends: bool,
    pub(crate) is_negated: bool,
}

impl Entropy {
    /// That of the part of `bytes` which the rule names. What is shorter has none.
    pub(crate) fn of(&self, bytes: &[u8]) -> Option<f64> {
        let bytes = bytes.get(self.offset..)?;
        self.bytes.map_or(Some(bytes), |count| bytes.get(..count)).map(entropy)
    }

    /// Whether it is as the rule says.
    pub(crate) fn holds(&self, entropy: f64) -> bool {
        let holds = match self.with_ends {
            true => self.first <= entropy && entropy <= self.last,
            false => self.first < entropy && entropy < self.last,
        };
        holds != self.is_negated
    }
}

fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    bytes.iter().for_each(|it| counts[usize::from(*it)] += 1);
    let total = bytes.len() as f64;
    let share = |count: &u32| {
        let share = f64::from(*count) / total;
        -share * share.log2()
    };
    counts.iter().filter(|it| **it > 0).map(share).sum()
}

/// A string of bytes and where it is to stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) is_nocase: bool,
    pub(crate) is_negated: bool,
    pub(crate) offset: Option<Value>,
    pub(crate) depth: Option<Value>,
    pub(crate) distance: Option<Value>,
    pub(crate) within: Option<Value>,
    pub(crate) starts: bool,
    pub(crate) ends: bool,
    /// No occurrence begins before this byte: see `relative::skip`.
    pub(crate) skip: u32,
    pub(crate) fast: Fast,
    /// What is written over it in the packet (`replace`).
    pub(crate) replacement: Option<Arc<[u8]>>,
    /// Whether the next step counts from here, so that another occurrence may do better.
    pub(crate) leads: bool,
}

/// What a rule says of a content as fast pattern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fast {
    /// Nothing.
    #[default]
    Free,
    /// Take this one.
    Chosen,
    /// Take this one, and it is known to be there then: nothing more is asked of it.
    Only,
    /// Take this part of it: first byte and length.
    Part(u16, u16),
}

impl Content {
    /// Whether it counts from where the step before ended.
    pub(crate) fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }
}

/// A regular expression.
#[derive(Clone, Debug)]
pub(crate) struct Pcre {
    pub(crate) regex: pcre2::bytes::Regex,
    pub(crate) is_negated: bool,
    pub(crate) is_relative: bool,
    pub(crate) leads: bool,
    /// What its groups fill, by their numbers.
    pub(crate) captures: Vec<(usize, Capture)>,
}

/// What a group of an expression fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// A variable of the rule, with a number.
    Number(usize),
    /// A text with a name.
    Text(TextScope, u32),
}

/// What must be in a text that was captured before (`flowvar`, `pktvar`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextTest {
    pub(crate) kept: TextScope,
    pub(crate) name: u32,
    pub(crate) content: Content,
}

/// The base of digits that say theirs: `0x1f` is of 16, `017` of 8, all else of 10.
pub(crate) const AS_WRITTEN: u32 = 0;

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Big,
    Little,
    /// As a call of DCE/RPC says (`dce`); of anything but its arguments, the highest.
    OfCall,
}

/// Where a number stands in the buffer and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) bytes: Value,
    pub(crate) offset: Value,
    pub(crate) is_relative: bool,
    pub(crate) order: ByteOrder,
    /// Digits of this base instead of binary, or [`AS_WRITTEN`].
    pub(crate) text_base: Option<u32>,
    pub(crate) mask: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteTest {
    pub(crate) read: Read,
    pub(crate) comparison: Comparison,
    pub(crate) is_negated: bool,
    pub(crate) value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteJump {
    pub(crate) read: Read,
    pub(crate) multiplier: u64,
    pub(crate) aligns: bool,
    pub(crate) from: Origin,
    pub(crate) post_offset: Value,
}

/// Where a jump counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Here,
    Beginning,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    And,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    ShiftLeft,
    ShiftRight,
}
