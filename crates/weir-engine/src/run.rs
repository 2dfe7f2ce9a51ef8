//! What packets of one flow share is found once, by the first of those that follow each other.

use weir_wire::frame::Frame;
use weir_wire::parse::Parsed;
use weir_wire::walker::Walker;

use crate::classify::frame_class;
use crate::esp::outer::OuterFields;
use crate::meter::{FlowPlace, Observed};
use crate::peer::{Openings, Sources};
use crate::plain::Plain;
use crate::policy::{FrameClass, Marking, Policy};
use crate::protect::Protector;
use crate::route::route;
use crate::verdict::{DropReason, Side};

/// The class of a frame, and where it belongs: past all peers, or to one, by what protects its
/// packets.
type Treatment = (Option<FrameClass>, Result<Option<(usize, Protector)>, DropReason>);

/// The packets of a batch, one after another. Holds for one policy: make another for each batch.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) walker: Walker,
    /// Where the last packet's flow was counted.
    pub(crate) place: FlowPlace,
    way: Option<Treatment>,
    /// What outer headers take over from the last packet, unless that is RDMA's.
    fields: Option<OuterFields>,
    /// Where the association was found that opened the last packet.
    opening: Option<usize>,
    /// Whom opened packets came from.
    sources: Sources,
}

impl Run {
    /// Walks over the next packet.
    #[inline]
    pub(crate) fn walk(&mut self, frame: &Frame<'_>) {
        let follows = self.walker.walk(frame);
        self.note(follows);
    }

    /// The next packet was walked over; `follows` is [`Walker::walk`]'s answer.
    #[inline]
    pub(crate) fn note(&mut self, follows: bool) {
        if !follows {
            self.place = FlowPlace::default();
            self.way = None;
            self.fields = None;
            self.opening = None;
        }
    }

    /// What the next packet that is opened is walked over and judged with.
    #[inline]
    pub(crate) fn opened(&mut self) -> (&mut Walker, &mut Sources) {
        (&mut self.walker, &mut self.sources)
    }

    /// The last packet's description.
    #[inline]
    pub(crate) fn parsed(&self) -> &Parsed {
        self.walker.parsed()
    }

    /// Has the joint judge the last packet: see [`Plain::pass`].
    ///
    /// # Errors
    /// Why it is dropped.
    #[inline]
    pub(crate) fn pass(
        &mut self,
        plain: &mut Plain,
        side: Side,
        frame: &mut Frame<'_>,
    ) -> Result<Option<Observed>, DropReason> {
        plain.pass(side, frame, self.walker.parsed(), &mut self.place)
    }

    /// Where a packet was counted that followed others.
    pub(crate) fn observed(&self) -> Observed {
        Observed { flow: self.place.handle(), ..Observed::default() }
    }

    /// Class of the last packet, which comes from the host, and where it belongs.
    #[inline]
    pub(crate) fn way(&mut self, policy: &Policy) -> Treatment {
        let parsed = self.walker.parsed();
        *self.way.get_or_insert_with(|| {
            let class = frame_class(parsed);
            let peer = route(policy, class, Side::Host, parsed);
            (class, peer.map(|it| it.map(|it| (it, Protector::of(&policy.peers[it])))))
        })
    }

    /// What outer headers take over from the last packet.
    #[inline]
    pub(crate) fn outer_fields(&mut self, marking: &Marking) -> OuterFields {
        let parsed = self.walker.parsed();
        match parsed.rdma {
            None => *self.fields.get_or_insert_with(|| outer_fields(parsed, marking)),
            // Each queue pair is a flow, and packets of several may follow each other.
            Some(_) => outer_fields(parsed, marking),
        }
    }

    /// The place among `openings` of what opens the last packet, of `spi`.
    #[inline]
    pub(crate) fn opening(&mut self, spi: u32, openings: &Openings) -> Option<usize> {
        // Associations come and go within a batch.
        if self.opening.filter(|at| openings.is_at(*at, spi)).is_none() {
            self.opening = openings.find(spi);
        }
        self.opening
    }
}

/// What outer headers take over from the packet inside.
#[inline]
fn outer_fields(parsed: &Parsed, marking: &Marking) -> OuterFields {
    OuterFields {
        traffic_class: marking.traffic_class(parsed),
        pcp: marking.pcp(parsed),
        flow: flow(parsed),
    }
}

/// A number that packets of one flow share: of one queue pair, where they are RDMA's. Fragments go
/// by their addresses, since only the first has ports.
#[inline]
fn flow(parsed: &Parsed) -> u16 {
    use weir_wire::parse::Transport;
    let ports = match parsed.transport {
        _ if parsed.fragment.is_some() => 0,
        Transport::Tcp { source, destination, .. } | Transport::Udp { source, destination } => {
            u32::from(source) << 16 | u32::from(destination)
        }
        _ => 0,
    };
    // Senders of RoCE may use one source port for all their queue pairs.
    let queue_pair = parsed.rdma.map_or(0, |rdma| rdma.destination_qp.value());
    let ports = ports ^ queue_pair.wrapping_mul(0x85eb_ca6b);
    let word = |bytes: &[u8; 16]| u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    let mixed = (ports ^ word(&parsed.source).rotate_left(7) ^ word(&parsed.destination))
        .wrapping_mul(0x9e37_79b1);
    (mixed >> 16) as u16
}
