//! Where addresses are: databases of MaxMind's format (version 2), as GeoLite2-Country and its
//! like have it.
//!
//! A search tree over the bits of addresses leads to records; what is wanted of a record is the
//! code of its country. All of it is turned into ranges once, when rules are read.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result, bail};
use weir_detect::countries::Countries;

use crate::rules;

/// Bytes of a database, at most.
const FILE_LEN_MAX: u64 = 1 << 30;
/// Before the metadata, which stands at the file's end.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// Zeros between the tree and the data.
const GAP_LEN: usize = 16;
/// Values within each other, pointers included, at most; and values of one record.
const DEPTH_MAX: u8 = 16;
const VALUES_MAX: usize = 4096;
/// Where IPv4 lies as rules have it: mapped into IPv6.
const MAPPED: u128 = 0xffff << 32;

/// Reads a database.
///
/// # Errors
/// It cannot be read, or is none of countries.
pub fn read(path: &Path) -> Result<Countries> {
    let shown = path.display();
    let bytes = rules::file(path, FILE_LEN_MAX)?;
    Database::of(&bytes)
        .and_then(|it| it.countries())
        .with_context(|| format!("{shown} is no MaxMind database of countries"))
}

/// Whether it is one, without a look at its countries.
///
/// # Errors
/// It cannot be read, or is none.
pub fn check(path: &Path) -> Result<()> {
    let bytes = rules::file(path, FILE_LEN_MAX)?;
    Database::of(&bytes)
        .with_context(|| format!("{} is no MaxMind database of countries", path.display()))?;
    Ok(())
}

/// A database's parts.
struct Database<'a> {
    tree: &'a [u8],
    data: &'a [u8],
    nodes: usize,
    record_bits: usize,
    /// Bits of an address.
    bits: u32,
}

/// A value, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(String),
    Number(u64),
    Map(HashMap<String, Value>),
    Other,
}

impl<'a> Database<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self> {
        let marker = bytes.windows(MARKER.len()).rposition(|it| it == MARKER);
        let marker = marker.context("it has no metadata")?;
        let (before, metadata) = bytes.split_at(marker);
        let metadata = Reader { data: &metadata[MARKER.len()..], at: 0 }.value(0, &mut 0)?;
        let Value::Map(metadata) = metadata else { bail!("its metadata is no map") };
        let number = |name: &str| match metadata.get(name) {
            Some(Value::Number(number)) => Ok(*number),
            _ => bail!("its metadata has no {name}"),
        };
        let nodes = usize::try_from(number("node_count")?)?;
        let record_bits = usize::try_from(number("record_size")?)?;
        if !matches!(record_bits, 24 | 28 | 32) || number("binary_format_major_version")? != 2 {
            bail!("it is of another version");
        }
        let bits = if number("ip_version")? == 4 { 32 } else { 128 };
        let length = nodes.checked_mul(record_bits / 4).context("its tree is too long")?;
        let tree = before.get(..length).context("its tree is cut off")?;
        let data = before.get(length + GAP_LEN..).context("it has no data")?;
        Ok(Self { tree, data, nodes, record_bits, bits })
    }

    /// Where the left (0) or right (1) branch of a node leads.
    fn branch(&self, node: usize, side: usize) -> usize {
        let length = self.record_bits / 4;
        let node = &self.tree[node * length..][..length];
        let number = |bytes: &[u8]| bytes.iter().fold(0, |all, it| all << 8 | usize::from(*it));
        match (self.record_bits, side) {
            (28, 0) => usize::from(node[3] >> 4) << 24 | number(&node[..3]),
            (28, _) => usize::from(node[3] & 15) << 24 | number(&node[4..]),
            (_, 0) => number(&node[..length / 2]),
            _ => number(&node[length / 2..]),
        }
    }

    /// The ranges of each country.
    fn countries(&self) -> Result<Countries> {
        let mut found: BTreeMap<String, Vec<(u128, u128)>> = BTreeMap::new();
        let mut codes: HashMap<usize, Option<String>> = HashMap::new();
        let of_version_4 = self.root_of_version_4();
        // Each node is come by once, but for aliases; a tree that goes round has no end.
        let mut left = self.nodes.saturating_mul(4) + 1024;
        // Node, the bits that lead there, and how many they are.
        let mut open = vec![(0_usize, 0_u128, 0_u32)];
        while let Some((node, prefix, depth)) = open.pop() {
            left = left.checked_sub(1).context("its tree has no end")?;
            if node < self.nodes {
                // What else leads to IPv4's part says nothing new of it.
                let is_alias = of_version_4 == Some(node) && prefix != 0;
                if depth == self.bits || is_alias {
                    continue;
                }
                for side in [1, 0] {
                    let bit = (side as u128) << (self.bits - 1 - depth);
                    open.push((self.branch(node, side), prefix | bit, depth + 1));
                }
                continue;
            }
            let Some(at) = node.checked_sub(self.nodes + GAP_LEN) else { continue };
            let code = match codes.get(&at) {
                Some(code) => code,
                None => codes.entry(at).or_insert(self.code(at)?),
            };
            let Some(code) = code else { continue };
            let rest = self.bits - depth;
            let last = prefix | 1_u128.checked_shl(rest).unwrap_or_default().wrapping_sub(1);
            let offset = if last >> 32 == 0 { MAPPED } else { 0 };
            match found.get_mut(code) {
                Some(ranges) => ranges.push((prefix | offset, last | offset)),
                None => drop(found.insert(code.clone(), vec![(prefix | offset, last | offset)])),
            }
        }
        if found.is_empty() {
            bail!("no record names a country");
        }
        Ok(Countries::new(found))
    }

    /// In a tree of IPv6, the node behind 96 zeros.
    fn root_of_version_4(&self) -> Option<usize> {
        let bits = if self.bits == 128 { 96 } else { return None };
        let mut node = 0;
        for _ in 0..bits {
            node = self.branch(node, 0);
            if node >= self.nodes {
                return None;
            }
        }
        Some(node)
    }

    /// The country of a record.
    fn code(&self, at: usize) -> Result<Option<String>> {
        let Value::Map(record) = (Reader { data: self.data, at }).value(0, &mut 0)? else {
            return Ok(None);
        };
        let Some(Value::Map(country)) = record.get("country") else { return Ok(None) };
        Ok(match country.get("iso_code") {
            Some(Value::Text(code)) => Some(code.to_ascii_uppercase()),
            _ => None,
        })
    }
}

/// Reads values.
struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).context("its data is cut off")?;
        let bytes = self.data.get(self.at..end).context("its data is cut off")?;
        self.at = end;
        Ok(bytes)
    }

    fn number(&mut self, count: usize) -> Result<u64> {
        Ok(self.take(count)?.iter().fold(0, |all, it| all << 8 | u64::from(*it)))
    }

    /// A value, of which so many were `read` before in the record.
    fn value(&mut self, depth: u8, read: &mut usize) -> Result<Value> {
        const POINTER: u8 = 1;
        const TEXT: u8 = 2;
        const MAP: u8 = 7;
        const ARRAY: u8 = 11;
        const BOOLEAN: u8 = 14;
        *read += 1;
        if depth == DEPTH_MAX || *read > VALUES_MAX {
            bail!("a record of it has no end");
        }
        let control = self.number(1)? as u8;
        let kind = match control >> 5 {
            0 => self.number(1)? as u8 + MAP,
            kind => kind,
        };
        if kind == POINTER {
            let at = self.pointer(control)?;
            return Reader { data: self.data, at }.value(depth + 1, read);
        }
        let length = match control & 31 {
            29 => 29 + self.number(1)? as usize,
            30 => 285 + self.number(2)? as usize,
            31 => 65_821 + self.number(3)? as usize,
            short => usize::from(short),
        };
        match kind {
            TEXT => Ok(Value::Text(String::from_utf8_lossy(self.take(length)?).into_owned())),
            5 | 6 | 9 if length <= 8 => Ok(Value::Number(self.number(length)?)),
            MAP => {
                let mut map = HashMap::new();
                for _ in 0..length {
                    let Value::Text(key) = self.value(depth + 1, read)? else {
                        bail!("a key of its data is no text")
                    };
                    map.insert(key, self.value(depth + 1, read)?);
                }
                Ok(Value::Map(map))
            }
            ARRAY => {
                for _ in 0..length {
                    self.value(depth + 1, read)?;
                }
                Ok(Value::Other)
            }
            // The length is the value.
            BOOLEAN => Ok(Value::Other),
            _ => self.take(length).map(|_| Value::Other),
        }
    }

    fn pointer(&mut self, control: u8) -> Result<usize> {
        let high = usize::from(control & 7);
        Ok(match control >> 3 & 3 {
            0 => high << 8 | self.number(1)? as usize,
            1 => 2048 + (high << 16 | self.number(2)? as usize),
            2 => 526_336 + (high << 24 | self.number(3)? as usize),
            _ => self.number(4)? as usize,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The database of testdata: Sweden and Norway by 192.0.2.0/24 and 2001:db8::/32.
    fn database() -> Vec<u8> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::read(path.join("../../testdata/language/places/countries.mmdb")).unwrap()
    }

    #[test]
    fn countries_have_their_networks() {
        let bytes = database();
        let found = format!("{:?}", Database::of(&bytes).unwrap().countries().unwrap());
        let ranges = |first: &str, last: &str| {
            let number = |it: &str| match it.parse().unwrap() {
                std::net::IpAddr::V4(it) => it.to_ipv6_mapped().to_bits(),
                std::net::IpAddr::V6(it) => it.to_bits(),
            };
            format!("({}, {})", number(first), number(last))
        };
        for (first, last) in [
            ("192.0.2.0", "192.0.2.127"),
            ("192.0.2.128", "192.0.2.191"),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            assert!(found.contains(&ranges(first, last)), "{found}");
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_refused_or_read_and_nothing_else() {
        let bytes = database();
        for length in 0..bytes.len() {
            assert!(Database::of(&bytes[..length]).is_err(), "{length}");
        }
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[place] ^= 1 << bit;
                let _ = Database::of(&bytes).and_then(|it| it.countries());
            }
        }
    }
}
