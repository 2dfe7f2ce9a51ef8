//! A keyed hash over the fixed-size keys of the tables.
//!
//! Whoever sends packets chooses the keys, so the hash depends on a secret: without it, nobody can
//! compute which keys collide. Each step multiplies two secret-whitened words to 128 bits and folds
//! the halves. That is fast and not cryptographic; should someone still find collisions, the
//! bounded probe of the index keeps the cost per packet constant.

/// The secret that keys every table; random, one per process, never sent anywhere.
#[derive(Clone, Copy)]
pub struct HashSeed([u64; 2]);

impl HashSeed {
    /// A seed from 128 random bits. Equal bits give equal tables, which tests and replays want; few
    /// bits are spread, since a multiplier of a few bits would hash badly.
    pub const fn new(random: u128) -> Self {
        Self([spread(random as u64) | 1 << 63, spread((random >> 64) as u64) | 1])
    }

    /// The hash of `words`; its low 32 bits are as good as its high ones.
    #[inline]
    pub fn hash<const COUNT: usize>(&self, words: &[u64; COUNT]) -> u64 {
        let mut state = self.0[0];
        let (pairs, rest) = words.as_chunks::<2>();
        for [first, second] in pairs {
            state = fold(first ^ state, second ^ self.0[1]).wrapping_add(state.rotate_left(29));
        }
        for word in rest {
            state = fold(word ^ state, self.0[1]).wrapping_add(state.rotate_left(29));
        }
        fold(state, self.0[1] ^ COUNT as u64)
    }
}

impl std::fmt::Debug for HashSeed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("HashSeed(secret)")
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
const fn spread(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_seed_gives_another_order() {
        let (left, right) = (HashSeed::new(7), HashSeed::new(7 << 64));
        let differing =
            (0..1000u64).filter(|n| left.hash(&[*n, 0]) != right.hash(&[*n, 0])).count();
        assert_eq!(differing, 1000);
    }

    #[test]
    fn keys_that_count_upwards_spread_evenly_also_under_a_small_seed() {
        for (random, place) in [0x1234_5678_9abc_def0_0fed_cba9_8765_4321, 0, 7]
            .into_iter()
            .flat_map(|random| (0..5).map(move |place| (random, place)))
        {
            let seed = HashSeed::new(random);
            let mut buckets = [0u32; 256];
            for number in 0..25_600u64 {
                let mut words = [0x0a4d_0001_0a4d_0002; 5];
                words[place] = number;
                buckets[(seed.hash(&words) & 0xff) as usize] += 1;
            }
            let (least, most) = (buckets.iter().min().unwrap(), buckets.iter().max().unwrap());
            assert!(*least > 50 && *most < 160, "word {place}: {least} to {most} of about 100");
        }
    }

    #[test]
    fn the_debug_form_hides_the_secret() {
        assert_eq!(format!("{:?}", HashSeed::new(0xdead_beef)), "HashSeed(secret)");
    }
}
