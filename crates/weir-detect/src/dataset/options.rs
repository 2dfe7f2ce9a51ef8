//! What a rule says of a set behind its name: type, files, form, memory.

use std::path::{Component, Path};

use super::Kind;

/// How the values of a file are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// One a line.
    #[default]
    Lines,
    /// Objects in one array.
    Json,
    /// An object a line.
    JsonLines,
}

/// Behind the set's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options<'v> {
    pub(super) kind: Option<Kind>,
    pub(super) load: Option<&'v str>,
    save: Option<&'v str>,
    pub(super) state: Option<&'v str>,
    /// Bytes that values may take which rules add.
    pub(super) memory: Option<usize>,
    pub(super) format: Format,
    /// Where in an object its value is, and whether it is left out of what alerts tell.
    pub(super) value_key: Option<&'v str>,
    pub(super) removes_key: bool,
    /// Where the array is.
    pub(super) array_key: Option<&'v str>,
    pub(super) context_key: Option<&'v str>,
}

/// Whether a file's name leads out of the folder that it is looked for in.
pub(crate) fn leads_out(name: &str) -> bool {
    let is_inside = |it| matches!(it, Component::Normal(_) | Component::CurDir);
    !Path::new(name).components().all(is_inside)
}

impl<'v> Options<'v> {
    /// Of a rule, which names files below the folder of its own alone.
    pub(super) fn of_rule(set: &str, parts: impl Iterator<Item = &'v str>) -> Result<Self, String> {
        let options = Self::parse(set, parts)?;
        match options.load.filter(|it| leads_out(it)) {
            Some(file) => Err(format!("{file} leads out of the folder of the rule's file")),
            None => Ok(options),
        }
    }

    pub(super) fn parse(set: &str, parts: impl Iterator<Item = &'v str>) -> Result<Self, String> {
        let mut options = Self::default();
        for part in parts {
            let (word, argument) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let argument = argument.trim();
            if argument.is_empty() && word != "remove_key" {
                return Err(format!("`{part}` of dataset {set} says nothing"));
            }
            match word {
                "type" => options.kind = Some(Kind::from_name(argument)?),
                "load" => options.load = Some(argument),
                "save" => options.save = Some(argument),
                "state" => options.state = Some(argument),
                "memcap" => options.memory = Some(bytes(argument)?),
                // How big a table is to begin with: ours grow.
                "hashsize" => drop(bytes(argument)?),
                "format" => {
                    options.format = match argument {
                        "csv" => Format::Lines,
                        "json" => Format::Json,
                        "ndjson" => Format::JsonLines,
                        other => return Err(format!("`{other}` is no format of datasets")),
                    };
                }
                "value_key" => options.value_key = Some(argument),
                "array_key" => options.array_key = Some(argument),
                "context_key" => options.context_key = Some(argument),
                "remove_key" => options.removes_key = true,
                other => return Err(format!("`{other}` of a dataset is not known here")),
            }
        }
        options.check(set)?;
        Ok(options)
    }

    fn check(&self, set: &str) -> Result<(), String> {
        if self.state.is_some() && (self.load.is_some() || self.save.is_some()) {
            return Err(format!("dataset {set}: `state` is `load` and `save` in one"));
        }
        let is_inside =
            |it: &&str| Path::new(it).components().all(|part| matches!(part, Component::Normal(_)));
        if let Some(file) = self.kept().filter(|it| !is_inside(it)) {
            return Err(format!("{file} leads out of the folder where datasets are kept"));
        }
        match self.format {
            Format::Lines => Ok(()),
            _ if self.kept().is_some() => Err(format!("dataset {set}: no JSON is written")),
            _ if self.value_key.is_none() => Err(format!("dataset {set} in JSON needs value_key")),
            _ if self.context_key.is_none() => {
                Err(format!("dataset {set} in JSON needs context_key"))
            }
            _ => Ok(()),
        }
    }

    /// The file that it begins with, which must be there.
    pub(super) fn loaded(&self) -> Option<&'v str> {
        self.load
    }

    /// The file that it is kept in.
    pub(super) fn kept(&self) -> Option<&'v str> {
        self.state.or(self.save)
    }
}

/// `10mb`
fn bytes(text: &str) -> Result<usize, String> {
    let small = text.to_ascii_lowercase();
    let units = [("kb", 10), ("mb", 20), ("gb", 30), ("kib", 10), ("mib", 20), ("gib", 30)];
    let unit = units.iter().find_map(|(unit, bits)| Some((small.strip_suffix(unit)?, *bits)));
    let (digits, bits) = unit.unwrap_or((&small, 0));
    let number = digits.trim().parse::<usize>().ok().and_then(|it| it.checked_mul(1 << bits));
    number.ok_or_else(|| format!("`{text}` is no size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options<'_>, String> {
        Options::parse("a", text.split(',').map(str::trim))
    }

    #[test]
    fn what_goes_with_what_is_checked() {
        for good in [
            "type string, state a.lst, memcap 10mb, hashsize 1024",
            "type md5, load a, save sub/b.lst",
            "type ip, load a, format json, value_key ip, array_key x.y, context_key c, remove_key",
            "type ip, load a, format ndjson, value_key ip, context_key c",
        ] {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good));
        }
        for wrong in [
            "type string, state a, load b",
            "type string, state a, save a",
            "type string, save /etc/passwd",
            "type string, state ../a",
            "type string, memcap much",
            "type string, load",
            "type ip, load a, format json, context_key c",
            "type ip, load a, format json, value_key ip",
            "type ip, state a, format json, value_key ip, context_key c",
            "type ip, load a, format xml",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rules_load_files_of_their_own_folder_alone() {
        let of_rule = |text| Options::of_rule("a", [text].into_iter());
        for inside in ["load a.lst", "load ./a.lst", "load lists/a..b/c.lst"] {
            assert!(of_rule(inside).is_ok(), "{inside}");
        }
        for outside in ["load /etc/passwd", "load ../a", "load lists/../../a", "load .."] {
            assert!(of_rule(outside).unwrap_err().contains("leads out"), "{outside}");
            assert!(parse(outside).is_ok(), "a configuration may: {outside}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("512"), Ok(512));
        assert_eq!(bytes("10mb"), Ok(10 << 20));
        assert_eq!(bytes("1 GiB"), Ok(1 << 30));
        assert!(bytes("-1").is_err());
    }
}
