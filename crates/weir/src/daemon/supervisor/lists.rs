//! Who is blocked, and whose time is over.

use anyhow::Result;

use super::{Gateway, NextMirror};
use crate::api::blocks::BlocksRequest;
use crate::api::dto::Response;

impl Gateway {
    /// Blocks and allows, and says who is.
    pub(super) fn block(&mut self, request: &BlocksRequest) -> Result<Response> {
        let done = self.store.blocks.answer(request);
        if *request != BlocksRequest::List {
            let outcome = done.as_ref().map_or_else(|it| format!("{it:#}"), |_| "done".to_owned());
            self.note(&request.to_string(), &outcome);
        }
        done.map(Response::Blocks)
    }

    /// Cuts off VPN clients whose time is over: who is left is read again.
    pub(super) fn end_clients(&mut self) {
        let expiries = self.settings.pairs.iter_mut().filter_map(|it| it.vpn.as_mut());
        let now = jiff::Timestamp::now();
        let mut is_due = false;
        for vpn in expiries.filter(|it| it.next_expiry.is_some_and(|expiry| expiry <= now)) {
            // Once: where the configuration is refused, it would be so each time.
            (vpn.next_expiry, is_due) = (None, true);
        }
        if is_due {
            tracing::info!("the time of a VPN client is over");
            drop(self.reload(None));
        }
    }
}

/// Of a pair's mirrors, those that stay.
pub(super) fn kept_mirrors(next: &[NextMirror]) -> Vec<NextMirror> {
    let kept = next.iter().filter_map(|it| match it {
        NextMirror::Kept(settings) => Some(NextMirror::Kept(settings.clone())),
        NextMirror::New(_) => None,
    });
    kept.collect()
}
