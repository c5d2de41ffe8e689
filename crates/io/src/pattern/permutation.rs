//! A keyed shuffle of the numbers below a bound that needs no table: what visits every block once, in an
//! order that looks random, at any size.
//!
//! Four Feistel rounds make a bijection of the next power of four; numbers that fall outside the bound are
//! shuffled again until they fall inside (cycle walking), which keeps it a bijection of `0..bound`.

use overdrive_base::rng::Rng;

const ROUNDS: usize = 4;

/// A bijection of `0..bound`.
#[derive(Debug, Clone)]
pub(super) struct Permutation {
    bound: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The shuffle that `key` names.
    pub(super) fn new(bound: u64, key: u64) -> Self {
        let bits = 64 - bound.saturating_sub(1).leading_zeros();
        let mut rng = Rng::new(key);
        Self { bound, half_bits: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| rng.next_u64()) }
    }

    /// Where `number` goes; `number` is below the bound.
    #[inline]
    pub(super) fn apply(&self, number: u64) -> u64 {
        let mut number = number;
        loop {
            number = self.rounds(number);
            if number < self.bound {
                return number;
            }
        }
    }

    #[inline]
    fn rounds(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (left, right) = (right, left ^ ((mixed ^ (mixed >> 29)) >> 24 & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_number_is_met_once(bound in 1u64..5000, key: u64) {
            let shuffle = Permutation::new(bound, key);
            let mut seen = vec![false; bound as usize];
            for number in 0..bound {
                let at = shuffle.apply(number) as usize;
                prop_assert!(!std::mem::replace(&mut seen[at], true), "{at} twice");
            }
        }
    }

    #[test]
    fn neighbours_are_scattered() {
        let bound = 1 << 20;
        let shuffle = Permutation::new(bound, 7);
        let near =
            (1..10_000).filter(|&n| shuffle.apply(n).abs_diff(shuffle.apply(n - 1)) < bound / 100).count();
        // By chance 2 % of neighbours end within 1 % of one another.
        assert!((100..300).contains(&near), "{near}");
    }
}
