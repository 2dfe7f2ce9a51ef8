//! Sets of values that rules ask for and add to (`dataset`), and values with a reputation
//! (`datarep`).
//!
//! ```text
//!  files' text --Definitions (with the rules)--> Datasets, one a detector
//!                                                  |   |
//!     what rules put and take --Change-------------+   +--SharedCounts--> the other detectors'
//!        `--> whoever keeps the files of `state` and `save`
//! ```

mod json;
mod options;
mod values;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::inspect::base64;
use crate::rule::Numbers;
use crate::rule::syntax;
use crate::value;
pub(crate) use options::leads_out;
use options::{Format, Options};
pub(crate) use values::{Datasets, Moved};
use values::{Set, Values};

/// Values of a set, at most; further ones are not kept.
const VALUES_MAX: usize = 4_000_000;
/// Values that rules add to a set, at most; further ones are not kept.
const ADDED_MAX: usize = 1 << 18;
/// Bytes that values may take which rules add to a set, unless `memcap` says otherwise (Suricata's
/// `datasets.defaults.memcap`).
const MEMORY_USUAL: usize = 100 << 20;
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
    name: Arc<str>,
    kind: Kind,
    values: Arc<Values>,
    /// Bytes that values may take which rules add.
    memory: usize,
    /// What the rule that named it first says of files.
    files: [Option<String>; 2],
    /// Where alerts tell what is known of a value, where that is known.
    context: Option<Arc<str>>,
    /// The file that it is kept in.
    kept: Option<Arc<str>>,
    /// Whether its values have reputations.
    has_reputation: bool,
}

/// All sets that rules name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    sets: Vec<Definition>,
    /// Kept files with lines that are no values, and how many.
    spoiled: Vec<String>,
    /// No rule may have a set kept in a file.
    are_fixed: bool,
}

/// A file that a rule names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedFile {
    /// As the rule writes it.
    pub name: String,
    /// Where it is.
    pub place: FileLocation,
}

/// Where a file is that a rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileLocation {
    /// Beside the rule's own file.
    Beside,
    /// In the folder where sets are kept that rules change.
    Kept,
}

/// The text of files that sets are kept in, by name. They change while the rules stay what they
/// are, and do not count where rules are compared.
#[derive(Clone, Debug, Default)]
pub struct KeptFiles(pub BTreeMap<String, String>);

impl std::hash::Hash for KeptFiles {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// A set that is to be kept in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSet {
    /// Its name, below the folder of such files.
    pub file: Arc<str>,
    /// What it begins with, a value a line.
    pub lines: Vec<String>,
    /// The file holds it already, as far as it is there.
    pub is_loaded: bool,
}

/// A value that a rule put into a set that is kept, or took from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file that the set is kept in.
    pub file: Arc<str>,
    /// The value, as a line of it.
    pub line: String,
    /// Whether it is in the set now.
    pub is_set: bool,
}

/// What a set of the form JSON knows of a value that a rule found there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Where alerts tell it.
    pub name: Arc<str>,
    /// An object, as JSON.
    pub json: Arc<str>,
}

/// Keywords whose value is a list of digests, by its file's name.
const OF_DIGESTS: [&str; 3] = ["filemd5", "filesha1", "filesha256"];

/// Files that the rules of `text` name: those of their sets, and lists of digests. Those that lead
/// out of the rules' folder are not among them, and have their rule refused: nobody opens them.
pub fn files(text: &str) -> Vec<NamedFile> {
    let mut found = Vec::new();
    let lower = text.to_ascii_lowercase();
    if !["dataset", "datarep", "filemd5", "filesha"].iter().any(|it| lower.contains(it)) {
        return found;
    }
    for line in syntax::lines(text).iter().filter(|it| !it.is_disabled) {
        let Ok(statement) = syntax::parse(&line.text) else { continue };
        for option in &statement.options {
            let keyword = option.name.to_ascii_lowercase();
            if OF_DIGESTS.contains(&keyword.as_str()) {
                let name = syntax::unquoted(option.value).1.trim().to_owned();
                found.push(NamedFile { name, place: FileLocation::Beside });
            }
            if !matches!(keyword.as_str(), "dataset" | "datarep") {
                continue;
            }
            found.extend(files_of_set(option.value));
        }
    }
    found.retain(|it| !leads_out(&it.name));
    found
}

/// Files that stand behind a set's name.
pub fn files_of_set(options: &str) -> impl Iterator<Item = NamedFile> + '_ {
    options.split(',').filter_map(|part| {
        let (word, name) = part.trim().split_once(char::is_whitespace)?;
        let place = match word {
            "load" => FileLocation::Beside,
            "state" => FileLocation::Kept,
            _ => return None,
        };
        Some(NamedFile { name: name.trim().to_owned(), place })
    })
}

/// The text of files that rules name, by where they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts<'a> {
    pub(crate) beside: &'a BTreeMap<String, String>,
    pub(crate) kept: &'a KeptFiles,
}

impl Definitions {
    /// None yet; whether rules may have some kept in files.
    pub(crate) fn new(keeps_sets: bool) -> Self {
        Self { are_fixed: !keeps_sets, ..Self::default() }
    }

    /// Takes in a set that is no rule's: `NAME, type string, load FILE`.
    pub(crate) fn declare(&mut self, set: &str, texts: Texts<'_>) -> Result<(), String> {
        let (name, options) = set.split_once(',').unwrap_or((set, ""));
        let options = Options::parse(name, options.split(',').map(str::trim))?;
        self.define(name.trim(), &options, texts, false).map(drop)
    }

    /// What `dataset:VALUE` asks for.
    pub(crate) fn dataset(&mut self, value: &str, texts: Texts<'_>) -> Result<DatasetTest, String> {
        let mut parts = value.split(',').map(str::trim);
        let verb = match parts.next().unwrap_or_default() {
            "set" => Verb::Set,
            "unset" => Verb::Unset,
            "isset" => Verb::IsSet,
            "isnotset" => Verb::IsNotSet,
            other => return Err(format!("`{other}` is done to no dataset")),
        };
        let name = parts.next().filter(|it| !it.is_empty()).ok_or("a dataset without a name")?;
        let options = Options::of_rule(name, parts)?;
        if options.format != Format::Lines && matches!(verb, Verb::Set | Verb::Unset) {
            return Err("a set in JSON can only be asked: isset, isnotset".to_owned());
        }
        if self.are_fixed && options.kept().is_some() {
            return Err("no rule may have a set kept in a file: `allow-write` is off".to_owned());
        }
        let set = self.define(name, &options, texts, false)?;
        Ok(DatasetTest { set, verb })
    }

    /// What `datarep:VALUE` asks for.
    pub(crate) fn reputation(
        &mut self,
        value: &str,
        texts: Texts<'_>,
    ) -> Result<DatasetTest, String> {
        let mut parts = value.split(',').map(str::trim);
        let mut next = |what: &str| {
            parts.next().filter(|it| !it.is_empty()).ok_or(format!("datarep without {what}"))
        };
        let (name, operator, number) = (next("a name")?, next("an operator")?, next("a value")?);
        if !number.bytes().all(|it| it.is_ascii_digit()) {
            return Err(format!("`{number}` is no reputation"));
        }
        let operator = if operator == "==" { "" } else { operator };
        let numbers = Numbers::parse(&format!("{operator}{number}"), 16)?;
        let options = Options::of_rule(name, parts)?;
        if options.format != Format::Lines {
            return Err("a reputation stands behind its value, not in JSON".to_owned());
        }
        let set = self.define(name, &options, texts, true)?;
        Ok(DatasetTest { set, verb: Verb::Reputation(numbers) })
    }

    fn define(
        &mut self,
        name: &str,
        options: &Options<'_>,
        texts: Texts<'_>,
        has_reputation: bool,
    ) -> Result<usize, String> {
        let files = [options.loaded(), options.kept()].map(|it| it.map(str::to_owned));
        if let Some(known) = self.sets.iter().position(|it| *it.name == *name) {
            let first = &self.sets[known];
            if options.kind.is_some_and(|it| it != first.kind) {
                return Err(format!("dataset {name} is of another type elsewhere"));
            }
            if has_reputation != first.has_reputation {
                return Err(format!("{name} is named by both dataset and datarep"));
            }
            if files != [None, None] && files != first.files {
                return Err(format!("dataset {name} has other files where it is named first"));
            }
            return Ok(known);
        }
        let kind = options.kind.ok_or_else(|| format!("dataset {name} without a type"))?;
        if self.sets.len() == SETS_MAX {
            return Err(format!("more than {SETS_MAX} datasets"));
        }
        let text = match (options.load, options.state) {
            (Some(file), _) => match texts.beside.get(file) {
                Some(text) => text.as_str(),
                None => return Err(format!("the file {file} cannot be read")),
            },
            (None, Some(file)) => texts.kept.0.get(file).map_or("", String::as_str),
            (None, None) => "",
        };
        let values = match (options.format, options.state) {
            (Format::Lines, Some(file)) => {
                // Nobody wrote it by hand: one bad line is no reason to lose the others, and the
                // rules with them.
                let (values, bad) = read_lines(kind, text, has_reputation);
                self.spoiled.extend(bad.map(|it| it.said_of(file)));
                values
            }
            (Format::Lines, None) => match read_lines(kind, text, has_reputation) {
                (values, None) => values,
                (_, Some(bad)) => return Err(bad.refusal(name, kind, has_reputation)),
            },
            _ => json::read(name, kind, text, options)?,
        };
        self.sets.push(Definition {
            name: name.into(),
            kind,
            values: Arc::new(values),
            memory: options.memory.unwrap_or(MEMORY_USUAL),
            files,
            context: options.context_key.map(Arc::from),
            kept: options.kept().map(Arc::from),
            has_reputation,
        });
        Ok(self.sets.len() - 1)
    }

    /// The sets as they begin.
    fn sets(&self) -> impl Iterator<Item = Set> {
        self.sets.iter().map(Set::begin)
    }

    /// Takes out what is said of kept files with lines that are no values.
    pub(crate) fn take_spoiled(&mut self) -> Vec<String> {
        std::mem::take(&mut self.spoiled)
    }

    /// Those that are to be kept in files.
    pub(crate) fn kept(&self) -> impl Iterator<Item = KeptSet> {
        self.sets.iter().filter_map(|it| {
            let [load, _] = &it.files;
            Some(KeptSet {
                file: it.kept.clone()?,
                lines: it.values.iter().map(|value| it.kind.line(value)).collect(),
                is_loaded: load.is_none(),
            })
        })
    }
}

/// Lines of a file that are no values, or too many. What they say is told nobody: the file may be
/// another than was meant.
struct BadLines {
    /// From 1.
    first: usize,
    count: usize,
    /// The first is a value for which there is no room.
    is_too_many: bool,
}

impl BadLines {
    fn refusal(&self, set: &str, kind: Kind, has_reputation: bool) -> String {
        let line = self.first;
        if self.is_too_many {
            return format!("dataset {set}: more than {VALUES_MAX} values, from line {line} on");
        }
        let wanted = match kind {
            Kind::String => "text in base64",
            _ => kind.written_as(),
        };
        let behind = if has_reputation { " with a reputation behind it" } else { "" };
        format!("dataset {set}: line {line} of its file is no {wanted}{behind}")
    }

    fn said_of(&self, file: &str) -> String {
        let Self { first, count, .. } = self;
        format!(
            "dataset file {file}: lines that are no values were left out: {count}, the first is \
             line {first}"
        )
    }
}

/// A value a line; with a reputation, a comma and that behind it. Lines that are no values are left
/// out, and told.
fn read_lines(kind: Kind, text: &str, has_reputation: bool) -> (Values, Option<BadLines>) {
    let mut values = Values::default();
    let mut bad: Option<BadLines> = None;
    let otherwise = (!has_reputation).then_some(0);
    let lines = text.lines().map(str::trim).zip(1..).filter(|it| !it.0.is_empty());
    for (line, number) in lines {
        let (value, reputation) = match line.split_once(',') {
            // One of no set that has reputations need not be a number.
            Some((value, text)) => (value, text.trim().parse::<u16>().ok().or(otherwise)),
            None if has_reputation => continue,
            None => (line, Some(0)),
        };
        match (kind.written(value.trim()), reputation) {
            (Some(value), Some(reputation)) if values.len() < VALUES_MAX => {
                values.put(value, reputation.into());
            }
            (value, reputation) => {
                let is_too_many = value.is_some() && reputation.is_some();
                bad.get_or_insert(BadLines { first: number, count: 0, is_too_many }).count += 1;
            }
        }
    }
    (values, bad)
}

impl Kind {
    /// What a value of it is called.
    fn written_as(self) -> &'static str {
        match self {
            Self::String => "text",
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
            Self::Ip => "IP address",
            Self::Ipv4 => "IPv4 address",
            Self::Ipv6 => "IPv6 address",
        }
    }

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
            Self::String => from_base64(text),
            Self::Md5 => hexadecimal(text, 16),
            Self::Sha256 => hexadecimal(text, 32),
            Self::Ip | Self::Ipv4 | Self::Ipv6 => {
                let bytes = match text.parse().ok()? {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                };
                self.seen(&bytes)
            }
        }
    }

    /// The same the other way round.
    fn line(self, value: &[u8]) -> String {
        match self {
            Self::String => value::base64(value),
            Self::Md5 | Self::Sha256 => value.iter().map(|it| format!("{it:02x}")).collect(),
            Self::Ip | Self::Ipv4 | Self::Ipv6 => {
                if let Ok(octets) = <[u8; 4]>::try_from(value) {
                    return Ipv4Addr::from(octets).to_string();
                }
                let address = <[u8; 16]>::try_from(value).map(Ipv6Addr::from);
                let address = address.unwrap_or(Ipv6Addr::UNSPECIFIED);
                match address.to_canonical() {
                    IpAddr::V4(v4) => v4.to_string(),
                    // In full, as Suricata writes it.
                    IpAddr::V6(v6) => v6.segments().map(|it| format!("{it:04x}")).join(":"),
                }
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

/// So many bytes in hexadecimal digits.
pub(crate) fn hexadecimal(text: &str, length: usize) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
    let bytes = (0..length).map(byte).collect::<Option<Vec<u8>>>();
    bytes.filter(|_| text.len() == 2 * length)
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let digit = base64::digit(byte)?;
        (held, bits) = (held << 6 | u32::from(digit), bits + 6);
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
