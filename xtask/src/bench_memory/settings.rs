//! The host's settings that decide how good swap is: changed for a cell, back as they were when dropped.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;

const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
const ZSWAP: &str = "/sys/module/zswap/parameters/enabled";
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
/// What `overdrive audit` advises (cpu-haltpoll-guest).
const HALT_POLL_NS: &str = "200000";

/// What stood in each file before it was first written.
#[derive(Debug, Default)]
pub(super) struct Settings {
    before: BTreeMap<&'static str, String>,
}

impl Settings {
    pub(super) fn set_page_cluster(&mut self, value: u32) -> Result<()> {
        self.set(PAGE_CLUSTER, &value.to_string())
    }

    pub(super) fn set_zswap(&mut self, on: bool) -> Result<()> {
        if !on && !Path::new(ZSWAP).exists() {
            return Ok(());
        }
        self.set(ZSWAP, if on { "Y" } else { "N" })
    }

    /// In a virtual machine, where waking a processor that has left it takes longer than a read: both sides
    /// get what the audit advises.
    pub(super) fn set_halt_poll(&mut self) -> Result<()> {
        let driver = std::fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver");
        if driver.is_ok_and(|driver| driver.trim() == "haltpoll") && Path::new(HALT_POLL).exists() {
            self.set(HALT_POLL, HALT_POLL_NS)?;
        }
        Ok(())
    }

    fn set(&mut self, path: &'static str, value: &str) -> Result<()> {
        let found = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
        if found.trim() == value {
            return Ok(());
        }
        self.before.entry(path).or_insert_with(|| found.trim().to_owned());
        std::fs::write(path, value).with_context(|| format!("writing {path}: wanted root"))?;
        let kept = std::fs::read_to_string(path)?;
        if kept.trim() != value {
            bail!("{path}: wrote {value}, reads back {}", kept.trim());
        }
        Ok(())
    }

    /// What both sides share and neither changes.
    pub(super) fn describe(&self, dir: &Path) -> Vec<String> {
        let read =
            |path: &str| std::fs::read_to_string(path).unwrap_or_else(|_| "?".to_owned()).trim().to_owned();
        let mut lines =
            vec![format!("swap file and store in {}, incompressible content unless told", dir.display())];
        for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let disk = entry.file_name().to_string_lossy().into_owned();
            let size = read(&format!("/sys/block/{disk}/size"));
            if size != "0" && !disk.starts_with("loop") && !disk.starts_with("ram") {
                let scheduler = read(&format!("/sys/block/{disk}/queue/scheduler"));
                lines.push(format!("{disk}: scheduler {scheduler}, for both sides as found"));
            }
        }
        if let Some(found) = self.before.get(HALT_POLL) {
            lines.push(format!(
                "an idle virtual CPU polls for {HALT_POLL_NS} ns first (found: {found}), for both sides"
            ));
        }
        lines.push(format!("kernel {}", read("/proc/sys/kernel/osrelease")));
        lines
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (path, value) in &self.before {
            if let Err(error) = std::fs::write(path, value) {
                eprintln!("bench-memory: {path} could not be set back to {value}: {error}");
            }
        }
    }
}
