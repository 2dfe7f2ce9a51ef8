//! The rules that Weir ships, for labs that have no copy of the repository.

use std::fs;
use std::path::Path;

use anyhow::Result;

const FILES: [(&str, &str); 3] = [
    ("rdma.rules", include_str!("../../../rules/rdma.rules")),
    ("flood.rules", include_str!("../../../rules/flood.rules")),
    ("classification.config", include_str!("../../../rules/classification.config")),
];

/// The rule of that sid as it is shipped, its line.
pub(crate) fn shipped_rule(sid: u32) -> Option<&'static str> {
    let wanted = format!("sid:{sid};");
    FILES.iter().flat_map(|it| it.1.lines()).find(|line| line.contains(&wanted))
}

/// The classification.config that goes with them.
pub(crate) fn classes() -> &'static str {
    FILES[2].1
}

/// READ and WRITE floods are told from here on in a lab, whose senders reach no millions a second.
const LAB_RATE: &str = "rate 20000";

/// Writes them into `folder`/rules, and gives the `[rules]` of a gateway that runs them, EVE in
/// `folder`/eve.json. With `lowered`, READ and WRITE floods begin at 20,000 messages a second.
///
/// # Errors
/// The folder cannot be written.
pub fn shipped(folder: &Path, lowered: bool) -> Result<String> {
    let rules = folder.join("rules");
    fs::create_dir_all(&rules)?;
    for (name, text) in FILES {
        let text = match lowered {
            true => text.replace("rate 1000000", LAB_RATE).replace("rate 2000000", LAB_RATE),
            false => text.to_owned(),
        };
        fs::write(rules.join(name), text)?;
    }
    let eve = folder.join("eve.json");
    Ok(format!("\n[rules]\npaths = [{rules:?}]\neve = {eve:?}\n"))
}
