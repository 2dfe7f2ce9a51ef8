//! What the table of flows asks of a flow.

use super::{Detector, Direction, Marks};
use crate::alert::{FlowView, Text, TextScope};
use crate::flow::{Flow, FlowSlot, HeardStream, Notes};
use crate::record::FlowRecord;
use crate::rule::{Buffer, Speaks};

impl Detector {
    /// What rules have noted of a packet's flow, as far as it takes effect, and captured of it
    /// and of the packet.
    pub(crate) fn marks(&self, slot: FlowSlot) -> Marks {
        let flow = self.flows.taken(slot);
        let mut marks = flow.map_or_else(Marks::default, |it| self.marks_of(it, it.notes_by_now()));
        marks.texts.extend(self.evaluator.texts_of_packet(&self.rules));
        marks
    }

    fn marks_of(&self, flow: &Flow, notes: &Notes) -> Marks {
        let name = |it: u32| self.rules.bit_name(it).map(str::to_owned);
        let counter = |it: u32| Some(name(it)?.strip_prefix("integer ")?.to_owned());
        let captured =
            |it: &(u32, Vec<u8>)| Text::named(TextScope::Flow, (it.0, &it.1), &self.rules);
        Marks {
            bits: notes.bits().iter().filter_map(|it| name(*it)).collect(),
            counters: notes
                .integers()
                .iter()
                .filter_map(|it| Some((counter(it.0)?, it.1)))
                .collect(),
            entropies: flow.entropies().iter().map(|it| (name_in_events(it.0), it.1)).collect(),
            texts: notes.texts().iter().filter_map(captured).collect(),
        }
    }

    /// What is spoken in a flow, where it is known.
    pub(crate) fn application(&self, slot: FlowSlot) -> Option<&'static str> {
        self.flows.taken(slot).and_then(|it| it.told.application)
    }

    /// A flow is over: what rules have done to it takes effect. Whether one lets it pass.
    pub(crate) fn take_all_effect(&mut self, slot: FlowSlot) -> bool {
        let limits = self.evaluator.limits;
        let Some(flow) = self.flows.taken_mut(slot) else { return false };
        for side in [Direction::Initiator, Direction::Responder] {
            flow.is_passed |= flow.take_effect((side, HeardStream::OVER), false, &limits).is_some();
        }
        flow.is_passed
    }

    /// Forgets what rules captured of the packet at hand: what is told next is of none.
    pub fn forget_packet(&mut self) {
        self.evaluator.begin();
    }

    /// Nobody is told of alerts about the packet at hand.
    pub(crate) fn take_back_alerts(&mut self, slot: FlowSlot) {
        let was_alerted = self.evaluator.was_alerted;
        let flow = self.flows.taken_mut(slot);
        flow.into_iter().for_each(|it| it.told.is_alerted = was_alerted);
    }

    /// A flow's connection is followed no further.
    pub(crate) fn leave(&mut self, slot: FlowSlot) {
        self.flows.taken_mut(slot).into_iter().for_each(|it| it.told.is_left = true);
    }

    /// Whether it was looked for what is spoken in a flow, in vain.
    pub(crate) fn has_failed(&self, slot: FlowSlot) -> bool {
        let waits = self.evaluator.limits.waits_for_acknowledgment;
        let is_heard = |flow: &Flow| {
            let speech = flow.conversation.as_ref().map(|it| it.speech_heard());
            !waits || speech.is_none_or(|it| it.last == Speaks::Failed)
        };
        self.flows
            .taken(slot)
            .is_some_and(|it| it.told.application.is_none() && it.told.has_failed && is_heard(it))
    }

    /// Whether rules see nothing of what comes in a flow from now on, for both sides encrypt.
    pub(crate) fn is_sealed(&self, slot: FlowSlot) -> bool {
        let conversation = self.flows.taken(slot).and_then(|it| it.conversation.as_ref());
        conversation.is_some_and(|it| it.is_opaque(&self.evaluator.limits))
    }

    /// Whether a rule lets a flow pass.
    pub(crate) fn is_let_pass(&self, slot: FlowSlot) -> bool {
        self.flows.taken(slot).is_some_and(|it| it.is_passed)
    }

    /// The number up to which rules about bytes have looked at a side's stream.
    pub(crate) fn looked_at(&self, slot: FlowSlot, direction: Direction) -> Option<u32> {
        self.flows.taken(slot).and_then(|it| self.evaluator.looked_at(it, direction))
    }

    /// Whether rules that wait for what is acknowledged look no further at the stream of the last
    /// packet's side.
    pub fn has_reached_depth(&self) -> bool {
        self.evaluator.reaches_depth
    }

    /// Whether a connection may be over for both its ends when this side begins anew.
    pub(crate) fn may_be_over_for(&self, slot: FlowSlot, direction: Direction) -> bool {
        let conversation = self.flows.taken(slot).and_then(|it| it.conversation.as_ref());
        conversation.is_none_or(|it| it.may_be_over_for(direction.index()))
    }

    /// Whether another connection may begin in the place of this one as Suricata has it; `None`:
    /// nobody asks for its way.
    pub(crate) fn is_replaceable(&self, slot: FlowSlot) -> Option<bool> {
        let session = self.flows.taken(slot).and_then(|it| it.session.as_ref());
        let session = session.filter(|_| self.evaluator.limits.as_suricata.wants_handshakes);
        session.map(|it| it.is_replaceable())
    }

    /// Whether a rule has dropped a flow.
    pub(crate) fn is_dropped(&self, slot: FlowSlot) -> bool {
        self.flows.taken(slot).is_some_and(Flow::is_dropped)
    }

    /// Whether a flow is more than an attempt of one end.
    pub(crate) fn is_begun(&self, slot: FlowSlot) -> bool {
        self.flows.taken(slot).is_some_and(Flow::is_begun)
    }

    /// Whether a connection is over: both its ends have all that the other said.
    pub(crate) fn is_over(&self, slot: FlowSlot) -> bool {
        self.flows.taken(slot).is_some_and(|it| match &it.conversation {
            Some(conversation) => conversation.is_over(),
            // Nobody follows what was let go.
            None => it.is_passed || it.is_bypassed || it.is_settled(&self.evaluator.limits),
        })
    }

    /// Whether what is said in a flow is followed.
    pub(crate) fn follows(&self, slot: FlowSlot) -> bool {
        self.flows.taken(slot).is_some_and(|it| it.conversation.is_some())
    }

    /// How long a flow may be silent before it is over; none: it is not known.
    pub(crate) fn patience_ns(&self, slot: FlowSlot) -> Option<u64> {
        let timeouts = &self.evaluator.limits.as_suricata.timeouts;
        self.flows.taken(slot).map(|it| it.patience_ns(timeouts))
    }

    /// Whether no rule looks at a flow any more, which passes, and which has begun.
    pub(crate) fn is_let_go(&self, slot: FlowSlot) -> bool {
        self.flows.taken(slot).is_some_and(|it| it.is_let_go(&self.evaluator.limits))
    }

    /// Takes the ends of a flow for one another: see [`Flow::turn`].
    pub(crate) fn turn(&mut self, slot: &mut FlowSlot) -> bool {
        self.flows.at(slot).is_some_and(Flow::turn)
    }

    /// A flow begins where one was let go.
    pub(crate) fn succeed(&mut self, slot: &mut FlowSlot) {
        if let Some(flow) = self.flows.at(slot) {
            flow.succeed();
        }
    }

    /// Whether a flow has had so many bytes that it is looked at no further, unless it is dropped.
    pub(crate) fn is_long(&self, slot: FlowSlot) -> bool {
        self.flows.taken(slot).is_some_and(|it| it.is_long(&self.evaluator.limits))
    }

    /// Whether a connection's SYN was not seen.
    pub(crate) fn is_unbegun(&self, slot: FlowSlot) -> bool {
        self.flows.taken(slot).is_none_or(Flow::is_unfollowed)
    }

    /// Whether a connection was taken up without its beginning.
    pub(crate) fn is_taken_up(&self, slot: FlowSlot) -> bool {
        let session = self.flows.taken(slot).and_then(|it| it.session.as_ref());
        session.is_some_and(|it| it.is_taken_up())
    }

    /// Whether this side alone is seen of a connection.
    pub(crate) fn is_alone(&self, slot: FlowSlot, side: usize) -> bool {
        let session = self.flows.taken(slot).and_then(|it| it.session.as_ref());
        session.is_some_and(|it| it.is_alone(side))
    }

    /// Whether some SYN of a connection was seen.
    pub(crate) fn has_beginning(&self, slot: FlowSlot) -> bool {
        let conversation = self.flows.taken(slot).and_then(|it| it.conversation.as_ref());
        conversation.is_some_and(|it| it.has_beginning())
    }

    /// What there is to tell of a flow.
    pub(crate) fn record(&mut self, slot: FlowSlot) -> Option<FlowRecord> {
        let limits = &self.evaluator.limits;
        let flow = self.flows.taken(slot);
        let marks = flow.map(|it| self.marks_of(it, it.notes()));
        let marks = marks.filter(|it| *it != Marks::default()).map(Box::new);
        let narrates = self.evaluator.tells_of_applications();
        self.flows.taken_mut(slot).map(|it| FlowRecord { marks, ..it.record(limits, narrates) })
    }

    pub(crate) fn view(&self, slot: FlowSlot, direction: Direction) -> Option<FlowView> {
        self.flows.taken(slot).map(|it| it.view(direction))
    }
}

/// What Suricata's events call a buffer: as its keyword, those that had one before there were dots
/// by that. None is what stood somewhere in base64.
fn name_in_events(buffer: Option<Buffer>) -> String {
    let keyword = match buffer {
        None => "base64_data",
        Some(Buffer::Frame(kind)) => return kind.full_name(),
        Some(buffer) => buffer.name(),
    };
    match keyword {
        "pkt_data" => "content".to_owned(),
        "http.uri.raw" => "http_raw_uri".to_owned(),
        "http.header.raw" => "http_raw_header".to_owned(),
        "http.host.raw" => "http_raw_host".to_owned(),
        "http.request_body" => "http_client_body".to_owned(),
        "http.response_body" => "file_data".to_owned(),
        "dcerpc.stub_data" => "dce_stub_data".to_owned(),
        "sip.user_agent" => "sip.ua".to_owned(),
        "http.server" | "http.location" | "quic.cyu.hash" | "quic.cyu.string" => keyword.to_owned(),
        "file.data" | "dns.query" | "ssh.software" | "http2.header_name" => {
            keyword.replace('.', "_")
        }
        _ => match keyword.split_once('.') {
            Some(("http" | "smb" | "krb5" | "quic", _)) => keyword.replace('.', "_"),
            _ => keyword.to_owned(),
        },
    }
}
