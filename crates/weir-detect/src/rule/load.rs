//! Files of rules to a [`RuleSet`], and what became of each rule.

use std::collections::{BTreeMap, BTreeSet};

use super::build::{Context, build};
use super::keywords::Refused;
use super::state::BitNames;
use super::syntax::{self, Line};
use super::variables::{Groups, Variables};
use super::{Action, BitScope, BitTest, BitVerb, HeaderTest, Rule, filters};
use crate::alert::TextScope;
use crate::behaviour::{WATCHES_MAX, Watch};
use crate::countries::Countries;
use crate::dataset::{Definitions, KeptFiles, Texts};
use crate::matcher::MatcherError;
use crate::reputation::Reputation;
use crate::ruleset::RuleSet;

/// Rules of a set, at most; those beyond are refused and counted.
pub const RULES_MAX: usize = 200_000;

/// The text of a rule file.
#[derive(Clone, Debug, Hash)]
pub struct RuleSource {
    /// Where it comes from, for the report.
    pub name: String,
    /// The rules, one a line.
    pub text: String,
}

/// What is not in the rules.
#[derive(Clone, Debug, Default, Hash)]
pub struct LoadOptions {
    /// Classes of rules (`classification.config`).
    pub classes: Classes,
    /// What is known of addresses, for `iprep`.
    pub reputation: Reputation,
    /// Where addresses are, for `geoip`; `None`: nobody knows, and rules that ask are refused.
    pub countries: Option<Countries>,
    /// Lines of a threshold.config.
    pub filters: Vec<RuleSource>,
    /// The text of files that rules name and that lie beside theirs, by name
    /// ([`crate::dataset::files`]).
    pub files: BTreeMap<String, String>,
    /// The text of those that sets are kept in.
    pub kept: KeptFiles,
    /// Which rules come first; [`Action::ORDER`] unless told otherwise.
    pub order: Option<[Action; 4]>,
    /// Numbers of rules that tell what they would drop, and drop nothing.
    pub would_drop: BTreeSet<u32>,
    /// Numbers of rules that are taken as commented out.
    pub disabled: BTreeSet<u32>,
    /// Checksums are not looked at (captures of machines whose adapters compute them): no rule
    /// finds one wrong.
    pub ignores_checksums: bool,
}

/// Classes of rules: what a short name means, and how severe it is.
#[derive(Clone, Debug, Default, Hash)]
pub struct Classes {
    priorities: BTreeMap<String, u32>,
    descriptions: BTreeMap<String, String>,
}

impl Classes {
    /// Takes in others; of classes of the same name, theirs count.
    pub fn add(&mut self, others: Self) {
        self.priorities.extend(others.priorities);
        self.descriptions.extend(others.descriptions);
    }

    /// Whether there is a class of this name.
    pub fn knows(&self, name: &str) -> bool {
        self.priorities.contains_key(name)
    }

    /// Reads `config classification: short-name,description,priority` lines; others are passed
    /// over. Returns how many there were.
    pub fn read(&mut self, text: &str) -> usize {
        let mut count = 0;
        for line in text.lines() {
            let Some(rest) = line.trim().strip_prefix("config classification:") else { continue };
            let mut parts = rest.splitn(2, ',');
            let name = parts.next().unwrap_or_default().trim();
            let rest = parts.next().unwrap_or_default();
            let Some((description, priority)) = rest.rsplit_once(',') else { continue };
            let Ok(priority) = priority.trim().parse() else { continue };
            self.priorities.insert(name.to_owned(), priority);
            self.descriptions.insert(name.to_owned(), description.trim().to_owned());
            count += 1;
        }
        count
    }
}

/// Rules ready to run, and the report.
#[derive(Debug)]
pub struct Loaded {
    /// What runs.
    pub rules: RuleSet,
    /// What became of each rule.
    pub report: LoadReport,
}

/// What became of the rules of all sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Rules found, those that are commented out too.
    pub rules: u64,
    /// Rules that are not commented out.
    pub enabled: u64,
    /// Enabled rules that run in full.
    pub runnable: u64,
    /// Enabled rules that do not run.
    pub refused: Vec<Refusal>,
    /// What stands beside the rules and does nothing: lines of a `threshold.config`, and sets of a
    /// suricata.yaml.
    pub unused: Vec<Refusal>,
    /// What is said in vain: a line of a `threshold.config` about a rule that does not run, and a
    /// flow bit that rules ask for and none sets.
    pub idle: Vec<String>,
    /// What is said of dataset files with lines that were left out.
    pub spoiled: Vec<String>,
}

impl LoadReport {
    /// How many rules each keyword stops.
    pub fn by_keyword(&self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for refusal in &self.refused {
            *counts.entry(refusal.keyword.as_str()).or_default() += 1;
        }
        counts
    }
}

/// A rule that does not run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its source.
    pub source: String,
    /// The line, from 1.
    pub line: usize,
    /// Its number, where it could be read.
    pub sid: Option<u32>,
    /// The keyword that stops it; `syntax` where its form does.
    pub keyword: String,
    /// What is wrong.
    pub reason: String,
}

impl RuleSet {
    /// Reads and compiles all rules of `sources`. A rule that cannot be run in full is refused and
    /// named in the report; the others run. Takes seconds for tens of thousands of rules: not for
    /// a packet's thread.
    ///
    /// # Errors
    /// The matcher has no memory for the patterns.
    pub fn load(
        sources: &[RuleSource],
        variables: &Variables,
        options: &LoadOptions,
    ) -> Result<Loaded, MatcherError> {
        let mut report = LoadReport::default();
        let mut context = Context {
            groups: Groups::new(variables),
            bits: BitNames::default(),
            known: super::keywords::Known {
                reputation: &options.reputation,
                countries: options.countries.as_ref(),
                datasets: Definitions::new(variables.keeps_sets),
                digests: super::digests::DigestLists::default(),
                files: Texts { beside: &options.files, kept: &options.kept },
            },
            classes: &options.classes.priorities,
        };
        for (set, number) in variables.sets.iter().zip(1..) {
            let super::keywords::Known { datasets, files, .. } = &mut context.known;
            if let Err(why) = datasets.declare(set, *files) {
                let place = ("datasets", number);
                report.unused.push(refusal((place, None, Refused::new("dataset", why))));
            }
        }
        let mut watches = Vec::new();
        let gathered = gather(sources, &mut context, options, &mut watches, &mut report);
        let mut rules: Vec<Rule> = gathered.rules.into_iter().flatten().collect();
        report.runnable = rules.len() as u64;
        if options.ignores_checksums {
            rules.retain(|it| !it.finds_wrong_checksums());
        }
        let mut apply = |it| filters::apply(it, &mut context.groups, &mut rules, &mut report);
        options.filters.iter().for_each(&mut apply);
        let unset = unset_bits(&rules);
        let actions = options.order.unwrap_or(Action::ORDER);
        rules.sort_by_key(|rule| order(rule, &actions));
        let mut rules = RuleSet::compile(rules, options.classes.descriptions.clone())?;
        let names = context.bits.into_names();
        report.idle.extend(unset.into_iter().filter_map(|(bit, sid)| {
            let bit = names.get(bit as usize)?;
            Some(format!("rule {sid} asks for the flow bit `{bit}`, which no rule sets"))
        }));
        rules.name_bits(names);
        rules.set_watches(watches);
        report.spoiled = context.known.datasets.take_spoiled();
        rules.set_datasets(context.known.datasets);
        rules.set_hosts(variables.hosts.clone());
        Ok(Loaded { rules, report })
    }
}

/// Reads the rules of all sources, counts them and says which are refused.
fn gather<'a>(
    sources: &'a [RuleSource],
    context: &mut Context<'_>,
    options: &LoadOptions,
    watches: &mut Vec<Watch>,
    report: &mut LoadReport,
) -> Gathered<'a> {
    let mut gathered = Gathered::default();
    let mut disabled = BTreeSet::new();
    for source in sources {
        for line in syntax::lines(&source.text) {
            report.rules += 1;
            if line.is_disabled {
                continue;
            }
            // Nothing that it names counts either.
            let is_off = |it: &u32| options.disabled.contains(it);
            let may_be_off = !options.disabled.is_empty();
            let sid = may_be_off.then(|| sid_of(&line.text)).flatten();
            if let Some(sid) = sid.filter(is_off) {
                disabled.insert(sid);
                continue;
            }
            let result = read(&line, context, gathered.rules.len());
            let sid = result.as_ref().map_or_else(|_| sid_of(&line.text), |rule| Some(rule.sid));
            report.enabled += 1;
            let place = (source.name.as_str(), line.number);
            let refused = match result.and_then(|rule| watched(rule, watches)) {
                Ok(mut rule) => {
                    rule.is_tried = options.would_drop.contains(&rule.sid);
                    gathered.add(rule, place)
                }
                Err(why) => Some((place, sid, why)),
            };
            report.refused.extend(refused.map(refusal));
        }
    }
    let absent = options.disabled.difference(&disabled);
    report.idle.extend(absent.map(|sid| format!("disable: there is no rule {sid}")));
    gathered
}

/// Flow bits that rules ask for and none sets, each with the first rule that does.
fn unset_bits(rules: &[Rule]) -> BTreeMap<u32, u32> {
    let of_flow = |it: &&BitTest| it.scope == BitScope::Flow;
    let bits = || rules.iter().flat_map(|rule| rule.bits.iter().map(|it| (rule.sid, it)));
    let sets = |it: &&BitTest| matches!(it.verb, BitVerb::Set | BitVerb::Toggle);
    let set = bits().map(|it| it.1).filter(of_flow).filter(sets);
    let set: BTreeSet<u32> = set.flat_map(|it| it.names.iter().copied()).collect();
    let mut unset = BTreeMap::new();
    for (sid, bit) in bits().filter(|it| of_flow(&it.1) && it.1.verb == BitVerb::IsSet) {
        let is_set = bit.names.iter().any(|it| set.contains(it));
        if let Some(name) = bit.names.first().filter(|_| !is_set) {
            unset.entry(*name).or_insert(sid);
        }
    }
    unset
}

/// Where a rule stands: its source, and the line there.
type Location<'a> = (&'a str, usize);

/// A rule that does not run: where it stands, its number, and why.
type Fault<'a> = (Location<'a>, Option<u32>, Refused);

fn refusal((place, sid, why): Fault<'_>) -> Refusal {
    let (source, line) = (place.0.to_owned(), place.1);
    let reason = shortened(reason(&why));
    Refusal { source, line, sid, keyword: why.keyword, reason }
}

/// Characters of a reason: what it quotes is as long as a hostile file makes it.
const REASON_MAX: usize = 300;

fn shortened(mut reason: String) -> String {
    if let Some((end, _)) = reason.char_indices().nth(REASON_MAX) {
        reason.truncate(end);
        reason.push_str(" ...");
    }
    reason
}

/// Why a rule does not run, in its writer's terms.
fn reason(Refused { keyword, reason }: &Refused) -> String {
    const OFFSET: &str = " compiling pattern at offset ";
    let unsupported = match keyword.as_str() {
        "lua" | "luaxform" => Some("Weir runs no scripts"),
        "file.magic" | "filemagic" => Some("Weir has no libmagic; ask for a file's first bytes"),
        "igmp-csum" => Some("checksums of IGMP are not looked at"),
        _ => None,
    };
    match unsupported {
        Some(why) => return format!("not supported: {why}"),
        // All its events are known (docs/guide/detect.md), so that a name that is not is none.
        None if matches!(keyword.as_str(), "decode-event" | "engine-event") => {
            return reason.replace("is not raised here", "is not an event of Suricata 8.0.7");
        }
        None => {}
    }
    // It counts in the pattern as it is compiled, with more before it than was written.
    match reason.split_once(OFFSET) {
        Some((before, rest)) => {
            let behind = rest.trim_start_matches(|it: char| it.is_ascii_digit());
            format!("{before}{behind}")
        }
        None => reason.clone(),
    }
}

/// Rules so far, each number once.
#[derive(Default)]
struct Gathered<'a> {
    /// In the order written; `None`: a newer one was found.
    rules: Vec<Option<Rule>>,
    /// By generator and number.
    known: BTreeMap<(u32, u32), (usize, Location<'a>)>,
}

impl<'a> Gathered<'a> {
    /// Adds a rule. Of those of one number the newest revision runs, of alike ones the first; the
    /// other is refused.
    fn add(&mut self, rule: Rule, place: Location<'a>) -> Option<Fault<'a>> {
        let name = (rule.generator, rule.sid);
        let why = |(source, line): Location<'_>, runs: &str| {
            let why = format!("sid {} is also the rule's in {source}:{line}, {runs}", name.1);
            Refused::new("sid", why)
        };
        let mut refused = None;
        if let Some((index, old)) = self.known.get(&name) {
            let known = &mut self.rules[*index];
            let revision = known.as_ref().map_or(0, |it| it.revision);
            if revision >= rule.revision {
                let runs = match revision == rule.revision {
                    true => "of the same revision: the first runs",
                    false => "which is newer, and runs",
                };
                return Some((place, Some(name.1), why(*old, runs)));
            }
            *known = None;
            refused = Some((*old, Some(name.1), why(place, "which is newer, and runs")));
        }
        self.known.insert(name, (self.rules.len(), place));
        self.rules.push(Some(rule));
        refused
    }
}

impl Rule {
    /// Whether it asks for a checksum that is wrong.
    fn finds_wrong_checksums(&self) -> bool {
        self.tests.iter().any(|it| matches!(it, HeaderTest::Checksum { is_valid: false, .. }))
    }
}

/// Gives what a rule has watched its bits.
fn watched(mut rule: Rule, watches: &mut Vec<Watch>) -> Result<Rule, Refused> {
    for test in &mut rule.tests {
        let HeaderTest::Sign { watch, bit } = test else { continue };
        let place = watches.iter().position(|it| it == watch).unwrap_or(watches.len());
        if place == WATCHES_MAX {
            let why = format!("more than {WATCHES_MAX} different ones of flood and rdma.event");
            return Err(Refused::new("flood", why));
        }
        if place == watches.len() {
            watches.push(*watch);
        }
        *bit = place as u8;
    }
    Ok(rule)
}

fn read(line: &Line, context: &mut Context<'_>, count: usize) -> Result<Rule, Refused> {
    if count == RULES_MAX {
        return Err(Refused::new("rules", format!("more than {RULES_MAX} rules")));
    }
    let statement = syntax::parse(&line.text).map_err(|why| Refused::new("syntax", why))?;
    build(&statement, context)
}

/// Passes first, then drops, rejects, alerts; among them who sets for others before who asks; then
/// the more severe; then by number. Rules that are alike in all that stay in the order written.
fn order(rule: &Rule, actions: &[Action; 4]) -> (usize, [u8; 6], u32, u32) {
    let place = actions.iter().position(|it| *it == rule.action).unwrap_or(actions.len());
    (place, shares(rule), rule.priority, rule.sid)
}

/// What a rule shares with others, as Suricata 8.0.7 orders it: bits of flows, integers of flows,
/// texts of flows, of packets; bits of hosts, of which `hostbits` count where they are set and
/// `xbits` where they are asked for; `xbits` of pairs that are asked for. Of each, 0: it sets; 1:
/// it sets and asks; 2: it asks; 3: neither.
fn shares(rule: &Rule) -> [u8; 6] {
    let is_number = |it: &&BitTest| {
        use BitVerb as V;
        matches!(it.verb, V::Put(_) | V::Add(_) | V::Subtract(_) | V::Compare(..) | V::IsDefined(_))
    };
    let is_of_flow = |it: &&BitTest| matches!(it.scope, BitScope::Flow | BitScope::Transaction);
    let asks = |it: &BitTest| it.verb.is_condition();
    let bits = || rule.bits.iter().filter(|it| is_of_flow(it) && !is_number(it));
    let numbers = || rule.bits.iter().filter(is_number);
    let of_hosts = || rule.bits.iter().filter(|it| !is_of_flow(it));
    let asks_pair = |it: &BitTest| it.is_x && it.scope == BitScope::Pair && asks(it);
    let asks_host = |it: &BitTest| it.is_x && it.scope != BitScope::Pair && asks(it);
    let asks_text = |kept: TextScope| rule.texts.iter().any(|it| it.kept == kept);
    let rank = |sets: bool, asks: bool| match (sets, asks) {
        (true, false) => 0,
        (true, true) => 1,
        (false, true) => 2,
        (false, false) => 3,
    };
    [
        rank(bits().any(|it| !asks(it)), bits().any(asks)),
        rank(numbers().any(|it| !asks(it)), numbers().any(asks)),
        rank(rule.captures(TextScope::Flow), asks_text(TextScope::Flow)),
        rank(rule.captures(TextScope::Packet), asks_text(TextScope::Packet)),
        rank(of_hosts().any(|it| !it.is_x && !asks(it)), of_hosts().any(asks_host)),
        rank(false, of_hosts().any(asks_pair)),
    ]
}

/// The sid of a rule that could not be read whole.
fn sid_of(text: &str) -> Option<u32> {
    let mut is_quoted = false;
    let mut before = ' ';
    let is_option = |(at, character): &(usize, char)| {
        is_quoted ^= *character == '"' && before != '\\';
        let begins = matches!(before, '(' | ';' | ' ' | '\t') && !is_quoted;
        before = *character;
        begins && text[*at..].starts_with("sid:")
    };
    let (at, _) = text.char_indices().find(is_option)?;
    let behind = &text[at + "sid:".len()..];
    let digits: String = behind.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
