//! What a reload takes away first, and clients whose time is over.

use anyhow::Result;

use super::{Gateway, NextMirror, mirrors_of};
use crate::config::settings::{self, Settings};
use crate::daemon::mirror::Mirror;

impl Gateway {
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
