//! What a reload takes away first, and clients whose time is over.

use anyhow::Result;
use jiff::SignedDuration;

use super::{Gateway, NextMirror, accept, mirrors_of};
use crate::config::settings::{self, Settings};
use crate::daemon::mirror::Mirror;

/// Until clients whose time is over are cut off, where that failed.
const EXPIRY_RETRY: SignedDuration = SignedDuration::from_secs(5);

impl Gateway {
    /// Cuts off VPN clients whose time is over: who is left is read again, by the configuration in
    /// force. What the file says by now, and whether a trial runs, has no say in it.
    pub(super) fn end_clients(&mut self) {
        let now = jiff::Timestamp::now();
        let expiries = self.settings.pairs.iter_mut().filter_map(|it| it.vpn.as_mut());
        let due = expiries.filter(|it| it.next_expiry.is_some_and(|expiry| expiry <= now));
        let mut is_due = false;
        for vpn in due {
            // Where it fails, it is tried again.
            (vpn.next_expiry, is_due) = (now.checked_add(EXPIRY_RETRY).ok(), true);
        }
        if !is_due {
            return;
        }
        tracing::info!("the time of a VPN client is over");
        let left = accept(self.source.clone(), self.options.administration);
        if let Err(failure) = left.and_then(|left| self.apply(left)) {
            tracing::error!("a VPN client whose time is over is still served:\n{failure:#}");
        }
    }

    /// Every pair's mirrors: those that stay, and new ones, open.
    pub(super) fn next_mirrors(&self, settings: &Settings) -> Result<Vec<Vec<NextMirror>>> {
        let next = |mirror: &settings::Mirror| {
            if self.settings.mirrors.contains(mirror) {
                return Ok(NextMirror::Kept(mirror.clone()));
            }
            Ok(NextMirror::New(Box::new(Mirror::open(mirror)?)))
        };
        let pairs = settings.pairs.iter();
        pairs.map(|pair| mirrors_of(&pair.name, settings).map(next).collect()).collect()
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
