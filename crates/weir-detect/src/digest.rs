//! Digests that rules compare: MD5 (RFC 1321), SHA-1 and SHA-256 (FIPS 180-4). None of them
//! protects anything here.

/// MD5 of `bytes`.
pub(crate) fn md5(bytes: &[u8]) -> [u8; 16] {
    const SHIFTS: [[u32; 4]; 4] =
        [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded(bytes, (bytes.len() as u64 * 8).to_le_bytes()).chunks_exact(64) {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|it| block[4 * at + it]));
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64_usize {
            let (mixed, at) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), 5 * step + 1),
                2 => (b ^ c ^ d, 3 * step + 5),
                _ => (c ^ (b | !d), 7 * step),
            };
            // The integer part of 2^32 times a sine, as the specification says.
            let constant = ((step as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32;
            let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(word(at % 16));
            let turned = sum.rotate_left(SHIFTS[step / 16][step % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
        }
        for (sum, one) in state.iter_mut().zip([a, b, c, d]) {
            *sum = sum.wrapping_add(one);
        }
    }
    let mut digest = [0; 16];
    for (place, word) in digest.chunks_exact_mut(4).zip(state) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

/// SHA-1 of `bytes`.
pub(crate) fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded(bytes, (bytes.len() as u64 * 8).to_be_bytes()).chunks_exact(64) {
        let mut words = [0_u32; 80];
        for (at, word) in words.iter_mut().take(16).enumerate() {
            *word = u32::from_be_bytes([0, 1, 2, 3].map(|it| block[4 * at + it]));
        }
        for at in 16..80 {
            let mixed = words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16];
            words[at] = mixed.rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (step, word) in words.into_iter().enumerate() {
            let (mixed, constant) = match step / 20 {
                0 => ((b & c) | (!b & d), 0x5a82_7999),
                1 => (b ^ c ^ d, 0x6ed9_eba1),
                2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e);
            let sum = sum.wrapping_add(constant).wrapping_add(word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, sum);
        }
        for (sum, one) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(one);
        }
    }
    let mut digest = [0; 20];
    for (place, word) in digest.chunks_exact_mut(4).zip(state) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

/// SHA-256 of `bytes`.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let primes = first_primes();
    // The first 32 bits of the fractional parts of square and cube roots of primes.
    let root = |prime: u32, of: fn(f64) -> f64| {
        let root = of(f64::from(prime));
        ((root - root.floor()) * 4_294_967_296.0) as u32
    };
    let mut state = [0_u32; 8];
    for (word, prime) in state.iter_mut().zip(primes) {
        *word = root(prime, f64::sqrt);
    }
    for block in padded(bytes, (bytes.len() as u64 * 8).to_be_bytes()).chunks_exact(64) {
        let mut words = [0_u32; 64];
        for (at, word) in words.iter_mut().take(16).enumerate() {
            *word = u32::from_be_bytes([0, 1, 2, 3].map(|it| block[4 * at + it]));
        }
        for at in 16..64 {
            let (low, high) = (words[at - 15], words[at - 2]);
            let low = low.rotate_right(7) ^ low.rotate_right(18) ^ (low >> 3);
            let high = high.rotate_right(17) ^ high.rotate_right(19) ^ (high >> 10);
            let sum = words[at - 16].wrapping_add(low).wrapping_add(words[at - 7]);
            words[at] = sum.wrapping_add(high);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for (word, prime) in words.into_iter().zip(primes) {
            let turned = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let first = h.wrapping_add(turned).wrapping_add((e & f) ^ (!e & g));
            let first = first.wrapping_add(root(prime, f64::cbrt)).wrapping_add(word);
            let turned = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let second = turned.wrapping_add((a & b) ^ (a & c) ^ (b & c));
            (h, g, f, e) = (g, f, e, d.wrapping_add(first));
            (d, c, b, a) = (c, b, a, first.wrapping_add(second));
        }
        for (sum, one) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *sum = sum.wrapping_add(one);
        }
    }
    let mut digest = [0; 32];
    for (place, word) in digest.chunks_exact_mut(4).zip(state) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

/// In lower case.
pub(crate) fn hex(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|it| format!("{it:02x}").into_bytes()).collect()
}

fn first_primes() -> [u32; 64] {
    let is_prime =
        |it: &u32| (2..*it).take_while(|by| by * by <= *it).all(|by| !it.is_multiple_of(by));
    let mut primes = (2..).filter(is_prime);
    std::array::from_fn(|_| primes.next().unwrap_or_default())
}

/// `bytes`, a one bit, zeros, and `length` at the end of the last block.
fn padded(bytes: &[u8], length: [u8; 8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend(length);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_the_specifications_examples() {
        let text = |digest: &[u8]| String::from_utf8(hex(digest)).unwrap();
        assert_eq!(text(&md5(b"")), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(text(&md5(b"message digest")), "f96b697d7cb7938d525a2f31aaf161d0");
        assert_eq!(text(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(text(&sha1(two_blocks)), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(
            text(&sha256(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
