//! Whether a rule matches what is looked at.

use weir_wire::frame::Time;
use weir_wire::parse::Transport;
use weir_wire::tcp::flags::FIN;

use super::{Evaluator, Scene, Sight};
use crate::alert::{Alerts, TextScope};
use crate::buffers;
use crate::conversation::Progress;
use crate::detector::{Decision, Direction};
use crate::flow::Flow;
use crate::inspect::{self, Bytes, Cost, Memory, TRIES_MAX, Variables};
use crate::packet::View;
use crate::rule::step::Step;
use crate::rule::{
    Absence, Buffer, BufferTest, HeaderTest, Hook, Phases, Protocol, Rule, Speech, TextTest,
};
use crate::ruleset::RuleSet;

impl Scene<'_> {
    /// What is spoken, as far as the rule may know.
    pub(super) fn speech_for(&self, rule: &Rule) -> &Speech {
        if rule.hears_speech() { &self.speech_heard } else { &self.speech }
    }
}

impl Evaluator {
    /// What is known around a packet.
    pub(super) fn scene<'a>(
        &self,
        rules: &'a RuleSet,
        now: Time,
        direction: Direction,
        view: &'a View<'_>,
        told: (&mut Flow, &Progress),
    ) -> Scene<'a> {
        let waits = self.limits.waits_for_acknowledgment;
        Scene::around(rules, now, direction, view, told, waits)
    }

    /// Bytes of the stream that rules look at again with this segment.
    pub(super) fn looks_again(&self, scene: &Scene<'_>, progress: &Progress) -> usize {
        let is_part = progress.is_part && !scene.view.payload.is_empty();
        if is_part { self.limits.as_suricata.looks_again } else { 0 }
    }

    /// Candidates in the order of evaluation, each once, no more than there may be; without those
    /// that are for other ports.
    pub(super) fn settle(&mut self, scene: &Scene<'_>) {
        let gist = scene.view.gist(scene.direction, true);
        scene.rules.keep_fitting(gist, &mut self.candidates);
        self.candidates.sort_unstable();
        self.candidates.dedup();
        let lost = self.candidates.len().saturating_sub(self.limits.candidates);
        self.counters.candidates_lost += lost as u64;
        self.candidates.truncate(self.limits.candidates);
    }

    /// Looks at every candidate that `sight` has something for.
    pub(super) fn each<'s>(
        &mut self,
        flow: &mut Flow,
        scene: &Scene<'_>,
        alerts: &mut Alerts,
        decision: &mut Decision,
        sight: &dyn Fn(&Rule) -> Option<Sight<'s>>,
    ) {
        self.settle(scene);
        if self.is_mute {
            return;
        }
        let candidates = std::mem::take(&mut self.candidates);
        for index in &candidates {
            let rule = scene.rules.rule(*index);
            if self.is_let_pass(*index) && !rule.puts_something() {
                continue;
            }
            let Some(sight) = sight(rule) else { continue };
            if rule.is_of_addresses() {
                // It is known that it matches.
                self.forget_look();
                self.conclude((rule, *index, sight), flow, scene, alerts, decision);
            } else if self.matches(rule, flow, scene, sight) {
                // Who waits looks at the stream later, with another packet.
                let waits = self.limits.waits_for_acknowledgment;
                if self.looks_at_packets(rule) && rule.needs_stream && !waits {
                    self.of_packet_too.push(*index);
                }
                self.act((rule, *index, sight), flow, scene, alerts, decision);
            } else if !sight.is_stream && rule.asks_bits() {
                self.late.push(*index);
            }
        }
        self.candidates = candidates;
    }

    /// Whether the rule looks at packets whose stream is looked at: inline, where what it finds
    /// there may be replaced, too.
    pub(super) fn looks_at_packets(&self, rule: &Rule) -> bool {
        rule.needs_packet || (rule.replaces && !self.limits.waits_for_acknowledgment)
    }

    pub(super) fn matches(
        &mut self,
        rule: &Rule,
        flow: &Flow,
        scene: &Scene<'_>,
        sight: Sight<'_>,
    ) -> bool {
        // Of what passes it is told what is said, and no rule has a say.
        if self.is_mute {
            return false;
        }
        let view = scene.view;
        let protocol = rule.header.protocol;
        self.counters.evaluations += 1;
        // What most candidates lack first.
        let may_match = !(self.is_alone && rule.asks_of_flow())
            && view.is_of(protocol)
            && flow_fits(rule, flow, scene)
            && view.fits(&rule.header, scene.direction == Direction::Responder);
        if !may_match {
            return false;
        }
        self.forget_look();
        (protocol != Protocol::PacketHeader || is_for(rule, view))
            && (!protocol.is_application()
                || scene.application.is_some_and(|it| protocol.means(it))
                // The last message before another protocol began.
                || sight.message.is_some_and(|it| protocol.means(it.protocol())))
            && (rule.spoken.is_empty() || view.may_speak())
            && rule
                .spoken
                .iter()
                .all(|it| it.holds(scene.direction.index(), scene.speech_for(rule)))
            && (scene.is_decided || !rule.is_of_decision())
            && rule.hook.is_none_or(|it| match it {
                Hook::FlowStart => flow.packets[scene.direction.index()] == 1,
                hook => sight.message.is_some_and(|it| it.is_at(hook)),
            })
            && (rule.messages.is_empty()
                || sight
                    .message
                    .is_some_and(|it| rule.messages.iter().all(|test| it.holds(test, scene.now))))
            && (rule.units.is_empty()
                || sight
                    .message
                    .is_some_and(|it| rule.units.iter().all(|test| it.asks(test, view.source))))
            && (rule.app_events.is_empty()
                || sight.message.is_some_and(|it| rule.app_events.iter().all(|odd| it.has(*odd))))
            && rule.tests.iter().all(|test| view.holds(test))
            && (rule.flow_counts.is_empty() || !view.is_piece())
            && rule.flow_counts.iter().all(|it| it.holds(flow.counted(it.what, scene.now)))
            && (rule.stream_sizes.is_empty()
                || scene
                    .stream_sizes
                    .is_some_and(|sizes| rule.stream_sizes.iter().all(|it| it.holds(sizes))))
            && rule
                .bits
                .iter()
                .filter(|it| it.verb.is_condition())
                .all(|bit| self.bit_holds(bit, flow, scene))
            && rule.texts.iter().all(|test| self.text_holds(test, flow))
            && rule.buffers.iter().all(|test| {
                let is_of_other = test.side.is_some_and(|it| it != scene.direction.index());
                is_of_other || self.buffer_holds(test, view, sight)
            })
    }

    /// Forgets what the last look at a rule read, captured and found.
    pub(super) fn forget_look(&mut self) {
        self.variables = Variables::default();
        self.captured.clear();
        self.replaced.clear();
        self.sets.forget_found();
    }

    fn buffer_holds(&mut self, test: &BufferTest, view: &View<'_>, sight: Sight<'_>) -> bool {
        let buffer = test.key.buffer;
        if buffer == Buffer::Payload {
            return self.payload_holds(test, sight);
        }
        if buffers::protocol(buffer).is_none() {
            let Some(bytes) = view.header_buffer(buffer) else { return false };
            let bytes = buffers::apply(bytes, &test.key.transforms);
            return self.look(test, Bytes::whole(&bytes), false);
        }
        if test.absence != Absence::Fails {
            let lacks = sight.message.is_some_and(|it| it.lacks(buffer));
            if lacks || test.absence == Absence::Wanted {
                return lacks;
            }
        }
        sight.message.is_some_and(|message| {
            // Inline nothing waits: what has come would be gone (as with Suricata).
            let may_wait = !self.limits.is_hasty() && test.steps.iter().any(Step::is_negated);
            let as_suricata = &self.limits.as_suricata;
            let waits = match as_suricata.bodies_from {
                // Another cookie may follow, which is one with the first.
                _ if buffer == Buffer::HttpCookie => !as_suricata.cuts_heads && message.is_begun(),
                Some(from) if message.protocol() != Protocol::Http2 => {
                    message.is_early(buffer, from)
                }
                _ => may_wait && message.awaits(buffer),
            };
            if waits {
                return false;
            }
            let is_little = message.is_little(buffer);
            message.each(buffer, &mut |bytes| {
                let bytes = buffers::apply(bytes, &test.key.transforms);
                self.look(test, Bytes { is_little, ..Bytes::whole(&bytes) }, sight.is_stream)
            })
        })
    }

    pub(super) fn payload_holds(&mut self, test: &BufferTest, sight: Sight<'_>) -> bool {
        let Some(payload) = sight.payload else { return false };
        let bytes = buffers::apply(payload.bytes, &test.key.transforms);
        self.look(test, Bytes { bytes: &bytes, ..payload }, sight.is_stream)
    }

    /// Whether a text that a rule before captured has what this one wants.
    fn text_holds(&self, test: &TextTest, flow: &Flow) -> bool {
        let kept = match test.kept {
            TextScope::Flow => flow.notes().texts(),
            _ => &self.of_packet,
        };
        let mut texts = kept.iter().filter(|it| it.0 == test.name);
        let has = |text: &[u8]| {
            text.windows(test.content.bytes.len()).any(|it| *it == *test.content.bytes)
        };
        texts.next().is_some_and(|it| has(&it.1) != test.content.is_negated)
    }

    fn look(&mut self, test: &BufferTest, bytes: Bytes<'_>, is_stream: bool) -> bool {
        let mut cost = Cost::default();
        let Self { variables, sets, captured: texts, replaced, .. } = self;
        let memory = Memory { variables, sets, texts, replaced };
        let holds = inspect::holds(&test.steps, bytes, memory, &mut cost);
        self.counters.pcre_limits += u64::from(cost.pcre_limits);
        self.counters.evaluations_given_up += u64::from(cost.tries > TRIES_MAX);
        self.counters.bits_lost += self.sets.take_lost();
        let own = (Some(test.key.buffer), cost.entropy);
        for (buffer, entropy) in [own, (None, cost.decoded_entropy)] {
            if let Some(entropy) = entropy {
                self.note_entropy(buffer, entropy, is_stream);
            }
        }
        holds
    }
}

/// Whether a rule of `pkthdr` is for such a packet: of IP, or odd.
fn is_for(rule: &Rule, view: &View<'_>) -> bool {
    view.is_of(Protocol::Ip) || rule.tests.iter().any(|it| matches!(it, HeaderTest::Event(_)))
}

fn flow_fits(rule: &Rule, flow: &Flow, scene: &Scene<'_>) -> bool {
    let test = &rule.flow;
    test.established.is_none_or(|wanted| wanted == flow.is_established && !scene.view.is_piece())
        && test.to_server.is_none_or(|wanted| wanted == (scene.direction == Direction::Initiator))
        && test.phases.is_none_or(|it| is_in(it, flow, scene.view))
}

/// Whether a TCP connection has come so far, with that packet.
fn is_in(phases: Phases, flow: &Flow, view: &View<'_>) -> bool {
    let Transport::Tcp { flags, .. } = view.parsed.transport else { return false };
    let ended = flow.told.tcp_flags.map(|it| it & FIN != 0);
    let is_closing = ended[0] != ended[1] || (ended[0] && flags & FIN != 0);
    (phases.setup && !flow.is_established)
        || (phases.established && flow.is_established)
        || (phases.closing && is_closing)
}
