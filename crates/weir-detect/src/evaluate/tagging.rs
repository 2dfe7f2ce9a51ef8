//! Packets behind one that a rule with `tag` matched: they are told, as those of its flow or of a
//! host.

use hashlink::LinkedHashMap;
use weir_wire::frame::Time;

use super::Evaluator;
use crate::detector::Direction;
use crate::flow::{Effect, Flow};
use crate::packet::View;
use crate::rule::{Rule, RuleIndex, Tag, TagLimit, Tagged};
use crate::ruleset::RuleSet;

/// Tags of one flow, or of one host, at most; further ones are not put.
const TAGS_MAX: usize = 50;
/// Hosts that have tags, at most; beyond, the one that has had some for longest loses them.
const HOSTS_MAX: usize = 4096;

/// A tag that a flow or a host has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PutTag {
    rule: RuleIndex,
    limit: TagLimit,
    since: Time,
    packets: u64,
    bytes: u64,
    /// It was put with the packet at hand, which is no packet behind it.
    is_new: bool,
}

/// What is tagged beside flows.
#[derive(Debug, Default)]
pub(super) struct Tagging {
    hosts: LinkedHashMap<u128, Vec<PutTag>>,
    /// The packet at hand is behind one that a rule with a tag matched.
    is_tagged: bool,
}

impl PutTag {
    /// Counts a packet; whether it is one of those that are wanted.
    fn takes(&mut self, now: Time, bytes: u64) -> bool {
        self.packets += 1;
        self.bytes += bytes;
        match self.limit {
            TagLimit::Packets(limit) => self.packets <= limit,
            TagLimit::Bytes(limit) => self.bytes <= limit,
            // Of the clock's seconds, as in Suricata.
            TagLimit::Seconds(limit) => seconds(now).saturating_sub(seconds(self.since)) <= limit,
        }
    }
}

fn seconds(time: Time) -> u64 {
    time.0 / 1_000_000_000
}

/// Puts a tag, once more where it is there.
fn put(tags: &mut Vec<PutTag>, rule: RuleIndex, limit: TagLimit, now: Time) {
    let tag = PutTag { rule, limit, since: now, packets: 0, bytes: 0, is_new: true };
    let known = tags.iter_mut().find(|it| (it.rule, it.limit) == (rule, limit));
    if let Some(known) = known {
        *known = PutTag { is_new: known.is_new, ..tag };
    } else if tags.len() < TAGS_MAX {
        tags.push(tag);
    }
}

/// Counts a packet for each of them; whether one wants it.
fn take(tags: &mut Vec<PutTag>, now: Time, bytes: u64) -> bool {
    let mut is_wanted = false;
    tags.retain_mut(|tag| {
        let goes_on = tag.takes(now, bytes);
        is_wanted |= goes_on && !std::mem::take(&mut tag.is_new);
        goes_on
    });
    is_wanted
}

impl Evaluator {
    /// A rule matched: what it tags is tagged with this packet, or with the acknowledgment.
    pub(super) fn put_tags(
        &self,
        (rule, index): (&Rule, RuleIndex),
        flow: &mut Flow,
        side: Direction,
    ) {
        if !rule.tags.is_empty() && !self.put_off(flow, side, Effect::Tag(index)) {
            flow.due_tags.push(index);
        }
    }

    /// Puts what is due with the packet at hand, and finds out whether it is tagged.
    pub(super) fn follow_tags(
        &mut self,
        rules: &RuleSet,
        now: Time,
        flow: &mut Flow,
        view: &View<'_>,
    ) {
        let Tagging { hosts, is_tagged } = &mut self.tagging;
        for index in std::mem::take(&mut flow.due_tags) {
            for Tag { whom, limit } in &rules.rule(index).tags {
                let address = match whom {
                    Tagged::Session => {
                        put(&mut flow.tags, index, *limit, now);
                        continue;
                    }
                    Tagged::Source => view.source,
                    Tagged::Destination => view.destination,
                };
                put(hosts.entry(address).or_insert_with(Vec::new), index, *limit, now);
                if hosts.len() > HOSTS_MAX {
                    hosts.pop_front();
                }
            }
        }
        let bytes = view.bytes.len() as u64;
        *is_tagged = !flow.tags.is_empty() && take(&mut flow.tags, now, bytes);
        if hosts.is_empty() {
            return;
        }
        let ends = [Some(view.source), Some(view.destination).filter(|it| *it != view.source)];
        for address in ends.into_iter().flatten() {
            if let Some(tags) = hosts.get_mut(&address) {
                *is_tagged |= take(tags, now, bytes);
                if tags.is_empty() {
                    hosts.remove(&address);
                }
            }
        }
    }

    /// Whether the last packet was tagged.
    pub(crate) fn take_tagged(&mut self) -> bool {
        std::mem::take(&mut self.tagging.is_tagged)
    }

    /// Other rules run from here on: hosts have no tags.
    pub(crate) fn forget_tags(&mut self) {
        self.tagging = Tagging::default();
    }
}
