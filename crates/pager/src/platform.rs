//! What the engine stands on: the kernel, or, when the engine itself is tested, a kernel made of plain data.

#[cfg(not(test))]
pub(crate) use overdrive_sys::{
    frames::Frames,
    helper::{Callers, Helper},
    mappings::Mappings,
    page_io::{Done, PageIo},
    page_map::{PageMap, largest_child},
    pageable::take_given_up,
    proc_stat::shared_memory_pages,
    thread_words::{ThreadWord, ThreadWords},
    uffd::{Message, Userfault, UserfaultError},
};
#[cfg(not(test))]
pub(crate) use std::{
    os::fd::{AsFd, OwnedFd as Descriptor},
    thread::sleep as pause,
    time::Instant,
};

#[cfg(test)]
pub(crate) use crate::sim::{
    AsFd, Callers, Descriptor, Done, Frames, Helper, Instant, Mappings, Message, PageIo, PageMap, ThreadWord,
    ThreadWords, Userfault, UserfaultError, largest_child, pause, shared_memory_pages, take_given_up,
};
pub(crate) use overdrive_sys::helper::Door;
