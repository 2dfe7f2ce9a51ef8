//! Packets of flows of which exceptions are made.

use std::io::Write;

use weir_detect::{Decision, Packet, RuleIndex};
use weir_store::sink::eve as sink;
use weir_wire::frame::Time;
use weir_wire::parse::Transport;
use weir_wire::tcp::flags::{ACK, FIN, RST, SYN};

use super::super::exception::{Cause, Exception, Fate};
use super::super::layers::Layer;
use super::super::stats;
use super::{HELD_MAX, Look};

impl<W: Write> Look<W> {
    /// What an exception makes of the packet, if one is made of its flow.
    pub(super) fn exception(&mut self, layer: &Layer<'_>, packet: &Packet<'_>) -> Option<Fate> {
        self.is_excepted = false;
        let midstream = self.options.midstream_policy;
        let wrong = self.detector.parser_error();
        if let Some(application) = wrong {
            let spoken = stats::spoken(application, layer.parsed.protocol);
            self.count(&format!("app_layer.error.{spoken}.parser"));
        }
        let is_wrong = wrong.is_some();
        if midstream.is_none() && !is_wrong && self.exceptions.is_empty() {
            return None;
        }
        let view = self.flows.view(&self.detector, packet)?;
        let id = sink::flow_id(&view);
        let may_be_midstream = match layer.parsed.transport {
            Transport::Tcp { flags, .. } => {
                flags & RST == 0 && !matches!(flags & (SYN | ACK | FIN), 0 | SYN)
            }
            _ => false,
        };
        if let Some(policy) = midstream
            && may_be_midstream
            && !self.exceptions.contains_key(&id)
            && self.begins_midstream(packet, policy)
        {
            return self.except(id, Cause::Midstream, Some(policy));
        }
        let is_of_packets =
            |it: Exception| matches!(it, Exception::DropPacket | Exception::PassPacket);
        match self.exceptions.get(&id) {
            Some((cause, Some(policy)))
                if *cause == Cause::Midstream || !is_of_packets(*policy) =>
            {
                let (cause, policy) = (*cause, *policy);
                self.is_excepted = true;
                self.again(cause, policy, may_be_midstream)
            }
            _ if is_wrong => self.except(id, Cause::Application, self.options.error_policy),
            _ => None,
        }
    }

    /// Whether the connection of a packet was not seen to begin, and an exception is made of it:
    /// also where it is followed, if it is to pass.
    fn begins_midstream(&self, packet: &Packet<'_>, policy: Exception) -> bool {
        self.flows.is_unbegun(&self.detector, packet)
            || policy == Exception::PassFlow && self.flows.is_taken_up(&self.detector, packet)
    }

    /// Whether Suricata looks at the connection of a packet of which an exception is made.
    fn is_followed(&self, fate: Fate) -> bool {
        let is_of_flow = |it: &str| it == "exception policy flow drop";
        match fate {
            Fate::Dropped(reason) | Fate::Rejected(reason) => {
                !(self.options.is_inline && is_of_flow(reason))
            }
            Fate::Bypassed => !self.is_excepted,
            Fate::Answered | Fate::Unseen => true,
        }
    }

    /// Makes an exception of a flow, if there is to be one.
    fn except(&mut self, id: u64, cause: Cause, policy: Option<Exception>) -> Option<Fate> {
        if self.exceptions.len() < HELD_MAX {
            self.exceptions.insert(id, (cause, policy));
        }
        let policy = policy?;
        self.count(&format!("exception_policy.{}.{}", cause.counted(), policy.name()));
        match policy {
            Exception::DropFlow | Exception::DropPacket => Some(Fate::Dropped(cause.reason())),
            Exception::Reject if self.options.is_inline => Some(Fate::Rejected(cause.reason())),
            Exception::Reject => Some(Fate::Answered),
            Exception::Bypass => Some(Fate::Bypassed),
            Exception::PassFlow | Exception::PassPacket => Some(Fate::Unseen),
        }
    }

    /// What becomes of further packets of a flow of which an exception was made. A connection that
    /// nobody follows is found without its beginning with each of them.
    fn again(&mut self, cause: Cause, policy: Exception, is_midstream: bool) -> Option<Fate> {
        let is_unfollowed = cause == Cause::Midstream && !self.options.midstream;
        let (fate, is_counted) = match policy {
            Exception::Reject if !self.options.is_inline => (Fate::Answered, true),
            Exception::DropFlow | Exception::Reject => {
                (Fate::Dropped("exception policy flow drop"), false)
            }
            Exception::PassFlow => (Fate::Unseen, true),
            Exception::Bypass => (Fate::Bypassed, false),
            Exception::DropPacket | Exception::PassPacket if !(is_unfollowed && is_midstream) => {
                return None;
            }
            Exception::DropPacket => (Fate::Dropped(cause.reason()), true),
            Exception::PassPacket => (Fate::Unseen, true),
        };
        if is_unfollowed && is_counted && is_midstream {
            self.count(&format!("exception_policy.{}.{}", cause.counted(), policy.name()));
        }
        if is_unfollowed && is_counted && !is_midstream && fate == Fate::Answered {
            return None;
        }
        Some(fate)
    }

    /// A packet that no rule has a say in, though some may have matched.
    pub(super) fn unseen(
        &mut self,
        now: Time,
        (layer, packet): (&Layer<'_>, &Packet<'_>),
        has_matched: bool,
        fate: Fate,
    ) {
        if has_matched {
            self.flows.take_back_alerts(&mut self.detector, packet);
        }
        if self.is_followed(fate) {
            self.anomalies(now, layer, packet);
        }
        // Of TCP it is another matter: who follows it tells how it ends.
        if fate == Fate::Bypassed && !matches!(layer.parsed.transport, Transport::Tcp { .. }) {
            self.flows.leave(&mut self.detector, packet);
        }
        self.tell_unseen(now, layer, packet, fate);
        self.ended();
    }

    fn tell_unseen(&mut self, now: Time, layer: &Layer<'_>, packet: &Packet<'_>, fate: Fate) {
        let is_inline = self.options.is_inline;
        if let Fate::Dropped(reason) | Fate::Rejected(reason) = fate {
            if is_inline {
                let fate = Decision::Drop { rule: RuleIndex(0) };
                self.drop_event(now, layer, packet, reason, &[], fate);
                let is_answered = std::mem::take(&mut self.is_answered);
                self.count_fate(layer, if is_answered { "ips.rejected" } else { "ips.blocked" });
            }
            return;
        }
        let view = self.flows.view(&self.detector, packet);
        if view.is_some_and(|it| it.packets[0] + it.packets[1] > 1) {
            self.count("flow_bypassed.local_pkts");
            self.counts.add_many("flow_bypassed.local_bytes", layer.bytes.len() as u64);
        }
        if is_inline {
            self.count_fate(layer, "ips.accepted");
        }
    }

    /// Nobody looks further at a connection that is encrypted, where that is asked for. Suricata
    /// looks once more at what it has of both streams then; of SSH always.
    pub(super) fn bypass_encrypted(&mut self, packet: &Packet<'_>) {
        let [tls, ssh] = self.options.bypasses_encrypted;
        let as_suricata = self.options.as_suricata.gives_up;
        let is_wanted = tls || ssh || as_suricata;
        if !is_wanted || self.exceptions.len().max(self.sealed.len()) >= HELD_MAX {
            return;
        }
        if !self.flows.is_sealed(&self.detector, packet) {
            return;
        }
        let Some(view) = self.flows.view(&self.detector, packet) else { return };
        let is_tls = view.encrypted == Some("tls");
        let (id, is_bypassed) = (sink::flow_id(&view), if is_tls { tls } else { ssh });
        if as_suricata && (is_bypassed || !is_tls) && self.sealed.insert(id) {
            self.flush(id);
        }
        if is_bypassed {
            let bypass = (Cause::Settled, Some(Exception::Bypass));
            self.exceptions.entry(id).or_insert(bypass);
            self.flows.leave(&mut self.detector, packet);
        }
    }

    /// Whether nobody looks further at a connection from the packet at hand on, for it is
    /// encrypted.
    pub(super) fn is_to_bypass(&self, packet: &Packet<'_>) -> bool {
        let [tls, ssh] = self.options.bypasses_encrypted;
        let has_room = self.exceptions.len().max(self.sealed.len()) < HELD_MAX;
        if !(tls || ssh) || !has_room || !self.flows.is_sealed(&self.detector, packet) {
            return false;
        }
        let spoken = self.flows.view(&self.detector, packet).and_then(|it| it.encrypted);
        spoken.is_some_and(|it| if it == "tls" { tls } else { ssh })
    }

    /// Nobody looks further at a connection of which a side has sent more than is looked at, if
    /// the other is heard; whether that is so with this packet.
    pub(super) fn bypass_long(&mut self, layer: &Layer<'_>, packet: &Packet<'_>) -> bool {
        let Some(depth) = self.options.bypass_depth else { return false };
        let length = layer.payload().len() as u64;
        if length == 0 || !matches!(layer.parsed.transport, Transport::Tcp { .. }) {
            return false;
        }
        let Some(view) = self.flows.view(&self.detector, packet) else { return false };
        let id = sink::flow_id(&view);
        let is_full = self.sent.len() >= HELD_MAX || self.exceptions.len() >= HELD_MAX;
        if is_full || view.packets.contains(&0) {
            return false;
        }
        let sent = &mut self.sent.entry(id).or_default()[usize::from(view.to_server)];
        *sent += length;
        let is_long = *sent > depth && !self.exceptions.contains_key(&id);
        if is_long {
            self.exceptions.insert(id, (Cause::Settled, Some(Exception::Bypass)));
            self.flows.leave(&mut self.detector, packet);
        }
        is_long
    }

    /// What becomes of a packet, `decision` by rules: of one without a flow that carries a packet
    /// that is dropped, or completes one, rules say no more (Suricata, where it looks at the inner
    /// packet first: with a thread for all).
    pub(super) fn condemned(&mut self, layer: &Layer<'_>, decision: Decision) -> Decision {
        if !self.options.as_suricata.knows_no_more {
            return decision;
        }
        let is_gone = decision != Decision::Pass || self.detector.dropped_by_flow();
        let is_carrier = self.is_inner_condemned && !layer.has_flow();
        self.is_inner_condemned = layer.outer.is_some() && (self.is_inner_condemned || is_gone);
        if !is_carrier {
            return decision;
        }
        self.alerts.drain().for_each(drop);
        Decision::Pass
    }

    /// Counts what became of a packet of the wire; one that another carries goes or stays with it.
    pub(super) fn count_fate(&mut self, layer: &Layer<'_>, name: &str) {
        if layer.outer.is_none() {
            self.counts.add(name);
        } else if name != "ips.accepted" {
            self.is_inner_dropped = true;
        }
    }
}
