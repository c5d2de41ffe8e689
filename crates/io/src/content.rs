//! What the buffers of writes hold: random bytes, a pattern, or a mix that compresses as asked.

use crate::job::Content;
use overdrive_base::rng::Rng;

/// Fills a block as the job wants it.
pub(crate) fn fill_block(content: &Content, rng: &mut Rng, block: &mut [u8]) {
    let Some(percent) = content.compress_percent else {
        return match &content.pattern {
            Some(pattern) => repeat(pattern, block),
            None => rng.fill(block),
        };
    };
    let chunk = content.compress_chunk.map_or(block.len(), |bytes| bytes as usize).max(1);
    for chunk in block.chunks_mut(chunk) {
        let random = chunk.len() * usize::from(100 - percent.min(100)) / 100;
        let (random, regular) = chunk.split_at_mut(random);
        rng.fill(random);
        repeat(content.pattern.as_deref().unwrap_or(&[0]), regular);
    }
}

fn repeat(pattern: &[u8], block: &mut [u8]) {
    for chunk in block.chunks_mut(pattern.len().max(1)) {
        chunk.copy_from_slice(&pattern[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(content: &Content, bytes: usize) -> Vec<u8> {
        let mut block = vec![0xee; bytes];
        fill_block(content, &mut Rng::new(1), &mut block);
        block
    }

    #[test]
    fn a_pattern_is_repeated_to_the_last_byte() {
        let content = Content { pattern: Some([1, 2, 3].into()), ..Content::default() };
        assert_eq!(filled(&content, 8), [1, 2, 3, 1, 2, 3, 1, 2]);
        assert!(!Content { refill: true, ..content }.refills(), "the same bytes again need no filling");
    }

    #[test]
    fn the_compressible_part_of_each_chunk_is_regular() {
        let content =
            Content { compress_percent: Some(75), compress_chunk: Some(1024), ..Content::default() };
        let block = filled(&content, 4096);
        for chunk in block.chunks(1024) {
            assert!(chunk[256..].iter().all(|&byte| byte == 0));
            assert!(chunk[..256].iter().filter(|&&byte| byte == 0).count() < 16);
        }
        assert!(content.refills());
        let all = Content { compress_percent: Some(100), ..Content::default() };
        assert!(filled(&all, 512).iter().all(|&byte| byte == 0) && !all.refills());
        let whole = Content { compress_percent: Some(50), pattern: Some([7].into()), ..Content::default() };
        assert!(filled(&whole, 4096)[2048..].iter().all(|&byte| byte == 7));
    }

    #[test]
    fn random_content_differs_from_block_to_block() {
        let mut rng = Rng::new(1);
        let (mut one, mut two) = (vec![0; 4096], vec![0; 4096]);
        fill_block(&Content::default(), &mut rng, &mut one);
        fill_block(&Content::default(), &mut rng, &mut two);
        assert_ne!(one, two);
    }
}
