//! Who made a thing that outlives its process: a tag of process number and start time, carried in the name.
//!
//! A number alone may have been given to another process since; together with the start time it names one
//! process of one boot. So a later run can tell what a killed one left behind from what is in use. In a PID
//! namespace of its own (a container) a process has another number than outside, so the namespace is named
//! too; what carries none is of the first one.

use std::fmt;

/// The first PID namespace's number, the same on every host (`PROC_PID_INIT_INO` of the kernel).
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

/// One process of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pid: u32,
    /// Clock ticks between boot and the start of the process.
    started: u64,
    /// The PID namespace in which the number holds.
    namespace: u64,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// When /proc does not show it.
    pub fn this_process() -> std::io::Result<Self> {
        Self::process(std::process::id())
    }

    /// A process by its number.
    ///
    /// # Errors
    /// When /proc does not show it.
    pub fn process(pid: u32) -> std::io::Result<Self> {
        let path = format!("/proc/{pid}/stat");
        let stat = std::fs::read_to_string(&path)?;
        let started =
            start_of(&stat).ok_or_else(|| std::io::Error::other(format!("no start time in {path}")))?;
        Ok(Self { pid, started, namespace: namespace_of("self").unwrap_or(FIRST_NAMESPACE) })
    }

    /// Ends it at once, if it still runs.
    pub fn kill(&self) {
        if self.is_alive()
            && self.is_of(namespace_of("self"))
            && let Some(pid) = rustix::process::Pid::from_raw(self.pid as i32)
        {
            // It may end by itself in between.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// Whether the process of this number runs and has not begun to end.
    #[must_use]
    pub fn goes_on(pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !is_ending(&stat))
    }

    /// The owner at the end of a name such as `overdrive-page-123-4567`.
    #[must_use]
    pub fn in_name(name: &str, prefix: &str) -> Option<Self> {
        let at = name.rfind(prefix)?;
        let (pid, started) = name[at + prefix.len()..].split_once('-')?;
        let (started, namespace) = match started.split_once('.') {
            Some((started, namespace)) => (started, namespace.parse().ok()?),
            None => (started, FIRST_NAMESPACE),
        };
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()?, namespace })
    }

    fn is_of(&self, namespace: Option<u64>) -> bool {
        namespace.is_none_or(|namespace| namespace == self.namespace)
    }

    /// Whether it still runs. In doubt (its state cannot be read) it does. One that has ended and that its
    /// parent has not asked about yet does not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let own = namespace_of("self");
        if !self.is_of(own) {
            // From the first namespace all processes are seen, from another one not that one's.
            return own != Some(FIRST_NAMESPACE) || namespace_lives(self.namespace);
        }
        match std::fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) if has_ended(&stat) => false,
            Ok(stat) => start_of(&stat).is_none_or(|started| started == self.started),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.started)?;
        if self.namespace == FIRST_NAMESPACE { Ok(()) } else { write!(f, ".{}", self.namespace) }
    }
}

/// The PID namespace of a process under /proc (a link such as `pid:[4026531836]`).
fn namespace_of(process: &str) -> Option<u64> {
    let link = std::fs::read_link(format!("/proc/{process}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Whether a process of that namespace is to be seen here.
fn namespace_lives(namespace: u64) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut names = processes.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| namespace_of(&name) == Some(namespace))
}

/// A field of /proc/PID/stat from the third on, counted behind the command's name, which may hold anything
/// but its last `)`.
fn field(stat: &str, number: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number.checked_sub(3)?)
}

fn start_of(stat: &str) -> Option<u64> {
    field(stat, 22)?.parse().ok()
}

/// Whether it has ended, or the kernel is taking it down (`PF_EXITING` among its flags).
fn is_ending(stat: &str) -> bool {
    const PF_EXITING: u64 = 4;
    let flags = field(stat, 9).and_then(|flags| flags.parse::<u64>().ok());
    has_ended(stat) || flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Whether it has ended with all its threads: while one of them is still at work, the first may have ended.
fn has_ended(stat: &str) -> bool {
    let threads = field(stat, 20).and_then(|count| count.parse::<u64>().ok());
    matches!(field(stat, 3), Some("Z" | "X")) && threads.is_some_and(|count| count <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_owner() {
        let me = Owner::this_process().unwrap();
        assert!(me.is_alive());
        let name = format!("/a/b/overdrive-page-{me}");
        assert_eq!(Owner::in_name(&name, "overdrive-page-"), Some(me));
        assert_eq!(Owner::in_name("overdrive-page-x-1", "overdrive-page-"), None);
        assert_eq!(Owner::in_name("something", "overdrive-page-"), None);
    }

    #[test]
    fn a_number_of_another_pid_namespace_is_not_looked_up_in_this_one() {
        let me = Owner { namespace: FIRST_NAMESPACE, ..Owner::this_process().unwrap() };
        let tag = me.to_string();
        assert_eq!(tag.split(['-', '.']).count(), 2, "names of the first one are as ever");
        let inside = Owner { namespace: FIRST_NAMESPACE + 1, pid: u32::MAX - 1, ..me };
        let tag = inside.to_string();
        assert_eq!(Owner::in_name(&format!("x-{tag}"), "x-"), Some(inside));
        // No process is of that namespace, which only the first one can tell.
        assert_eq!(inside.is_alive(), namespace_of("self") != Some(FIRST_NAMESPACE));
    }

    #[test]
    fn a_process_number_given_again_is_somebody_else() {
        let me = Owner::this_process().unwrap();
        assert!(!Owner { started: me.started + 1, ..me }.is_alive());
        assert!(!Owner { pid: u32::MAX - 1, started: 1, ..me }.is_alive());
    }

    #[test]
    fn one_that_was_killed_and_not_asked_about_does_not_run() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let owner = Owner::process(child.id()).unwrap();
        assert!(owner.is_alive());
        child.kill().unwrap();
        let start = std::time::Instant::now();
        while owner.is_alive() && start.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let state = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        assert!(!owner.is_alive() && has_ended(&state), "{state}");
        child.wait().unwrap();
        let behind =
            |state: &str, threads: u32| format!("1 (a) {state} {} {threads} 0 5 6", ["0"; 16].join(" "));
        assert!(has_ended(&behind("Z", 1)));
        assert!(!has_ended(&behind("Z", 3)) && !has_ended(&behind("S", 1)));
        assert_eq!(start_of(&behind("S", 1)), Some(5));
    }

    #[test]
    fn a_hostile_command_name_does_not_shift_the_fields() {
        let fields: Vec<String> = (3..30).map(|n| n.to_string()).collect();
        let stat = format!("1 (a) b (c)) {}", fields.join(" "));
        assert_eq!(start_of(&stat), Some(22));
    }
}
