//! A set of small numbers: of blocks, or of segments.

/// A bit each, up to the largest that was ever in it, and how many there are.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    words: Vec<u64>,
    count: u64,
}

impl Numbers {
    pub(crate) fn note(&mut self, number: u32) {
        self.add(number);
    }

    /// Whether it was not in the set, in which it is now.
    pub(crate) fn add(&mut self, number: u32) -> bool {
        let index = number as usize / 64;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let is_news = !self.has(number);
        self.words[index] |= 1 << (number % 64);
        self.count += u64::from(is_news);
        is_news
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub(crate) fn clear(&mut self, number: u32) {
        self.take(number);
    }

    /// Whether it was in the set, in which it is no longer.
    pub(crate) fn take(&mut self, number: u32) -> bool {
        let had = self.has(number);
        if had {
            self.words[number as usize / 64] &= !(1 << (number % 64));
            self.count -= 1;
        }
        had
    }

    /// The lowest that is not below another.
    pub(crate) fn first_from(&self, number: u32) -> Option<u32> {
        let (first, below) = (number as usize / 64, (1 << (number % 64)) - 1);
        let mut words = self.words.iter().enumerate().skip(first);
        words.find_map(|(index, &word)| {
            let rest = if index == first { word & !below } else { word };
            (rest != 0).then(|| index as u32 * 64 + rest.trailing_zeros())
        })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn clear_all(&mut self) {
        self.words.clear();
        self.count = 0;
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
        assert_eq!(
            [numbers.add(64), numbers.add(64), numbers.take(60), numbers.take(60)],
            [true, false].repeat(2)[..]
        );
        assert_eq!(numbers.count(), 9);
        numbers.clear_all();
        assert_eq!((numbers.count(), numbers.has(64)), (0, false));
    }
}
