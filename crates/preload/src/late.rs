//! Engines that start late: in children that were made before any memory of their parent's was under the
//! pager.
//!
//! Such a child needs nobody to serve it, and may outlive its parent: daemons, the workers of a server, what
//! a shell runs in the background. Most execute another program at once or stay small, so at first each gets
//! only a thread that looks from time to time how large it is. When it has grown, that thread starts an
//! engine there, as the library does where a program begins. Where none is to be had (a child that has given
//! up its rights), a line says so and the child goes on without a limit.

use crate::setup::{self, Setup, say};
use crate::{ALLOCATOR, apart, ending, ground};
use overdrive_sys::affinity::raise_current_thread;
use overdrive_sys::apart::Origin;
use overdrive_sys::gate::Gate;
use overdrive_sys::page_map::{AnonymousPages, time_to_grow};
use overdrive_sys::thread;
use overdrive_sys::uffd::PAGE;
use std::ffi::CStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// An engine takes memory over from half the budget on. It has to be there before that.
const START_SHARE: u64 = 4;
/// The shortest and the longest pause. One that does not grow is looked at less and less often: a look takes
/// some 40 us, and there may be hundreds of children.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(200)];
/// What starting an engine takes of the stack, several times over.
const STACK_BYTES: usize = 512 << 10;
/// What it is called.
const NAME: &CStr = c"overmem-watch";
/// Two paths and some numbers.
const TEXT_BYTES: usize = 9 << 10;

/// What `overdrive extend` asks for, in memory that children have a copy of.
struct Asked {
    /// Engines stand in processes apart.
    is_apart: bool,
    text: [u8; TEXT_BYTES],
    length: usize,
}

static ASKED: OnceLock<Asked> = OnceLock::new();

/// Open when the thread has descriptors of its own, which a child waits for so long at most.
static APART: Gate = Gate::closed();
const START: Duration = Duration::from_secs(1);

/// Notes what an engine in a child is to be made of. A text that is too long is none: the children of such a
/// program are not held.
pub(crate) fn note(text: &str) {
    let is_apart = text.split(',').any(|part| part == setup::APART);
    let mut asked = Asked { is_apart, text: [0; TEXT_BYTES], length: text.len() };
    if let Some(place) = asked.text.get_mut(..text.len()) {
        place.copy_from_slice(text.as_bytes());
        let _ = ASKED.set(asked);
    }
}

impl Asked {
    /// Looks whether the child has ended. None when it has already.
    fn watch(&self) -> Option<ending::Watch> {
        if !setup::stands_apart(self.is_apart) {
            return Some(ending::Watch::new(1, PAUSES[1]));
        }
        let origin = Origin::open(ground::program()).ok()?;
        Some(ending::Watch::apart(Arc::new(origin), None, Duration::ZERO))
    }

    fn setup(&self) -> Result<Setup, String> {
        Setup::parse(&String::from_utf8_lossy(&self.text[..self.length]))
    }
}

/// Called in a child that was just forked, by its only thread. Where no thread is to be had, the child is not
/// held.
pub(crate) fn watch() {
    let Some(asked) = ASKED.get() else { return };
    ALLOCATOR.renew_in_child();
    APART.close();
    ground::note_program();
    ground::note_first_thread();
    if setup::stands_apart(asked.is_apart) {
        // The child has none but its own thread then, whose end the kernel sees to.
        if apart::start(NAME, STACK_BYTES, look_on).is_ok() {
            APART.wait(START);
        }
        return;
    }
    // The C library has made its locks anew by now, and whoever replaces its allocator did so before this
    // library asked to be called at forks.
    let made = thread::start(NAME, STACK_BYTES, look_on);
    // It keeps the run's directory there before this process can close the descriptor that does until now.
    if made.is_ok() && APART.wait(START) {
        ending::note_only_thread();
    }
}

fn look_on() {
    let Some(asked) = ASKED.get() else { return };
    let setup = asked.setup();
    if !ground::stand_apart_from_all(setup.as_ref().ok().and_then(Setup::channel)) {
        return;
    }
    let Some(mut ending) = asked.watch() else { return };
    let setup = setup.inspect(Setup::keep_folder);
    APART.open();
    let started = setup.and_then(|setup| {
        wait_for_growth(setup.budget_bytes() / PAGE / START_SHARE, &mut ending)?;
        // The program grows on meanwhile.
        let _ = raise_current_thread();
        setup.start_late()
    });
    if let Err(why) = started {
        say(&format!(
            "overdrive extend: process {}, which was forked, has no limit: {why}\n",
            ground::program()
        ));
        loop {
            ending.sleep(PAUSES[1]);
        }
    }
}

/// Waits until this process has so many pages.
fn wait_for_growth(wanted: u64, ending: &mut ending::Watch) -> Result<(), String> {
    // Most children have executed another program by then.
    ending.sleep(PAUSES[0]);
    let pages =
        AnonymousPages::by_this_thread().map_err(|errno| format!("/proc/thread-self/statm: {errno}"))?;
    let (mut before, mut idle) = (0, PAUSES[0]);
    loop {
        let held = pages.count().unwrap_or(0);
        if held >= wanted {
            return Ok(());
        }
        idle = if held == before { (2 * idle).min(PAUSES[1]) } else { PAUSES[0] };
        before = held;
        ending.sleep(time_to_grow(wanted - held).clamp(idle, PAUSES[1]));
    }
}
