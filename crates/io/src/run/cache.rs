//! What becomes of the page cache before a run, where a job goes through it.

use crate::job::{Access, Advice, Job, Region};
use crate::target::Target;
use overdrive_sys::file::{Expected, drop_cached, expect_accesses, read_at};
use std::fs::File;

/// Tells the kernel what is coming and drops what is cached, as the job wants. Neither can be insisted on.
pub(super) fn prepare(job: &Job, target: &Target) {
    let Some(file) = target.file() else { return };
    if job.page_cache.pre_read {
        pre_read(file, job.region(target.size()));
    } else if job.page_cache.invalidate {
        let _ = drop_cached(file);
    }
    let expected = match (job.page_cache.advice, job.access) {
        (Advice::None, _) => Expected::Anything,
        (Advice::Random, _) | (Advice::AsAccessed, Access::Random) => Expected::Random,
        (Advice::Sequential, _) | (Advice::AsAccessed, Access::Sequential) => Expected::Sequential,
    };
    let _ = expect_accesses(file, expected);
}

/// Brings what a job works on into the page cache; what cannot be read is for the job to meet.
fn pre_read(file: &File, region: Region) {
    let mut chunk = vec![0; 1 << 20];
    let end = region.offset.saturating_add(region.bytes);
    let mut at = region.offset;
    while at < end {
        let length = (end - at).min(chunk.len() as u64) as usize;
        match read_at(file, &mut chunk[..length], at, false) {
            Ok(0) | Err(_) => return,
            Ok(bytes) => at += bytes as u64,
        }
    }
}
