//! A set of rules in another's place.

use std::collections::HashMap;

use super::RuleSet;
use crate::rule::{Rule, RuleIndex};

/// Places of rules and of names of bits in a set that takes another's place: rules are the same by
/// their numbers, bits by their names.
#[derive(Debug, Default)]
pub(crate) struct Successors {
    rules: Vec<Option<RuleIndex>>,
    bits: Vec<Option<u32>>,
}

impl Successors {
    pub(crate) fn rule(&self, before: RuleIndex) -> Option<RuleIndex> {
        self.rules.get(before.0 as usize).copied().flatten()
    }

    /// Rules of a list by their places here; those that are gone go.
    pub(crate) fn rename<T>(&self, list: &mut Vec<T>, of: impl Fn(&mut T) -> &mut RuleIndex) {
        list.retain_mut(|it| {
            let rule = of(it);
            let successor = self.rule(*rule);
            *rule = successor.unwrap_or(*rule);
            successor.is_some()
        });
    }

    pub(crate) fn bit(&self, before: u32) -> Option<u32> {
        self.bits.get(before as usize).copied().flatten()
    }
}

impl RuleSet {
    /// What stands here for what stands in a set before.
    pub(crate) fn successors(&self, before: &Self) -> Successors {
        let name = |it: &Rule| (it.generator, it.sid);
        let known: HashMap<_, _> = self.rules.iter().map(name).zip(0_u32..).collect();
        let rules = before.rules.iter().map(|it| known.get(&name(it)).copied().map(RuleIndex));
        let known: HashMap<&String, u32> = self.bit_names.iter().zip(0..).collect();
        let bits = before.bit_names.iter().map(|it| known.get(it).copied());
        Successors { rules: rules.collect(), bits: bits.collect() }
    }
}
