//! Lines of access: who may do what by RDMA.
//!
//! ```toml
//! [[pair]]
//! access_default = "deny"         # [allow] allow | deny: RDMA that no line matches
//! access_state = "learn"          # [off] off | learn: a queue pair belongs to its first sender or
//! #                                 whom connection managers name; packets of others are dropped |
//! #                                 strict: also, RC, UC and XRC pass only if those agreed on it
//! access_psn = "drop"             # [count] off | count | under_attack (drop while many come) |
//! #                                 drop: packets of reliable queue pairs with a PSN out of window
//!
//! [[group]]                       # a name for addresses; several groups allowed; see below
//! name = "storage"
//! members = ["10.0.0.0/28", "fd00::7"]  # or members_file = "storage.txt": one per line
//!
//! [[access]]                      # a line of access; of a pair's lines, the first match decides
//! name = "compute-reads-storage"  # unique; shown by `weir access hits`
//! pair = "port0"                  # [every pair]
//! from = "10.1.0.0/16"            # [anybody] the requester: groups, or what a group may have as
//! #                                 members (see below); several
//! to = "storage"                  # [anybody] the owner of the queue pair and memory; several
//! operations = ["read", "send"]   # [all] send | send_imm | write | read | atomic | multicast |
//! #                                 connect | other; several
//! service = "nvme-of"             # [any] also qp_type, vlan, p_key, expires, hours: see below
//! limit = { messages = 1000 }     # [none] per second and source address: messages, read_bytes,
//! #                                 source_bits, queue_pair_bits, connects; also queue_pairs, the
//! #                                 number that may be open at a time
//! action = "allow"                # allow | deny | reject: deny, answer the sender | would_deny:
//! #                                 allow, but count and report it as if it were denied
//! log = false                     # [false] log each message that matches; denied ones are always
//! #                                 logged
//! ```

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;
use weir_engine::access::{self, AccessAction, AccessPolicy, AccessState, MEMBERS_MAX, PsnCheck};

use super::file::{File, Several};
use super::problem::Problems;
use super::resolve::check_name;
use super::settings::Pair;

pub mod party;
pub mod terms;

use party::Groups;

/// `[[access]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Line {
    pub name: Spanned<String>,
    pub pair: Option<Spanned<String>>,
    pub from: Option<Several<String>>,
    pub to: Option<Several<String>>,
    pub operations: Option<Several<Operation>>,
    pub service: Option<Several<String>>,
    pub qp_type: Option<Several<terms::QueuePairType>>,
    pub vlan: Option<Several<u16>>,
    pub p_key: Option<Several<u16>>,
    pub expires: Option<Spanned<String>>,
    pub hours: Option<Several<String>>,
    pub limit: Option<Spanned<Limit>>,
    pub action: Spanned<Action>,
    #[serde(default)]
    pub log: bool,
}

/// `limit`: how much a line lets pass, of each source address. See [`access::Limits`].
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Messages a second.
    pub messages: Option<u64>,
    /// Bytes asked for by READ, a second.
    pub read_bytes: Option<u64>,
    /// Bits a second.
    pub source_bits: Option<u64>,
    /// Bits a second to each queue pair.
    pub queue_pair_bits: Option<u64>,
    /// Connections asked for, a second.
    pub connects: Option<u64>,
    /// Connections that stand.
    pub queue_pairs: Option<u64>,
}

impl Limit {
    fn numbers(&self) -> impl Iterator<Item = u64> {
        let Self { messages, read_bytes, source_bits, queue_pair_bits, connects, queue_pairs } =
            *self;
        let all = [messages, read_bytes, source_bits, queue_pair_bits, connects, queue_pairs];
        all.into_iter().flatten()
    }
}

impl From<Limit> for access::Limits {
    fn from(limit: Limit) -> Self {
        Self {
            messages: limit.messages,
            read_bytes: limit.read_bytes,
            source_bits: limit.source_bits,
            queue_pair_bits: limit.queue_pair_bits,
            connects: limit.connects,
            queue_pairs: limit.queue_pairs,
        }
    }
}

/// `[[group]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the keys are documented in the format above")]
pub struct Group {
    pub name: Spanned<String>,
    pub members: Option<Several<String>>,
    pub members_file: Option<Spanned<String>>,
}

/// What is asked of a queue pair: see [`access::Operation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the engine's say what they are")]
pub enum Operation {
    Send,
    #[serde(alias = "send-imm")]
    SendImm,
    Write,
    Read,
    Atomic,
    Multicast,
    Connect,
    Other,
}

/// What a line does: see [`AccessAction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the engine's say what they are")]
pub enum Action {
    Allow,
    Deny,
    #[serde(alias = "would-deny")]
    WouldDeny,
    Reject,
}

/// `access_default`: what happens to what no line matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessDefault {
    /// It passes: lines name what may not be.
    #[default]
    Allow,
    /// It is dropped: lines name what may be.
    Deny,
}

/// `access_state`: what happens to packets that do not fit how their queue pair was set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessStateMode {
    /// Nothing. A number that is used again at once, by other peers and without connection
    /// management, would be taken for a forgery for 15 s: what passed before an upgrade passes.
    #[default]
    Off,
    /// A number belongs to whom its first packet comes from, or whom connection managers name.
    Learn,
    /// Of connected queue pairs only those pass that connection managers agreed on.
    Strict,
}

impl From<AccessStateMode> for AccessState {
    fn from(mode: AccessStateMode) -> Self {
        match mode {
            AccessStateMode::Off => Self::Off,
            AccessStateMode::Learn => Self::Learn,
            AccessStateMode::Strict => Self::Strict,
        }
    }
}

/// `access_psn`: what happens to packets of reliable queue pairs whose number is none that their
/// receiver could be waiting for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessPsnMode {
    /// Nobody looks.
    Off,
    /// They are counted, and pass: a queue pair that is made again at once, without connection
    /// management, begins out of its window and must work.
    #[default]
    Count,
    /// They are dropped while there are many.
    UnderAttack,
    /// They are dropped.
    Drop,
}

impl From<AccessPsnMode> for PsnCheck {
    fn from(mode: AccessPsnMode) -> Self {
        match mode {
            AccessPsnMode::Off => Self::Off,
            AccessPsnMode::Count => Self::Count,
            AccessPsnMode::UnderAttack => Self::UnderAttack,
            AccessPsnMode::Drop => Self::Drop,
        }
    }
}

impl From<Operation> for access::Operation {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Send => Self::Send,
            Operation::SendImm => Self::SendImmediate,
            Operation::Write => Self::Write,
            Operation::Read => Self::Read,
            Operation::Atomic => Self::Atomic,
            Operation::Multicast => Self::Multicast,
            Operation::Connect => Self::Connect,
            Operation::Other => Self::Other,
        }
    }
}

impl From<Action> for AccessAction {
    fn from(action: Action) -> Self {
        match action {
            Action::Allow => Self::Allow,
            Action::Deny => Self::Deny,
            Action::WouldDeny => Self::WouldDeny,
            Action::Reject => Self::Reject,
        }
    }
}

impl From<AccessDefault> for AccessAction {
    fn from(default: AccessDefault) -> Self {
        match default {
            AccessDefault::Allow => Self::Allow,
            AccessDefault::Deny => Self::Deny,
        }
    }
}

/// Gives each of `pairs` its lines; files of groups are looked for in `directory`.
pub(super) fn resolve(file: &File, directory: &Path, pairs: &mut [Pair], problems: &mut Problems) {
    let groups = Groups::of(file, pairs, directory, problems);
    let lines = lines(file, pairs, &groups, problems);
    for (pair, (_, written)) in pairs.iter_mut().zip(&file.pairs) {
        let of_pair = |(of, _): &&(Option<String>, access::Line)| {
            of.as_ref().is_none_or(|of| *of == pair.name)
        };
        let own: Vec<_> = lines.iter().filter(of_pair).map(|(_, line)| line.clone()).collect();
        let is_told = written.access_default.is_some()
            || written.access_state.is_some()
            || written.access_psn.is_some();
        if own.is_empty() && !is_told {
            continue;
        }
        check_members(&own, written.host.span(), problems);
        let default = written.access_default.as_ref().map(|it| *it.get_ref()).unwrap_or_default();
        let state = written.access_state.as_ref().map(|it| *it.get_ref()).unwrap_or_default();
        let psn = written.access_psn.as_ref().map(|it| *it.get_ref()).unwrap_or_default();
        let policy = AccessPolicy::new(own, default.into());
        let policy = policy.with_state(state.into()).with_psn(psn.into());
        pair.access = Some(Arc::new(policy));
    }
}

/// Parties are kept by line: a large group in many lines takes much memory.
fn check_members(lines: &[access::Line], span: Range<usize>, problems: &mut Problems) {
    let members = |line: &access::Line| line.from.prefixes().len() + line.to.prefixes().len();
    let members: usize = lines.iter().map(members).sum();
    if members > MEMBERS_MAX {
        let what = format!("the lines of this pair name {members} prefixes, groups' included");
        let remedy = format!("at most {MEMBERS_MAX} are possible: write wider prefixes");
        problems.error(span, what, remedy);
    }
}

/// Every line that can be read, with the name of its pair.
fn lines(
    file: &File,
    pairs: &[Pair],
    groups: &Groups<'_>,
    problems: &mut Problems,
) -> Vec<(Option<String>, access::Line)> {
    let mut lines = Vec::new();
    let mut names = BTreeSet::new();
    for (_, line) in &file.access {
        let name = line.name.get_ref().as_str();
        check_name(&line.name, problems);
        if name == "default" {
            let what = "a line of access is named `default`";
            problems.error(
                line.name.span(),
                what,
                "give it another name: that is the pair's default",
            );
        }
        if !names.insert(name) {
            let what = format!("a second line of access is named `{name}`");
            problems.error(line.name.span(), what, "give it a name of its own");
        }
        if let Some(pair) = &line.pair
            && !pairs.iter().any(|it| it.name == *pair.get_ref())
        {
            let what = format!("there is no pair `{}`", pair.get_ref());
            problems.error(pair.span(), what, "name a [[pair]], or leave `pair` out for all");
        }
        let mut party = |key, written| groups.party(key, written, &line.name, problems);
        let parties = [party("from", line.from.as_ref()), party("to", line.to.as_ref())];
        let operations = line.operations.as_ref().map(|it| &it.0);
        if operations.is_some_and(Vec::is_empty) {
            let what = format!("line `{name}`: `operations` names none");
            problems.error(line.name.span(), what, "name some, or leave it out for all");
        }
        let named = |list: &Vec<Spanned<Operation>>| {
            access::Operations::of(list.iter().map(|it| (*it.get_ref()).into()))
        };
        // A line about nobody decides nothing.
        let [Some(from), Some(to)] = parties else { continue };
        let resolved = access::Line {
            name: name.into(),
            from,
            to,
            operations: operations.map_or(access::Operations::ALL, named),
            terms: terms::resolve(line, problems),
            limits: limits(line, problems),
            action: (*line.action.get_ref()).into(),
            log: line.log,
        };
        lines.push((line.pair.as_ref().map(|it| it.get_ref().clone()), resolved));
    }
    lines
}

fn limits(line: &Line, problems: &mut Problems) -> Option<access::Limits> {
    let written = line.limit.as_ref()?;
    let limit = written.get_ref();
    let what = |what: &str| format!("line `{}`: its limit {what}", line.name.get_ref());
    if limit.numbers().next().is_none() {
        problems.error(written.span(), what("names nothing"), "name something, or leave it out");
    }
    if limit.numbers().any(|it| it == 0) {
        let remedy = "write action = \"deny\" for nothing at all";
        problems.error(written.span(), what("is zero"), remedy);
    }
    if !AccessAction::from(*line.action.get_ref()).passes() {
        let remedy = "leave the limit out, or let the line pass";
        problems.error(written.span(), what("is of a line that lets nothing pass"), remedy);
    }
    Some((*limit).into())
}
