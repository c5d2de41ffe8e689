//! The scratch file: made new, written in full with random content, and gone when the value is dropped.

use anyhow::{Context, Result, bail};
use rustix::fs::{Advice, fadvise, statvfs};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const CHUNK_BYTES: usize = 1 << 20;

/// A scratch file that removes itself.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes and fills a file of `size_bytes` in `dir`; a tenth of the file system stays free.
    pub(crate) fn create(dir: &Path, size_bytes: u64, stop: &AtomicBool) -> Result<Self> {
        let dir = dir.canonicalize().with_context(|| format!("cannot use {}", dir.display()))?;
        let space =
            statvfs(&dir).with_context(|| format!("cannot ask for the free space of {}", dir.display()))?;
        let (free, total) = (space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize);
        if free.saturating_sub(size_bytes) < total / 10 {
            bail!("{} has {} MiB free: too little to leave a tenth of it free", dir.display(), free >> 20);
        }
        let path = dir.join(format!("overdrive-bench-{}.scratch", std::process::id()));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        let scratch = Self { path };
        scratch
            .fill(file, size_bytes, stop)
            .with_context(|| format!("cannot fill {}", scratch.path.display()))?;
        Ok(scratch)
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn fill(&self, mut file: File, size_bytes: u64, stop: &AtomicBool) -> Result<()> {
        let mut state = 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id());
        let mut chunk = vec![0u8; CHUNK_BYTES];
        let mut left = size_bytes;
        while left > 0 {
            if stop.load(Ordering::Relaxed) {
                bail!("stopped");
            }
            for word in chunk.chunks_exact_mut(8) {
                word.copy_from_slice(&xorshift(&mut state).to_le_bytes());
            }
            let length = left.min(CHUNK_BYTES as u64);
            file.write_all(&chunk[..length as usize])?;
            left -= length;
        }
        file.sync_all()?;
        // Neither tool is to find the file in the page cache.
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            eprintln!("bench-io: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Marsaglia's xorshift64: enough that no device compresses the content.
fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_full_and_then_gone() {
        let dir = std::env::temp_dir().join(format!("overdrive-xtask-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let size = (CHUNK_BYTES + 4096) as u64;
        let scratch = Scratch::create(&dir, size, &AtomicBool::new(false)).unwrap();
        let path = scratch.path().to_path_buf();
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len() as u64, size);
        assert!(content.chunks(512).all(|block| block.iter().any(|&byte| byte != 0)));
        let again = Scratch::create(&dir, size, &AtomicBool::new(false));
        assert!(format!("{:#}", again.unwrap_err()).contains("cannot make"), "O_EXCL");
        drop(scratch);
        assert!(!path.exists());
        assert!(Scratch::create(&dir, size, &AtomicBool::new(true)).is_err(), "stopped");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "a stopped fill leaves nothing");
        assert!(
            format!("{:#}", Scratch::create(&dir, u64::MAX / 2, &AtomicBool::new(false)).unwrap_err())
                .contains("free")
        );
        fs::remove_dir(&dir).unwrap();
    }
}
