//! What rules need of a suricata.yaml: groups, sets of values, what hosts are, reputations, and the
//! files of classes and thresholds. `include` is followed; whatever else stands there is not read.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use weir_detect::Variables;
use weir_detect::hosts::{Hosts, System};
use weir_detect::reputation::Reputation;

use super::text;

/// Files that are included, at most, those that they include too.
const INCLUDES_MAX: usize = 64;
/// What stands below `datasets` and is no set.
const OF_ALL_SETS: [&str; 3] = ["defaults", "limits", "rules"];

/// A suricata.yaml with what it includes; of a key that comes twice the last counts.
#[derive(Debug, Default)]
pub(super) struct Yaml {
    folder: PathBuf,
    keys: Map<String, Value>,
    includes: usize,
}

/// All keys of a suricata.yaml, and of those that it includes.
///
/// # Errors
/// A file cannot be read, or is no YAML.
pub(crate) fn keys(path: &Path) -> Result<Map<String, Value>> {
    let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
    let yaml = Yaml::all(&text(path)?, folder);
    Ok(yaml.with_context(|| format!("{} is not understood", path.display()))?.keys)
}

impl Yaml {
    /// Reads one that rules are to be read with.
    ///
    /// # Errors
    /// A file cannot be read, is no YAML, or has nothing that is read here and something else.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        Self::of(&text(path)?, folder).with_context(|| format!("{} cannot be used", path.display()))
    }

    fn of(text: &str, folder: PathBuf) -> Result<Self> {
        let yaml = Self::all(text, folder)?;
        let sections = ["address-groups", "port-groups", "host-os-policy", "datasets"];
        let is_known = |key: &str| yaml.section(key).is_some_and(|it| !it.is_empty());
        let has_files = FILES.iter().any(|it| yaml.keys.contains_key(*it));
        if !yaml.keys.is_empty() && !has_files && !sections.into_iter().any(is_known) {
            bail!(
                "no `address-groups`, `port-groups`, `host-os-policy` or `datasets` with \
                 something, and none of {}",
                FILES.map(|it| format!("`{it}`")).join(", ")
            );
        }
        Ok(yaml)
    }

    fn all(text: &str, folder: PathBuf) -> Result<Self> {
        let mut yaml = Self { folder, ..Self::default() };
        yaml.add(text)?;
        Ok(yaml)
    }

    /// Takes the keys of a file in, where it includes others theirs.
    fn add(&mut self, text: &str) -> Result<()> {
        let options = serde_saphyr::options! {
            duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
            // `!include` among values.
            reject_unsupported_tags: true,
            with_snippet: false,
        };
        let Some(Pairs(pairs)) = serde_saphyr::from_str_with_options(&without_head(text), options)?
        else {
            return Ok(());
        };
        for (key, value) in pairs {
            if key != "include" {
                self.keys.insert(key, value);
                continue;
            }
            for file in list(&value) {
                self.includes += 1;
                if self.includes > INCLUDES_MAX {
                    bail!("more than {INCLUDES_MAX} files are included");
                }
                let path = self.folder.join(file);
                self.add(&super::text(&path)?)
                    .with_context(|| format!("{} cannot be included", path.display()))?;
            }
        }
        Ok(())
    }

    /// What stands below a key, at the top or among `vars`.
    fn section(&self, key: &str) -> Option<&Map<String, Value>> {
        let vars = self.keys.get("vars").and_then(Value::as_object);
        [vars, Some(&self.keys)].into_iter().flatten().find_map(|it| it.get(key)?.as_object())
    }

    /// Groups, sets and hosts, over the default ones. What a set loads is relative to the file.
    ///
    /// # Errors
    /// A value is not of its key's kind.
    pub(super) fn variables(&self) -> Result<Variables> {
        let mut variables = Variables::default();
        let Variables { addresses, ports, .. } = &mut variables;
        for (key, group) in [("address-groups", addresses), ("port-groups", ports)] {
            for (name, value) in self.section(key).into_iter().flatten() {
                let value = group_of(value).with_context(|| format!("{key}: {name}"))?;
                group.insert(name.clone(), value);
            }
        }
        let mut hosts = Vec::new();
        for (name, value) in self.section("host-os-policy").into_iter().flatten() {
            let system = System::from_name(name)
                .with_context(|| format!("host-os-policy: no system `{name}`"))?;
            hosts.extend(list(value).into_iter().map(|it| (it, system)));
        }
        let hosts = hosts.iter().map(|(address, system)| (address.as_str(), *system));
        variables.hosts = Hosts::new(hosts.collect::<Vec<_>>()).map_err(anyhow::Error::msg)?;
        variables.keeps_sets = true;
        for (name, value) in self.section("datasets").into_iter().flatten() {
            let Some(options) = value.as_object() else { continue };
            if !OF_ALL_SETS.contains(&name.as_str()) {
                variables.sets.push(self.set(name, options));
            } else if let Some(may) = options.get("allow-write").filter(|_| name == "rules") {
                variables.keeps_sets = is_true(&word(may));
            }
        }
        Ok(variables)
    }

    /// A set of values, as a rule would name it.
    fn set(&self, name: &str, options: &Map<String, Value>) -> String {
        let mut set = name.to_owned();
        for (key, value) in options {
            let value = word(value);
            match key.as_str() {
                "load" => set += &format!(", load {}", self.folder.join(value).display()),
                _ => set += &format!(", {key} {value}"),
            }
        }
        set
    }

    /// The reputations that it names: `reputation-categories-file`, and the `reputation-files`
    /// below `default-reputation-path`. With what is to be warned of: lines that cannot be read.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn reputation(&self) -> Result<(Reputation, Option<String>)> {
        let mut reputation = Reputation::default();
        let Some(categories) = self.file("reputation-categories-file") else {
            return Ok((reputation, None));
        };
        let of_reputation = || "a file of reputations";
        reputation.read_categories(&text(&categories).with_context(of_reputation)?);
        let path = self.file("default-reputation-path").unwrap_or_else(|| self.folder.clone());
        for file in self.keys.get("reputation-files").map(list).unwrap_or_default() {
            reputation.read_scores(&text(&path.join(file)).with_context(of_reputation)?);
        }
        let left = reputation.lines_left;
        let warning = format!("{left} lines of the reputations cannot be read");
        Ok((reputation, (left > 0).then_some(warning)))
    }

    /// The file that a key names.
    pub(super) fn file(&self, key: &str) -> Option<PathBuf> {
        self.keys.get(key).filter(|it| !it.is_null()).map(|it| self.folder.join(word(it)))
    }
}

/// Keys that name files which are read here.
const FILES: [&str; 3] = ["reputation-categories-file", "threshold-file", "classification-file"];

/// A mapping's keys in the order in which they stand.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Pairs;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("keys with values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

/// A file with nothing in the lines that are no YAML that parsers agree on (`%YAML 1.1`), so that
/// problems further down are named by their lines.
pub(crate) fn without_head(text: &str) -> String {
    let is_of_head = |it: &&str| it.starts_with('%') || *it == "---";
    let lines = text.lines().map(|it| if is_of_head(&it) { "" } else { it });
    lines.map(|it| format!("{it}\n")).collect()
}

/// A value in one word, as Suricata has all of them.
pub(crate) fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The words of a list, or the only one.
fn list(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(values) => values.iter().map(word).collect(),
        value => vec![word(value)],
    }
}

/// A group's text. Brackets that lack their quotes make a list of it.
fn group_of(value: &Value) -> Result<String> {
    match value {
        Value::Array(values) => {
            Ok(format!("[{}]", values.iter().map(word).collect::<Vec<_>>().join(",")))
        }
        Value::Null | Value::Object(_) => bail!("no `NAME: \"VALUE\"`"),
        value => Ok(word(value).split_whitespace().collect::<Vec<_>>().join(" ")),
    }
}

/// As Suricata reads it: what says nothing of the kind is no.
fn is_true(value: &str) -> bool {
    ["1", "yes", "true", "on"].iter().any(|it| value.eq_ignore_ascii_case(it))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(text: &str) -> Result<Yaml> {
        Yaml::of(text, "/etc/weir".into())
    }

    fn variables(text: &str) -> Variables {
        of(text).unwrap().variables().unwrap()
    }

    #[test]
    fn groups_replace_the_default_ones() {
        let variables = variables(
            "%YAML 1.1\n---\nvars:\n  address-groups:\n    HOME_NET: \"[10.0.0.0/8]\"  # ours\n\
             \x20   MINE: 'any'\n    LONG: \"[10.0.0.0/8,\n      192.0.2.0/24]\"\n    \
             BARE: [10.0.0.1, 10.0.0.2]\n  port-groups:\n    HTTP_PORTS: \"8080\"\n\
             \x20   X: 1521\noutputs:\n  HTTP_PORTS: 9\n",
        );
        let addresses = ["HOME_NET", "MINE", "EXTERNAL_NET", "LONG", "BARE"];
        let addresses = addresses.map(|it| variables.addresses[it].as_str());
        let long = "[10.0.0.0/8, 192.0.2.0/24]";
        assert_eq!(addresses, ["[10.0.0.0/8]", "any", "!$HOME_NET", long, "[10.0.0.1,10.0.0.2]"]);
        assert_eq!(["HTTP_PORTS", "X"].map(|it| variables.ports[it].as_str()), ["8080", "1521"]);
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        for (text, why) in [
            ("rubbish\n", "expected mapping"),
            ("address-groups:\n", "no `address-groups`"),
            ("outputs:\n  a: b\n", "no `address-groups`"),
            ("address-groups:\n  HOME_NET: \"[10.0.0.0/8\n", ""),
            ("address-groups:\n  HOME_NET: [10.0.0.0/8\n", ""),
            ("address-groups:\n\tHOME_NET: any\n", ""),
            ("address-groups:\n  HOME_NET:\n    A: any\n", "address-groups: HOME_NET"),
            ("host-os-policy:\n  amiga: []\n", "no system `amiga`"),
            ("vars: !include a.yaml\n", "tag"),
            ("include: missing.yaml\n", "cannot read /etc/weir/missing.yaml"),
        ] {
            let error = of(text).and_then(|it| it.variables()).unwrap_err();
            assert!(format!("{error:#}").contains(why), "{text}: {error:#}");
        }
        assert_eq!(variables("# nothing\n"), Variables::default());
    }

    #[test]
    fn others_are_included_where_they_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let net = |net: &str| format!("vars:\n  address-groups:\n    HOME_NET: {net}\n");
        write("a.yaml", &format!("include:\n - b.yaml\n{}", net("10.0.0.1")));
        write("b.yaml", "datasets:\n  seen:\n    type: ip\n");
        write("c.yaml", "include: c.yaml\n");
        for (text, expected) in [
            (format!("{}include: a.yaml\n", net("10.0.0.2")), "10.0.0.1"),
            (format!("include: a.yaml\n{}", net("10.0.0.2")), "10.0.0.2"),
        ] {
            write("suricata.yaml", &text);
            let yaml = Yaml::read(&folder.path().join("suricata.yaml")).unwrap();
            let variables = yaml.variables().unwrap();
            assert_eq!(variables.addresses["HOME_NET"], expected);
            assert_eq!(variables.sets, ["seen, type ip"]);
        }
        let error = Yaml::read(&folder.path().join("c.yaml")).unwrap_err();
        assert!(format!("{error:#}").ends_with("more than 64 files are included"), "{error:#}");
    }

    #[test]
    fn what_hosts_are_is_read_with_and_without_quotes() {
        let text = "host-os-policy:\n  windows: [0.0.0.0/0]\n  bsd: []\n\
                    \x20 linux: [10.0.0.0/8, \"fd77::1\", '192.168.1.100']\n";
        let hosts = variables(text).hosts;
        let system = |address: &str| {
            let address: std::net::IpAddr = address.parse().unwrap();
            hosts.system(weir_engine::policy::mapped(address))
        };
        for address in ["10.7.7.7", "fd77::1", "192.168.1.100"] {
            assert_eq!(system(address), System::Linux, "{address}");
        }
        assert_eq!(system("192.0.2.1"), System::Windows);
    }

    #[test]
    fn sets_have_names_and_files() {
        let text = "datasets:\n  defaults:\n    memcap: 10mb\n  seen:\n    type: string\n    \
                    state: seen.lst\n  bad:\n    type: md5\n    load: lists/bad.lst\nvars:\n";
        let variables = variables(text);
        let expected =
            ["bad, load /etc/weir/lists/bad.lst, type md5", "seen, state seen.lst, type string"];
        assert_eq!(variables.sets, expected);
        assert!(variables.keeps_sets);
    }

    #[test]
    fn it_says_whether_rules_may_have_sets_kept() {
        for (value, may) in [("no", false), ("false", false), ("yes", true), ("True", true)] {
            let variables = variables(&format!("datasets:\n  rules:\n    allow-write: {value}\n"));
            assert_eq!((variables.keeps_sets, variables.sets.len()), (may, 0), "{value}");
        }
    }

    #[test]
    fn reputations_lie_where_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
        fs::create_dir(folder.path().join("iprep")).unwrap();
        write("categories.txt", "1,CnC,servers of botnets\n").unwrap();
        write("iprep/a.list", "192.0.2.1,1,100\nrubbish\n").unwrap();
        let yaml = "reputation-categories-file: \"categories.txt\" # those\n\
                    default-reputation-path: iprep\nreputation-files:\n - a.list\nvars:\n - no\n";
        let read = |yaml: &str| Yaml::of(yaml, folder.path().to_owned()).unwrap().reputation();
        let (reputation, warning) = read(yaml).unwrap();
        assert_ne!(reputation, Reputation::default());
        assert_eq!(warning.unwrap(), "1 lines of the reputations cannot be read");
        assert!(read(&yaml.replace("a.list", "b.list")).is_err());
        let none = read("datasets:\n  a:\n    type: ip\n").unwrap();
        assert_eq!(none, (Reputation::default(), None));
    }
}
