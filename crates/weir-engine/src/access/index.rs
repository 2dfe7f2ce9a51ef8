//! Which lines concern an address, found without looking at the others.
//!
//! Prefixes lie inside each other or apart, so those of all lines make a forest. The innermost
//! that an address may be in is found by bisection; the others are on the way up from there.

use super::lines::{Line, Party};
use crate::policy::Prefix;

/// Lists of lines that concern one address, at most: those for everybody, one for each length of
/// prefix, and both kinds of what holds all of IPv6.
const LISTS_MAX: usize = 131;

/// A prefix of some line.
#[derive(Debug)]
struct Node {
    prefix: Prefix,
    first: u128,
    last: u128,
    /// The next prefix around it.
    outside: Option<u32>,
    /// Lines that name it, in their order.
    lines: Vec<u16>,
}

/// The lines by one of their ends.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// By first address, the wider before the narrower.
    nodes: Vec<Node>,
    /// Lines for everybody, and those that name members by marks.
    any: Vec<u16>,
}

impl Index {
    /// An index of `lines`, the party of each as `party_of` says.
    pub(super) fn new<'l>(lines: &'l [Line], party_of: impl Fn(&'l Line) -> &'l Party) -> Self {
        let mut any = Vec::new();
        let mut named = Vec::new();
        for (line, number) in lines.iter().zip(0u16..) {
            let party = party_of(line);
            // A party that is named by a mark may have any address.
            if party.is_any() || !party.marks().is_empty() {
                any.push(number);
                continue;
            }
            let prefixes = party.prefixes();
            named.extend(prefixes.iter().map(|prefix| (prefix.bounds(), *prefix, number)));
        }
        named.sort_by_key(|((first, last), prefix, number)| {
            (*first, std::cmp::Reverse(*last), prefix.is_v6_alone(), *number)
        });
        let mut nodes: Vec<Node> = Vec::new();
        for ((first, last), prefix, number) in named {
            match nodes.last_mut() {
                Some(node) if node.prefix == prefix => {
                    if node.lines.last() != Some(&number) {
                        node.lines.push(number);
                    }
                }
                _ => {
                    let mut outside = nodes.len().checked_sub(1).map(|at| at as u32);
                    while let Some(at) = outside
                        && nodes[at as usize].last < last
                    {
                        outside = nodes[at as usize].outside;
                    }
                    nodes.push(Node { prefix, first, last, outside, lines: vec![number] });
                }
            }
        }
        Self { nodes, any }
    }

    /// The lines that concern the first address of the first of `prefixes`; none: those for
    /// everybody.
    pub(super) fn concerning_first(&self, prefixes: &[Prefix]) -> Lines<'_> {
        match prefixes.first().and_then(|prefix| prefix.ranges().next()) {
            Some((first, _)) => self.concerning(&first.to_be_bytes()),
            None => {
                let mut lines = Lines { lists: [&[]; LISTS_MAX], count: 0 };
                lines.add(&self.any);
                lines
            }
        }
    }

    /// The lines that concern `address`, in the form of `Parsed`.
    pub(super) fn concerning(&self, address: &[u8; 16]) -> Lines<'_> {
        let mut lines = Lines { lists: [&[]; LISTS_MAX], count: 0 };
        lines.add(&self.any);
        let number = u128::from_be_bytes(*address);
        let behind = self.nodes.partition_point(|node| node.first <= number);
        let mut at = behind.checked_sub(1);
        while let Some(node) = at.map(|at| &self.nodes[at]) {
            if node.prefix.contains(address) {
                lines.add(&node.lines);
            }
            at = node.outside.map(|at| at as usize);
        }
        lines
    }
}

/// Numbers of lines, each once, in their order.
pub(super) struct Lines<'i> {
    /// Each in order; the first `count` are not empty.
    lists: [&'i [u16]; LISTS_MAX],
    count: usize,
}

impl<'i> Lines<'i> {
    fn add(&mut self, list: &'i [u16]) {
        if !list.is_empty() && self.count < LISTS_MAX {
            self.lists[self.count] = list;
            self.count += 1;
        }
    }

    /// How many there are, those twice that two prefixes brought.
    pub(super) fn len(&self) -> usize {
        self.lists[..self.count].iter().map(|list| list.len()).sum()
    }
}

impl Iterator for Lines<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        let lists = &mut self.lists[..self.count];
        let least = lists.iter().filter_map(|list| list.first().copied()).min()?;
        for list in lists {
            if list.first() == Some(&least) {
                *list = &list[1..];
            }
        }
        Some(least)
    }
}
