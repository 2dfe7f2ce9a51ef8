//! What the fuzz target `config` and the replay of its corpus do with one input.

use std::path::Path;

use weir::config::policy::{WirePort, policy};
use weir::config::{Problems, understand};
use weir_wire::parse::MacAddress;

/// Reads `input` as a configuration; what is accepted is compiled to policies.
pub(crate) fn exercise_input(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut problems = Problems::new(Path::new("weir.toml"), text);
    let settings = understand(text, Path::new("/etc/weir"), &mut problems);
    assert_eq!(settings.is_none(), problems.refused(), "refused with a reason, or accepted");
    let Some(settings) = settings else { return };
    assert!(!settings.pairs.is_empty());
    for pair in &settings.pairs {
        let wire = WirePort { mac: MacAddress([2, 0, 0, 0, 0, 1]), mtu_bytes: 1500 };
        let policy = policy(pair, settings.keying.as_ref(), wire, 1, 0);
        assert_eq!(policy.peers.len(), pair.peers.len());
    }
}
