//! Where headers stand in a message's list, by their names.

use std::collections::HashMap;

use crate::heap::HeapSize;

/// Headers of a message, at most (Suricata's limit for HTTP/1); the rest is not looked at.
pub(super) const HEADERS_MAX: usize = 1024;
/// So many headers are looked through for a name; in more it is looked up.
const FEW: usize = 32;

/// The places of names in a list that only grows.
#[derive(Debug, Default)]
pub(super) struct Names {
    places: HashMap<Vec<u8>, usize>,
    /// Where the header stands that came last; none: nowhere.
    pub(super) last: Option<usize>,
}

impl HeapSize for Names {
    fn heap_size(&self) -> usize {
        self.places.keys().map(|it| size_of::<(Vec<u8>, usize)>() + it.heap_size()).sum()
    }
}

impl Names {
    /// Where `headers` have a header of this `name`, in whatever case.
    pub(super) fn place(&mut self, name: &[u8], headers: &[(Vec<u8>, Vec<u8>)]) -> Option<usize> {
        if headers.len() <= FEW {
            return headers.iter().position(|it| it.0.eq_ignore_ascii_case(name));
        }
        for (at, known) in headers.iter().enumerate().skip(self.places.len()) {
            self.places.insert(known.0.to_ascii_lowercase(), at);
        }
        self.places.get(&name.to_ascii_lowercase()).copied()
    }
}
