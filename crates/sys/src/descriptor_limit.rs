//! A descriptor for who serves a process that may have no more of them: what it is held to it can raise
//! itself, up to a harder limit.

use crate::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes a call that takes a descriptor. Where the process may have no more, the limit is raised for as long
/// as a second try takes.
///
/// # Errors
/// The call's; EMFILE when the hard limit is reached too.
pub(crate) fn with_one_more<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let outcome = call();
    if !matches!(outcome, Err(Errno::MFILE)) {
        return outcome;
    }
    let Some(_raised) = Raised::to_the_most() else { return outcome };
    call()
}

/// While this lives the limit is as high as it can be without asking anybody.
struct Raised {
    before: Rlimit,
}

impl Raised {
    /// None where nothing more is to be had.
    fn to_the_most() -> Option<Self> {
        let before = getrlimit(Resource::Nofile);
        let is_less = before.current.is_some_and(|most| before.maximum.is_none_or(|maximum| most < maximum));
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        (is_less && setrlimit(Resource::Nofile, raised).is_ok()).then_some(Self { before })
    }
}

impl Drop for Raised {
    /// Puts it back, unless somebody has set another meanwhile.
    fn drop(&mut self) {
        let now = getrlimit(Resource::Nofile);
        if now.current == self.before.maximum && now.maximum == self.before.maximum {
            // To lower one's own limit is always allowed.
            let _ = setrlimit(Resource::Nofile, self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_for_as_long_as_wanted() {
        let found = getrlimit(Resource::Nofile);
        let Some(maximum) = found.maximum else { return };
        let lower = Rlimit { current: Some(maximum - 1), maximum: Some(maximum) };
        setrlimit(Resource::Nofile, lower).unwrap();
        let raised = Raised::to_the_most().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current, Some(maximum));
        assert!(Raised::to_the_most().is_none(), "there is nothing more");
        drop(raised);
        assert_eq!(getrlimit(Resource::Nofile), lower);
        // What the program sets meanwhile stays.
        let raised = Raised::to_the_most();
        setrlimit(Resource::Nofile, Rlimit { current: Some(maximum - 2), maximum: Some(maximum) }).unwrap();
        drop(raised);
        assert_eq!(getrlimit(Resource::Nofile).current, Some(maximum - 2));
        setrlimit(Resource::Nofile, found).unwrap();
    }
}
