//! A compressed disk in memory for the time of a measurement: a device of its own, so that those of the host
//! stay as they are. Needs root and the zram module.

use anyhow::{Context, Result};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

const CONTROL: &str = "/sys/class/zram-control";
const SIZE_BYTES: u64 = 256 << 20;

/// A zram device that is taken away again.
#[derive(Debug)]
pub(super) struct Zram {
    number: u32,
}

impl Zram {
    /// Adds a device and fills it, so that no read finds a hole.
    pub(super) fn add() -> Result<Self> {
        let number = fs::read_to_string(format!("{CONTROL}/hot_add")).with_context(|| {
            format!("cannot add a zram device by {CONTROL} (root and the module are needed)")
        })?;
        let number = number.trim().parse().context("the kernel named no zram device")?;
        let zram = Self { number };
        let size = format!("/sys/block/zram{number}/disksize");
        fs::write(&size, SIZE_BYTES.to_string()).with_context(|| format!("cannot write {size}"))?;
        zram.fill().with_context(|| format!("cannot fill {}", zram.path().display()))?;
        Ok(zram)
    }

    /// Its device node.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    fn fill(&self) -> Result<()> {
        let mut device = fs::File::options().write(true).open(self.path())?;
        // What does not compress is kept as it is: reading it is a copy, the rest of the cost is the path.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut chunk = vec![0_u8; 1 << 20];
        for _ in 0..SIZE_BYTES / chunk.len() as u64 {
            for word in chunk.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            device.write_all(&chunk)?;
        }
        device.sync_all()?;
        Ok(())
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let gone = fs::write(format!("/sys/block/zram{}/reset", self.number), "1")
            .and_then(|()| fs::write(format!("{CONTROL}/hot_remove"), self.number.to_string()));
        if let Err(error) = gone {
            eprintln!("bench-io: cannot remove zram{}: {error}", self.number);
        }
    }
}
