//! Where a frame belongs: to a peer, past all of them in clear, or nowhere.
//!
//! | frame | to the wire | from the wire, in clear |
//! |---|---|---|
//! | of a class that is clear or dropped | so | so |
//! | of a class that is sealed | the peer for everything | its source's peer; that for everything |
//! | with addresses | its destination's peer, or `default` | its source's peer, or `default` |
//! | without | the peer for everything, or `default` | the same |

use weir_wire::parse::Parsed;

use crate::classify::has_address;
use crate::policy::{Action, FrameClass, Policy, Route};
use crate::verdict::{DropReason, Side};

/// Where a frame of `class` that came in by `side` belongs: to a peer, or in clear (`None`).
#[inline]
pub(crate) fn route(
    policy: &Policy,
    class: Option<FrameClass>,
    side: Side,
    parsed: &Parsed,
) -> Result<Option<usize>, DropReason> {
    if let Some(class) = class {
        return match policy.frames.of(class) {
            Action::Clear => Ok(None),
            Action::Seal => {
                // A group is behind no peer; whoever speaks to it is.
                let speaker = (side == Side::Wire && has_address(parsed))
                    .then(|| policy.peer_for(&parsed.source))
                    .flatten();
                speaker.or(policy.peer_for_everything()).map(Some).ok_or(DropReason::NoPolicy)
            }
            Action::Drop if class >= FrameClass::Broadcast => Err(DropReason::Multicast),
            Action::Drop => Err(DropReason::LinkProtocol),
        };
    }
    let far = match side {
        Side::Host => &parsed.destination,
        Side::Wire => &parsed.source,
    };
    let way = match has_address(parsed) {
        true => policy.route_to(far),
        false => policy.peer_for_everything().map(|peer| Route::Peer(peer as u32)),
    };
    match (way, policy.default) {
        (Some(Route::Peer(peer)), _) => Ok(Some(peer as usize)),
        (Some(Route::Clear), _) | (None, Action::Clear) => Ok(None),
        (Some(Route::Drop), _) | (None, _) => Err(DropReason::NoPolicy),
    }
}
