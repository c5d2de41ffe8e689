//! What this process may do beyond what its user may: capabilities that its file carries.
//!
//! They are there for one thing, to hand over the page faults of a user's programs (`broker`). All else is
//! done with the user's own rights.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_ambient_set, set_capabilities,
};

/// Sets aside what the file of this program lends to the calling thread, and to those that it makes. To be
/// called first.
pub fn set_aside() {
    // SAFETY: asks for a number.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        change(|own| own.effective = CapabilitySet::empty());
    }
}

/// Does something with all rights that the calling thread may use, be they set aside.
pub fn with_all<T>(work: impl FnOnce() -> T) -> T {
    let before = capabilities(None);
    change(|own| own.effective = own.permitted);
    let outcome = work();
    if let Ok(before) = before {
        let _ = set_capabilities(None, before);
    }
    outcome
}

/// Leaves the calling thread no more than these, and uses them.
pub(crate) fn keep_only(kept: CapabilitySet) {
    change(|own| {
        own.permitted &= kept;
        own.inheritable &= kept;
        own.effective = own.permitted;
    });
}

/// Whether a program that this process starts may hand over the page faults of system calls, and follow its
/// children: root may, and who was given that to pass on.
#[must_use]
pub fn programs_may_page() -> bool {
    crate::relay::effective_user() == 0
        || capability_is_in_ambient_set(CapabilitySet::SYS_PTRACE).unwrap_or(false)
}

fn change(change: impl FnOnce(&mut CapabilitySets)) {
    let Ok(mut own) = capabilities(None) else { return };
    change(&mut own);
    // What one may, one may always put to use, set aside or give up.
    let _ = set_capabilities(None, own);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_kept_by_one_thread_and_come_back() {
        let before = capabilities(None).unwrap();
        let thread = std::thread::spawn(|| {
            change(|own| own.effective = CapabilitySet::empty());
            let inside = with_all(|| capabilities(None).unwrap());
            let after = capabilities(None).unwrap();
            keep_only(CapabilitySet::SYS_PTRACE);
            (inside, after, capabilities(None).unwrap())
        });
        let (inside, after, last) = thread.join().unwrap();
        assert_eq!((inside.effective, after.effective), (before.permitted, CapabilitySet::empty()));
        assert_eq!(last.permitted, before.permitted & CapabilitySet::SYS_PTRACE);
        assert_eq!(last.effective, last.permitted);
        assert_eq!(capabilities(None).unwrap(), before, "other threads have theirs");
    }
}
