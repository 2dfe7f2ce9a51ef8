//! Older copies of a gateway's disk, and what keeps one from beginning again with it.
//!
//! Keys that are agreed lie on no disk, and random bytes do not come again: a kernel that learns of
//! its machine's new generation draws others (docs/adr/0072). Keys of files do, and a stamp beside
//! them, which is not copied along, says how far the last start went: a copy from before that is
//! refused, and somebody makes new keys. A copy that was made since the last start is not told from
//! the present (docs/guide/keys.md), and does not happen here.

use super::*;

/// What a gateway was, for whoever puts it back.
pub(super) struct Copy {
    disk: Disk,
    /// The key's stamp at that time.
    stamp: Option<u64>,
}

impl World {
    /// Somebody copies the disk of a gateway.
    pub(crate) fn copy_disk(&mut self, side: usize) {
        let disk = self.sides[side].disk.clone();
        self.copies[side] = Some(Copy { disk, stamp: self.stamps[side] });
    }

    /// The gateway is killed and starts again with the older copy, if there is one from before its
    /// last start. True: it refuses, and both gateways get new keys.
    pub(crate) fn roll_back(&mut self, side: usize) -> bool {
        let Some(copy) = self.copies[side].take() else { return false };
        if self.agrees() {
            self.sides[side].disk = copy.disk;
            self.restart(side, |_| {});
            return false;
        }
        if copy.stamp == self.stamps[side] {
            return false;
        }
        let reserved = copy.disk.sealing.map(|it| it.reserved_until);
        assert!(reserved < self.stamps[side], "the stamp knows more than an older copy");
        self.renew_keys();
        true
    }

    /// Both gateways get new keys in their files, and start with them.
    fn renew_keys(&mut self) {
        self.generation += 1;
        self.copies = Default::default();
        self.stamps = Default::default();
        for side in 0..2 {
            self.know_key(side);
            let setup = self.sides[side].setup.clone();
            self.start(side, setup, Disk::default());
        }
    }

    /// Whoever watches the wire learns what a gateway seals with.
    pub(super) fn know_key(&mut self, side: usize) {
        let key = file_key(side, self.generation);
        self.keys[side].entry(key.spi.value()).or_default().push(key);
    }

    /// Notes beside the key how far it may go since this start, before a number is used.
    pub(super) fn stamp(&mut self, side: usize) {
        let sealing = self.sides[side].disk.sealing;
        self.stamps[side] = sealing.map(|it| it.reserved_until).or(self.stamps[side]);
    }
}
