//! What this process may do: locked memory, `io_uring`, asynchronous requests, CPUs.
//!
//! Seccomp filters cannot be read; whether a ring can really be made is probed by the engine.

use super::parse::{self, CpuSet, Unexpected};
use super::{Fact, FactRow, Rows};
use crate::root::Root;

/// Capability bits, as in linux/capability.h.
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;

/// What is known of this process's limits.
#[derive(Debug, Clone)]
pub struct LimitFacts {
    /// Memory it may lock, in bytes; `u64::MAX` is unlimited.
    pub memlock_bytes: Fact<u64>,
    /// `io_uring`: 0 for all, 1 for a group, 2 for nobody; absent before 6.6.
    pub io_uring_disabled: Fact<u64>,
    /// The group that may use it when the switch is 1; -1 is none.
    pub io_uring_group: Fact<i64>,
    /// Asynchronous requests (libaio) reserved on the host.
    pub aio_reserved: Fact<u64>,
    /// How many may be reserved.
    pub aio_max: Fact<u64>,
    /// CPUs this process may run on.
    pub cpus_allowed: Fact<CpuSet>,
    /// Its effective user and group numbers, supplementary groups included.
    pub user: Fact<User>,
}

/// On whose behalf the process runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Effective user.
    pub uid: u32,
    /// Effective group, then the supplementary ones.
    pub groups: Vec<u32>,
    /// Effective capabilities as bits.
    pub capabilities: u64,
}

impl User {
    /// Whether locked memory is not counted against the limit.
    #[must_use]
    pub fn may_lock_freely(&self) -> bool {
        self.capabilities >> CAP_IPC_LOCK & 1 == 1
    }

    /// Whether the `io_uring` switch at 1 does not concern it.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.capabilities >> CAP_SYS_ADMIN & 1 == 1
    }
}

impl LimitFacts {
    pub(super) fn read(root: &Root) -> LimitFacts {
        let status = root.text("/proc/self/status");
        LimitFacts {
            memlock_bytes: read_memlock(root),
            io_uring_disabled: root.text("/proc/sys/kernel/io_uring_disabled").parse(parse::number),
            io_uring_group: root.text("/proc/sys/kernel/io_uring_group").parse(parse::number),
            aio_reserved: root.text("/proc/sys/fs/aio-nr").parse(parse::number),
            aio_max: root.text("/proc/sys/fs/aio-max-nr").parse(parse::number),
            cpus_allowed: super::cpu::info_field(&status, "Cpus_allowed_list").parse(parse::cpu_list),
            user: status.parse(user),
        }
    }

    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("limits");
        rows.add("memlock", "Memory this process may lock", &self.memlock_bytes, |&bytes| match bytes {
            u64::MAX => "unlimited".to_owned(),
            bytes => overdrive_base::size::format_size(bytes),
        });
        rows.plain("io_uring_disabled", "io_uring_disabled", &self.io_uring_disabled, "");
        rows.plain("io_uring_group", "io_uring_group", &self.io_uring_group, "");
        rows.plain("aio_reserved", "libaio requests reserved", &self.aio_reserved, "");
        rows.plain("aio_max", "libaio requests allowed", &self.aio_max, "");
        rows.plain("cpus_allowed", "CPUs this process may use", &self.cpus_allowed, "");
        rows.add("user", "User number", &self.user, |user| user.uid.to_string());
        rows.into_vec()
    }
}

fn read_memlock(root: &Root) -> Fact<u64> {
    let limits = root.text("/proc/self/limits");
    let Fact::Known { value, path, .. } = &limits else { return limits.map(|_| 0) };
    let line = value.lines().find(|line| line.starts_with("Max locked memory")).unwrap_or_default();
    Fact::known(line.to_owned(), line, path.as_str()).parse(|line| match line.split_whitespace().nth(3) {
        Some("unlimited") => Ok(u64::MAX),
        Some(soft) => parse::number(soft),
        None => Err(Unexpected::new(line, "a line 'Max locked memory'")),
    })
}

fn user(status: &str) -> Result<User, Unexpected> {
    let field = |key| parse::field(status, key).ok_or_else(|| Unexpected::new(key, "a line of that name"));
    // The second of the four numbers is the effective one.
    let effective = |key| parse::number::<u32>(field(key)?.split_whitespace().nth(1).unwrap_or_default());
    let mut groups = vec![effective("Gid")?];
    for group in field("Groups")?.split_whitespace() {
        groups.push(parse::number(group)?);
    }
    let bits = field("CapEff")?;
    let capabilities =
        u64::from_str_radix(bits, 16).map_err(|_| Unexpected::new(bits, "capabilities in hexadecimal"))?;
    Ok(User { uid: effective("Uid")?, groups, capabilities })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_user_of_a_status_file() {
        let status =
            "Name:\tx\nUid:\t1\t1000\t1\t1\nGid:\t7\t8\t7\t7\nGroups:\t20 30 \nCapEff:\t0000000000204000\n";
        let user = user(status).unwrap();
        assert_eq!((user.uid, user.groups.as_slice()), (1000, [8, 20, 30].as_slice()));
        assert!(user.may_lock_freely() && user.is_admin());
    }

    #[test]
    fn reads_the_soft_limit() {
        let read = |line: &str| {
            read_memlock(&Root::from_capture(&format!("/proc/self/limits |\n|{line}\n")).unwrap())
        };
        assert_eq!(
            read("Max locked memory         8388608              unlimited            bytes").get(),
            Some(8 << 20)
        );
        assert_eq!(read("Max locked memory  unlimited unlimited bytes").get(), Some(u64::MAX));
        assert!(read("Max files 3").value().is_none());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,60}") {
            let _ = user(&text);
            let _ = user(&format!("Uid: {text}\nGid: {text}\nGroups: {text}\nCapEff: {text}\n"));
        }
    }
}
