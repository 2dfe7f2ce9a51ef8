//! Our SPIs: drawn so that nobody else has them, and given up where somebody must have them.

use std::collections::BTreeSet;

use super::{Now, Tunnel};
use crate::esp::sa::Spi;
use crate::esp::spread::SPI_WORKER_MASK;

impl Tunnel {
    /// Draws none of these SPIs from now on: associations whose keys the configuration or a front
    /// end names have them. A peer that was given one before gets other keys at once, for what it
    /// sends by that SPI is taken for the named association's.
    pub fn avoid(&mut self, now: Now, named_spis: BTreeSet<u32>) {
        let new: Vec<u32> = named_spis.difference(&self.named_spis).copied().collect();
        self.named_spis = named_spis;
        for index in new.into_iter().filter_map(|spi| self.owner_of(spi)).collect::<Vec<_>>() {
            self.peers[index].begin_ns = Some(now.elapsed_ns);
            self.schedule(index);
        }
    }

    /// The peer that has this SPI for one of its associations with us, or for a worker's.
    fn owner_of(&self, spi: u32) -> Option<usize> {
        let of = |spi: u32| self.by_spi.get(&spi).map(|it| *it as usize);
        let has_workers = |index: &usize| self.peers[*index].settings.terms.workers > 1;
        of(spi).or_else(|| of(spi & !SPI_WORKER_MASK).filter(has_workers))
    }

    /// An SPI that nothing of ours has; with several workers, the base of theirs.
    pub(super) fn draw_spi(&mut self, index: usize) -> Spi {
        loop {
            let mut bytes = [0; 4];
            self.entropy.fill(&mut bytes);
            let has_workers = self.peers[index].settings.terms.workers > 1;
            let of_workers = if has_workers { SPI_WORKER_MASK } else { 0 };
            let number = u32::from_be_bytes(bytes) & !of_workers;
            let mut named = self.named_spis.range(number..=number | of_workers);
            if let Ok(spi) = Spi::new(number)
                && !self.by_spi.contains_key(&number)
                && named.next().is_none()
            {
                self.by_spi.insert(number, index as u32);
                return spi;
            }
        }
    }
}
