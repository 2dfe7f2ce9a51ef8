//! `modbus`: what rules ask of a request of Modbus.

use super::number::Numbers;
use super::units::Field;
use crate::application::names::{self, number_of};
use crate::application::unit::Unit;

/// `modbus: unit 10, access write coils, address 100, value >500`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModbusTest {
    unit: Option<Numbers>,
    function: Option<Numbers>,
    subfunction: Option<Numbers>,
    /// Categories of which the function has one, or, negated, none.
    categories: Option<(i64, bool)>,
    /// What it does to which table.
    access: Option<i64>,
    address: Option<Numbers>,
    value: Option<Numbers>,
}

impl ModbusTest {
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        let mut test = Self::default();
        for part in value.split(',').map(str::trim) {
            let (word, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let rest = rest.trim();
            match word {
                "unit" => test.unit = Some(Numbers::parse(rest, 16)?),
                "function" => match Numbers::parse(rest, 16) {
                    Ok(numbers) => test.function = Some(numbers),
                    Err(_) => test.categories = Some(categories(rest)?),
                },
                "subfunction" => test.subfunction = Some(Numbers::parse(rest, 16)?),
                "access" => test.access = Some(access(rest)?),
                "address" => test.address = Some(Numbers::parse(rest, 16)?),
                "value" => test.value = Some(Numbers::parse(rest, 16)?),
                other => return Err(format!("`{other}` behind modbus")),
            }
        }
        Ok(test)
    }

    pub(super) fn holds(&self, unit: &Unit) -> bool {
        let number = |field| unit.numbers(field).next().and_then(|it| u64::try_from(it).ok());
        let holds = |test: &Option<Numbers>, field| {
            test.is_none_or(|test| number(field).is_some_and(|it| test.contain(it)))
        };
        let has_bits =
            |field, bits: i64| unit.numbers(field).next().is_some_and(|it| it & bits == bits);
        // Any of the addresses that the request is for: one may read some and write others.
        let is_addressed = |wanted: Numbers| {
            let places =
                unit.numbers(Field::ModbusAddress).zip(unit.numbers(Field::ModbusQuantity));
            places.into_iter().any(|(first, count)| {
                let count = count.clamp(1, 2000);
                (first..first + count)
                    .any(|it| u64::try_from(it).is_ok_and(|it| wanted.contain(it)))
            })
        };
        holds(&self.unit, Field::ModbusUnit)
            && holds(&self.function, Field::ModbusFunction)
            && holds(&self.subfunction, Field::ModbusSubfunction)
            && self.categories.is_none_or(|(wanted, is_negated)| {
                unit.numbers(Field::ModbusCategory).any(|it| (it & wanted != 0) != is_negated)
            })
            && self.access.is_none_or(|it| has_bits(Field::ModbusAccess, it))
            && self.address.is_none_or(is_addressed)
            && self.value.is_none_or(|test| {
                let mut values = unit.numbers(Field::ModbusValue);
                values.any(|it| u64::try_from(it).is_ok_and(|it| test.contain(it)))
            })
    }
}

fn categories(text: &str) -> Result<(i64, bool), String> {
    let (is_negated, name) = match text.strip_prefix('!') {
        Some(name) => (true, name),
        None => (false, text),
    };
    let bits = number_of(names::MODBUS_CATEGORIES, name);
    bits.map(|it| (it, is_negated)).ok_or_else(|| format!("`{text}` is no function"))
}

fn access(text: &str) -> Result<i64, String> {
    let mut bits = 0;
    for word in text.split_whitespace() {
        let bit = number_of(names::MODBUS_ACCESS, word);
        bits |= bit.ok_or_else(|| format!("`{word}` behind access"))?;
    }
    Ok(bits)
}
