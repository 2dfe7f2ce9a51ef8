//! Classes of rules (`classtype`): those that are known without a file, and those that files have.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};
use weir_detect::{Classes, RuleIndex, RuleSet};

/// Names that are told of at once.
const NAMED_MAX: usize = 10;

/// The classes of Suricata's classification.config, by priority: many rules name one and come
/// without that file.
const BUILT_IN: [(u32, &[&str]); 4] = [
    (
        1,
        &[
            "attempted-user",
            "unsuccessful-user",
            "successful-user",
            "attempted-admin",
            "successful-admin",
            "shellcode-detect",
            "trojan-activity",
            "web-application-attack",
            "inappropriate-content",
            "policy-violation",
            "targeted-activity",
            "exploit-kit",
            "domain-c2",
            "credential-theft",
            "command-and-control",
        ],
    ),
    (
        2,
        &[
            "bad-unknown",
            "attempted-recon",
            "successful-recon-limited",
            "successful-recon-largescale",
            "attempted-dos",
            "successful-dos",
            "rpc-portmap-decode",
            "suspicious-filename-detect",
            "suspicious-login",
            "system-call-detect",
            "unusual-client-port-connection",
            "denial-of-service",
            "non-standard-protocol",
            "web-application-activity",
            "misc-attack",
            "default-login-attempt",
            "external-ip-check",
            "pup-activity",
            "social-engineering",
            "coin-mining",
        ],
    ),
    (
        3,
        &[
            "not-suspicious",
            "unknown",
            "string-detect",
            "network-scan",
            "protocol-command-decode",
            "misc-activity",
            "icmp-event",
        ],
    ),
    (4, &["tcp-connection"]),
];

/// The classes that are known without a file. Each is called by its name, in words.
pub(super) fn built_in() -> Classes {
    let mut classes = Classes::default();
    for (priority, names) in BUILT_IN {
        for name in names {
            let words = name.replace('-', " ");
            classes.read(&format!("config classification: {name},{words},{priority}"));
        }
    }
    classes
}

/// Reads the classes of a file.
///
/// # Errors
/// It has lines, and none says what a class is.
pub(super) fn read(text: &str, path: &Path, classes: &mut Classes) -> Result<()> {
    let mut lines = text.lines().map(str::trim);
    let is_empty = lines.all(|it| it.is_empty() || it.starts_with('#'));
    if classes.read(text) == 0 && !is_empty {
        bail!(
            "{}: no line of it is `config classification: NAME,DESCRIPTION,PRIORITY`",
            path.display()
        );
    }
    Ok(())
}

/// What is said of rules whose classes nobody knows; `None`: there is none.
pub(super) fn unknown(rules: &RuleSet, classes: &Classes) -> Option<String> {
    let all = (0..rules.len() as u32).map(|it| rules.rule(RuleIndex(it)));
    let named: BTreeSet<&str> =
        all.map(|it| it.class.as_str()).filter(|it| !it.is_empty() && !classes.knows(it)).collect();
    if named.is_empty() {
        return None;
    }
    let mut words = named.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    if named.len() > NAMED_MAX {
        words += &format!(" and {} others", named.len() - NAMED_MAX);
    }
    Some(format!("classtype without a class, so that severity is 3: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_class_is_refused_and_an_empty_one_is_not() {
        let mut classes = Classes::default();
        let mut read = |text: &str| read(text, Path::new("c"), &mut classes);
        read("# nothing yet\n\n").unwrap();
        read("config classification: mine,My own,2\nrubbish\n").unwrap();
        for wrong in ["rubbish\n", "config classification: mine\n", "\u{1}\u{2}"] {
            assert!(read(wrong).unwrap_err().to_string().starts_with("c: no line of it is"));
        }
    }
}
