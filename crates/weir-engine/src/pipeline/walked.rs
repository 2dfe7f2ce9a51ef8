//! What packets of one flow share is found once, by the first of those that follow each other.

use weir_wire::frame::Frame;
use weir_wire::parse::Parsed;
use weir_wire::walker::Walker;

use super::route;
use crate::classify::{frame_class, has_address};
use crate::meter::FlowPlace;
use crate::policy::{FrameClass, Policy};
use crate::verdict::DropReason;

/// The class of a frame, and where it belongs: [`route`]'s answer.
type Way = (Option<FrameClass>, Result<Option<usize>, DropReason>);

/// The packets of a batch, one after another. Holds for one policy: make another for each batch.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) walker: Walker,
    /// Where the last packet's flow was counted.
    pub(super) place: FlowPlace,
    way: Option<Way>,
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
        }
    }

    /// The last packet's description.
    #[inline]
    pub(super) fn parsed(&self) -> &Parsed {
        self.walker.parsed()
    }

    /// Class of the last packet, which comes from the host, and where it belongs.
    #[inline]
    pub(super) fn way(&mut self, policy: &Policy) -> Way {
        let parsed = self.walker.parsed();
        *self.way.get_or_insert_with(|| {
            let class = frame_class(parsed);
            (class, route(policy, class, &parsed.destination, has_address(parsed)))
        })
    }
}
