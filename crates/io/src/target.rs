//! What a job runs against: an open file or device with a size, or a simulated device.

use crate::engine::sim::SimSpec;
use overdrive_sys::Errno;
use overdrive_sys::file::{Caching, read_at};
use overdrive_sys::nvme::Namespace;
use overdrive_sys::volume::{direct_io_alignment, identify};
use std::fs::File;
use std::sync::Arc;

/// An open target. Cloning it opens nothing: all clones share one file.
#[derive(Debug, Clone)]
pub struct Target {
    kind: TargetKind,
    size: u64,
}

/// The character device of an NVMe namespace.
#[derive(Debug, Clone)]
pub struct Generic {
    file: Arc<File>,
    namespace: Namespace,
}

impl Generic {
    /// The open device.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Number, block size and size.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }
}

#[derive(Debug, Clone)]
enum TargetKind {
    File { file: Arc<File>, caching: Caching, generic: Option<Generic> },
    Sim(SimSpec),
}

impl Target {
    /// An open file or block device, as large as it is now.
    ///
    /// # Errors
    /// When its size cannot be found.
    pub fn of_file(file: File, caching: Caching) -> std::io::Result<Self> {
        let size = identify(&file)?.size_bytes;
        Ok(Self { kind: TargetKind::File { file: Arc::new(file), caching, generic: None }, size })
    }

    /// An NVMe namespace: its block device, which says how large it is and keeps others out, and its
    /// character device, which takes commands.
    ///
    /// # Errors
    /// When either cannot be asked for its size.
    pub fn of_namespace(block: File, character: File) -> std::io::Result<Self> {
        let namespace = Namespace::of(&character)?;
        let size = identify(&block)?.size_bytes.min(namespace.size_bytes);
        let generic = Some(Generic { file: Arc::new(character), namespace });
        let file = Arc::new(block);
        Ok(Self { kind: TargetKind::File { file, caching: Caching::Direct, generic }, size })
    }

    /// A simulated device.
    #[must_use]
    pub fn simulated(spec: SimSpec) -> Self {
        Self { size: spec.size, kind: TargetKind::Sim(spec) }
    }

    /// The same target, but only its first `bytes`.
    #[must_use]
    pub fn limited_to(mut self, bytes: u64) -> Self {
        self.size = self.size.min(bytes);
        self
    }

    /// Bytes that jobs range over.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The file behind the target, unless it is simulated.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        match &self.kind {
            TargetKind::File { file, .. } => Some(file),
            TargetKind::Sim(_) => None,
        }
    }

    /// The character device, if the target was given as one.
    #[must_use]
    pub fn generic(&self) -> Option<&Generic> {
        match &self.kind {
            TargetKind::File { generic, .. } => generic.as_ref(),
            TargetKind::Sim(_) => None,
        }
    }

    /// The simulated device, if it is one.
    #[must_use]
    pub fn simulation(&self) -> Option<&SimSpec> {
        match &self.kind {
            TargetKind::Sim(spec) => Some(spec),
            TargetKind::File { .. } => None,
        }
    }

    /// Whether I/O goes past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        !matches!(self.kind, TargetKind::File { caching: Caching::Buffered, .. })
    }

    /// What offsets and sizes must be multiples of, in bytes: 1 where I/O goes through the page cache, and
    /// 512 where a file system does not say.
    #[must_use]
    pub fn io_alignment(&self) -> u64 {
        match &self.kind {
            TargetKind::File { file, caching: Caching::Direct, generic: None } => {
                direct_io_alignment(&**file).unwrap_or(512)
            }
            TargetKind::File { .. } | TargetKind::Sim(_) => 1,
        }
    }

    /// Reads up to `samples` evenly spaced 4 KiB blocks and returns the share (0 to 1) that is all zeroes.
    ///
    /// Drives answer reads of never-written blocks without touching the medium, and zeroes are how they
    /// answer; a high share means that read results would flatter the drive.
    ///
    /// # Errors
    /// The errno of the first read that fails; ENXIO when the target has become shorter than it was.
    pub fn share_of_zero_blocks(&self, samples: u64) -> Result<f64, Errno> {
        const BLOCK: u64 = 4096;
        let Some(file) = self.file() else { return Ok(0.0) };
        let blocks = self.size / BLOCK;
        let samples = samples.min(blocks);
        if samples == 0 {
            return Ok(0.0);
        }
        let mut buffer = overdrive_sys::arena::Arena::new(1, BLOCK as usize)?;
        let mut zeroes = 0;
        for sample in 0..samples {
            let block = sample_block(sample, samples, blocks);
            let length = read_at(file, buffer.slot_mut(0), block * BLOCK, false)?;
            // Nothing is what a drive that went away answers, which is not the same as zeroes.
            if length == 0 {
                return Err(Errno::NXIO);
            }
            zeroes += u64::from(buffer.slot_mut(0)[..length].iter().all(|&byte| byte == 0));
        }
        Ok(zeroes as f64 / samples as f64)
    }
}

/// Which of `blocks` the sample of this number is; the last ones are reached as well as the first.
fn sample_block(sample: u64, samples: u64, blocks: u64) -> u64 {
    (u128::from(blocks) * u128::from(sample) / u128::from(samples.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_went_away_is_not_full_of_zeroes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shrinking");
        std::fs::write(&path, vec![0u8; 1 << 16]).unwrap();
        let target = Target::of_file(File::open(&path).unwrap(), Caching::Buffered).unwrap();
        assert_eq!(target.share_of_zero_blocks(8), Ok(1.0));
        std::fs::write(&path, b"").unwrap();
        assert_eq!(target.share_of_zero_blocks(8), Err(Errno::NXIO));
    }

    #[test]
    fn samples_are_spread_over_all_of_a_target() {
        // A whole stride of 8 ended at block 15,992 of 16,384 here and saw too little of the target's end.
        assert_eq!(sample_block(1000, 2000, 16_384), 8192);
        assert_eq!(sample_block(1999, 2000, 16_384), 16_375);
        assert_eq!(sample_block(2, 3, 3), 2);
        assert!(sample_block(1999, 2000, u64::MAX) < u64::MAX);
    }
}
