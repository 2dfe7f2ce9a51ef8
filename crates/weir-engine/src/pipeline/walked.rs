//! What packets of one flow share is found once, by the first of those that follow each other.

use weir_wire::frame::Frame;
use weir_wire::parse::Parsed;
use weir_wire::walker::Walker;

use super::keyed::BySpi;
use super::route;
use crate::classify::frame_class;
use crate::egress::outer_fields;
use crate::esp::outer::OuterFields;
use crate::ingress::{OpeningPeer, Sources};
use crate::meter::{FlowPlace, Observed};
use crate::plain::Plain;
use crate::policy::{FrameClass, Marking, Policy};
use crate::verdict::{DropReason, Side};

/// The class of a frame, and where it belongs: [`route`]'s answer.
type Way = (Option<FrameClass>, Result<Option<usize>, DropReason>);

/// The packets of a batch, one after another. Holds for one policy: make another for each batch.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) walker: Walker,
    /// Where the last packet's flow was counted.
    pub(super) place: FlowPlace,
    way: Option<Way>,
    /// What outer headers take over from the last packet, unless that is RDMA's.
    fields: Option<OuterFields>,
    /// Where the association was found that opened the last packet.
    opening: Option<usize>,
    /// Whom opened packets came from.
    sources: Sources,
}

impl Walked {
    /// Walks over the next packet.
    #[inline]
    pub(super) fn walk(&mut self, frame: &Frame<'_>) {
        let follows = self.walker.walk(frame);
        self.note(follows);
    }

    /// The next packet was walked over; `follows` is [`Walker::walk`]'s answer.
    #[inline]
    pub(super) fn note(&mut self, follows: bool) {
        if !follows {
            self.place = FlowPlace::default();
            self.way = None;
            self.fields = None;
            self.opening = None;
        }
    }

    /// What the next packet that is opened is walked over and judged with.
    #[inline]
    pub(super) fn opened(&mut self) -> (&mut Walker, &mut Sources) {
        (&mut self.walker, &mut self.sources)
    }

    /// The last packet's description.
    #[inline]
    pub(super) fn parsed(&self) -> &Parsed {
        self.walker.parsed()
    }

    /// Has the joint judge the last packet: see [`Plain::pass`].
    ///
    /// # Errors
    /// Why it is dropped.
    #[inline]
    pub(super) fn pass(
        &mut self,
        plain: &mut Plain,
        side: Side,
        frame: &Frame<'_>,
    ) -> Result<Option<Observed>, DropReason> {
        plain.pass(side, frame, self.walker.parsed(), &mut self.place)
    }

    /// Where a packet was counted that followed others.
    pub(super) fn observed(&self) -> Observed {
        Observed { flow: self.place.handle(), ..Observed::default() }
    }

    /// Class of the last packet, which comes from the host, and where it belongs.
    #[inline]
    pub(super) fn way(&mut self, policy: &Policy) -> Way {
        let parsed = self.walker.parsed();
        *self.way.get_or_insert_with(|| {
            let class = frame_class(parsed);
            (class, route(policy, class, Side::Host, parsed))
        })
    }

    /// What outer headers take over from the last packet.
    #[inline]
    pub(super) fn outer_fields(&mut self, marking: &Marking) -> OuterFields {
        let parsed = self.walker.parsed();
        match parsed.rdma {
            None => *self.fields.get_or_insert_with(|| outer_fields(parsed, marking)),
            // Each queue pair is a flow, and packets of several may follow each other.
            Some(_) => outer_fields(parsed, marking),
        }
    }

    /// The place in `opening` of the association that opens the last packet, of `spi`.
    #[inline]
    pub(super) fn opening(
        &mut self,
        spi: u32,
        opening: &[OpeningPeer],
        by_spi: &BySpi,
    ) -> Option<usize> {
        // Associations come and go within a batch.
        let is_there =
            |at: &usize| opening.get(*at).is_some_and(|it| it.association.spi().value() == spi);
        if self.opening.filter(is_there).is_none() {
            self.opening = by_spi.get(&spi).map(|at| *at as usize);
        }
        self.opening
    }
}
