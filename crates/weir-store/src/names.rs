//! Who has an address: alerts and records name VPN clients, not only their addresses.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Addresses remembered whose clients are gone; with more, those are forgotten.
const GONE_MAX: usize = 32_768;

/// Clients by address, IPv4 mapped. All clones are one.
///
/// Flows end and are told of after their client may be gone: an address stays its last client's
/// until another gets it.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<RwLock<HashMap<[u8; 16], Arc<str>>>>);

impl Names {
    /// These are the clients that there are now.
    pub fn renew(&self, clients: impl IntoIterator<Item = ([u8; 16], Arc<str>)>) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let now: HashMap<_, _> = clients.into_iter().collect();
        if known.len() > now.len() + GONE_MAX {
            known.clear();
        }
        known.extend(now);
    }

    /// The client that has or had `address`.
    pub fn of(&self, address: &[u8; 16]) -> Option<Arc<str>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(address).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> [u8; 16] {
        let mut address = [0; 16];
        address[12..].copy_from_slice(&number.to_be_bytes());
        address
    }

    #[test]
    fn an_address_is_its_last_clients_until_another_gets_it_and_the_gone_are_bounded() {
        let names = Names::default();
        let both = names.clone();
        names.renew([(address(1), "laptop".into()), (address(2), "phone".into())]);
        names.renew([(address(2), "tablet".into())]);
        assert_eq!(both.of(&address(1)).as_deref(), Some("laptop"));
        assert_eq!(both.of(&address(2)).as_deref(), Some("tablet"));
        assert_eq!(both.of(&address(3)), None);
        names.renew((10..=10 + GONE_MAX as u32).map(|it| (address(it), Arc::from("one"))));
        names.renew([(address(2), "tablet".into())]);
        assert_eq!(both.of(&address(1)), None);
        assert!(both.of(&address(2)).is_some());
    }
}
