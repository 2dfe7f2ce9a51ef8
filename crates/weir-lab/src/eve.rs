//! What a gateway's EVE file says, as the lab's judges read it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

/// Milliseconds from `begun` (since 1970) to each alert behind it, in their order. A file that is
/// not there tells of none; a line that is being written is left out.
///
/// # Errors
/// A line is no event.
pub fn alerts_since(eve: &Path, begun: Duration) -> Result<Vec<f64>> {
    let text = fs::read_to_string(eve).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut delays = Vec::new();
    for line in whole.lines() {
        let event: Value = serde_json::from_str(line).context("a line of EVE")?;
        if event["event_type"] != "alert" {
            continue;
        }
        let time = event["timestamp"].as_str().context("an event without a time")?;
        let time = jiff::Timestamp::strptime("%Y-%m-%dT%H:%M:%S%.f%z", time)?;
        let after = time.as_nanosecond() - begun.as_nanos() as i128;
        if after > 0 {
            delays.push(after as f64 / 1e6);
        }
    }
    Ok(delays)
}
