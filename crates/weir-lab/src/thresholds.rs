//! Where the threshold of each rule for attacks stands: above what the benign twin reaches, below
//! what the attack does.
//!
//! A rule's threshold is the number behind `count`, `rate` or `targets`. For some seeds this finds
//! the largest one with which the rule still tells the twin, and the largest with which it tells
//! the attack, by halving the interval between; the other seeds judge the rule as it is shipped
//! (tests/hostile.rs).

use std::sync::Arc;

use anyhow::{Context, Result};
use serde::Serialize;
use weir_detect::RuleSet;

use crate::traffic::frames::Planned;
use crate::traffic::hostile::{Campaign, Hostile};
use crate::{interrupt, play, rules};

/// A threshold is not looked for beyond so many times the shipped one.
const FACTOR_MAX: u64 = 64;
/// Of campaigns that are longer, one seed is played: they differ by their addresses alone.
const LONG: usize = 50_000;

/// What a rule's threshold lies between.
#[derive(Clone, Debug, Serialize)]
pub struct Interval {
    /// The attack's name, as of `weir lab send --kind attack-NAME`.
    pub attack: &'static str,
    /// The rule's number.
    pub sid: u32,
    /// What the number is called in the rule: `count`, `rate` or `targets`.
    pub option: &'static str,
    /// The number there.
    pub shipped: u64,
    /// The largest with which the twin, of any seed, would be told; 0: it never is.
    pub twin: u64,
    /// The largest with which the attack is told, of every seed.
    pub attacked: u64,
    /// The same at a tenth of the attack's rate; `None`: its rate is what makes it one.
    pub slowly: Option<u64>,
    /// How many seeds were played.
    pub seeds: usize,
    /// Numbers are not looked for beyond this one.
    pub most: u64,
}

impl Interval {
    /// Whether the shipped number tells the attack, of every seed, and the twin of none.
    pub fn is_between(&self) -> bool {
        let least = self.slowly.map_or(self.attacked, |it| it.min(self.attacked));
        self.twin < self.shipped && self.shipped <= least
    }
}

/// What the number of `hostile`'s rule is called there, and the shipped one.
///
/// # Errors
/// Its rule is not among the shipped ones, or has none.
pub fn shipped(hostile: Hostile) -> Result<(&'static str, u64)> {
    let Threshold { option, shipped, .. } = Threshold::of(hostile.rule())?;
    Ok((option, shipped))
}

/// Finds it for `hostile`.
///
/// # Errors
/// Its rule is not among the shipped ones or does not run, or a signal came.
pub fn interval(name: &'static str, hostile: Hostile, seeds: &[u64]) -> Result<Interval> {
    let sid = hostile.rule();
    let threshold = Threshold::of(sid)?;
    let most = threshold.shipped * FACTOR_MAX;
    let (count, rate) = hostile.usual(false);
    let seeds = &seeds[..if count as usize > LONG { seeds.len().min(1) } else { seeds.len() }];
    let played = |is_benign: bool| {
        let count = hostile.usual(is_benign).0 as usize;
        let campaign = |seed: &u64| Campaign { hostile, is_benign, count, sources: 1, seed: *seed };
        seeds.iter().map(campaign).map(|it| (it, it.frames())).collect::<Vec<_>>()
    };
    let (attacks, twins) = (played(false), played(true));
    let told_all = |rate: u64, number: u64| {
        let rules = threshold.rules(number)?;
        attacks.iter().try_fold(true, |all, it| Ok(all && is_told(&rules, it, rate)?))
    };
    let rate = u64::from(rate);
    let twin_rate = u64::from(hostile.usual(true).1);
    let twin = largest(most, |number| {
        let rules = threshold.rules(number)?;
        twins.iter().try_fold(false, |any, it| Ok(any || is_told(&rules, it, twin_rate)?))
    })?;
    let attacked = largest(most, |number| told_all(rate, number))?;
    let slowly = match hostile.is_by_rate() {
        true => None,
        false => Some(largest(most, |number| told_all(rate / 10, number))?),
    };
    let Threshold { option, shipped, .. } = threshold;
    let seeds = seeds.len();
    Ok(Interval { attack: name, sid, option, shipped, twin, attacked, slowly, seeds, most })
}

/// The largest number from 1 to `most` for which `holds`, which does for all smaller ones; 0: for
/// none.
fn largest(most: u64, holds: impl Fn(u64) -> Result<bool>) -> Result<u64> {
    let (mut known, mut beyond) = (0, most + 1);
    // By doubling up to the first that fails, then by halving what is left.
    let mut next = 1;
    while known + 1 < beyond {
        interrupt::check()?;
        match holds(next)? {
            true => known = next,
            false => beyond = next,
        }
        let doubled = known.saturating_mul(2).max(1);
        next = if doubled < beyond && beyond > most { doubled } else { known.midpoint(beyond) };
        // Three digits are enough.
        if beyond - known <= known / 512 {
            break;
        }
    }
    Ok(known)
}

/// Whether a rule tells a campaign.
fn is_told(rules: &Arc<RuleSet>, it: &(Campaign, Vec<Planned>), rate: u64) -> Result<bool> {
    let mut is_told = false;
    play::each(rules, (&it.0, &it.1), rate, |_, _, alerts| {
        is_told |= alerts.drain().next().is_some();
    })?;
    Ok(is_told)
}

/// A shipped rule, and the number in it that is varied.
struct Threshold {
    before: &'static str,
    option: &'static str,
    shipped: u64,
    behind: &'static str,
}

impl Threshold {
    fn of(sid: u32) -> Result<Self> {
        let line = rules::shipped_rule(sid).with_context(|| format!("no rule has sid {sid}"))?;
        // A rule's own number stands before the one of its `threshold`.
        for option in ["count ", "rate ", "targets "] {
            let end = line.find("threshold:").unwrap_or(line.len());
            let Some(at) = line[..end].find(option).map(|at| at + option.len()) else { continue };
            let digits = line[at..].bytes().take_while(u8::is_ascii_digit).count();
            let (before, behind) = (&line[..at], &line[at + digits..]);
            let shipped = line[at..at + digits].parse()?;
            return Ok(Self { before, option: option.trim_end(), shipped, behind });
        }
        anyhow::bail!("rule {sid} has no threshold")
    }

    /// That rule alone, with another number.
    fn rules(&self, number: u64) -> Result<Arc<RuleSet>> {
        let text = format!("{}{number}{}\n", self.before, self.behind);
        play::load(&[("threshold.rules", &text)], rules::classes())
    }
}

/// The table, a row each, as Markdown.
pub fn table(intervals: &[Interval]) -> String {
    let mut text = String::from(
        "| rule | attack | threshold | twins reach | attacks reach | at a tenth | seeds |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for it in intervals {
        let shown = |number: u64| match number {
            0 => "-".to_owned(),
            number if number >= it.most => format!("{} and more", it.most),
            number => number.to_string(),
        };
        let slowly = it.slowly.map_or_else(|| "by rate".to_owned(), shown);
        text.push_str(&format!(
            "| {} | {} | {} {} | {} | {} | {slowly} | {} |\n",
            it.sid,
            it.attack,
            it.option,
            it.shipped,
            shown(it.twin),
            shown(it.attacked),
            it.seeds,
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_that_holds_is_found() {
        for bound in [0, 1, 2, 7, 64, 99, 100] {
            let found = largest(100, |it| Ok(it <= bound)).expect("no signal");
            assert_eq!(found, bound);
        }
    }

    #[test]
    fn the_threshold_of_a_rule_is_its_own_number() {
        let threshold = Threshold::of(3_200_001).expect("it is shipped");
        assert_eq!((threshold.option, threshold.shipped), ("count", 8));
        assert!(threshold.behind.contains("threshold:type limit"));
        threshold.rules(16).expect("it runs");
    }
}
