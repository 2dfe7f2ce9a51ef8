//! What the status says of lines of access.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_engine::access::{Access, AccessAction, AccessPolicy, Hits};

/// What a pair's lines of access decided.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct AccessSnapshot {
    /// `allow` or `deny`: what happens to what no line matches.
    pub default_action: String,
    /// Messages that no line matched.
    pub default_messages: u64,
    /// Their packets.
    pub default_packets: u64,
    /// Their bytes.
    pub default_bytes: u64,
    /// Packets dropped as `access_unreadable`.
    pub unreadable_packets: u64,
    /// Messages that were counted and not told of, because too many came at once.
    pub events_lost: u64,
    /// Rejected messages and connections whose sender was told.
    pub answered: u64,
    /// Those whose sender could not be told: its queue pair is not known, or they were too many.
    pub unanswered: u64,
    /// Packets that were more than a line's limits let pass.
    pub limited_packets: u64,
    /// What was done about queue pair numbers.
    pub state: AccessStateSnapshot,
    /// Every line, in the order in which they are tried.
    pub lines: Vec<AccessLineSnapshot>,
    /// What `lines` is made of, as the packet thread hands it over.
    #[serde(skip)]
    counted: Option<(Arc<AccessPolicy>, Vec<Hits>)>,
}

/// What was done about queue pair numbers, and to whom they belong.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct AccessStateSnapshot {
    /// `off`, `learn` or `strict`.
    pub kind: String,
    /// Queue pairs that have an owner.
    pub queue_pairs: u64,
    /// Connections that managers agreed.
    pub connections: u64,
    /// Connections that a DREQ ended.
    pub disconnects: u64,
    /// Alternate paths that connections may use.
    #[serde(default)]
    pub paths: u64,
    /// Alternate paths that are not followed, for want of room or of knowledge.
    #[serde(default)]
    pub paths_missed: u64,
    /// Packets that did not come from whom their queue pair belongs to.
    pub forged: u64,
    /// Packets for which there was no connection.
    pub unconnected: u64,
    /// Directions of queue pairs that passed without an owner, for want of room.
    pub untracked: u64,
    /// Connections that were refused for want of room.
    pub refused: u64,
    /// `off`, `count`, `under_attack` or `drop`: what is done about the next.
    pub psn: String,
    /// Packets whose number was none that their receiver could be waiting for.
    pub out_of_window: u64,
}

impl AccessStateSnapshot {
    fn new(access: &Access) -> Self {
        let counters = access.state_counters();
        Self {
            kind: access.policy().state().name().to_owned(),
            queue_pairs: access.queue_pairs() as u64,
            connections: counters.connections,
            disconnects: counters.disconnects,
            paths: counters.paths,
            paths_missed: counters.paths_missed,
            forged: counters.forged,
            unconnected: counters.unconnected,
            untracked: counters.untracked,
            refused: counters.refused,
            psn: access.policy().psn().name().to_owned(),
            out_of_window: access.out_of_window_packets(),
        }
    }

    fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.queue_pairs, more.queue_pairs),
            (&mut self.connections, more.connections),
            (&mut self.disconnects, more.disconnects),
            (&mut self.paths, more.paths),
            (&mut self.paths_missed, more.paths_missed),
            (&mut self.forged, more.forged),
            (&mut self.unconnected, more.unconnected),
            (&mut self.untracked, more.untracked),
            (&mut self.refused, more.refused),
            (&mut self.out_of_window, more.out_of_window),
        ] {
            *sum += more;
        }
    }
}

/// What one line decided.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct AccessLineSnapshot {
    /// Its name.
    pub name: String,
    /// `allow`, `deny`, `reject` or `would_deny`.
    pub action: String,
    /// Who asks, as the line names them: groups, peers, addresses; absent: anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Who is asked, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Messages that it decided about, by their first packets.
    pub messages: u64,
    /// Their packets.
    pub packets: u64,
    /// Their bytes on the link.
    pub bytes: u64,
}

impl AccessSnapshot {
    /// What one worker's lines decided, names left out: see [`AccessSnapshot::name_lines`].
    pub fn new(access: &Access) -> Self {
        let Hits { messages, packets, bytes } = access.default_hits();
        let [answered, unanswered] = access.answers();
        Self {
            default_action: access.policy().default_action().name().to_owned(),
            default_messages: messages,
            default_packets: packets,
            default_bytes: bytes,
            unreadable_packets: access.unreadable_packets(),
            events_lost: access.events_lost(),
            answered,
            unanswered,
            limited_packets: access.limited_packets(),
            state: AccessStateSnapshot::new(access),
            lines: Vec::new(),
            counted: Some((Arc::clone(access.policy()), access.hits().to_vec())),
        }
    }

    /// Writes out the lines: tens of thousands take long, and no packet is to wait for that.
    pub fn name_lines(&mut self) {
        let Some((policy, hits)) = self.counted.take() else { return };
        let named = policy.lines().iter().zip(hits).map(|(line, hits)| AccessLineSnapshot {
            name: line.name.to_string(),
            action: line.action.name().to_owned(),
            from: line.from.name().map(str::to_owned),
            to: line.to.name().map(str::to_owned),
            messages: hits.messages,
            packets: hits.packets,
            bytes: hits.bytes,
        });
        self.lines = named.collect();
    }

    /// Lines that denied something.
    pub fn denied(&self) -> impl Iterator<Item = &AccessLineSnapshot> {
        let refusals = [AccessAction::Deny, AccessAction::Reject].map(AccessAction::name);
        let denies = move |line: &&AccessLineSnapshot| refusals.contains(&line.action.as_str());
        self.lines.iter().filter(denies).filter(|line| line.packets > 0)
    }

    /// Adds what another worker's lines decided. Between two policies a line of one may be
    /// missing in the other: it is then left out.
    pub(super) fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.default_messages, more.default_messages),
            (&mut self.default_packets, more.default_packets),
            (&mut self.default_bytes, more.default_bytes),
            (&mut self.unreadable_packets, more.unreadable_packets),
            (&mut self.events_lost, more.events_lost),
            (&mut self.answered, more.answered),
            (&mut self.unanswered, more.unanswered),
            (&mut self.limited_packets, more.limited_packets),
        ] {
            *sum += more;
        }
        self.state.add(&more.state);
        let others = more.lines.iter().map(|line| (line.name.as_str(), line));
        let others: BTreeMap<&str, &AccessLineSnapshot> = others.collect();
        for line in &mut self.lines {
            let Some(other) = others.get(line.name.as_str()) else { continue };
            line.messages += other.messages;
            line.packets += other.packets;
            line.bytes += other.bytes;
        }
    }
}
