//! Connections that were agreed and not confirmed: REP came, RTU did not (IBTA Vol 1 s12.9.6).
//! Until then the requester may still refuse by REJ, which names no queue pair.

/// A power of two. A newer one takes the place of an older one that hashes alike, which counts as
/// confirmed then.
const PLACES: usize = 8192;

/// Which queue pair the exchange of a hash agreed on.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    places: Vec<Option<(u64, u64)>>,
}

impl Unconfirmed {
    /// An exchange of managers, known by `hash`, agreed on the responder's queue pair `key`.
    pub(super) fn note(&mut self, hash: u64, key: u64) {
        if self.places.is_empty() {
            self.places = vec![None; PLACES];
        }
        self.places[hash as usize % PLACES] = Some((hash, key));
    }

    /// The exchange is over: takes what it agreed on, once.
    pub(super) fn take(&mut self, hash: u64) -> Option<u64> {
        let place = self.places.get_mut(hash as usize % PLACES)?;
        place.take_if(|it| it.0 == hash).map(|it| it.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_agreed_is_taken_once_and_by_its_own_name() {
        let mut unconfirmed = Unconfirmed::default();
        assert_eq!(unconfirmed.take(7), None);
        unconfirmed.note(7, 70);
        assert_eq!(unconfirmed.take(7 + PLACES as u64), None);
        assert_eq!(unconfirmed.take(7), Some(70));
        assert_eq!(unconfirmed.take(7), None);
    }
}
