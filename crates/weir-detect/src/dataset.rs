//! Sets of values that rules ask for and add to (`dataset`), and values with a reputation
//! (`datarep`).
//!
//! The text of files is handed in with the rules; what is added while running is kept in memory,
//! of each worker by itself.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use crate::rule::Numbers;
use crate::rule::syntax;

/// Values of a set, at most; further ones are not kept.
const VALUES_MAX: usize = 4_000_000;
/// Values that rules add to a set, at most; further ones are not kept.
const ADDED_MAX: usize = 1 << 18;
/// Sets of all rules, at most; a rule with a further one is refused.
const SETS_MAX: usize = 256;
/// Bytes of one value, at most; a longer one is in no set.
const VALUE_LEN_MAX: usize = 64 * 1024;

/// What the values of a set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Md5,
    Sha256,
    /// Both versions.
    Ip,
    Ipv4,
    Ipv6,
}

/// What a rule does with a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    IsSet,
    IsNotSet,
    /// Holds where the value was not there.
    Set,
    /// Holds where it was.
    Unset,
    /// Holds where it is there with such a reputation.
    Reputation(Numbers),
}

/// A set, and what a rule does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatasetTest {
    /// Its place among all.
    pub(crate) set: usize,
    pub(crate) verb: Verb,
}

/// A set as the rules begin with it.
#[derive(Clone, Debug)]
struct Definition {
    name: String,
    kind: Kind,
    values: HashMap<Vec<u8>, u16>,
}

/// All sets that rules name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions(Vec<Definition>);

/// What values are in each set now.
#[derive(Debug, Default)]
pub(crate) struct Datasets {
    sets: Vec<(Kind, HashMap<Vec<u8>, u16>, usize)>,
}

/// Files that the rules of `text` name for their sets.
pub fn files(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !text.contains("dataset") && !text.contains("datarep") {
        return found;
    }
    for line in syntax::lines(text).iter().filter(|it| !it.is_disabled) {
        let Ok(statement) = syntax::parse(&line.text) else { continue };
        let options = statement.options.iter();
        for option in options.filter(|it| matches!(it.name, "dataset" | "datarep")) {
            let named = |part: &str| {
                let (word, name) = part.trim().split_once(char::is_whitespace)?;
                matches!(word, "load" | "state").then(|| name.trim().to_owned())
            };
            found.extend(option.value.split(',').filter_map(named));
        }
    }
    found
}

impl Definitions {
    /// What `dataset:VALUE` asks for.
    pub(crate) fn dataset(
        &mut self,
        value: &str,
        files: &BTreeMap<String, String>,
    ) -> Result<DatasetTest, String> {
        let mut parts = value.split(',').map(str::trim);
        let verb = match parts.next().unwrap_or_default() {
            "set" => Verb::Set,
            "unset" => Verb::Unset,
            "isset" => Verb::IsSet,
            "isnotset" => Verb::IsNotSet,
            other => return Err(format!("`{other}` is done to no dataset")),
        };
        let name = parts.next().filter(|it| !it.is_empty()).ok_or("a dataset without a name")?;
        let set = self.define(name, parts, files, false)?;
        Ok(DatasetTest { set, verb })
    }

    /// What `datarep:VALUE` asks for.
    pub(crate) fn reputation(
        &mut self,
        value: &str,
        files: &BTreeMap<String, String>,
    ) -> Result<DatasetTest, String> {
        let mut parts = value.split(',').map(str::trim);
        let mut next = |what: &str| {
            parts.next().filter(|it| !it.is_empty()).ok_or(format!("datarep without {what}"))
        };
        let (name, operator, number) = (next("a name")?, next("an operator")?, next("a value")?);
        let operator = if operator == "==" { "" } else { operator };
        let numbers = Numbers::parse(&format!("{operator}{number}"))?;
        let set = self.define(name, parts, files, true)?;
        Ok(DatasetTest { set, verb: Verb::Reputation(numbers) })
    }

    fn define<'v>(
        &mut self,
        name: &str,
        parts: impl Iterator<Item = &'v str>,
        files: &BTreeMap<String, String>,
        has_reputation: bool,
    ) -> Result<usize, String> {
        let (mut kind, mut file) = (None, None);
        for part in parts {
            let (word, argument) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let argument = argument.trim();
            match word {
                "type" => kind = Some(Kind::from_name(argument)?),
                "load" => file = Some((argument, true)),
                "state" => file = Some((argument, false)),
                // Where the values go in the end, and how much memory they may take: the bounds
                // are ours, and nothing is written.
                "save" | "memcap" | "hashsize" => {}
                other => return Err(format!("`{other}` of a dataset is not known here")),
            }
        }
        let known = self.0.iter().position(|it| it.name == name);
        if let Some(known) = known {
            return match kind {
                Some(kind) if kind != self.0[known].kind => {
                    Err(format!("dataset {name} is of another type elsewhere"))
                }
                _ => Ok(known),
            };
        }
        let kind = kind.ok_or_else(|| format!("dataset {name} without a type"))?;
        if self.0.len() == SETS_MAX {
            return Err(format!("more than {SETS_MAX} datasets"));
        }
        let text = match file {
            Some((name, must_be)) => match files.get(name) {
                Some(text) => text.as_str(),
                None if must_be => return Err(format!("the file {name} cannot be read")),
                None => "",
            },
            None => "",
        };
        let mut values = HashMap::new();
        for line in text.lines().map(str::trim).filter(|it| !it.is_empty()).take(VALUES_MAX) {
            let (value, reputation) = match line.split_once(',') {
                Some((value, reputation)) => (value, reputation.trim().parse().unwrap_or(0)),
                None if has_reputation => continue,
                None => (line, 0),
            };
            let value = kind.written(value.trim());
            let value = value.ok_or_else(|| format!("`{line}` is no value of dataset {name}"))?;
            values.insert(value, reputation);
        }
        self.0.push(Definition { name: name.to_owned(), kind, values });
        Ok(self.0.len() - 1)
    }

    /// The sets as they begin.
    pub(crate) fn begin(&self) -> Datasets {
        let sets = self.0.iter().map(|it| (it.kind, it.values.clone(), 0)).collect();
        Datasets { sets }
    }
}

impl Kind {
    fn from_name(name: &str) -> Result<Self, String> {
        Ok(match name {
            "string" => Self::String,
            "md5" => Self::Md5,
            "sha256" => Self::Sha256,
            "ip" => Self::Ip,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            other => return Err(format!("`{other}` is no type of datasets")),
        })
    }

    /// A value as files write it: text in base64, digests in hex, addresses.
    fn written(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::String => base64(text),
            Self::Md5 | Self::Sha256 => {
                let length = if self == Self::Md5 { 16 } else { 32 };
                let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
                let bytes = (0..length).map(byte).collect::<Option<Vec<u8>>>();
                bytes.filter(|_| text.len() == 2 * length)
            }
            Self::Ip | Self::Ipv4 | Self::Ipv6 => {
                let bytes = match text.parse().ok()? {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                };
                self.seen(&bytes)
            }
        }
    }

    /// A value as it stands in a buffer; `None`: it is none of this kind.
    fn seen(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mapped = |bytes: &[u8]| [&[0_u8; 10][..], &[0xff; 2], bytes].concat();
        match (self, bytes.len()) {
            (Self::String, 0..=VALUE_LEN_MAX) | (Self::Md5, 16) | (Self::Sha256, 32) => {
                Some(bytes.to_vec())
            }
            (Self::Ip | Self::Ipv6, 16) | (Self::Ipv4, 4) => Some(bytes.to_vec()),
            (Self::Ip | Self::Ipv6, 4) => Some(mapped(bytes)),
            (Self::Ipv4, 16) if bytes.starts_with(&mapped(b"")) => Some(bytes[12..].to_vec()),
            _ => None,
        }
    }
}

impl Datasets {
    /// Whether the value that `bytes` are is in the set as the test says; puts it there.
    pub(crate) fn holds(&mut self, test: DatasetTest, bytes: &[u8]) -> bool {
        let Some((kind, values, added)) = self.sets.get_mut(test.set) else { return false };
        let Some(value) = kind.seen(bytes) else { return false };
        match test.verb {
            Verb::IsSet => values.contains_key(&value),
            Verb::IsNotSet => !values.contains_key(&value),
            Verb::Set => {
                let is_new = !values.contains_key(&value) && *added < ADDED_MAX;
                if is_new {
                    *added += 1;
                    values.insert(value, 0);
                }
                is_new
            }
            Verb::Unset => values.remove(&value).is_some(),
            Verb::Reputation(numbers) => {
                values.get(&value).is_some_and(|it| numbers.contain(u64::from(*it)))
            }
        }
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (held, bits) = (held << 6 | u32::from(digit), bits + 6);
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(rules: &[&str], files: &[(&str, &str)]) -> (Vec<DatasetTest>, Datasets) {
        let files = files.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect();
        let mut definitions = Definitions::default();
        let tests = rules.iter().map(|it| definitions.dataset(it, &files).unwrap()).collect();
        (tests, definitions.begin())
    }

    #[test]
    fn a_value_is_put_once_and_taken_once() {
        let rules = ["set,a,type string", "isset,a", "unset,a", "isnotset,a"];
        let (tests, mut sets) = sets(&rules, &[]);
        let [set, is_set, unset, is_not_set] = tests.try_into().unwrap();
        assert!(!sets.holds(is_set, b"x") && sets.holds(is_not_set, b"x"));
        assert!(sets.holds(set, b"x") && !sets.holds(set, b"x"));
        assert!(sets.holds(is_set, b"x") && !sets.holds(is_set, b"y"));
        assert!(sets.holds(unset, b"x") && !sets.holds(unset, b"x"));
    }

    #[test]
    fn files_are_read_as_their_type_says() {
        let rules = [
            "isset,t,type string,load t",
            "isset,m,type md5,load m",
            "isset,i,type ip,load i",
            "isset,j,type ipv4,state nowhere",
        ];
        let files = [
            ("t", "ZXZpbA==\n"),
            ("m", "d41d8cd98f00b204e9800998ecf8427e\n"),
            ("i", "10.0.0.1\n2001:db8::1\n"),
        ];
        let (tests, mut sets) = sets(&rules, &files);
        assert!(sets.holds(tests[0], b"evil") && !sets.holds(tests[0], b"good"));
        assert!(sets.holds(tests[1], &crate::digest::md5(b"")));
        assert!(sets.holds(tests[2], &[10, 0, 0, 1]) && !sets.holds(tests[2], &[10, 0, 0, 2]));
        assert!(!sets.holds(tests[3], &[10, 0, 0, 1]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut definitions = Definitions::default();
        let files = BTreeMap::new();
        for wrong in ["put,a,type string", "set,a", "set,a,type x", "isset,a,type ip,load none"] {
            assert!(definitions.dataset(wrong, &files).is_err(), "{wrong}");
        }
        definitions.dataset("set,a,type ip", &files).unwrap();
        assert!(definitions.dataset("isset,a,type md5", &files).is_err());
    }

    #[test]
    fn files_that_rules_name_are_found() {
        let rules = "alert dns any any -> any any (dns.query; dataset:isset,a,type string,load \
                     a.lst; sid:1;)\n# alert dns any any -> any any (dataset:set,b,load b; sid:2;)";
        assert_eq!(files(rules), ["a.lst"]);
    }
}
