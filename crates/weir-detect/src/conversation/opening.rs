//! How a connection's streams begin.

use weir_wire::tcp::flags;

use super::acceptance::{Acceptance, Header};
use super::{Conversation, Progress};
use crate::detector::{Limits, Unseen};
use crate::packet::View;
use crate::stream::{Refusals, Stream};

impl Conversation {
    /// Bytes of both sides so far, each SYN and FIN counted as one. Those of more than 4 GiB that
    /// were seen from their beginning count from the last multiple.
    pub(crate) fn sizes(&self) -> Option<[u64; 2]> {
        let [client, server] = &self.streams;
        if !client.has_begun() && !server.has_begun() {
            return None;
        }
        let seen = |stream: &Stream| match stream.window() {
            (window, before) if stream.has_begun() => before + window.len() as u64 + 1,
            _ => 0,
        };
        self.acceptance.used().or_else(|| Some([seen(client), seen(server)]))
    }

    /// Whether the receiver takes a segment; streams begin by it.
    pub(super) fn accepts(&mut self, side: usize, header: &Header, sees_all: bool) -> bool {
        if header.flags & flags::SYN != 0 {
            self.begin(side, header);
        }
        let is_first = side == 0 && !self.acceptance.goes_on();
        let is_taken = self.acceptance.takes(side, header, sees_all);
        if is_first && is_taken && self.acceptance.goes_on() {
            self.settle_answer(header);
        }
        if let Some(first) = self.acceptance.take_chosen() {
            self.streams[1].begin_again(first);
        }
        is_taken
    }

    /// Why data that the receiver does not take go no further: it may take them by the time that
    /// they arrive. Its window may open, the other side may say what they acknowledge, and what
    /// told a newer timestamp may have been lost on its way. A byte that asks whether a closed
    /// window has opened goes on, if it is the one that asked before.
    pub(super) fn refuses_unacceptable(
        &mut self,
        side: usize,
        (data, header): (&[u8], &Header),
        limits: &Limits,
    ) -> Option<Unseen> {
        let is_sure = match data {
            [] => true,
            _ if self.acceptance.is_old(side, header) => limits.only_watches,
            [byte] if self.acceptance.is_probe(side, header) => {
                !self.streams[side].doubt(header.sequence, *byte)
            }
            _ => false,
        };
        (limits.refuses_conflicts && !is_sure).then_some(Unseen::Conflict)
    }

    /// Whether a SYN of the client's is refused, because it brings data or another did: which of
    /// several SYNs reaches the server, and whether that takes the data (RFC 7413 s3), is known by
    /// its answer alone, and the data may have an answer before anybody looked at them.
    pub(super) fn refuses_syn(&self, view: &View<'_>, header: &Header, limits: &Limits) -> bool {
        let is_first = header.flags & (flags::SYN | flags::ACK) == flags::SYN;
        let refuses = limits.sees_all && limits.refuses_conflicts && !limits.only_watches;
        if !refuses || !is_first || !self.streams[0].has_begun() {
            return false;
        }
        let (data, known) = (view.payload.len() as u64, self.streams[0].len());
        if !self.may_begin(0) && self.acceptance.goes_on() {
            return data > 0;
        }
        let is_another = !self.acceptance.is_last_syn(header.sequence);
        match is_another {
            // Without data it is another beginning, unless its answer would look like one to them.
            true => data > 0 || (known > 0 && self.streams[0].ends_at(header.sequence, 1)),
            false => data > 0 && known > 0 && data != known,
        }
    }

    /// Whether both ends have all that the other said, and said no more.
    pub(crate) fn is_over(&self) -> bool {
        self.acceptance.is_over()
    }

    /// Whether no more is said, for the first time that this is asked then. Who waits for
    /// acknowledgments is not at its end while there is something that has none, or one side has
    /// said nothing.
    pub(crate) fn ends_now(&mut self, waits: bool) -> bool {
        let is_heard = |it: &Stream| !it.is_empty() && it.acknowledged().0 == it.len();
        !self.has_ended && {
            let is_at_end = !waits || self.streams.iter().all(is_heard);
            self.has_ended = is_at_end && self.acceptance.has_ended(waits);
            self.has_ended
        }
    }

    /// Lets go of what was said, if it is over: its flow stays known. Whether there was something.
    pub(crate) fn let_go_if_over(&mut self) -> bool {
        self.is_over() && self.streams.each_mut().map(Stream::let_go) != [false; 2]
    }

    /// Whether both ends may have forgotten it when this side begins anew.
    pub(crate) fn may_be_over_for(&self, side: usize) -> bool {
        self.acceptance.may_be_over_for(side)
    }

    /// Whether the SYN of some side was seen.
    pub(crate) fn has_beginning(&self) -> bool {
        self.streams.iter().any(|it| it.is_whole())
    }

    /// Whether a SYN of a side may be the one that counts.
    pub(super) fn may_begin(&self, side: usize) -> bool {
        match side {
            0 => !self.streams[1].has_begun(),
            _ => !self.acceptance.goes_on(),
        }
    }

    /// The client acknowledges the server's SYN: perhaps not what came with it.
    fn settle_answer(&mut self, header: &Header) {
        let first = header.acknowledgment.wrapping_sub(1);
        if std::mem::take(&mut self.has_early_answer) {
            self.streams[1].begin_again(first);
            drop(self.begin_anew(self.acceptance));
        }
    }

    /// What there is to say of an accepted segment that its stream does not take in; `None`: it
    /// does.
    pub(super) fn passes_over(
        &mut self,
        side: usize,
        view: &View<'_>,
        seen: u8,
        limits: &Limits,
    ) -> Option<Progress> {
        if limits.refuses_conflicts && !limits.only_watches && view.is_urgent() {
            // One byte of it, or of what comes later, is none of the stream, for most receivers
            // (RFC 6093 s3).
            return Some(Progress { refused: Some(Unseen::Conflict), ..Progress::default() });
        }
        if view.payload.is_empty() {
            return None;
        }
        let is_syn = seen & flags::SYN != 0;
        let is_bare = seen & (flags::ACK | flags::SYN) == 0;
        // Some receivers take what comes with a SYN: the other side's answer tells (RFC 7413 s3).
        let is_early = view.has_early_data() || (limits.sees_all && self.may_begin(side));
        let is_reset = seen & flags::RST != 0;
        if is_bare || is_reset || (is_syn && !is_early) {
            // What comes with a RST, or acknowledges nothing (RFC 9293 s3.10.7.4), no receiver
            // takes in; it is looked at as a packet, what comes with a RST for streams too: that
            // may be words to who reads it (s3.5.3), and Suricata has them in the stream.
            let (is_part, is_unacceptable) = (!is_syn && !is_reset, is_bare);
            return Some(Progress { is_part, is_unacceptable, ..Progress::default() });
        }
        self.has_early_answer |= side == 1 && is_syn;
        None
    }

    /// A SYN. Until more is said the last one counts; of the client's the one that is answered.
    fn begin(&mut self, side: usize, header: &Header) {
        let is_answer = side == 1 && header.flags & flags::ACK != 0;
        if is_answer && self.acceptance.is_another(header) {
            let before = self.begin_anew(self.acceptance.anew());
            (self.before, self.is_renewed) = (Some(Box::new(before)), true);
            self.streams[0].begin_again(header.acknowledgment.wrapping_sub(1));
            self.streams[1].begin_again(header.sequence);
            return;
        }
        let [client, server] = &mut self.streams;
        let may_change = !self.acceptance.goes_on()
            && (is_answer && self.acceptance.may_count(header) || !server.has_begun());
        let stream = if side == 0 { &mut *client } else { server };
        if !stream.has_begun() {
            stream.begin(header.sequence);
        } else if may_change && stream.is_empty() {
            stream.begin_again(header.sequence);
        }
        let first = header.acknowledgment.wrapping_sub(1);
        if is_answer && may_change && client.has_begun() && !client.ends_at(first, 1) {
            let had_data = !client.is_empty();
            client.begin_again(first);
            if had_data {
                // The server did not take what came with the SYN (RFC 7413 s3).
                drop(self.begin_anew(self.acceptance));
            }
        }
    }

    /// What is refused from now on.
    pub(crate) fn refuse(&mut self, refusals: Refusals) {
        self.streams.iter_mut().for_each(|it| it.refuse(refusals));
        // What a decoy says is refused as soon as something else comes in its place.
        self.acceptance.believes_old = refusals.conflicts;
    }

    /// Whether nobody has said anything.
    pub(crate) fn is_silent(&self) -> bool {
        self.streams.iter().all(Stream::is_empty)
    }

    /// Each side's stream has so many bytes at most.
    pub(crate) fn limit(&mut self, depth: Option<u64>) {
        self.streams.iter_mut().for_each(|it| it.limit(depth));
    }

    /// Nothing was said yet. What it was before, without its streams.
    fn begin_anew(&mut self, acceptance: Acceptance) -> Self {
        let new = Self {
            streams: std::mem::take(&mut self.streams),
            acceptance,
            framer: self.framer.as_ref().map(|_| Box::default()),
            wanted: self.wanted,
            ..Self::default()
        };
        std::mem::replace(self, new)
    }

    /// The connection that another has replaced with the segment at hand, for what there is still
    /// to tell of it.
    pub(crate) fn take_before(&mut self) -> Option<Box<Self>> {
        self.before.take()
    }
}
