//! Zstandard for single pages, at its fastest ordinary level: its two contexts live in memory that is set
//! aside once, so that neither direction asks anybody for memory.

use crate::Errno;
use std::ffi::c_void;
use std::ptr::NonNull;
use zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_setCParams, ZSTD_DCtx, ZSTD_compress2, ZSTD_decompressDCtx,
    ZSTD_estimateCCtxSize_usingCParams, ZSTD_estimateDCtxSize, ZSTD_getCParams, ZSTD_initStaticCCtx,
    ZSTD_initStaticDCtx, ZSTD_isError,
};

const LEVEL: i32 = 1;

/// Compresses pages and brings them back.
pub struct Zstd {
    compressor: NonNull<ZSTD_CCtx>,
    decompressor: NonNull<ZSTD_DCtx>,
    /// What the contexts live in.
    _memory: [Box<[u64]>; 2],
}

// SAFETY: the contexts are plain memory of this value, used by whoever has it alone.
unsafe impl Send for Zstd {}

impl Zstd {
    /// Contexts for pages of `page_bytes`.
    ///
    /// # Errors
    /// NOMEM when the library does not take the memory that it asked for.
    pub fn new(page_bytes: usize) -> Result<Self, Errno> {
        // SAFETY: these calls only compute.
        let (parameters, wanted) = unsafe {
            let parameters = ZSTD_getCParams(LEVEL, page_bytes as u64, 0);
            (parameters, [ZSTD_estimateCCtxSize_usingCParams(parameters), ZSTD_estimateDCtxSize()])
        };
        let mut memory = wanted.map(|bytes| vec![0u64; bytes.div_ceil(8)].into_boxed_slice());
        let [first, second] = memory.each_mut().map(|part| {
            let bytes = size_of_val::<[u64]>(part);
            (part.as_mut_ptr().cast::<c_void>(), bytes)
        });
        // SAFETY: both pieces of memory are aligned to eight bytes, as long as said, stay where they are as
        // long as `self`, and are touched by the contexts only. The parameters are the library's own.
        let (compressor, decompressor) = unsafe {
            let compressor = NonNull::new(ZSTD_initStaticCCtx(first.0, first.1)).ok_or(Errno::NOMEM)?;
            let decompressor = NonNull::new(ZSTD_initStaticDCtx(second.0, second.1)).ok_or(Errno::NOMEM)?;
            if ZSTD_isError(ZSTD_CCtx_setCParams(compressor.as_ptr(), parameters)) != 0 {
                return Err(Errno::NOMEM);
            }
            (compressor, decompressor)
        };
        let mut zstd = Self { compressor, decompressor, _memory: memory };
        // What a context has no memory for it says when it is used.
        let (page, mut packed) = (vec![0; page_bytes], vec![0; 64 + page_bytes]);
        zstd.compress(&page, &mut packed).map(|_| zstd).ok_or(Errno::NOMEM)
    }

    /// Compresses a page. The bytes it takes, or none when they are more than `packed` has.
    pub fn compress(&mut self, page: &[u8], packed: &mut [u8]) -> Option<usize> {
        // SAFETY: the context is this value's own; both slices are valid for their lengths during the call.
        let (code, is_error) = unsafe {
            let (target, source) = (packed.as_mut_ptr().cast(), page.as_ptr().cast());
            let code = ZSTD_compress2(self.compressor.as_ptr(), target, packed.len(), source, page.len());
            (code, ZSTD_isError(code) != 0)
        };
        (!is_error).then_some(code)
    }

    /// Brings a page back. Its bytes, or none when what is there is damaged or does not fit.
    pub fn decompress(&mut self, packed: &[u8], page: &mut [u8]) -> Option<usize> {
        // SAFETY: as in `compress`.
        let (code, is_error) = unsafe {
            let (target, source) = (page.as_mut_ptr().cast(), packed.as_ptr().cast());
            let context = self.decompressor.as_ptr();
            let code = ZSTD_decompressDCtx(context, target, page.len(), source, packed.len());
            (code, ZSTD_isError(code) != 0)
        };
        (!is_error).then_some(code)
    }
}

impl std::fmt::Debug for Zstd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Zstd")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of which every third word is like no other.
    fn page(seed: u64) -> Vec<u8> {
        let word =
            |at: u64| if at.is_multiple_of(3) { (seed + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { at };
        (0..512).flat_map(|at| word(at).to_le_bytes()).collect()
    }

    #[test]
    fn pages_come_back_as_they_were_one_after_the_other() {
        let mut zstd = Zstd::new(4096).unwrap();
        let (mut packed, mut back) = (vec![0; 4096], vec![0; 4096]);
        for seed in 0..200 {
            let page = page(seed * 7919);
            let bytes = zstd.compress(&page, &mut packed).unwrap();
            assert!((1000..3000).contains(&bytes), "{bytes}");
            back.fill(0xaa);
            assert_eq!(zstd.decompress(&packed[..bytes], &mut back), Some(4096));
            assert_eq!(back, page);
            // What does not fit, and what was damaged, spoils nothing for the next.
            assert_eq!(zstd.compress(&page, &mut packed[..bytes - 1]), None);
            assert_eq!(zstd.decompress(&packed[..bytes / 2], &mut back), None);
            assert_eq!(zstd.decompress(&[], &mut back[..0]).unwrap_or(0), 0);
        }
    }

    #[test]
    fn noise_is_told_from_a_page() {
        let mut zstd = Zstd::new(4096).unwrap();
        let mut back = vec![0; 4096];
        for seed in 0..200 {
            assert_eq!(zstd.decompress(&page(seed)[8..], &mut back), None);
        }
    }
}
