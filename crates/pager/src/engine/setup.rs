//! What an engine is made of, from what it was given.

use super::landing::{NARROW_SLOTS, READS, WIDE_AREA};
use super::{EngineError, Limits, RELEASE_GROUPS, WRITES, helpers};
use crate::platform::{Frames, Mappings, PageIo, PageMap, Userfault};
use crate::slots::{SEGMENT_SLOTS, Slots};
use crate::space::BLOCK_PAGES;
use crate::staging::Staging;
use overdrive_sys::Errno;
use overdrive_sys::parts::Parts;
use overdrive_sys::uffd::{Forks, PAGE};
use std::fs::File;

pub(super) fn failed(step: &'static str) -> impl Fn(Errno) -> EngineError {
    move |errno| EngineError::System { step, errno }
}

pub(super) fn store_for(
    store: File,
    parts: Option<Parts>,
    store_bytes: u64,
    keeps_copies: bool,
) -> Result<(PageIo, Slots), EngineError> {
    let bytes = SEGMENT_SLOTS as usize * PAGE as usize;
    let mut io = PageIo::new(store, [NARROW_SLOTS, WIDE_AREA], READS, WRITES + 1, SEGMENT_SLOTS as usize)
        .map_err(failed("io_uring"))?;
    for token in (0..WRITES).filter(|_| keeps_copies) {
        io.keep_copy(token, bytes, true).map_err(failed("room to encrypt"))?;
    }
    io.keep_copy(helpers::WRITE, bytes, false).map_err(failed("room for what children have"))?;
    let most_bytes = parts.as_ref().map_or(store_bytes, |parts| parts.most_bytes().min(store_bytes));
    let segments = segments_in(most_bytes)?;
    let slots = if parts.is_some() { Slots::without_room(segments) } else { Slots::new(segments) };
    parts.into_iter().for_each(|parts| io.share(parts));
    Ok((io, slots))
}

/// The process's memory as the kernel lets it be changed and seen, by what is open already.
pub(super) fn open_memory(
    opened: Option<(Userfault, PageMap)>,
    forks: Forks,
) -> Result<(Userfault, PageMap, Mappings), EngineError> {
    let (userfault, page_map) = opened.unzip();
    let userfault = userfault.map_or_else(|| Userfault::new(forks), Ok)?;
    if !userfault.offers().moves {
        return Err(EngineError::NoMove);
    }
    let page_map = page_map.map_or_else(PageMap::open, Ok).map_err(failed("/proc/thread-self/pagemap"))?;
    Ok((userfault, page_map, Mappings::open().map_err(failed("/proc/thread-self/maps"))?))
}

pub(super) fn staging_for(limits: &Limits, userfault: &Userfault) -> Result<(Staging, Frames), EngineError> {
    let groups = (limits.total as u32).div_ceil(BLOCK_PAGES).max(4 * RELEASE_GROUPS);
    let frames = Frames::new((groups * BLOCK_PAGES) as usize, userfault).map_err(failed("staging"))?;
    Ok((Staging::new(groups), frames))
}

/// How many segments fit a store of so many bytes.
fn segments_in(store_bytes: u64) -> Result<u32, EngineError> {
    const FEWEST: u64 = 4;
    let segment_bytes = u64::from(SEGMENT_SLOTS) * PAGE;
    let segments = (store_bytes / segment_bytes).min(u64::from(u32::MAX / SEGMENT_SLOTS) / 2);
    if segments < FEWEST {
        let wanted_bytes = FEWEST * segment_bytes;
        return Err(EngineError::TooSmall { what: "the store", given_bytes: store_bytes, wanted_bytes });
    }
    Ok(segments as u32)
}
