//! What is known of addresses beside the rules: lists that stand for a variable of theirs, and
//! reputations (`iprep`), as a suricata.yaml names them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use weir_detect::Variables;
use weir_detect::reputation::Reputation;
use weir_detect::rule::ranges::address_range;

use super::text;

/// Addresses and nets of one list, at most.
const ENTRIES_MAX: usize = 1_000_000;

/// Files of addresses, by the variable (`$NAME`) that stands for them in rules.
pub type Lists = BTreeMap<String, PathBuf>;

/// Reads `lists` as groups of addresses. Returns what is to be warned of: lines that name none.
///
/// # Errors
/// A list cannot be read, is too long, or has a name that no variable can have.
pub(super) fn read_lists(variables: &mut Variables, lists: &Lists) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for (name, path) in lists {
        let shown = path.display();
        let is_of_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        if name.is_empty() || !name.chars().all(is_of_name) {
            bail!("list `{name}`: a name has letters, digits and _ only");
        }
        let text = text(path)?;
        let (entries, left) = entries(&text);
        if entries.len() > ENTRIES_MAX {
            bail!("{shown} has {} addresses and nets, {ENTRIES_MAX} at most", entries.len());
        }
        if entries.is_empty() {
            warnings.push(format!("{shown} names no address: rules with ${name} do not run"));
        }
        if left > 0 {
            warnings.push(format!("{left} lines of {shown} name no address"));
        }
        variables.addresses.insert(name.clone(), format!("[{}]", entries.join(",")));
    }
    Ok(warnings)
}

/// The addresses, nets and ranges that a list names, and how many of its lines name none. Spamhaus
/// writes `NET ; NUMBER` or a line of JSON with a `cidr`; others have an address in a line, perhaps
/// with more behind a blank or a comma.
fn entries(text: &str) -> (Vec<Cow<'_, str>>, u64) {
    let (mut entries, mut left) = (Vec::new(), 0);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.trim();
        let entry: Cow<'_, str> = match line.starts_with('{') {
            true => match serde_json::from_str::<Entry>(line) {
                Ok(Entry { cidr: Some(net), .. }) => net.into(),
                // It tells of the list.
                Ok(Entry { kind: Some(_), .. }) => continue,
                _ => line.into(),
            },
            false => line.split([';', '#', ',', ' ', '\t']).next().unwrap_or_default().into(),
        };
        match &*entry {
            "" => {}
            named if address_range(named).is_some() => entries.push(entry),
            _ => left += 1,
        }
    }
    (entries, left)
}

/// A line of JSON: a net, or something of another kind.
#[derive(Deserialize)]
struct Entry {
    cidr: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// The reputations that a suricata.yaml names: `reputation-categories-file`, and the
/// `reputation-files` below `default-reputation-path`; relative names count from its folder. With
/// what is to be warned of: lines that cannot be read.
///
/// # Errors
/// A file cannot be read.
pub(super) fn read_reputation(yaml: &str, folder: &Path) -> Result<(Reputation, Vec<String>)> {
    let mut reputation = Reputation::default();
    let (mut categories, mut path, mut files, mut is_in_files) =
        (None, folder.to_owned(), Vec::new(), false);
    for line in yaml.lines() {
        let bare = line.split(" #").next().unwrap_or_default();
        let value = |of: &str| of.trim().trim_matches(['"', '\'']).to_owned();
        if let Some(file) = bare.trim_start().strip_prefix("- ").filter(|_| is_in_files) {
            files.push(value(file));
            continue;
        }
        is_in_files = false;
        match bare.split_once(':') {
            Some((REPUTATION_CATEGORIES, file)) => categories = Some(value(file)),
            Some(("default-reputation-path", of)) => path = folder.join(value(of)),
            Some(("reputation-files", _)) => is_in_files = true,
            _ => {}
        }
    }
    let Some(categories) = categories else { return Ok((reputation, Vec::new())) };
    let of_reputation = || "a file of reputations";
    let categories = text(&folder.join(categories)).with_context(of_reputation)?;
    reputation.read_categories(&categories);
    for file in &files {
        reputation.read_scores(&text(&path.join(file)).with_context(of_reputation)?);
    }
    let left = reputation.lines_left;
    let warning = format!("{left} lines of the reputations cannot be read");
    Ok((reputation, (left > 0).then_some(warning).into_iter().collect()))
}

/// The key that says that there are reputations.
pub(super) const REPUTATION_CATEGORIES: &str = "reputation-categories-file";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_their_makers_write_them() {
        let spamhaus = "; Spamhaus DROP List\n1.10.16.0/20 ; SBL256894\n2001:db8::/32 ; SBL1\n";
        let json = "{\"cidr\":\"1.10.16.0/20\",\"sblid\":\"SBL256894\"}\n{\"type\":\"metadata\"}\n";
        let plain = "\u{feff}# hosts\n192.0.2.1\r\n192.0.2.4-192.0.2.9, bad\nexample.org\n\n";
        let expect = |text: &str, named: &[&str], left| {
            let (entries, unread) = entries(text);
            assert_eq!((entries, unread), (named.iter().map(|it| (*it).into()).collect(), left));
        };
        expect(spamhaus, &["1.10.16.0/20", "2001:db8::/32"], 0);
        expect(json, &["1.10.16.0/20"], 0);
        expect("{\"cidr\":\n{}\n", &[], 2);
        expect(plain, &["192.0.2.1", "192.0.2.4-192.0.2.9"], 1);
    }

    #[test]
    fn reputations_lie_where_the_yaml_says() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text);
        std::fs::create_dir(folder.path().join("iprep")).unwrap();
        write("categories.txt", "1,CnC,servers of botnets\n").unwrap();
        write("iprep/a.list", "192.0.2.1,1,100\nrubbish\n").unwrap();
        let yaml = "reputation-categories-file: \"categories.txt\" # those\n\
                    default-reputation-path: iprep\nreputation-files:\n - a.list\nvars:\n - no\n";
        let (reputation, warnings) = read_reputation(yaml, folder.path()).unwrap();
        assert_ne!(reputation, Reputation::default());
        assert_eq!(warnings, ["1 lines of the reputations cannot be read"]);
        let missing = read_reputation(&yaml.replace("a.list", "b.list"), folder.path());
        assert!(missing.is_err());
        let none = read_reputation("vars:\n", folder.path()).unwrap();
        assert_eq!(none, (Reputation::default(), Vec::new()));
    }
}
