//! Seeded random numbers for offsets, contents and simulated devices.
//!
//! The generator is xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators",
//! 2018), started from one 64-bit seed through splitmix64, so that one number replays a whole run.

/// A xoshiro256++ generator. Not for cryptography.
#[derive(Debug, Clone)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self { state: [next(), next(), next(), next()] }
    }

    /// The generator of stream number `stream`: workers share a seed but not a sequence.
    #[must_use]
    pub fn for_stream(seed: u64, stream: u64) -> Self {
        Self::new(Self::new(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95)).next_u64())
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..bound` (0 when `bound` is 0) by multiply and shift: no division in the hot loop.
    ///
    /// The bias is at most `bound / 2^64`, far below what any run can see.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Fills `bytes` with random content, so that no device can compress or deduplicate it.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays() {
        let mut a = Rng::new(7);
        let mut b = Rng::new(7);
        assert!((0..1000).all(|_| a.next_u64() == b.next_u64()));
    }

    #[test]
    fn streams_differ() {
        let firsts: std::collections::BTreeSet<u64> =
            (0..1000).map(|stream| Rng::for_stream(1, stream).next_u64()).collect();
        assert_eq!(firsts.len(), 1000);
    }

    #[test]
    fn below_covers_its_range_evenly() {
        let mut rng = Rng::new(3);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }

    #[test]
    fn fill_leaves_no_byte_behind() {
        let mut bytes = [0u8; 1021];
        Rng::new(5).fill(&mut bytes);
        assert!(bytes.iter().filter(|&&byte| byte == 0).count() < 20);
    }
}
