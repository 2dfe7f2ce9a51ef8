//! A test's capture through the detector: the events that come of it.

use anyhow::Result;
use serde_json::{Value, json};
use weir_detect::{LoadOptions, Variables};

use super::case::Case;
use crate::read::detection::{Detection, Options};
use crate::rules;

/// The events of `case`, and the rules that do not run.
pub(super) fn events(case: &Case) -> Result<(Vec<Value>, Vec<String>)> {
    let mut text = rules::read(&case.rules, variables(case))?;
    text.set_options(LoadOptions { is_passive: !case.is_inline, ..LoadOptions::default() });
    let loaded = text.compile()?;
    let refused = &loaded.report.refused;
    let refused = refused.iter().map(|it| {
        let sid = it.sid.unwrap_or_default();
        format!("rule {sid} does not run: {}: {}", it.keyword, it.reason)
    });
    let refused: Vec<String> = refused.collect();
    let mut out = Vec::new();
    let options = Options { is_inline: case.is_inline, ..Options::default() };
    let mut detection = Detection::new(loaded.rules, options, &mut out)?;
    detection.read(&case.capture)?;
    detection.finish()?;
    let lines = out.split(|it| *it == b'\n').filter(|it| !it.is_empty());
    let mut events: Vec<Value> = lines.map(serde_json::from_slice).collect::<Result<_, _>>()?;
    events.push(json!({ "event_type": "stats", "stats": {} }));
    Ok((events, refused))
}

fn variables(case: &Case) -> Variables {
    let mut variables = Variables::default();
    for (name, value) in &case.settings {
        let Some(value) = value.as_str() else { continue };
        if let Some(name) = name.strip_prefix("vars.address-groups.") {
            variables.addresses.insert(name.to_owned(), value.to_owned());
        } else if let Some(name) = name.strip_prefix("vars.port-groups.") {
            variables.ports.insert(name.to_owned(), value.to_owned());
        }
    }
    variables
}
