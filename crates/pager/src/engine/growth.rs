//! What a child maps after the fork comes under the pager too, when it has become worth it.
//!
//! The engine registers the child's memory with the userfaultfd that it serves the child by: the kernel does
//! that for whoever holds it. What new memory holds by then its helper sees ([`super::helpers`]), and from
//! there on it is like what was brought back.

use super::child::{Child, Served};
use super::helpers::KEPT;
use super::takeover::Scan;
use super::{Engine, TICK};
use crate::platform::{Helper, Instant};
use std::time::Duration;

/// This part of what a child may keep is not worth it: to touch new memory takes longer under the pager.
const WORTH_PART: u64 = 2;
/// A child that does not grow is looked at less and less often, but as often as this.
const LOOKS_AT_LEAST: Duration = Duration::from_millis(80);

/// How much a child has that is not under the pager.
#[derive(Debug)]
pub(super) struct Growth {
    looked: Instant,
    pause: Duration,
    /// The fewest pages that were seen: most of these are its parent's as well.
    least: u64,
    /// Pages at the last look.
    last: u64,
    began: bool,
    scan: Scan,
}

impl Growth {
    /// Of a child with this helper. None where nothing can be seen.
    pub(super) fn of(helper: &Helper) -> Option<Self> {
        let pages = helper.page_map()?.anonymous_pages().ok()?;
        let scan = Scan::new(vec![helper.own_memory()]);
        Some(Self { looked: Instant::now(), pause: TICK, least: pages, last: pages, began: false, scan })
    }

    /// The state in a word; `since` tells how long ago something was.
    #[cfg(test)]
    pub(super) fn digest(&self, since: impl Fn(Instant) -> Duration) -> String {
        let Self { looked, pause, least, last, began, scan } = self;
        format!("{:?}", (since(*looked), pause, least, last, began, scan.digest(since)))
    }

    /// Whether to look for new memory, where so many pages are not under the pager and so many are worth it.
    fn is_due(&mut self, pages: u64, worth: u64) -> bool {
        let grown = pages.saturating_sub(self.last);
        self.pause = if grown > 0 { TICK } else { (self.pause * 2).min(LOOKS_AT_LEAST) };
        (self.last, self.least) = (pages, self.least.min(pages));
        self.began |= pages - self.least >= worth;
        self.began && self.scan.is_due(grown, TICK)
    }
}

impl Engine {
    /// Looks whether a child has new memory, if it is time.
    pub(super) fn look_for_growth(&mut self, child: &mut Child) {
        let Some(mut growth) = child.growth.take() else { return };
        if growth.looked.elapsed() >= growth.pause {
            growth.looked = Instant::now();
            let worth = KEPT.max(self.share_of_children() / self.children.len().max(1) as u64) / WORTH_PART;
            let outside = child.pages_outside();
            if outside.is_some_and(|pages| growth.is_due(pages, worth)) {
                growth.scan.run(&mut Served { engine: self, child }, 0);
            }
        }
        child.growth = Some(growth);
    }
}
