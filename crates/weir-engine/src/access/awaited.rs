//! Exchanges of managers of which the next message is awaited: a SIDR_REQ's reply, or the RTU
//! behind a REP (IBTA Vol 1 s12.9.6). Until that the requester may still refuse by REJ, which names
//! no queue pair.

/// A power of two. A newer one takes the place of an older one that hashes alike, which counts as
/// over then.
const PLACES: usize = 8192;

/// What was said in the exchange of a hash.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    places: Vec<Option<(u64, u64)>>,
}

impl Awaited {
    /// The exchange of `hash` said `what`.
    pub(super) fn note(&mut self, hash: u64, what: u64) {
        if self.places.is_empty() {
            self.places = vec![None; PLACES];
        }
        self.places[hash as usize % PLACES] = Some((hash, what));
    }

    /// The exchange is over: takes what it said, once.
    pub(super) fn take(&mut self, hash: u64) -> Option<u64> {
        let place = self.places.get_mut(hash as usize % PLACES)?;
        place.take_if(|it| it.0 == hash).map(|it| it.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_taken_once_and_by_its_own_name() {
        let mut awaited = Awaited::default();
        assert_eq!(awaited.take(7), None);
        awaited.note(7, 70);
        assert_eq!(awaited.take(7 + PLACES as u64), None);
        assert_eq!(awaited.take(7), Some(70));
        assert_eq!(awaited.take(7), None);
    }
}
