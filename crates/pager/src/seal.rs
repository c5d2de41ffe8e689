//! Encryption of pages on their way to the store: AES-256 in XTS mode, with a key that only this process has.
//!
//! XTS keeps the length, so a slot stays a page. Each page is its own data unit, and its tweak is the slot's
//! number beside how often its segment was opened: a segment is filled once per opening, so no tweak is used
//! for two contents, and neither equal pages nor a page that was written again to the same place can be told
//! from what lies on the store. Whether a page came back as it was says the mark of its plain content, which
//! never leaves DRAM: what was changed in a sealed page opens to noise.

use crate::slots::Slot;
use aes::cipher::{Array, Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit, consts::U16};
use aes::{Aes256, Aes256Enc};
use overdrive_sys::Errno;
use overdrive_sys::secret::Secret;
use overdrive_sys::uffd::PAGE;
use std::ops::Range;

/// Bytes of a key: one half for the content, one for the tweaks.
pub const KEY_BYTES: usize = 64;

const BLOCK_BYTES: usize = 16;
/// Blocks ciphered in one go: enough for the processor's units, few enough to stay in its registers' reach.
const AT_ONCE: usize = 32;

/// Seals pages and opens them.
#[derive(Debug)]
pub struct Seal {
    ciphers: Secret<Ciphers>,
}

struct Ciphers {
    content: Aes256,
    tweak: Aes256Enc,
}

impl Seal {
    /// With this key, which should be random and is not kept.
    ///
    /// # Errors
    /// As [`Secret::new`].
    pub fn new(key: &Secret<[u8; KEY_BYTES]>) -> Result<Self, Errno> {
        let half = |bytes: &[u8]| Array::try_from(bytes).expect("half a key");
        let (content, tweak) = key.split_at(KEY_BYTES / 2);
        let ciphers = Secret::new(|| Ciphers {
            content: Aes256::new(&half(content)),
            tweak: Aes256Enc::new(&half(tweak)),
        })?;
        Ok(Self { ciphers })
    }

    /// With a key that is made here, that nobody else has and that ends with this process.
    ///
    /// # Errors
    /// As [`Secret::random`].
    pub fn with_new_key() -> Result<Self, Errno> {
        Self::new(&Secret::random()?)
    }

    /// Sees to it that the key is locked in memory still.
    pub fn lock_again(&self) {
        self.ciphers.lock_again();
    }

    /// The addresses it lives at.
    pub(crate) fn extent(&self) -> Range<u64> {
        self.ciphers.extent()
    }

    /// Makes of a page what lies in a slot, in place. `opening`: of the slot's segment.
    pub(crate) fn seal(&self, page: &mut [u8], slot: Slot, opening: u64) {
        let ciphers = &*self.ciphers;
        let tweak = ciphers.first_tweak(slot, opening);
        each_piece(page, tweak, |blocks| ciphers.content.encrypt_blocks(blocks));
    }

    /// The other way round.
    pub(crate) fn open(&self, page: &mut [u8], slot: Slot, opening: u64) {
        let ciphers = &*self.ciphers;
        let tweak = ciphers.first_tweak(slot, opening);
        each_piece(page, tweak, |blocks| ciphers.content.decrypt_blocks(blocks));
    }
}

impl Ciphers {
    fn first_tweak(&self, slot: Slot, opening: u64) -> u128 {
        let unit = u128::from(slot) | u128::from(opening) << 64;
        let mut block: Block<Aes256> = Array::from(unit.to_le_bytes());
        self.tweak.encrypt_block(&mut block);
        u128::from_le_bytes(block.into())
    }
}

/// XTS around a block cipher: before and after it, each block is mixed with its tweak, which doubles from
/// block to block.
fn each_piece(page: &mut [u8], mut tweak: u128, cipher: impl Fn(&mut [Block<Aes256>])) {
    debug_assert_eq!(page.len() % (AT_ONCE * BLOCK_BYTES), 0);
    for piece in page.chunks_exact_mut(AT_ONCE * BLOCK_BYTES) {
        let mut tweaks = [0; AT_ONCE];
        for place in &mut tweaks {
            *place = tweak;
            tweak = doubled(tweak);
        }
        mix(piece, &tweaks);
        cipher(Array::<u8, U16>::slice_as_chunks_mut(piece).0);
        mix(piece, &tweaks);
    }
}

fn mix(piece: &mut [u8], tweaks: &[u128; AT_ONCE]) {
    for (block, tweak) in piece.chunks_exact_mut(BLOCK_BYTES).zip(tweaks) {
        let mixed = u128::from_le_bytes(block.try_into().expect("a block")) ^ tweak;
        block.copy_from_slice(&mixed.to_le_bytes());
    }
}

/// Times x in the field of 2^128 elements that XTS counts in.
fn doubled(tweak: u128) -> u128 {
    const REDUCED: u128 = 0x87;
    tweak << 1 ^ (tweak >> 127).wrapping_neg() & REDUCED
}

const _: () = assert!((PAGE as usize).is_multiple_of(AT_ONCE * BLOCK_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn with_key(key: &[u8]) -> Seal {
        Seal::new(&Secret::new(|| key.try_into().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn a_data_unit_of_the_standard_is_sealed_as_it_says() {
        // IEEE 1619, annex B, vector 10: data unit ff, 512 bytes that count up twice.
        let first = "2718281828459045235360287471352662497757247093699959574966967627";
        let second = "3141592653589793238462643383279502884197169399375105820974944592";
        let seal = with_key(&bytes(&format!("{first}{second}")));
        let mut unit: Vec<u8> = (0..=255).chain(0..=255).collect();
        seal.seal(&mut unit, 0xff, 0);
        assert_eq!(unit[..32], bytes("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b"));
        assert_eq!(unit[496..], bytes("c4f36ffda9fcea70b9c6e693e148c151"));
    }

    #[test]
    fn pages_open_as_they_were_and_only_where_and_when_they_were_sealed() {
        let seal = with_key(&[3; KEY_BYTES].map(|byte| byte ^ 1));
        let page: Vec<u8> = (0..PAGE).map(|at| (at / 7) as u8).collect();
        let sealed = |slot, opening| {
            let mut page = page.clone();
            seal.seal(&mut page, slot, opening);
            page
        };
        let opened = |mut page: Vec<u8>, slot, opening| {
            seal.open(&mut page, slot, opening);
            page
        };
        assert_eq!(opened(sealed(70, 5), 70, 5), page);
        let others = [sealed(71, 5), sealed(70, 6), sealed(70, 5 << 32)];
        assert!(others.iter().all(|other| *other != sealed(70, 5) && opened(other.clone(), 70, 5) != page));
        let mut changed = sealed(70, 5);
        changed[100] ^= 1;
        let noise = opened(changed, 70, 5);
        let differ = |range: Range<usize>| noise[range.clone()] != page[range];
        assert!(differ(96..112) && !differ(0..96) && !differ(112..4096));
    }

    #[test]
    fn nothing_of_a_page_shows() {
        let seal = with_key(&[7; KEY_BYTES]);
        let mut page = vec![0; PAGE as usize];
        seal.seal(&mut page, 64, 1);
        let blocks: std::collections::BTreeSet<&[u8]> = page.chunks(BLOCK_BYTES).collect();
        assert_eq!(blocks.len(), 256, "equal blocks must not look equal");
    }
}
