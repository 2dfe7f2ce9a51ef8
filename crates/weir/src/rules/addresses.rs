//! What is known of addresses beside the rules: lists that stand for a variable of theirs, and
//! reputations (`iprep`), as a suricata.yaml names them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail};
use serde::Deserialize;
use weir_detect::Variables;
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
}
