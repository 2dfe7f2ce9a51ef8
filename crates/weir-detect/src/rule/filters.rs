//! threshold.config: what is said about rules outside of them - thresholds, suppressions, and what
//! a rule does instead once it has matched too often.

use std::sync::Arc;

use super::load::{LoadReport, Refusal, RuleSource};
use super::ranges::Ranges;
use super::state::{self, RateFilter, Suppression, Track};
use super::variables::Groups;
use super::{Action, Rule};

/// Puts each line's filter on the rules that it names. What cannot be read, and what names no rule,
/// is named in the report, and filters nothing.
pub(super) fn apply(
    source: &RuleSource,
    groups: &mut Groups<'_>,
    rules: &mut [Rule],
    report: &mut LoadReport,
) {
    let mut whole = String::new();
    for (number, line) in source.text.lines().enumerate() {
        let line = line.trim();
        if let Some(head) = line.strip_suffix('\\') {
            whole.push_str(head);
            continue;
        }
        whole.push_str(line);
        let line = std::mem::take(&mut whole);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let read = Filter::read(&line, groups);
        let applied = read.and_then(|filter| filter.apply(rules));
        if let Ok(Some(missing)) = &applied {
            report.idle.push(format!("{}:{}: no rule {missing} runs", source.name, number + 1));
        }
        if let Err(reason) = applied {
            report.unused.push(Refusal {
                source: source.name.clone(),
                line: number + 1,
                sid: None,
                keyword: line.split_whitespace().next().unwrap_or_default().to_owned(),
                reason,
            });
        }
    }
}

struct Filter {
    generator: u32,
    /// 0: every rule of the generator.
    sid: u32,
    what: What,
}

enum What {
    Threshold(state::Threshold),
    Suppress(Option<Suppression>),
    Rate(RateFilter),
}

impl Filter {
    fn read(line: &str, groups: &mut Groups<'_>) -> Result<Self, String> {
        let (kind, rest) = line.split_once(char::is_whitespace).ok_or("nothing behind it")?;
        let (mut generator, mut sid, mut others) = (None, None, Vec::new());
        let mut parts = split(rest).into_iter();
        for part in parts.by_ref() {
            let (word, value) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let number = || value.trim().parse().map_err(|_| format!("`{part}`"));
            match word {
                "gen_id" => generator = Some(number()?),
                "sig_id" => sid = Some(number()?),
                _ => others.push((word, value.trim())),
            }
        }
        let what = match kind {
            "threshold" | "event_filter" => {
                let text: Vec<String> =
                    others.iter().map(|(word, value)| format!("{word} {value}")).collect();
                What::Threshold(state::threshold(&text.join(","), false)?)
            }
            "suppress" => What::Suppress(suppression(&others, groups)?),
            "rate_filter" => What::Rate(rate(&others)?),
            other => return Err(format!("`{other}` filters nothing")),
        };
        let generator = generator.ok_or("no gen_id")?;
        Ok(Self { generator, sid: sid.ok_or("no sig_id")?, what })
    }

    /// The rule that it is about, where that is one and does not run.
    fn apply(self, rules: &mut [Rule]) -> Result<Option<String>, String> {
        let Self { generator, sid, what } = self;
        let mut is_idle = sid != 0;
        let is_meant = |rule: &&mut Rule| {
            (generator == 0 || rule.generator == generator) && (sid == 0 || rule.sid == sid)
        };
        for rule in rules.iter_mut().filter(is_meant) {
            is_idle = false;
            let counts = rule.threshold.is_some() || rule.filter.is_some() || rule.rate.is_some();
            match &what {
                // One of them alone, as by Suricata (docs/adr/0304): what is said of one rule is
                // closer than what is said of all, and a threshold than a rate.
                What::Threshold(_) | What::Rate(_) if sid == 0 && counts => {}
                What::Rate(_) if counts => {
                    return Err(format!("rule {sid} has a threshold already, which counts"));
                }
                What::Threshold(threshold) => {
                    (rule.filter, rule.rate) = (None, None);
                    rule.threshold = Some(*threshold);
                }
                // Of everybody: as by Suricata it is then a rule that tells nothing.
                What::Suppress(None) => rule.is_silent = true,
                What::Suppress(Some(it)) => rule.suppressions.push(it.clone()),
                What::Rate(rate) => rule.rate = Some(*rate),
            }
        }
        Ok(is_idle.then(|| format!("{generator}:{sid}")))
    }
}

/// Whose matches are suppressed; `None`: everybody's.
fn suppression(
    words: &[(&str, &str)],
    groups: &mut Groups<'_>,
) -> Result<Option<Suppression>, String> {
    let mut suppression =
        Suppression { of_source: true, of_destination: true, addresses: Arc::new(Ranges::all()) };
    let (mut has_track, mut has_address) = (false, false);
    for (word, value) in words {
        match (*word, *value) {
            ("track", value) => {
                has_track = true;
                (suppression.of_source, suppression.of_destination) = match value {
                    "by_src" => (true, false),
                    "by_dst" => (false, true),
                    "by_either" => (true, true),
                    other => return Err(format!("`track {other}`")),
                };
            }
            ("ip", value) => {
                has_address = true;
                suppression.addresses = groups.addresses(value)?;
            }
            (word, value) => return Err(format!("`{word} {value}`")),
        }
    }
    match has_track == has_address {
        true => Ok(has_track.then_some(suppression)),
        false => Err("track and ip go together".to_owned()),
    }
}

fn rate(words: &[(&str, &str)]) -> Result<RateFilter, String> {
    let find = |name: &str| {
        let found = words.iter().find(|(word, _)| *word == name).map(|it| it.1);
        found.ok_or_else(|| format!("no {name}"))
    };
    let number = |name: &str| {
        let value = find(name)?;
        value.parse::<u32>().map_err(|_| format!("`{name} {value}`"))
    };
    let track = match find("track")? {
        "by_src" => Track::Source,
        "by_dst" => Track::Destination,
        "by_both" => Track::Both,
        "by_rule" => Track::Rule,
        "by_flow" => Track::Flow,
        other => return Err(format!("`track {other}`")),
    };
    let action = match find("new_action")? {
        "alert" | "log" => Action::Alert,
        "drop" | "sdrop" => Action::Drop,
        "pass" => Action::Pass,
        "reject" => Action::Reject,
        other => return Err(format!("`new_action {other}`")),
    };
    let (count, seconds) = (number("count")?, number("seconds")?);
    Ok(RateFilter { track, count, seconds, action, timeout_s: number("timeout")? })
}

/// Parts between commas, those of lists left together.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(move |letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.map(str::trim).filter(|it| !it.is_empty()).collect()
}
