//! Clients whose time is over.

use super::{Gateway, accept};

impl Gateway {
    /// Cuts off VPN clients whose time is over, by reading the clients again under the
    /// configuration in force. Neither a changed file nor a running trial matters here.
    pub(super) fn end_clients(&mut self) {
        let now = jiff::Timestamp::now();
        let clients = self.settings.pairs.iter_mut().filter_map(|it| it.vpn.as_mut());
        // Each is asked: where cutting off fails, each says so again.
        let ended = clients.filter_map(|it| it.has_ended(now).then_some(())).count();
        if ended == 0 {
            return;
        }
        tracing::info!("the time of a VPN client is over");
        let kept = self.settings.detection.as_ref();
        let left = accept(self.source.clone(), kept, self.options.administration);
        if let Err(failure) = left.and_then(|left| self.apply(left)) {
            tracing::error!("a VPN client whose time is over is still served:\n{failure:#}");
        }
    }
}
