//! Blocks that can be told from one another: what was written is found again, or it is said what is there
//! instead.
//!
//! Every 512-byte sector carries a header of its own: a mark, a CRC-32C over the rest of the sector, the
//! sector's offset, the job's seed and the sequence number of the write. So a flipped bit, a block that an
//! earlier write left behind, a block of another place, and a block of which only a part arrived look
//! different. The order of a verified job visits each block once and follows from the seed; a later run that
//! is given the same seed knows what each block must hold without any table.

mod crc32c;

use crc32c::crc32c;
use std::collections::BTreeMap;

const SECTOR: usize = 512;
const MARK: u32 = 0x6456_764f;
/// How many failures are kept one by one; the rest is counted.
const KEPT: usize = 16;

/// Whether a job checks what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Write stamped blocks, then read back those that were written.
    WriteThenRead,
    /// Write stamped blocks for a later run to read back.
    WriteOnly,
    /// Read what an earlier run with the same seed has written.
    ReadOnly,
}

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// A sector's checksum does not fit its content.
    Corrupt,
    /// The block is whole, but of another write: an earlier one whose successor was lost, or a later one.
    Stale,
    /// The block is whole, but belongs elsewhere.
    Misplaced,
    /// Some sectors are of one write and some of another.
    Torn,
    /// No sector was written by a verified job.
    Unstamped,
}

impl Defect {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::Stale => "stale",
            Self::Misplaced => "misplaced",
            Self::Torn => "torn",
            Self::Unstamped => "unstamped",
        }
    }
}

/// One block that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where the block lies.
    pub offset: u64,
    /// What is wrong with it.
    pub defect: Defect,
    /// What was found, for people.
    pub detail: String,
}

/// What reading back found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks looked at.
    pub blocks: u64,
    /// Defects, counted.
    pub defects: BTreeMap<Defect, u64>,
    /// The first failures.
    pub first: Vec<Failure>,
}

impl Verified {
    /// Blocks that are not as they were written.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.defects.values().sum()
    }

    pub(crate) fn check(&mut self, block: &[u8], wanted: Stamp) {
        self.blocks += 1;
        if let Err(failure) = inspect(block, wanted) {
            *self.defects.entry(failure.defect).or_default() += 1;
            if self.first.len() < KEPT {
                self.first.push(failure);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.blocks += other.blocks;
        for (defect, count) in other.defects {
            *self.defects.entry(defect).or_default() += count;
        }
        self.first.extend(other.first);
        self.first.sort_by_key(|failure| failure.offset);
        self.first.truncate(KEPT);
    }
}

/// What tells one write of a block from every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) offset: u64,
    pub(crate) seed: u64,
    pub(crate) sequence: u64,
}

impl Stamp {
    fn of_sector(self, index: usize) -> Self {
        Self { offset: self.offset + (index * SECTOR) as u64, ..self }
    }

    /// Puts the header into every sector of a block.
    pub(crate) fn apply(self, block: &mut [u8]) {
        for (index, sector) in block.chunks_exact_mut(SECTOR).enumerate() {
            let stamp = self.of_sector(index);
            for (field, value) in [stamp.offset, stamp.seed, stamp.sequence].into_iter().enumerate() {
                sector[8 + field * 8..16 + field * 8].copy_from_slice(&value.to_le_bytes());
            }
            let crc = crc32c(&sector[8..]);
            sector[..4].copy_from_slice(&MARK.to_le_bytes());
            sector[4..8].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// What a sector says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sector {
    Whole(Stamp),
    Corrupt,
    Unstamped,
}

fn read_sector(sector: &[u8]) -> Sector {
    let word =
        |at: usize| sector[at..at + 4].iter().rev().fold(0u32, |word, &byte| word << 8 | u32::from(byte));
    let long = |at: usize| u64::from(word(at + 4)) << 32 | u64::from(word(at));
    let intact = word(4) == crc32c(&sector[8..]);
    match (word(0) == MARK, intact) {
        (true, true) => Sector::Whole(Stamp { offset: long(8), seed: long(16), sequence: long(24) }),
        // Damage may hit the mark itself: then the checksum still fits.
        (true, false) | (false, true) => Sector::Corrupt,
        (false, false) => Sector::Unstamped,
    }
}

/// Compares a block with what was written to it.
fn inspect(block: &[u8], wanted: Stamp) -> Result<(), Failure> {
    let fail = |defect, detail: String| Err(Failure { offset: wanted.offset, defect, detail });
    let sectors: Vec<Sector> = block.chunks_exact(SECTOR).map(read_sector).collect();
    let as_wanted = |index: usize, sector: &Sector| *sector == Sector::Whole(wanted.of_sector(index));
    let good = sectors.iter().enumerate().filter(|&(index, sector)| as_wanted(index, sector)).count();
    let total = sectors.len();
    if good == total {
        return Ok(());
    }
    if let Some(index) = sectors.iter().position(|sector| *sector == Sector::Corrupt) {
        return fail(
            Defect::Corrupt,
            format!("the checksum of sector {index} of {total} does not fit its content"),
        );
    }
    let Some(first) = whole(&sectors).next() else {
        return fail(Defect::Unstamped, "no sector was written by a verified job".to_owned());
    };
    if let Some((index, stamp)) =
        whole(&sectors).find(|(index, stamp)| stamp.offset != wanted.of_sector(*index).offset)
    {
        return fail(
            Defect::Misplaced,
            format!("sector {index} of {total} says it belongs at offset {}", stamp.offset),
        );
    }
    let one_write =
        |(_, stamp): (usize, Stamp)| (stamp.seed, stamp.sequence) == (first.1.seed, first.1.sequence);
    if whole(&sectors).count() == total && whole(&sectors).all(one_write) {
        let Stamp { seed, sequence, .. } = first.1;
        return fail(
            Defect::Stale,
            format!(
                "written as number {sequence} of seed {seed}; wanted number {} of seed {}",
                wanted.sequence, wanted.seed
            ),
        );
    }
    fail(
        Defect::Torn,
        format!("{good} of {total} sectors are of the write that was wanted, the others are not"),
    )
}

/// The whole sectors with their place in the block.
fn whole(sectors: &[Sector]) -> impl Iterator<Item = (usize, Stamp)> {
    sectors.iter().enumerate().filter_map(|(index, sector)| match sector {
        Sector::Whole(stamp) => Some((index, *stamp)),
        Sector::Corrupt | Sector::Unstamped => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_base::rng::Rng;
    use proptest::prelude::*;

    const HERE: Stamp = Stamp { offset: 8192, seed: 7, sequence: 100 };

    fn block(stamp: Stamp) -> Vec<u8> {
        let mut block = vec![0; 4096];
        Rng::new(1).fill(&mut block);
        stamp.apply(&mut block);
        block
    }

    fn defect(block: &[u8]) -> Option<Defect> {
        inspect(block, HERE).err().map(|failure| failure.defect)
    }

    #[test]
    fn what_was_written_is_found_again() {
        assert_eq!(defect(&block(HERE)), None);
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_corruption(bit in 0usize..4096 * 8) {
            let mut block = block(HERE);
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(defect(&block), Some(Defect::Corrupt));
        }
    }

    #[test]
    fn another_write_another_place_and_half_a_block_are_told_apart() {
        let older = block(Stamp { sequence: 99, ..HERE });
        assert_eq!(defect(&older), Some(Defect::Stale));
        assert_eq!(defect(&block(Stamp { seed: 8, ..HERE })), Some(Defect::Stale));
        assert_eq!(defect(&block(Stamp { offset: 4096, ..HERE })), Some(Defect::Misplaced));
        assert_eq!(defect(&[0; 4096]), Some(Defect::Unstamped));
        let mut torn = block(HERE);
        torn[3584..].copy_from_slice(&older[3584..]);
        assert_eq!(defect(&torn), Some(Defect::Torn));
        torn[3584..].fill(0);
        assert_eq!(defect(&torn), Some(Defect::Torn));
    }

    #[test]
    fn failures_are_counted_and_the_first_are_kept() {
        let (mut one, mut two) = (Verified::default(), Verified::default());
        one.check(&block(HERE), HERE);
        (0..20).for_each(|_| one.check(&[0; 4096], HERE));
        two.check(&block(Stamp { offset: 0, ..HERE }), HERE);
        one.merge(two);
        assert_eq!((one.blocks, one.failures(), one.first.len()), (22, 21, KEPT));
        assert_eq!(one.defects[&Defect::Misplaced], 1);
    }
}
