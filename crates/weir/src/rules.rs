//! Rule files from disk: what `weir rules check`, `weir read --rules` and the daemon load.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use weir_detect::dataset::{self, NamedFile, Place};
use weir_detect::hosts::{Hosts, System};
use weir_detect::{LoadOptions, Loaded, RuleSet, RuleSource, Variables};

use crate::countries;

/// Bytes of one rule file, at most; a longer one is refused.
const FILE_LEN_MAX: u64 = 256 << 20;
/// Files of one folder, at most.
const FILES_MAX: usize = 10_000;

/// The text of rules, with all that decides what it means.
#[derive(Clone, Debug, Hash)]
pub struct Text {
    sources: Vec<RuleSource>,
    options: LoadOptions,
    variables: Variables,
}

impl Text {
    /// Compiles otherwise; the classes that were read stay.
    pub fn set_options(&mut self, options: LoadOptions) {
        let mut classes = options.classes.clone();
        classes.add(std::mem::take(&mut self.options.classes));
        let files = std::mem::take(&mut self.options.files);
        let kept = std::mem::take(&mut self.options.kept);
        let countries = self.options.countries.take();
        self.options = LoadOptions { classes, files, kept, countries, ..options };
    }

    /// Reads where addresses are, of a MaxMind database, if a rule asks.
    ///
    /// # Errors
    /// The file cannot be read, or is none.
    pub fn read_countries(&mut self, path: &Path) -> Result<()> {
        if self.sources.iter().any(|it| it.text.contains("geoip:")) {
            self.options.countries = Some(countries::read(path)?);
        }
        Ok(())
    }

    /// Reads the sets that rules keep (`state`) from their files in `folder`; a set whose file is
    /// not there is empty.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn read_kept(&mut self, folder: &Path) -> Result<()> {
        let of_rules = self.sources.iter().flat_map(|it| dataset::files(&it.text));
        let of_sets = self.variables.sets.iter().flat_map(|it| dataset::files_of_set(it));
        let kept: BTreeSet<NamedFile> =
            of_rules.chain(of_sets).filter(|it| it.place == Place::Kept).collect();
        for NamedFile { name, .. } in kept {
            // Names that lead elsewhere have their rule refused.
            let path = folder.join(&name);
            if path.starts_with(folder) && path.exists() {
                self.options.kept.0.insert(name, text(&path)?);
            }
        }
        Ok(())
    }

    /// Whether no rule is to find a checksum wrong.
    pub fn ignore_checksums(&mut self, ignores: bool) {
        self.options.ignores_checksums = ignores;
    }

    /// Makes rules of it that can run.
    ///
    /// # Errors
    /// The matcher has no memory.
    pub fn compile(&self) -> Result<Loaded> {
        let Self { sources, options, variables } = self;
        RuleSet::load(sources, variables, options).context("the rules cannot be compiled")
    }
}

/// Reads all rules below `paths`: files as they are, folders with their `*.rules` in the order of
/// their names, and each folder's `classification.config` and `threshold.config`.
///
/// # Errors
/// A path cannot be read.
pub fn read(paths: &[PathBuf], variables: Variables) -> Result<Text> {
    let mut options = LoadOptions::default();
    let mut sources = Vec::new();
    let of_sets = variables.sets.iter().flat_map(|it| dataset::files_of_set(it));
    for named in of_sets.filter(|it| it.place == Place::Beside) {
        let set = text(Path::new(&named.name))?;
        options.files.insert(named.name, set);
    }
    for file in files(paths)? {
        let text = text(&file)?;
        let is = |name: &str| file.file_name().is_some_and(|it| it == name);
        if is("classification.config") {
            options.classes.read(&text);
        } else if is("threshold.config") {
            options.filters.push_str(&text);
            options.filters.push('\n');
        } else {
            let named = dataset::files(&text);
            for named in named.into_iter().filter(|it| it.place == Place::Beside) {
                // What is not there has its rule refused.
                let folder = file.parent().unwrap_or(Path::new("."));
                if let Ok(set) = self::text(&folder.join(&named.name)) {
                    options.files.insert(named.name, set);
                }
            }
            sources.push(RuleSource { name: file.display().to_string(), text });
        }
    }
    Ok(Text { sources, options, variables })
}

/// Address and port groups of a suricata.yaml, what hosts are (`host-os-policy`) and sets of values
/// (`datasets`), over the default ones: the subset of YAML that such files use, `NAME: "VALUE"`
/// below those keys. What a set loads is relative to that file.
///
/// # Errors
/// The file cannot be read.
pub fn variables(path: &Path) -> Result<Variables> {
    read_variables(&text(path)?, path.parent().unwrap_or(Path::new(".")))
}

fn read_variables(text: &str, folder: &Path) -> Result<Variables> {
    let mut variables = Variables::default();
    let mut hosts = Vec::new();
    let mut section: Option<(usize, Section)> = None;
    for line in text.lines() {
        let bare = line.split(" #").next().unwrap_or_default().trim_end();
        let indent = bare.len() - bare.trim_start().len();
        let bare = bare.trim();
        if bare.is_empty() || bare.starts_with('#') {
            continue;
        }
        match bare {
            "address-groups:" => section = Some((indent, Section::Addresses)),
            "port-groups:" => section = Some((indent, Section::Ports)),
            "host-os-policy:" => section = Some((indent, Section::Hosts)),
            "datasets:" => section = Some((indent, Section::Sets)),
            _ => {
                let Some((of_section, kind)) = section else { continue };
                if indent <= of_section {
                    section = None;
                    continue;
                }
                let Some((name, value)) = bare.split_once(':') else { continue };
                let name = name.trim();
                let value = value.trim().trim_matches(['"', '\'']);
                match kind {
                    Section::Sets => {
                        put_set(&mut variables.sets, (name, value), folder);
                        continue;
                    }
                    Section::Addresses => &mut variables.addresses,
                    Section::Ports => &mut variables.ports,
                    Section::Hosts => {
                        let system = System::from_name(name)
                            .with_context(|| format!("host-os-policy: no system `{name}`"))?;
                        let list = value.trim_matches(['[', ']']).split(',').map(str::trim);
                        hosts.extend(list.filter(|it| !it.is_empty()).map(|it| (it, system)));
                        continue;
                    }
                }
                .insert(name.to_owned(), value.to_owned());
            }
        }
    }
    variables.sets.retain(|it| !OF_ALL_SETS.contains(&it.split(',').next().unwrap_or_default()));
    variables.hosts = Hosts::new(hosts).map_err(anyhow::Error::msg)?;
    Ok(variables)
}

/// What stands below `datasets` and is no set.
const OF_ALL_SETS: [&str; 3] = ["defaults", "limits", "rules"];

/// Takes in a line below `datasets`: a set's name, or something of the last one.
fn put_set(sets: &mut Vec<String>, (name, value): (&str, &str), folder: &Path) {
    match sets.last_mut() {
        _ if value.is_empty() => sets.push(name.to_owned()),
        Some(set) if name == "load" => {
            set.push_str(&format!(", load {}", folder.join(value).display()));
        }
        Some(set) => set.push_str(&format!(", {name} {value}")),
        None => {}
    }
}

/// What stands below a key of a suricata.yaml.
#[derive(Clone, Copy)]
enum Section {
    Addresses,
    Ports,
    Hosts,
    Sets,
}

fn text(path: &Path) -> Result<String> {
    let shown = path.display();
    let length = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    if length > FILE_LEN_MAX {
        bail!("{shown} has {length} bytes, {FILE_LEN_MAX} at most");
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    // Messages of old rules are Latin-1: what is not UTF-8 matters to no keyword.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The files to read: those named, and those of the folders named, one level and deeper.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            folder(path, 0, &mut found)?;
        } else {
            found.push(path.clone());
        }
    }
    Ok(found)
}

fn folder(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    const DEPTH_MAX: usize = 8;
    let shown = path.display();
    let entries = fs::read_dir(path).with_context(|| format!("cannot read {shown}"))?;
    let mut inside: Vec<PathBuf> = entries.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
    inside.sort();
    for path in inside {
        let is_wanted = path.extension().is_some_and(|it| it == "rules")
            || path
                .file_name()
                .is_some_and(|it| it == "classification.config" || it == "threshold.config");
        if path.is_dir() && depth < DEPTH_MAX {
            folder(&path, depth + 1, found)?;
        } else if is_wanted && path.is_file() {
            found.push(path);
        }
        if found.len() > FILES_MAX {
            bail!("{shown} has more than {FILES_MAX} rule files");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_suricata_yaml_replace_the_default_ones() {
        let text = "vars:\n  address-groups:\n    HOME_NET: \"[10.0.0.0/8]\"  # ours\n\
                    \x20   MINE: 'any'\n  port-groups:\n    HTTP_PORTS: \"8080\"\n\
                    \x20   X: 1521\noutputs:\n  HTTP_PORTS: 9\n";
        let variables = read_variables(text, Path::new("/etc")).unwrap();
        assert_eq!(variables.addresses["HOME_NET"], "[10.0.0.0/8]");
        assert_eq!(variables.addresses["MINE"], "any");
        assert_eq!(variables.addresses["EXTERNAL_NET"], "!$HOME_NET");
        assert_eq!(variables.ports["HTTP_PORTS"], "8080");
        assert_eq!(variables.ports["X"], "1521");
    }

    #[test]
    fn sets_of_a_suricata_yaml_have_names_and_files() {
        let text = "datasets:\n  defaults:\n    memcap: 10mb\n  seen:\n    type: string\n    \
                    state: seen.lst\n  bad:\n    type: md5\n    load: lists/bad.lst\nvars:\n";
        let variables = read_variables(text, Path::new("/etc/weir")).unwrap();
        let expected =
            ["seen, type string, state seen.lst", "bad, type md5, load /etc/weir/lists/bad.lst"];
        assert_eq!(variables.sets, expected);
    }
}
