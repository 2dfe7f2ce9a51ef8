//! What a later stage keeps of directions that have left the table.
//!
//! A conversation leaves when it rests, or for another's sake. What the stage marks as lasting then
//! stays here until another direction takes its place, so that nobody can have it forgotten who
//! only sends much.

use super::stage_data::StageData;

/// Some bits of a key's hash beside the data; zero: nothing is there.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    tag: u32,
    data: StageData,
}

/// Bytes of a direction's place.
pub(crate) const DEPARTED_BYTES: usize = size_of::<Left>();

/// One place for each hash; none before something is kept.
#[derive(Debug)]
pub(super) struct Departed {
    places: usize,
    left: Vec<Left>,
}

impl Departed {
    /// Room for as many directions as there may be at once.
    pub(super) fn new(directions: usize) -> Self {
        Self { places: directions.next_power_of_two(), left: Vec::new() }
    }

    /// Nothing is kept of anybody.
    pub(super) fn clear(&mut self) {
        self.left = Vec::new();
    }

    /// A direction leaves whose key has that hash.
    pub(super) fn keep(&mut self, hash: u64, data: StageData) {
        if !data.lasts() {
            return;
        }
        if self.left.is_empty() {
            self.left.resize(self.places, Left::default());
        }
        let place = self.place(hash);
        self.left[place] = Left { tag: tag(hash), data };
    }

    /// What was kept of it.
    pub(super) fn find(&self, hash: u64) -> Option<StageData> {
        let left = self.left.get(self.place(hash))?;
        (left.tag == tag(hash)).then_some(left.data)
    }

    /// Nothing is kept of it any more.
    pub(super) fn forget(&mut self, hash: u64) {
        let place = self.place(hash);
        if let Some(left) = self.left.get_mut(place).filter(|it| it.tag == tag(hash)) {
            *left = Left::default();
        }
    }

    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.places - 1)
    }
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_marked_is_found_until_another_takes_its_place_or_it_is_forgotten() {
        let lasting = |word| StageData { words: [StageData::LASTS, word, 0, 0], round: 1 };
        let mut departed = Departed::new(4);
        assert_eq!(departed.find(5 << 40), None);
        departed.keep(5 << 40, lasting(7));
        departed.keep(6 << 40 | 1, StageData { words: [0, 8, 0, 0], round: 1 });
        assert_eq!(departed.find(5 << 40), Some(lasting(7)));
        assert_eq!(departed.find(6 << 40 | 1), None, "it was not marked");
        assert_eq!(departed.find(9 << 40), None, "the same place, another direction");
        departed.keep(9 << 40, lasting(9));
        assert_eq!((departed.find(5 << 40), departed.find(9 << 40)), (None, Some(lasting(9))));
        departed.forget(5 << 40);
        departed.forget(9 << 40);
        assert_eq!(departed.find(9 << 40), None);
    }
}
