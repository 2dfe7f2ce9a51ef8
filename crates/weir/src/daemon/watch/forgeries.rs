//! The alarm about tagged peers: wrong tags, tags of other epochs, and packets without a tag.

use std::collections::HashMap;

use weir_engine::counters::TagCounters;
use weir_engine::pipeline::Engine;
use weir_engine::policy::Mode;
use weir_wire::frame::Time;

use crate::daemon::control::notify;
use crate::daemon::watch::alarm::Period;

/// Between two lines about one peer.
const PERIOD_NS: u64 = 10_000_000_000;

/// Says aloud what tagged peers' packets were dropped for: at once, and then at most every ten
/// seconds a peer.
#[derive(Debug, Default)]
pub struct ForgeryAlarm {
    told: HashMap<String, (Period, TagCounters)>,
}

impl ForgeryAlarm {
    /// Looks at what `engine` counted by `now`, and tells what is new.
    pub fn look(&mut self, pair: &str, engine: &Engine, now: Time) {
        let peers = engine.policy().peers.iter().enumerate();
        for (index, peer) in peers.filter(|(_, it)| matches!(it.mode, Mode::IcrcTag(_))) {
            let Some(counters) = engine.tag_counters(index) else { continue };
            if let Some(news) = self.news(&peer.name, counters, now) {
                say(pair, &peer.name, &news, &counters);
            }
        }
        if self.told.len() > engine.policy().peers.len() {
            // Some are peers no more; the others are told of once too often.
            self.told.clear();
        }
    }

    /// What was counted since the last line, when it is time for another.
    fn news(&mut self, peer: &str, counters: TagCounters, now: Time) -> Option<TagCounters> {
        let told = self.told.get(peer).copied();
        let (mut period, before) =
            told.unwrap_or((Period::of_ns(PERIOD_NS), TagCounters::default()));
        let news = TagCounters {
            foreign: counters.foreign.saturating_sub(before.foreign),
            forged: counters.forged.saturating_sub(before.forged),
            old_epoch: counters.old_epoch.saturating_sub(before.old_epoch),
            limited: counters.limited.saturating_sub(before.limited),
            ..TagCounters::default()
        };
        if news == TagCounters::default() || !period.is_over(now) {
            return None;
        }
        period.begin(now);
        self.told.insert(peer.to_owned(), (period, counters));
        Some(news)
    }
}

fn say(pair: &str, peer: &str, news: &TagCounters, total: &TagCounters) {
    let TagCounters { foreign, forged, old_epoch, limited, .. } = *news;
    if forged + limited > 0 {
        tracing::error!(
            pair,
            peer,
            forged,
            limited,
            forged_total = total.forged,
            "WRONG TAGS: packets in the peer's name are forged or damaged, or the keys differ"
        );
        notify::alarm(&format!("ALARM: pair {pair}: {forged} wrong tags in the name of {peer}"));
    }
    if old_epoch > 0 {
        tracing::warn!(
            pair,
            peer,
            old_epoch,
            "right tags of another epoch: late replays, or the gateways' clocks differ"
        );
    }
    if foreign > 0 {
        tracing::warn!(
            pair,
            peer,
            foreign,
            "packets without a tag were dropped: the peer does not tag, or others speak for it"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tags_are_told_of_at_once_and_then_every_ten_seconds_with_what_is_new() {
        let mut alarm = ForgeryAlarm::default();
        let mut at = |second: u64, forged: u64| {
            let counters = TagCounters { forged, restored_packets: second, ..Default::default() };
            alarm.news("b", counters, Time(1 + second * 1_000_000_000)).map(|it| it.forged)
        };
        assert_eq!(at(0, 0), None);
        assert_eq!(at(1, 3), Some(3));
        assert_eq!(at(2, 9), None, "too soon");
        assert_eq!(at(11, 12), Some(9));
        assert_eq!(at(60, 12), None, "nothing new");
    }
}
