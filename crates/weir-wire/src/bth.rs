//! Base transport header (IBTA Vol 1 s9.2): its newtypes and its view.

/// An opcode: transport service in the high three bits, operation in the low five.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(pub u8);

/// A 24-bit queue pair number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(u32);

/// A 24-bit packet sequence number; comparison wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Psn(u32);

/// A partition key: membership bit and 15-bit partition number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey(pub u16);

impl Qpn {
    /// The low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// Its number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl Psn {
    /// The low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// Its number.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// This number moved on by `count`, modulo 2^24.
    pub const fn add(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// How far `self` lies after `earlier`: negative when before, in -2^23 .. 2^23.
    pub const fn distance(self, earlier: Psn) -> i32 {
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }
}
