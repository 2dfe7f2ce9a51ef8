//! What is wrong about a message of Modbus that can be read all the same (MODBUS application
//! protocol V1.1b3, s6 and s7): values that may not be, too few or too many bytes, codes that there
//! are none of.

use crate::buffers::event::AppEvent;

/// Coils that one request may be about, and registers.
const COILS_MAX: u16 = 2000;
const REGISTERS_MAX: u16 = 125;
/// Bytes that an answer may bring.
const ANSWER_MAX: u8 = 250;

/// What is wrong, of which there may be several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults(u8);

/// In the order in which they are told: how EVE names them, and the events of requests and answers.
const NAMES: [(&str, [AppEvent; 2]); 5] = [
    ("DATA_VALUE", [AppEvent::ModbusValue, AppEvent::ModbusMismatch]),
    ("DATA_LENGTH", [AppEvent::ModbusLength; 2]),
    ("EXC_CODE", [AppEvent::ModbusException; 2]),
    ("FUNC_CODE", [AppEvent::ModbusFunction; 2]),
    ("PROTO_ID", [AppEvent::ModbusProtocol; 2]),
];

impl Faults {
    pub(super) const VALUE: Self = Self(1);
    pub(super) const LENGTH: Self = Self(2);
    const EXCEPTION: Self = Self(4);
    const FUNCTION: Self = Self(8);
    pub(super) const PROTOCOL: Self = Self(16);

    pub(super) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    fn add_if(&mut self, is: bool, other: Self) {
        self.0 |= if is { other.0 } else { 0 };
    }

    fn each(self) -> impl Iterator<Item = (&'static str, [AppEvent; 2])> {
        NAMES.into_iter().enumerate().filter(move |it| self.0 >> it.0 & 1 == 1).map(|it| it.1)
    }

    /// Their events, of the client's message (0) or the server's (1).
    pub(super) fn events(self, side: usize) -> impl Iterator<Item = AppEvent> {
        self.each().map(move |it| it.1[side])
    }

    /// As EVE has them.
    pub(super) fn names(self) -> String {
        let names: Vec<_> = self.each().map(|it| it.0).collect();
        if names.is_empty() { "NONE".to_owned() } else { names.join(" | ") }
    }

    /// Those of a request of that function, `code` without the bit of exceptions.
    pub(super) fn of_request(function: u8, data: &[u8]) -> Self {
        let mut faults = Self::default();
        let code = function & 0x7f;
        let rest = match code {
            8 => {
                faults.add_if(data.len() != 4, Self::LENGTH);
                faults.add_if(is_wrong_diagnostic(data), Self::VALUE);
                return faults;
            }
            43 => {
                faults.add_if(data.is_empty(), Self::LENGTH);
                return faults;
            }
            20 | 21 if data.is_empty() => None,
            7 | 11 | 12 | 17 if !data.is_empty() => None,
            24 if data.len() != 2 => None,
            _ => {
                faults.add_if(code == 0 || function >= 0x80, Self::FUNCTION);
                faults.read_or_written(code, data)
            }
        };
        faults.add_if(rest != Some(0), Self::LENGTH);
        faults
    }

    /// What is wrong about addresses and values; returns how many bytes are left behind them, and
    /// nothing where some are missing.
    fn read_or_written(&mut self, code: u8, data: &[u8]) -> Option<usize> {
        let word = |at: usize| data.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
        match code {
            1..=4 | 23 => {
                let quantity = word(2)?;
                let max = if matches!(code, 1 | 2) { COILS_MAX } else { REGISTERS_MAX };
                self.add_if(quantity == 0 || quantity > max, Self::VALUE);
                match code {
                    23 => self.written(code, &data[4..]),
                    _ => Some(data.len() - 4),
                }
            }
            5 | 6 => {
                let value = word(2)?;
                self.add_if(code == 5 && !matches!(value, 0 | 0xff00), Self::VALUE);
                Some(data.len() - 4)
            }
            15 | 16 => self.written(code, data),
            22 => data.len().checked_sub(6),
            _ => Some(0),
        }
    }

    /// Several values that are written: their place, how many they are, and how many bytes.
    fn written(&mut self, code: u8, data: &[u8]) -> Option<usize> {
        let [_, _, high, low, count, values @ ..] = data else { return None };
        let (quantity, count) = (u16::from_be_bytes([*high, *low]), usize::from(*count));
        self.add_if(quantity == 0 || values.len() != count, Self::LENGTH);
        let quantities = usize::from(quantity);
        let (max, due) = match code {
            15 => (COILS_MAX, quantities.div_ceil(8)),
            _ => (REGISTERS_MAX, 2 * quantities),
        };
        self.add_if(quantity > max || count != due, Self::VALUE);
        Some(0)
    }

    /// Those of an answer.
    pub(super) fn of_answer(function: u8, data: &[u8]) -> Self {
        let word = |at: usize| data.get(at..at + 2).map(|it| u16::from_be_bytes([it[0], it[1]]));
        let mut faults = Self::default();
        let code = function & 0x7f;
        match code {
            _ if function >= 0x80 => {
                faults.add_if(data.len() != 1, Self::LENGTH);
                let is_wrong = |it: &u8| match *it {
                    8 => !matches!(code, 20 | 21),
                    known => !matches!(known, 1..=7 | 10 | 11),
                };
                faults.add_if(data.first().is_some_and(is_wrong), Self::EXCEPTION);
            }
            8 => faults.add_if(data.len() < 2, Self::LENGTH),
            43 => faults.add_if(data.is_empty(), Self::LENGTH),
            7 => faults.add_if(data.len() != 1, Self::LENGTH),
            11 => faults.add_if(data.len() != 4, Self::LENGTH),
            1..=4 | 20 | 23 => match data {
                [] => faults.add(Self::LENGTH),
                [count, values @ ..] => {
                    let is_wrong = !(1..=ANSWER_MAX).contains(count);
                    faults.add_if(is_wrong || values.len() != usize::from(*count), Self::VALUE);
                }
            },
            5 | 6 => faults.add_if(data.len() != 4, Self::LENGTH),
            15 | 16 => {
                faults.add_if(data.len() != 4, Self::LENGTH);
                let max = if code == 15 { COILS_MAX } else { REGISTERS_MAX };
                faults.add_if(word(2).is_some_and(|it| it == 0 || it > max), Self::VALUE);
            }
            21 => faults.add_if(data.is_empty(), Self::LENGTH),
            22 => faults.add_if(data.len() != 6, Self::LENGTH),
            _ => {}
        }
        faults
    }
}

/// Whether a diagnostic request brings what its subfunction has no use for.
fn is_wrong_diagnostic(data: &[u8]) -> bool {
    let [high, low, first, second] = *data else { return false };
    match u16::from_be_bytes([high, low]) {
        0 | 4..=9 | 19 | 21.. => false,
        1 => second != 0 || !matches!(first, 0 | 0xff),
        3 => second != 0,
        _ => (first, second) != (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_in_order() {
        let of = |function, data: &[u8]| Faults::of_request(function, data).names();
        assert_eq!(of(3, &[0, 1, 0, 2]), "NONE");
        assert_eq!(of(3, &[0, 1, 0, 0]), "DATA_VALUE");
        assert_eq!(of(3, &[0, 1, 0]), "DATA_LENGTH");
        assert_eq!(of(0x83, &[0, 1, 0, 200, 9]), "DATA_VALUE | DATA_LENGTH | FUNC_CODE");
        assert_eq!(of(16, &[0, 1, 0, 1, 2, 0, 7]), "NONE");
        assert_eq!(of(16, &[0, 1, 0, 2, 2, 0, 7]), "DATA_VALUE");
        assert_eq!(of(8, &[0, 1, 0xff, 0]), "NONE");
        assert_eq!(of(8, &[0, 10, 1, 0]), "DATA_VALUE");
        // The specification's own examples: s6.14, s6.15, s6.18.
        let of_records = [14, 6, 0, 4, 0, 1, 0, 2, 6, 0, 3, 0, 9, 0, 2];
        assert_eq!(of(20, &of_records), "NONE");
        assert_eq!(of(21, &[13, 6, 0, 4, 0, 7, 0, 3, 6, 0xaf, 4, 0xbe, 0x10, 13]), "NONE");
        assert_eq!((of(24, &[4, 0xde]), of(24, &[4])), ("NONE".into(), "DATA_LENGTH".into()));
        let of = |function, data: &[u8]| Faults::of_answer(function, data).names();
        assert_eq!(of(3, &[2, 0, 1]), "NONE");
        assert_eq!(of(3, &[4, 0, 1]), "DATA_VALUE");
        assert_eq!(of(0x83, &[2]), "NONE");
        assert_eq!(of(0x83, &[8]), "EXC_CODE");
        assert_eq!(of(0x94, &[8]), "NONE");
        assert_eq!(of(24, &[0, 6, 0, 2, 1, 0xb8, 0x12, 0x84]), "NONE");
    }
}
