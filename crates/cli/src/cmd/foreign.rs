//! `overdrive diskspd` and `overdrive spdk-perf`: the same runs in those tools' words, with their tables.

use crate::cmd::jobs::{How, run_plan};
use crate::exit::{Ending, Refused};
use crate::flags::{AccessFlags, ForeignFlags};
use crate::io_log::Counted;
use anyhow::Result;
use overdrive_io::front::{diskspd as diskspd_words, spdk_perf as spdk_words};
use overdrive_report::record::Record;
use overdrive_report::render::diskspd::{DiskspdView, text, xml};
use overdrive_report::render::merged::Shown;
use overdrive_report::render::spdk_perf::spdk_perf as spdk_tables;
use overdrive_sys::usage::CpuTime;

/// Runs a DISKSPD line.
pub(crate) fn diskspd(flags: &ForeignFlags) -> Result<Ending> {
    let line = diskspd_words::parse(&flags.words, flags.front.ignore_unsupported)
        .map_err(|error| Refused(error.to_string()))?;
    let before = CpuTime::read_all().unwrap_or_default();
    let (latency, as_xml) = (line.latency, line.xml);
    let counted = line.interval.map(Counted::new);
    let cooldown_s = line.plan.sections.first().map_or(0.0, |section| section.spec.cooldown.as_secs_f64());
    let show = |record: &Record, shown: &[Shown]| {
        let view = DiskspdView {
            command: format!("diskspd {}", flags.words.join(" ")),
            cooldown_s,
            latency,
            cpus: cpus_since(&before),
            intervals: counted.as_ref().map(Counted::found),
        };
        Ok(if as_xml { xml(record, shown, &view) } else { text(record, shown, &view) })
    };
    let mut front = flags.front.clone();
    front.dry_run |= line.profile_only;
    let access = access(flags);
    let intervals = counted.as_ref();
    run_plan(
        line.plan,
        &How { access: &access, front: &front, text: Some(&show), json: flags.json, intervals },
    )
}

/// Runs a line of SPDK's perf.
pub(crate) fn spdk_perf(flags: &ForeignFlags) -> Result<Ending> {
    let line = spdk_words::parse(&flags.words, flags.front.ignore_unsupported)
        .map_err(|error| Refused(error.to_string()))?;
    let latency = line.latency;
    let show = |record: &Record, shown: &[Shown]| Ok(spdk_tables(record, shown, latency));
    let access = access(flags);
    let (front, json) = (&flags.front, flags.json);
    run_plan(line.plan, &How { access: &access, front, text: Some(&show), json, intervals: None })
}

fn access(flags: &ForeignFlags) -> AccessFlags {
    AccessFlags { write_to: flags.write_to.clone(), wipe: flags.wipe, buffered: false, seed: 1 }
}

/// How busy each CPU was, in user space and in the kernel, in per cent.
fn cpus_since(before: &[CpuTime]) -> Vec<(usize, f64, f64)> {
    let after = CpuTime::read_all().unwrap_or_default();
    let busy = |after: &CpuTime| {
        let before = before.iter().find(|before| before.cpu == after.cpu)?;
        let since = |pick: fn(&CpuTime) -> u64| pick(after).saturating_sub(pick(before)) as f64;
        let user = since(|cpu| cpu.user);
        let kernel = since(|cpu| cpu.running + cpu.interrupts + cpu.stolen) - user;
        let total = user + kernel + since(|cpu| cpu.idle);
        let percent = |part: f64| if total > 0.0 { part / total * 100.0 } else { 0.0 };
        Some((after.cpu, percent(user), percent(kernel)))
    };
    after.iter().filter_map(busy).collect()
}
