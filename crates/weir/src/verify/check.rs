//! Whether what came of a test is as it wants it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::case::Check;

/// Seconds that a command of a test may take.
const SHELL_SECONDS: &str = "60";

/// What came of a test.
#[derive(Debug)]
pub struct Made<'a> {
    /// Events, in their order.
    pub events: &'a [Value],
    /// The folder of the files that were made.
    pub folder: &'a Path,
    /// The folder of the test.
    pub test: &'a Path,
}

impl Made<'_> {
    /// Runs a command of the shell in the folder of what was made, with the names that the suite's
    /// tests use; what it printed.
    ///
    /// # Errors
    /// Why it failed.
    pub fn shell(&self, command: &str) -> Result<String, String> {
        // timeout(1) ends what the command started as well.
        let mut shell = Command::new("timeout");
        shell.args(["--kill-after=5", SHELL_SECONDS, "sh", "-c", command]);
        shell.current_dir(self.folder).stdin(Stdio::null());
        let test = std::path::absolute(self.test).map_err(|error| error.to_string())?;
        shell.env("TEST_DIR", test).env("OUTPUT_DIR", self.folder);
        let output = shell.output().map_err(|error| format!("no shell: {error}"))?;
        let command = command.trim();
        match output.status.code() {
            Some(0) => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            // What timeout(1) ends with where it has ended the command.
            Some(124 | 137) => Err(format!("`{command}` did not end within {SHELL_SECONDS} s")),
            _ => Err(format!("`{command}` ends with {}", output.status)),
        }
    }

    /// The events of a file.
    fn events_of(&self, file: &str) -> Option<Vec<Value>> {
        let text = fs::read_to_string(self.folder.join(file)).ok()?;
        Some(text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect())
    }
}

/// What is wrong with what was made; `None`: nothing.
pub fn failed(kind: &str, check: &Check, made: &Made<'_>) -> Option<String> {
    match kind {
        "filter" => match check.filename.as_deref().filter(|it| *it != "eve.json") {
            None => filter(check, made.events),
            Some(file) => match made.events_of(file) {
                Some(events) => filter(check, &events),
                None => Some(format!("{file} is not made here")),
            },
        },
        "stats" => stats(check, made.events),
        "shell" => shell(check, made),
        "file-compare" => compare(check, made),
        other => Some(format!("a check of kind `{other}` is not understood")),
    }
}

fn shell(check: &Check, made: &Made<'_>) -> Option<String> {
    let command = match &check.args {
        Some(Value::String(command)) => command.clone(),
        Some(Value::Array(words)) => words.iter().map(text).collect::<Vec<_>>().join(" "),
        _ => return Some("a check by shell without a command".into()),
    };
    match (made.shell(&command), &check.expect) {
        (Err(why), _) => Some(why),
        (Ok(said), Some(due)) if said != text(due).trim() => {
            Some(format!("`{}` says `{said}`, not `{}`", command.trim(), text(due)))
        }
        _ => None,
    }
}

/// Two files, line by line.
fn compare(check: &Check, made: &Made<'_>) -> Option<String> {
    let (Some(file), Some(expected)) = (&check.filename, &check.expected) else {
        return Some("a comparison without two files".into());
    };
    let read = |path: &Path| fs::read_to_string(path);
    match (read(&made.folder.join(file)), read(&made.test.join(expected))) {
        (Ok(made), Ok(due)) if made.lines().eq(due.lines()) => None,
        (Ok(_), Ok(_)) => Some(format!("{file} is not like {expected}")),
        (Err(_), _) => Some(format!("{file} is not made here")),
        (_, Err(error)) => Some(format!("cannot read {expected}: {error}")),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map(str::to_owned).unwrap_or(value.to_string())
}

fn filter(check: &Check, events: &[Value]) -> Option<String> {
    let found = events.iter().filter(|event| matches(check, event)).count() as u64;
    let due = check.count?;
    let fields: Vec<_> = check.fields.iter().map(|(name, want)| format!("{name}={want}")).collect();
    (found != due).then(|| format!("{found} events, not {due}, with {}", fields.join(" ")))
}

/// The last event of kind `stats` must have these values.
fn stats(check: &Check, events: &[Value]) -> Option<String> {
    let Some(last) = events.iter().rev().find(|it| it["event_type"] == "stats") else {
        return Some("there is no event of kind `stats`".into());
    };
    check.others().find_map(|(name, want)| {
        let found = find(&last["stats"], name);
        // A counter that is not told stands at nothing.
        let is_right = holds(&last["stats"], name, want) || (found.is_none() && text(want) == "0");
        let found = found.map_or_else(|| "not there".to_owned(), |it| it.to_string());
        (!is_right).then(|| format!("stats.{name} is {found}, not {want}"))
    })
}

fn matches(check: &Check, event: &Value) -> bool {
    check.fields.iter().all(|(name, want)| match name.as_str() {
        "has-key" => names(want).all(|name| find(event, name).is_some()),
        "not-has-key" => names(want).all(|name| find(event, name).is_none()),
        // A counter that is not told stands at nothing.
        name if name.starts_with("stats.") && text(want) == "0" => {
            find(event, name).is_none() || holds(event, name, want)
        }
        name => holds(event, name, want),
    })
}

/// One name or several.
fn names(value: &Value) -> impl Iterator<Item = &str> {
    let several = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    value.as_str().into_iter().chain(several)
}

fn holds(event: &Value, name: &str, want: &Value) -> bool {
    if let Some((name, verb)) = name.rsplit_once(".__") {
        let Some(found) = find(event, name) else { return false };
        return match verb {
            "len" => {
                let length = match found {
                    Value::Array(list) => list.len(),
                    Value::Object(members) => members.len(),
                    other => text(other).len(),
                };
                want.as_u64() == Some(length as u64)
            }
            "find" => text(found).contains(&text(want)),
            "startswith" => text(found).starts_with(&text(want)),
            "endswith" => text(found).ends_with(&text(want)),
            "gt" | "gte" | "lt" | "lte" => {
                let number = |it: &Value| it.as_f64().or_else(|| it.as_str()?.parse().ok());
                match (number(found), number(want), verb) {
                    (Some(found), Some(want), "gt") => found > want,
                    (Some(found), Some(want), "gte") => found >= want,
                    (Some(found), Some(want), "lt") => found < want,
                    (Some(found), Some(want), _) => found <= want,
                    _ => false,
                }
            }
            "contains" => match found {
                Value::Array(list) => list.contains(want),
                Value::Object(members) => members.contains_key(&text(want)),
                other => text(other).contains(&text(want)),
            },
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
        assert!(holds(&event, "a.b[0].__gte", &json!(1)) && holds(&event, "a.d.e.__lt", &json!(8)));
        assert!(!holds(&event, "a.b[0].__gt", &json!(1)) && !holds(&event, "f.__lte", &json!(8)));
    }

    #[test]
    fn files_and_commands_are_looked_at_where_they_were_made() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("made"), "a\nb\n").unwrap();
        fs::write(folder.path().join("due"), "a\nb").unwrap();
        let made = Made { events: &[], folder: folder.path(), test: folder.path() };
        let check = |text: Value| serde_json::from_value::<Check>(text).unwrap();
        let lines = check(json!({"args": "cat made | wc -l | xargs", "expect": 2}));
        assert_eq!(failed("shell", &lines, &made), None);
        let other = check(json!({"args": "cat made | wc -l | xargs", "expect": 3}));
        assert!(failed("shell", &other, &made).is_some());
        assert!(failed("shell", &check(json!({"args": "false"})), &made).is_some());
        let same = check(json!({"filename": "made", "expected": "due"}));
        assert_eq!(failed("file-compare", &same, &made), None);
        let gone = check(json!({"filename": "gone", "expected": "due"}));
        assert!(failed("file-compare", &gone, &made).is_some());
    }
}
