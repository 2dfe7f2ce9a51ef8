//! Clients whose time is over.

use jiff::SignedDuration;

use super::{Gateway, accept};

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
}
