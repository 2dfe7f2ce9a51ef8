//! Whether events are as a test wants them.

use serde_json::Value;

use super::case::Check;

/// What is wrong with `events`; `None`: nothing.
pub fn failed(kind: &str, check: &Check, events: &[Value]) -> Option<String> {
    match kind {
        "filter" => filter(check, events),
        "stats" => stats(check, events),
        other => Some(format!("a check of kind `{other}` is not understood")),
    }
}

fn filter(check: &Check, events: &[Value]) -> Option<String> {
    if let Some(file) = check.filename.as_deref().filter(|it| *it != "eve.json") {
        return Some(format!("it looks into {file}"));
    }
    let found = events.iter().filter(|event| matches(check, event)).count() as u64;
    let due = check.count?;
    let fields: Vec<_> = check.fields.iter().map(|(name, want)| format!("{name}={want}")).collect();
    (found != due).then(|| format!("{found} events, not {due}, with {}", fields.join(" ")))
}

/// The last event of kind `stats` must have these values.
fn stats(check: &Check, events: &[Value]) -> Option<String> {
    let last = events.iter().rev().find(|it| it["event_type"] == "stats")?;
    check.others().find_map(|(name, want)| {
        let found = find(&last["stats"], name);
        (found != Some(want)).then(|| format!("stats.{name} is {found:?}, not {want}"))
    })
}

fn matches(check: &Check, event: &Value) -> bool {
    check.fields.iter().all(|(name, want)| match name.as_str() {
        "has-key" => want.as_str().is_some_and(|name| find(event, name).is_some()),
        "not-has-key" => want.as_str().is_some_and(|name| find(event, name).is_none()),
        name => holds(event, name, want),
    })
}

fn holds(event: &Value, name: &str, want: &Value) -> bool {
    let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or(value.to_string());
    if let Some((name, verb)) = name.rsplit_once(".__") {
        let Some(found) = find(event, name) else { return false };
        return match verb {
            "len" => {
                let length = found.as_array().map_or_else(|| text(found).len(), Vec::len);
                want.as_u64() == Some(length as u64)
            }
            "find" => text(found).contains(&text(want)),
            "startswith" => text(found).starts_with(&text(want)),
            "endswith" => text(found).ends_with(&text(want)),
            "contains" => found.as_array().is_some_and(|list| list.contains(want)),
            _ => false,
        };
    }
    find(event, name).is_some_and(|found| found == want || text(found) == text(want))
}

/// The value at a dotted name, with places of lists in brackets. Names may have dots of their own.
fn find<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    if let Some(found) = value.get(name) {
        return Some(found);
    }
    if let Some((list, place)) = name.split_once('[')
        && !list.contains('.')
    {
        let (place, rest) = place.split_once(']')?;
        let item = value.get(list)?.get(place.parse::<usize>().ok()?)?;
        let rest = rest.trim_start_matches('.');
        return if rest.is_empty() { Some(item) } else { find(item, rest) };
    }
    name.match_indices('.').find_map(|(at, _)| {
        let (list, rest) = (&name[..at], &name[at + 1..]);
        let inner = if list.contains('[') { find(value, list)? } else { value.get(list)? };
        find(inner, rest)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_found_by_dotted_names() {
        let event = json!({"a": {"b": [1, {"c": "x"}], "d.e": 7}, "f": "text"});
        assert_eq!(find(&event, "a.b[0]"), Some(&json!(1)));
        assert_eq!(find(&event, "a.b[1].c"), Some(&json!("x")));
        assert_eq!(find(&event, "a.d.e"), Some(&json!(7)));
        assert_eq!(find(&event, "a.x"), None);
        assert!(holds(&event, "a.b.__len", &json!(2)));
        assert!(holds(&event, "f.__startswith", &json!("te")));
        assert!(!holds(&event, "f", &json!("other")));
    }
}
