//! Rules that chance has changed, and flows made from them: what a real Suricata says of those, and
//! what we do. The tables of ../shared hold rules as people write them; this asks what the language
//! says where nobody has written yet.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::detecting::{JUDGED, RULES, joined};
use super::judging::{PATIENCE, eve_of, shares};
use super::{Figure, Options};
use crate::process;
use crate::study::order::Draws;
use crate::suricata::Suricata;

/// Rules of one round; each round has a seed of its own.
const CHANGED: usize = 4000;
const FIRST_SID: usize = 9_000_001;
/// What a rule is without: its place in a list, and what is said of it.
const DESCRIBES: [&str; 8] =
    ["sid", "rev", "gid", "reference", "metadata", "classtype", "target", "priority"];
/// Alerts of a packet that Suricata keeps, at most; its default of 15 would judge, not the rules.
const ALERTS_MAX: &str = "packet-alert-max: 255\n";

/// Pairs of flow and rule, of rules with one to three changes.
pub(super) fn changed(options: &Options) -> Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let mut figures = Vec::new();
    for seed in 1..=options.rounds(2) as u64 {
        let round = folder.path().join(seed.to_string());
        figures.extend(judged(options, &round, seed)?);
    }
    Ok(figures)
}

fn judged(options: &Options, folder: &Path, seed: u64) -> Result<[Figure; 2]> {
    let judged = Path::new(JUDGED);
    let [rules, flows] = ["rules", "flows"].map(|name| folder.join(name));
    fs::create_dir_all(&rules)?;
    let text = rules_of(&joined(Path::new(RULES))?, seed, CHANGED);
    let file = rules.join("changed.rules");
    fs::write(&file, &text)?;
    let mut make = Command::new("python3");
    make.arg(judged.join("traffic_from_rules.py")).arg("--rules").arg(&rules);
    process::run(make.args(["--sids", "all", "--out"]).arg(&flows), PATIENCE)?;
    let capture = one_capture(&flows, &folder.join("flows.pcap"))?;

    let settings = folder.join("suricata.yaml");
    let theirs = fs::read_to_string(judged.join("suricata.yaml"))?;
    fs::write(&settings, theirs.replacen("mpm-algo:", &format!("{ALERTS_MAX}mpm-algo:"), 1))?;
    let classes = Path::new(RULES).join("et-open-2025-09/classification.config");
    let suricata = Suricata::with(&text, &settings, &classes)?;
    let told = suricata.told(&capture)?;
    let refused = folder.join("refused");
    fs::write(&refused, refused_by(&told.log).into_iter().collect::<Vec<_>>().join("\n") + "\n")?;

    let eve = eve_of(options, &file, std::slice::from_ref(&capture), folder)?;
    let table = |eve: &Path| {
        let mut join = Command::new("python3");
        join.arg(judged.join("join_eve.py")).arg("flows").arg(flows.join("flows.tsv")).arg(eve);
        Ok::<_, anyhow::Error>(process::run(&mut join, PATIENCE)?.stdout)
    };
    let [reference, ours] = ["theirs.tsv", "ours.tsv"].map(|name| folder.join(name));
    fs::write(folder.join("theirs.json"), told.eve)?;
    fs::write(&reference, table(&folder.join("theirs.json"))?)?;
    fs::write(&ours, table(&eve)?)?;
    let mut compare = Command::new("python3");
    compare.arg(judged.join("compare.py")).arg(reference).arg(ours);
    compare.arg("--ignore").arg(refused).arg("--json");
    let said = process::run(&mut compare, PATIENCE)?.stdout;
    let verdict = serde_json::from_str(&said).context("compare.py says no JSON")?;
    let of = format!("{CHANGED} rules of seed {seed} by {}: ", suricata.name());
    Ok(shares(&format!("changed_rules_{seed}"), &verdict, false)?.map(|mut figure| {
        figure.note.insert_str(0, &of);
        figure
    }))
}

/// The captures of a folder as one.
fn one_capture(folder: &Path, whole: &Path) -> Result<PathBuf> {
    const HEADER_LEN: usize = 24;
    let mut parts: Vec<_> =
        fs::read_dir(folder)?.map(|it| Ok(it?.path())).collect::<Result<_>>()?;
    parts.retain(|it| it.extension().is_some_and(|it| it == "pcap"));
    parts.sort();
    let mut bytes = Vec::new();
    for part in parts {
        let part = fs::read(part)?;
        bytes.extend_from_slice(if bytes.is_empty() { &part } else { &part[HEADER_LEN..] });
    }
    fs::write(whole, bytes)?;
    Ok(whole.to_owned())
}

/// The numbers of rules that Suricata does not load.
fn refused_by(log: &str) -> BTreeSet<String> {
    let lines = log.lines().filter(|it| it.contains("error parsing signature"));
    let sid = |line: &str| {
        let (_, behind) = line.rsplit_once("sid:")?;
        Some(behind[..behind.find(';')?].to_owned())
    };
    lines.filter_map(sid).collect()
}

/// So many rules of those in `text`, each changed.
fn rules_of(text: &str, seed: u64, count: usize) -> String {
    let rules: Vec<_> = text.lines().filter_map(|it| Rule::read(it.trim())).collect();
    let mut draws = Draws::new(seed);
    let mut changed = String::new();
    for sid in FIRST_SID..FIRST_SID + count {
        let mut rule = rules[draws.below(rules.len())].clone();
        for _ in 0..=draws.below(3) {
            rule.change(&mut draws);
        }
        changed += &format!("{} ({}; sid:{sid}; rev:1;)\n", rule.head, rule.options.join("; "));
    }
    changed
}

#[derive(Clone)]
struct Rule {
    head: String,
    options: Vec<String>,
}

impl Rule {
    /// An active rule that only alerts, without what describes it.
    fn read(line: &str) -> Option<Self> {
        let (head, body) = line.split_once(" (")?;
        let body = body.strip_suffix(')')?;
        if !head.starts_with("alert ") {
            return None;
        }
        let (mut options, mut option) = (Vec::new(), String::new());
        let (mut is_quoted, mut is_escaped) = (false, false);
        for letter in body.chars() {
            is_quoted ^= letter == '"' && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            match letter {
                ';' if !is_quoted => options.push(std::mem::take(&mut option).trim().to_owned()),
                letter => option.push(letter),
            }
        }
        options.retain(|it| {
            let keyword = it.split(':').next().unwrap_or_default();
            !it.is_empty() && !DESCRIBES.contains(&keyword)
        });
        Some(Self { head: head.to_owned(), options })
    }

    /// Changes one thing.
    fn change(&mut self, draws: &mut Draws) {
        let contents: Vec<_> = (0..self.options.len())
            .filter(|at| self.options[*at].starts_with("content:"))
            .collect();
        let buffers: Vec<_> =
            (0..self.options.len()).filter(|at| is_buffer(&self.options[*at])).collect();
        let pick =
            |list: &[usize], draws: &mut Draws| Some(*list.get(draws.below(list.len().max(1)))?);
        let mut one = |list: &[&str]| list[draws.below(list.len())].to_owned();
        let of_content = match one(&["in", "at", "of", "behind", "behind", "flow", "buffer"])
            .as_str()
        {
            "in" => {
                one(&["nocase", "offset:0", "offset:4", "distance:0", "distance:2", "distance:-2"])
            }
            "at" => one(&[
                "isdataat:1,relative",
                "isdataat:!20,relative",
                "isdataat:5",
                "isdataat:!200",
            ]),
            "of" => one(&[
                "byte_test:1,>,48,0,relative",
                "byte_test:2,!=,100,-1,relative",
                "byte_test:4,&,65,1",
                "byte_test:0,>,10,0,string,dec",
                "byte_jump:1,0,relative,align",
                "byte_jump:2,-1,relative,post_offset -1",
            ]),
            "behind" => one(&[
                "pcre:\"/^.{2}/R\"",
                "pcre:\"/[a-z]$/i\"",
                "content:\"e\"; distance:0",
                "content:\"|00|\"; within:10",
                "content:!\"a\"; within:5",
                "content:\"/\"; distance:-3; nocase",
            ]),
            "flow" => {
                self.options.retain(|it| !it.starts_with("flow:"));
                let flows = ["to_server", "to_client", "established", "established,to_server"];
                self.options.insert(1, format!("flow:{}", one(&flows)));
                return;
            }
            _ => {
                let asked = one(&[
                    "to_lowercase",
                    "strip_whitespace",
                    "url_decode",
                    "dotprefix",
                    "bsize:>2",
                    "bsize:10<>200",
                    "bsize:!9",
                ]);
                if let Some(at) = pick(&buffers, draws) {
                    self.options.insert(at + 1, asked);
                }
                return;
            }
        };
        let Some(mut at) = pick(&contents, draws) else { return };
        // Behind what belongs to it, or as the first that does.
        let is_modifier =
            matches!(of_content.split(':').next(), Some("nocase" | "offset" | "distance"));
        while !is_modifier && self.options.get(at + 1).is_some_and(|it| modifies(it)) {
            at += 1;
        }
        self.options.insert(at + 1, of_content);
    }
}

/// Whether an option names what the contents behind it are looked for in.
fn is_buffer(option: &str) -> bool {
    const OF: [&str; 5] = ["http.", "dns.", "tls.", "ssh.", "file"];
    !option.contains(':') && OF.iter().any(|it| option.starts_with(it))
}

/// Whether an option is about the content before it.
fn modifies(option: &str) -> bool {
    const OF: [&str; 9] = [
        "nocase",
        "offset",
        "depth",
        "distance",
        "within",
        "startswith",
        "endswith",
        "rawbytes",
        "fast_pattern",
    ];
    let keyword = option.split(':').next().unwrap_or_default();
    OF.contains(&keyword) || option.starts_with("http_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_rules_again_each_with_a_number() {
        let text = "# alert tcp any any -> any any (msg:\"off\"; sid:1;)\n\
                    alert http any any -> any 80 (msg:\"a\\;b\"; http.uri; content:\"x;y\"; \
                    nocase; classtype:misc; sid:7; rev:3;)\n";
        let rules = rules_of(text, 1, 50);
        assert_eq!(rules, rules_of(text, 1, 50));
        assert_ne!(rules, rules_of(text, 2, 50));
        for (rule, sid) in rules.lines().zip(FIRST_SID..) {
            assert!(rule.starts_with("alert http any any -> any 80 (msg:\"a\\;b\"; "), "{rule}");
            assert!(rule.contains("content:\"x;y\"") && !rule.contains("classtype"), "{rule}");
            assert!(rule.ends_with(&format!("; sid:{sid}; rev:1;)")), "{rule}");
        }
        assert_eq!(rules.lines().count(), 50);
    }

    #[test]
    fn what_suricata_refuses_is_named_in_its_log() {
        let log = "Error: error parsing signature \"alert ip (msg:\"sid:3;\"; sid:9; rev:1;)\" \
                   from file m.rules at line 1\nInfo: sid:4;\n";
        assert_eq!(refused_by(log), BTreeSet::from(["9".to_owned()]));
    }
}
