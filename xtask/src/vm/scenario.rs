//! A scenario: a shell script for the guest whose first comments say what machine it wants.
//!
//! The first comment line is the title. A line `#: WORD ...` asks for something of the machine;
//! docs/testing.md lists the words. Everything else belongs to the guest's shell.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::time::Duration;

/// What a scenario asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) title: String,
    /// Kernel series, such as 6.12; the scenario runs once on each.
    pub(super) kernels: Vec<String>,
    pub(super) cpus: u32,
    pub(super) memory_mib: u32,
    /// Memory nodes; CPUs and memory are dealt out evenly.
    pub(super) nodes: u32,
    /// Modules loaded before the script runs, each with its parameters.
    pub(super) modules: Vec<Module>,
    /// Added to the kernel's command line.
    pub(super) boot: Vec<String>,
    pub(super) drives: Vec<Drive>,
    /// Further devices, as QEMU's -device takes them; in the order in which they stand, before the drives.
    pub(super) devices: Vec<String>,
    pub(super) limit: Duration,
    /// The guest's clock counts its instructions, one a nanosecond, whatever the host does meanwhile.
    pub(super) counted: bool,
    /// Programs of the host, found by name, that the guest gets too.
    pub(super) programs: Vec<String>,
    pub(super) script: String,
}

/// A kernel module and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) parameters: Vec<String>,
}

/// An NVMe controller with one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drive {
    /// Its name for QEMU's monitor, and its serial number.
    pub(super) id: String,
    pub(super) size_mib: u64,
    /// Whether every block holds random data; otherwise it was never written.
    pub(super) written: bool,
    /// Properties for QEMU's nvme device, such as `bus=port1`.
    pub(super) properties: Vec<String>,
}

const KERNELS: [&str; 2] = ["6.1", "6.12"];
/// Several times what a scenario takes on two idle cores: a slow machine is no failure.
const LIMIT: Duration = Duration::from_secs(600);

impl Scenario {
    /// Reads a scenario's file; its name is the file's.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Self::parse(&name, &text).with_context(|| path.display().to_string())
    }

    /// Reads a scenario's text.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self> {
        let mut scenario = Self {
            name: name.to_owned(),
            title: String::new(),
            kernels: KERNELS.map(str::to_owned).to_vec(),
            cpus: 2,
            memory_mib: 512,
            nodes: 1,
            modules: Vec::new(),
            boot: Vec::new(),
            drives: Vec::new(),
            devices: Vec::new(),
            limit: LIMIT,
            counted: false,
            programs: Vec::new(),
            script: text.to_owned(),
        };
        for (number, line) in text.lines().enumerate() {
            if let Some(wish) = line.strip_prefix("#:") {
                scenario.wish(wish.trim()).with_context(|| format!("line {}: '{line}'", number + 1))?;
            } else if let Some(title) = line.strip_prefix("# ").filter(|_| scenario.title.is_empty()) {
                scenario.title = title.trim().to_owned();
            }
        }
        scenario.check()?;
        Ok(scenario)
    }

    fn wish(&mut self, wish: &str) -> Result<()> {
        let mut words = wish.split_whitespace();
        let key = words.next().unwrap_or_default();
        let words: Vec<String> = words.map(str::to_owned).collect();
        let one = || match words.as_slice() {
            [word] => Ok(word.as_str()),
            _ => bail!("{key} takes one value"),
        };
        match key {
            "kernels" => self.kernels.clone_from(&words),
            "cpus" => self.cpus = number(one()?)?,
            "memory" => self.memory_mib = megabytes(one()?)?,
            "nodes" => self.nodes = number(one()?)?,
            "limit" => self.limit = Duration::from_secs(number(one()?.trim_end_matches('s'))?),
            "module" => self.modules.push(module(&words)?),
            "boot" => self.boot.extend(words),
            "device" => self.devices.push(one()?.to_owned()),
            "nvme" => self.drives.push(drive(&words)?),
            "counted" if words.is_empty() => self.counted = true,
            "program" => self.programs.push(one()?.to_owned()),
            _ => bail!(
                "no such word; wanted kernels, cpus, memory, nodes, limit, module, boot, device, nvme, counted or \
                 program"
            ),
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.title.is_empty() {
            bail!("wanted a comment line with a title");
        }
        if self.kernels.is_empty() || self.cpus == 0 || self.nodes == 0 || self.memory_mib < 128 {
            bail!("wanted at least one kernel, CPU and memory node, and 128M of memory");
        }
        if !self.cpus.is_multiple_of(self.nodes) || !self.memory_mib.is_multiple_of(self.nodes) {
            bail!(
                "{} CPUs and {} MiB cannot be dealt out to {} nodes",
                self.cpus,
                self.memory_mib,
                self.nodes
            );
        }
        for (index, drive) in self.drives.iter().enumerate() {
            if self.drives[..index].iter().any(|other| other.id == drive.id) {
                bail!("two drives are called {}", drive.id);
            }
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("'{text}' is no number in range"))
}

fn megabytes<T: std::str::FromStr>(text: &str) -> Result<T> {
    number(text.strip_suffix('M').with_context(|| format!("'{text}': wanted a size such as 512M"))?)
}

fn module(words: &[String]) -> Result<Module> {
    let (name, parameters) = words.split_first().context("wanted a module's name")?;
    Ok(Module { name: name.clone(), parameters: parameters.to_vec() })
}

/// `ID [size=64M] [written] [PROPERTY=VALUE ...]`.
fn drive(words: &[String]) -> Result<Drive> {
    let (id, rest) = words.split_first().context("wanted a drive's name")?;
    if id.contains(['=', ',']) {
        bail!("wanted a drive's name before '{id}'");
    }
    let mut drive = Drive { id: id.clone(), size_mib: 64, written: false, properties: Vec::new() };
    for word in rest {
        match word.split_once('=') {
            Some(("size", size)) => drive.size_mib = megabytes(size)?,
            Some(_) => drive.properties.push(word.clone()),
            None if word == "written" => drive.written = true,
            None => bail!("'{word}': wanted written, size=64M or PROPERTY=VALUE"),
        }
    }
    Ok(drive)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
#!/bin/sh
# Two drives behind a switch
# and a remark.
#: kernels 6.12
#: cpus 4
#: memory 1024M
#: nodes 2
#: limit 90s
#: module nvme poll_queues=2 io_queue_depth=64
#: module null_blk
#: boot nokaslr quiet
#: counted
#: program fio
#: device pcie-root-port,id=port1,slot=1
#: nvme a size=128M written bus=port1
#: nvme b
true
";

    #[test]
    fn a_header_is_read_in_full() {
        let scenario = Scenario::parse("switch", TEXT).unwrap();
        let module = |name: &str, parameters: &[&str]| Module {
            name: name.to_owned(),
            parameters: parameters.iter().map(|&word| word.to_owned()).collect(),
        };
        let wanted = Scenario {
            name: "switch".to_owned(),
            title: "Two drives behind a switch".to_owned(),
            kernels: vec!["6.12".to_owned()],
            cpus: 4,
            memory_mib: 1024,
            nodes: 2,
            modules: vec![module("nvme", &["poll_queues=2", "io_queue_depth=64"]), module("null_blk", &[])],
            boot: vec!["nokaslr".to_owned(), "quiet".to_owned()],
            drives: vec![
                Drive {
                    id: "a".to_owned(),
                    size_mib: 128,
                    written: true,
                    properties: vec!["bus=port1".to_owned()],
                },
                Drive { id: "b".to_owned(), size_mib: 64, written: false, properties: Vec::new() },
            ],
            devices: vec!["pcie-root-port,id=port1,slot=1".to_owned()],
            limit: Duration::from_secs(90),
            counted: true,
            programs: vec!["fio".to_owned()],
            script: TEXT.to_owned(),
        };
        assert_eq!(scenario, wanted);
    }

    #[test]
    fn a_bare_script_gets_the_usual_machine() {
        let scenario = Scenario::parse("bare", "# Bare\ntrue\n").unwrap();
        assert_eq!((scenario.cpus, scenario.memory_mib, scenario.nodes), (2, 512, 1));
        assert_eq!(scenario.kernels, KERNELS);
        assert!(scenario.drives.is_empty());
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_line() {
        for (line, word) in [
            ("#: cpu 2", "no such word"),
            ("#: cpus", "takes one value"),
            ("#: cpus two", "no number"),
            ("#: cpus 0", "at least one"),
            ("#: memory 512", "such as 512M"),
            ("#: memory 64M", "128M"),
            ("#: kernels", "at least one kernel"),
            ("#: nodes 3", "dealt out"),
            ("#: module", "module's name"),
            ("#: nvme", "drive's name"),
            ("#: nvme size=1M", "drive's name"),
            ("#: nvme a fast", "'fast'"),
            ("#: nvme a\n#: nvme a", "two drives"),
        ] {
            let error = format!("{:#}", Scenario::parse("x", &format!("# Title\n{line}\n")).unwrap_err());
            assert!(error.contains(word), "{line}: {error}");
        }
        let error = format!("{:#}", Scenario::parse("x", "# Title\n\n#: cpus x\n").unwrap_err());
        assert!(error.contains("line 3"), "{error}");
        assert!(Scenario::parse("x", "true\n").is_err(), "no title");
    }
}
