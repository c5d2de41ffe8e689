//! Which CPUs take the completion interrupts of a disk's controller.
//!
//! The interrupts of a PCI device are listed in its `msi_irqs`; /proc/interrupts names them, and /proc/irq
//! says where each one goes. Interrupts for configuration and admin commands are left out: no I/O waits for
//! those.

use super::parse::{self, CpuSet};
use super::{Fact, FactRow, Rows};
use crate::root::Root;

const TABLE: &str = "/proc/interrupts";

/// One interrupt that brings completions.
#[derive(Debug, Clone, PartialEq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The name its driver gave it, such as `nvme0q3`.
    pub name: String,
    /// The CPUs it is sent to.
    pub cpus: Fact<CpuSet>,
    /// How often it came since boot, by CPU in the order of the table's head.
    pub counts: Vec<u64>,
    /// Whether the kernel keeps its affinity to itself, from debugfs.
    pub managed: Fact<bool>,
}

/// The completion interrupts of the PCI device in `folder`.
pub(crate) fn of_device(root: &Root, folder: &str) -> Fact<Vec<Interrupt>> {
    let table = root.text(TABLE);
    root.list(&format!("{folder}/msi_irqs")).map(|numbers| {
        let numbers = numbers.iter().filter_map(|number| number.parse().ok());
        let named = numbers.filter_map(|number| Some((number, name_in(table.value()?, number)?)));
        named
            .filter(|(_, name)| brings_completions(name))
            .map(|(number, name)| Interrupt {
                number,
                name,
                cpus: root
                    .text(&format!("/proc/irq/{number}/effective_affinity_list"))
                    .parse(parse::cpu_list),
                counts: table.value().map_or_else(Vec::new, |table| counts_in(table, number)),
                managed: root
                    .text(&format!("/sys/kernel/debug/irq/irqs/{number}"))
                    .map(|text| text.contains("IRQD_AFFINITY_MANAGED")),
            })
            .collect()
    })
}

/// The last word of the interrupt's row; a row without one has no driver.
fn name_in(table: &str, number: u32) -> Option<String> {
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{number}:")))?;
    row.split_whitespace().last().map(str::to_owned)
}

/// The counts of the interrupt's row: the numbers that follow its own.
fn counts_in(table: &str, number: u32) -> Vec<u64> {
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{number}:")));
    let words = row.into_iter().flat_map(str::split_whitespace);
    words.map_while(|word| word.parse().ok()).collect()
}

fn brings_completions(name: &str) -> bool {
    let admin = name.strip_prefix("nvme").is_some_and(|rest| rest.ends_with("q0"));
    let other = ["-config", "-control", "-event"].iter().any(|end| name.ends_with(end));
    !admin && !other
}

/// All CPUs that take completions; none when that cannot be told for every interrupt.
pub(crate) fn completion_cpus(interrupts: &Fact<Vec<Interrupt>>) -> Option<CpuSet> {
    let interrupts = interrupts.value().filter(|list| !list.is_empty())?;
    let sets: Option<Vec<&CpuSet>> = interrupts.iter().map(|interrupt| interrupt.cpus.value()).collect();
    Some(sets?.into_iter().flat_map(CpuSet::iter).collect())
}

pub(crate) fn rows(prefix: &str, interrupts: &Fact<Vec<Interrupt>>) -> Vec<FactRow> {
    let mut rows = Rows::new(prefix);
    rows.add("interrupts", "Completion interrupts", interrupts, |list| {
        let shown = list.iter().map(|interrupt| match interrupt.cpus.value() {
            Some(cpus) => format!("{} on CPU {cpus}", interrupt.name),
            None => interrupt.name.clone(),
        });
        let text = shown.collect::<Vec<_>>().join(", ");
        if text.is_empty() { "none named".to_owned() } else { text }
    });
    rows.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Root {
        Root::from_capture(
            "/proc/interrupts |\n\
             |            CPU0       CPU1\n\
             | 35:          0          1 PCI-MSIX-0000:00:02.0   0-edge      virtio1-config\n\
             | 36:          0    2320758 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
             | 40:          1          0 PCI-MSIX-0000:01:00.0   0-edge      nvme0q0\n\
             | 41:          7          0 PCI-MSIX-0000:01:00.0   1-edge      nvme0q1\n\
             /proc/irq/36/effective_affinity_list = 1\n\
             /proc/irq/41/effective_affinity_list = 0\n\
             /sys/devices/a/msi_irqs/35 = msix\n\
             /sys/devices/a/msi_irqs/36 = msix\n\
             /sys/devices/b/msi_irqs/40 = msix\n\
             /sys/devices/b/msi_irqs/41 = msix\n",
        )
        .unwrap()
    }

    #[test]
    fn only_interrupts_that_bring_completions_count() {
        for (folder, name, cpu) in [("/sys/devices/a", "virtio1-req.0", 1), ("/sys/devices/b", "nvme0q1", 0)]
        {
            let interrupts = of_device(&root(), folder);
            assert_eq!(interrupts.value().unwrap().len(), 1);
            assert_eq!(interrupts.value().unwrap()[0].name, name);
            assert_eq!(interrupts.value().unwrap()[0].counts.len(), 2);
            assert_eq!(completion_cpus(&interrupts).unwrap().iter().collect::<Vec<_>>(), [cpu]);
        }
    }

    #[test]
    fn a_device_without_msi_says_so() {
        let interrupts = of_device(&root(), "/sys/devices/c");
        assert!(interrupts.is_absent());
        assert!(completion_cpus(&interrupts).is_none());
    }
}
