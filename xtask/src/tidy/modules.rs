//! The arrows between modules of the engine, against what its files say. A new arrow needs an ADR
//! and a line here (docs/adr/0100).

use std::path::Path;

/// A module of `weir-engine` and those that it may use, in the order of ARCHITECTURE.md: what the
/// shell sees, the stages, what stages share, and what is below all of them.
const ARROWS: &[(&str, &[&str])] = &[
    (
        "pipeline",
        &[
            "access",
            "arrive",
            "classify",
            "engine",
            "leave",
            "meter",
            "mtu",
            "neighbour",
            "offload",
            "output",
            "peer",
            "plain",
            "policy",
            "protect",
            "rdma",
            "route",
            "run",
            "surroundings",
            "verdict",
        ],
    ),
    (
        "engine",
        &[
            "access",
            "arrive",
            "classify",
            "counters",
            "detect",
            "esp",
            "fastpath",
            "meter",
            "mtu",
            "nat",
            "offload",
            "output",
            "peer",
            "plain",
            "policy",
            "protect",
            "rdma",
            "route",
            "surroundings",
            "tunnel",
            "verdict",
        ],
    ),
    // The stages.
    (
        "arrive",
        &[
            "classify",
            "counters",
            "esp",
            "neighbour",
            "output",
            "peer",
            "policy",
            "run",
            "tunnel",
            "verdict",
        ],
    ),
    ("plain", &["access", "detect", "meter", "policy", "rdma", "flow", "verdict"]),
    ("route", &["classify", "policy", "verdict"]),
    (
        "protect",
        &[
            "classify",
            "counters",
            "esp",
            "mtu",
            "offload",
            "output",
            "peer",
            "policy",
            "surroundings",
            "tunnel",
            "verdict",
        ],
    ),
    ("leave", &["counters", "mtu", "nat", "offload", "output", "peer", "policy"]),
    // Remembers what the stages said of the packet before.
    (
        "run",
        &["classify", "esp", "meter", "peer", "plain", "policy", "protect", "route", "verdict"],
    ),
    // What they work with.
    ("peer", &["classify", "counters", "esp", "neighbour", "policy", "tunnel", "verdict"]),
    ("surroundings", &["neighbour", "policy", "verdict"]),
    ("nat", &["policy", "verdict"]),
    ("fastpath", &["counters", "flow", "meter", "policy", "rdma", "verdict"]),
    ("proof", &["policy", "tunnel"]),
    ("access", &["flow", "meter", "policy", "rdma", "verdict"]),
    ("detect", &["access", "flow", "meter", "mtu", "policy", "rdma", "verdict"]),
    ("meter", &["flow", "rdma", "verdict"]),
    ("rdma", &["flow", "meter", "policy", "verdict"]),
    ("flow", &["verdict"]),
    ("neighbour", &["policy"]),
    ("mtu", &[]),
    ("tunnel", &["esp", "policy"]),
    ("esp", &["policy", "verdict"]),
    ("offload", &["esp", "output", "verdict"]),
    ("output", &["verdict"]),
    ("classify", &["policy"]),
    ("counters", &["policy", "verdict"]),
    ("policy", &["access", "detect", "plain", "tunnel"]),
    ("verdict", &["policy"]),
];

/// Where the engine's modules are.
const SOURCE: &str = "crates/weir-engine/src/";

/// Arrows of `path`'s module that are not in the list.
pub(super) fn check(path: &Path, text: &str) -> Vec<String> {
    let Some(module) = module(path) else { return Vec::new() };
    let shown = path.display();
    let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == module) else {
        return vec![format!("{shown}:1: module `{module}` is not in the list of arrows")];
    };
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        // Tests may look at anything.
        if line.starts_with("#[cfg(test)]") {
            break;
        }
        if line.trim_start().starts_with("//") {
            continue;
        }
        for (at, before) in line.match_indices("crate::") {
            let name: String = line[at + before.len()..]
                .chars()
                .take_while(|it| it.is_ascii_lowercase() || *it == '_')
                .collect();
            if !name.is_empty() && name != module && !allowed.contains(&name.as_str()) {
                findings.push(format!("{shown}:{}: arrow `{name} <- {module}`", number + 1));
            }
        }
    }
    findings
}

/// The module of the engine that a file belongs to; `None`: it is no part of one.
fn module(path: &Path) -> Option<String> {
    let inside = path.to_str()?.strip_prefix(SOURCE)?;
    let first = inside.split('/').next()?.trim_end_matches(".rs");
    (first != "lib" && !inside.ends_with("tests.rs")).then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [&str; 5] = ["arrive", "plain", "route", "protect", "leave"];

    fn found(file: &str, text: &str) -> usize {
        check(&Path::new(SOURCE).join(file), text).len()
    }

    #[test]
    fn an_arrow_that_is_not_in_the_list_is_found_except_for_tests_and_comments() {
        assert_eq!(found("route.rs", "use crate::policy::Policy;\n"), 0);
        assert_eq!(found("route.rs", "use crate::plain::Plain;\n"), 1);
        assert_eq!(found("route.rs", "//! [`crate::plain`]\n"), 0);
        assert_eq!(found("route.rs", "#[cfg(test)]\nmod tests {\n    use crate::plain;\n}\n"), 0);
        assert_eq!(found("protect/tag.rs", "let it = crate::leave::to_host;\n"), 1);
        assert_eq!(found("protect/tag.rs", "use crate::protect::esp;\n"), 0);
        assert_eq!(found("utils.rs", ""), 1);
        assert_eq!(found("lib.rs", "use crate::anything;\n"), 0);
    }

    #[test]
    fn no_stage_knows_another_and_nothing_knows_the_pipeline() {
        for (module, allowed) in ARROWS {
            assert!(!allowed.contains(&"pipeline"), "{module}");
            let stages = allowed.iter().filter(|it| STAGES.contains(it)).count();
            let knows_all = ["pipeline", "engine", "run"].contains(module);
            // What the policy says of blocks is a type of the joint's.
            assert!(knows_all || *module == "policy" || stages == 0, "{module}: {stages}");
        }
    }
}
