//! A set of small numbers: of blocks, or of segments.

/// A bit each, up to the largest that was ever in it.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Vec<u64>);

impl Numbers {
    pub(crate) fn note(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub(crate) fn clear(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// Whether it is in the set, in which it is no longer.
    pub(crate) fn take(&mut self, number: u32) -> bool {
        let has = self.has(number);
        self.clear(number);
        has
    }

    pub(crate) fn clear_all(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_noted_and_forgotten() {
        let mut numbers = Numbers::default();
        (60..70).for_each(|block| numbers.note(block));
        numbers.clear(64);
        numbers.clear(7000);
        let noted: Vec<u32> = (0..7000).filter(|&block| numbers.has(block)).collect();
        assert_eq!(noted, [60, 61, 62, 63, 65, 66, 67, 68, 69]);
    }
}
