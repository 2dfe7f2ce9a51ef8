//! Lines of access.

use weir_engine::access::{AccessAction, LINES_MAX, Operation};

use super::*;

const LINES: &str = "[[group]]\nname = \"storage\"\nmembers = [\"10.0.0.0/28\", \"fd00::7\"]\n\
    [[access]]\nname = \"reads\"\nfrom = \"10.1.0.0/16\"\nto = [\"storage\", \"10.0.1.1\"]\n\
    operations = \"read\"\naction = \"allow\"\n\
    [[access]]\nname = \"rest\"\naction = \"would_deny\"\n";

fn watching(lines: &str) -> String {
    format!("{HEAD}default = \"forward\"\naccess_default = \"deny\"\n{lines}")
}

fn address(text: &str) -> [u8; 16] {
    let address: std::net::Ipv4Addr = text.parse().unwrap();
    address.to_ipv6_mapped().octets()
}

#[test]
fn lines_groups_and_default_become_the_pair_s_policy() {
    let settings = accepted(&watching(LINES));
    let access = settings.pairs[0].access.as_ref().expect("the pair has lines");
    assert_eq!(access.default_action(), AccessAction::Deny);
    let decided = |from, to, operation| {
        access.decide_one(&address(from), &address(to), operation, &Default::default()).index()
    };
    assert_eq!(decided("10.1.2.3", "10.0.0.15", Operation::Read), Some(0));
    assert_eq!(decided("10.1.2.3", "10.0.1.1", Operation::Read), Some(0));
    assert_eq!(decided("10.1.2.3", "10.0.0.16", Operation::Read), Some(1));
    assert_eq!(decided("10.1.2.3", "10.0.0.15", Operation::Write), Some(1));
    assert!(accepted(&format!("{HEAD}default = \"forward\"\n")).pairs[0].access.is_none());
}

#[test]
fn what_is_wrong_with_lines_is_named_with_its_place() {
    let line = |rest: &str| watching(&format!("[[access]]\nname = \"l\"\n{rest}\n"));
    for (text, words) in [
        (line("to = \"nobody\"\naction = \"deny\""), "no [[group]] has that name"),
        (line("from = \"10.0.0.7/24\"\naction = \"deny\""), "10.0.0.0/24"),
        (line("from = []\naction = \"deny\""), "`from` names nobody"),
        (line("operations = []\naction = \"deny\""), "`operations` names none"),
        (line("operations = \"reed\"\naction = \"deny\""), "reed"),
        (line("action = \"refuse\""), "refuse"),
        (line("pair = \"x\"\naction = \"deny\""), "there is no pair `x`"),
        (line("from = \"10.0.0.1\""), "action"),
        (watching("[[group]]\nname = \"g\"\nmembers = []\n"), "has no members"),
        (watching("[[group]]\nname = \"10.0.0.1\"\nmembers = \"fd00::1\"\n"), "is an address"),
        (watching(&LINES.replace("rest", "reads")), "a second line of access"),
    ] {
        let problems = refused(&text, &[words]);
        assert!(problems.problems[0].place.is_some(), "{problems}");
    }
    // What needs no look at each packet may go past.
    let tc = watching(LINES).replace("access_default", "fastpath = \"tc\"\naccess_default");
    accepted(&tc);
}

#[test]
fn more_lines_than_the_bound_are_refused_and_as_many_are_not() {
    let lines = |count: usize| {
        let line = |number| format!("[[access]]\nname = \"l{number}\"\naction = \"allow\"\n");
        (0..count).map(line).collect::<String>()
    };
    let settings = accepted(&watching(&lines(LINES_MAX)));
    let access = settings.pairs[0].access.as_ref().unwrap();
    assert_eq!(access.lines().len(), LINES_MAX);
    refused(&watching(&lines(LINES_MAX + 1)), &["tables [[access]]"]);
}
