//! Skips that are known: any other one is a failure where nothing is missing.

use std::collections::BTreeSet;

/// `BEGINNING: REASON`, one a line.
const KNOWN: &str = include_str!("../skips.txt");

/// Those of `skipped` that the list does not know.
pub(crate) fn unknown(skipped: &BTreeSet<String>) -> Vec<&str> {
    let known: Vec<&str> = beginnings(KNOWN).collect();
    let is_known = |said: &str| known.iter().any(|known| said.starts_with(known));
    skipped.iter().map(String::as_str).filter(|said| !is_known(said)).collect()
}

/// What stands before each reason.
fn beginnings(list: &str) -> impl Iterator<Item = &str> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(": ").map(|(beginning, _)| beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_that_is_not_in_the_list_is_found() {
        let said = ["what_netem_loses: this kernel has no netem", "tshark is not installed"];
        let skipped = BTreeSet::from(said.map(str::to_owned));
        assert_eq!(unknown(&skipped), ["tshark is not installed"]);
    }

    #[test]
    fn every_line_of_the_list_has_a_beginning_and_a_reason() {
        let lines = KNOWN.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(lines.count(), beginnings(KNOWN).count());
        assert!(beginnings(KNOWN).all(|beginning| beginning.len() >= 8));
    }
}
