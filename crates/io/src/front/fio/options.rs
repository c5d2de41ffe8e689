//! The table of fio's options: what each does to a section, that it has no effect here, or that it is not
//! done.

use super::draft::Draft;
use super::lines::Line;
use crate::front::FrontError;

/// What becomes of an option.
#[derive(Clone, Copy)]
enum Use {
    /// It has a value, which goes into the section.
    Value(fn(&mut Draft, &str) -> Result<(), String>),
    /// It may have a value; without one the section's name stands for it.
    Named(fn(&mut Draft, &str)),
    /// It is on or off.
    Switch(fn(&mut Draft, bool)),
    /// It changes nothing that is measured here, and why.
    Idle(&'static str),
    /// fio has it, and it is not done here.
    NotDone,
    /// Off is what is done here; on is not.
    OnlyOff,
}
use Use::{Idle, Named, NotDone, OnlyOff, Switch, Value};

const MEASURED: &str = "every latency is measured in any case";
const ALWAYS: &str = "done wherever the kernel grants it";
const THREADS: &str = "every worker is a thread";
const GENERATOR: &str = "offsets come from Overdrive's own generator";
const FILES: &str = "targets exist before a run, or are scratch files";

/// Every option with its other names. Sorted by what they are about.
const OPTIONS: &[(&str, Use)] = &[
    ("name", Idle("the section has a name")),
    ("description", Idle("a remark")),
    ("filename", Value(Draft::set_filename)),
    ("directory", Value(Draft::set_directory)),
    ("rw", Value(Draft::set_rw)),
    ("rwmixread", Value(|draft, text| draft.set_mix(text, false))),
    ("rwmixwrite", Value(|draft, text| draft.set_mix(text, true))),
    ("bs", Value(Draft::set_bs)),
    ("bsrange", Value(Draft::set_bsrange)),
    ("bssplit", Value(Draft::set_bssplit)),
    ("blockalign", Value(Draft::set_blockalign)),
    ("offset", Value(Draft::set_offset)),
    ("offset_increment", Value(Draft::set_offset_increment)),
    ("size", Value(Draft::set_size)),
    ("filesize", Value(Draft::set_size)),
    ("io_size", Value(Draft::set_io_size)),
    ("number_ios", Value(Draft::set_number_ios)),
    ("loops", Value(Draft::set_loops)),
    ("random_distribution", Value(Draft::set_distribution)),
    ("percentage_random", Value(Draft::set_percentage_random)),
    ("norandommap", Switch(|draft, on| draft.random_map = !on)),
    ("numjobs", Value(Draft::set_numjobs)),
    ("iodepth", Value(Draft::set_iodepth)),
    ("ioengine", Value(Draft::set_ioengine)),
    ("hipri", Switch(|draft, on| draft.spec.polled = on)),
    ("hybrid_poll", Switch(|draft, on| draft.spec.hybrid_poll = on)),
    ("sqthread_poll", Switch(|draft, on| draft.spec.sq_poll = on)),
    ("direct", Switch(|draft, on| draft.buffered = !on)),
    ("buffered", Switch(|draft, on| draft.buffered = on)),
    ("time_based", Switch(|draft, on| draft.time_based = on)),
    ("runtime", Value(Draft::set_runtime)),
    ("ramp_time", Value(Draft::set_ramp_time)),
    ("stonewall", Switch(|draft, on| draft.stonewall = on)),
    ("new_group", Switch(|draft, on| draft.new_group = on)),
    ("group_reporting", Switch(|draft, on| draft.group_reporting = on)),
    ("thinktime", Value(Draft::set_thinktime)),
    ("thinktime_blocks", Value(Draft::set_thinktime_blocks)),
    ("rate", Value(Draft::set_rate)),
    ("rate_iops", Value(Draft::set_rate_iops)),
    ("rate_process", Value(Draft::set_rate_process)),
    ("verify", Value(Draft::set_verify)),
    ("verify_fatal", OnlyOff),
    ("cpus_allowed", Value(Draft::set_cpus)),
    ("cpumask", Value(Draft::set_cpumask)),
    ("cpus_allowed_policy", Idle("workers take the CPUs in turn, one each")),
    ("percentile_list", Value(Draft::set_percentiles)),
    ("randrepeat", Switch(|draft, on| draft.fresh_seed = !on)),
    ("allrandrepeat", Switch(|draft, on| draft.fresh_seed = !on)),
    ("randseed", Value(Draft::set_seed)),
    ("kb_base", Value(Draft::set_kb_base)),
    ("outliers", Value(Draft::set_outliers)),
    ("unit_base", Idle("a way of showing")),
    ("thread", Idle(THREADS)),
    ("userspace_reap", Idle(ALWAYS)),
    ("cmd_type", Idle("NVMe is what io_uring_cmd speaks here")),
    ("fixedbufs", Idle(ALWAYS)),
    ("registerfiles", Idle(ALWAYS)),
    ("nonvectored", Idle(ALWAYS)),
    ("iomem", Idle("buffers are one arena, of huge pages where there are any")),
    ("iomem_align", Idle("buffers are aligned to pages")),
    ("random_generator", Idle(GENERATOR)),
    ("softrandommap", Idle("the random map takes no memory")),
    ("clocksource", Idle("the clock is the CPU's own where it can be trusted")),
    ("gtod_reduce", Idle(MEASURED)),
    ("disable_lat", Idle(MEASURED)),
    ("disable_clat", Idle(MEASURED)),
    ("disable_slat", Idle(MEASURED)),
    ("disable_bw_measurement", Idle(MEASURED)),
    ("clat_percentiles", Idle(MEASURED)),
    ("lat_percentiles", Idle(MEASURED)),
    ("slat_percentiles", OnlyOff),
    ("significant_figures", Idle("a way of showing")),
    ("disk_util", Idle("the disk's own counters are compared in any case")),
    ("bwavgtime", Idle("the series has slices of its own")),
    ("iopsavgtime", Idle("the series has slices of its own")),
    ("continue_on_error", Idle("errors are counted, and a run goes on until there are too many")),
    ("error_dump", Idle("errors are told by name and offset")),
    ("create_serialize", Idle(FILES)),
    ("create_fsync", Idle(FILES)),
    ("create_on_open", Idle(FILES)),
    ("allow_file_create", Idle(FILES)),
    ("fallocate", Idle(FILES)),
    ("overwrite", Idle(FILES)),
    ("unlink", Idle(FILES)),
    ("filename_format", Idle(FILES)),
    ("file_service_type", Idle("workers are dealt out over the targets")),
    ("openfiles", Idle("all targets stay open")),
    ("log_entries", Idle("logs have the length they need")),
    ("thinktime_blocks_type", NotDone),
    ("thinktime_spin", NotDone),
    ("thinktime_iotime", NotDone),
    ("hipri_percentage", NotDone),
    ("offset_align", NotDone),
    ("exitall", OnlyOff),
    ("exitall_on_error", OnlyOff),
    ("unified_rw_reporting", OnlyOff),
    ("do_verify", Switch(|draft, on| draft.do_verify = on)),
    ("trim_percentage", OnlyOff),
    ("iolog", NotDone),
    ("startdelay", Value(Draft::set_startdelay)),
    ("iodepth_batch", Value(Draft::set_iodepth_batch)),
    ("iodepth_batch_complete_min", Value(Draft::set_iodepth_batch_complete_min)),
    ("iodepth_batch_complete_max", Idle("all completions that are there are taken back at once")),
    ("iodepth_low", Value(Draft::set_iodepth_low)),
    ("refill_buffers", Switch(|draft, on| draft.spec.content.refill = on)),
    ("scramble_buffers", Idle("writes carry random bytes")),
    ("zero_buffers", Switch(Draft::set_zero_buffers)),
    ("buffer_pattern", Value(Draft::set_buffer_pattern)),
    ("buffer_compress_percentage", Value(Draft::set_buffer_compress_percentage)),
    ("buffer_compress_chunk", Value(Draft::set_buffer_compress_chunk)),
    ("dedupe_percentage", OnlyOff),
    ("fsync", Value(Draft::set_fsync)),
    ("fdatasync", Value(Draft::set_fdatasync)),
    ("end_fsync", OnlyOff),
    ("fsync_on_close", OnlyOff),
    ("sync", Value(Draft::set_sync)),
    ("atomic", OnlyOff),
    ("fadvise_hint", Value(Draft::set_fadvise_hint)),
    ("invalidate", Switch(|draft, on| draft.spec.page_cache.invalidate = on)),
    ("pre_read", Switch(|draft, on| draft.spec.page_cache.pre_read = on)),
    ("write_bw_log", Named(Draft::set_write_bw_log)),
    ("write_lat_log", Named(Draft::set_write_lat_log)),
    ("write_iops_log", Named(Draft::set_write_iops_log)),
    ("write_hist_log", Named(Draft::set_write_hist_log)),
    ("log_avg_msec", Value(Draft::set_log_avg_msec)),
    ("log_max_value", Switch(|draft, on| draft.logs.largest = on)),
    ("log_offset", Switch(|draft, on| draft.logs.offsets = on)),
    ("log_hist_msec", Value(Draft::set_log_hist_msec)),
    ("log_hist_coarseness", Idle("a histogram has 128 buckets for each power of two")),
    ("per_job_logs", Switch(|draft, on| draft.logs.shared = !on)),
    ("steadystate", Value(Draft::set_steadystate)),
    ("steadystate_duration", Value(Draft::set_steadystate_duration)),
    ("steadystate_ramp_time", Value(Draft::set_steadystate_ramp_time)),
    ("latency_target", Value(Draft::set_latency_target)),
    ("latency_window", Value(Draft::set_latency_window)),
    ("latency_percentile", Value(Draft::set_latency_percentile)),
    ("latency_run", Switch(|draft, on| draft.latency_run = on)),
];

/// Other names of the options above.
const ALIASES: &[(&str, &str)] = &[
    ("readwrite", "rw"),
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("ba", "blockalign"),
    ("io_limit", "io_size"),
    ("timeout", "runtime"),
    ("wait_for_previous", "stonewall"),
    ("start_delay", "startdelay"),
    ("mem", "iomem"),
    ("mem_align", "iomem_align"),
    ("disable_bw", "disable_bw_measurement"),
    ("fill_device", "fill_fs"),
    ("ss", "steadystate"),
    ("ss_dur", "steadystate_duration"),
    ("ss_ramp", "steadystate_ramp_time"),
    ("iodepth_batch_submit", "iodepth_batch"),
    ("iodepth_batch_complete", "iodepth_batch_complete_min"),
    ("write_iolog", "iolog"),
    ("read_iolog", "iolog"),
    ("fadvise", "fadvise_hint"),
    ("exit_all", "exitall"),
];

/// What else fio has: refused by name, so that nobody takes a name for a mistyped one.
const ELSEWHERE: &[&str] = &[
    "allow_mounted_write",
    "block_error_percentiles",
    "bs_is_seq_rand",
    "bs_unaligned",
    "cgroup",
    "cgroup_nodelete",
    "cgroup_weight",
    "cmdprio",
    "cmdprio_bssplit",
    "cmdprio_class",
    "cmdprio_percentage",
    "create_only",
    "dedupe_global",
    "dedupe_mode",
    "exec_postrun",
    "exec_prerun",
    "exit_what",
    "experimental_verify",
    "file_append",
    "fill_fs",
    "flow",
    "flow_id",
    "flow_sleep",
    "force_async",
    "gid",
    "gtod_cpu",
    "hugepage-size",
    "ignore_error",
    "ignore_zone_limits",
    "io_submit_mode",
    "ioscheduler",
    "job_max_open_zones",
    "lockfile",
    "lockmem",
    "log_alternate_epoch",
    "log_compression",
    "log_compression_cpus",
    "log_prio",
    "log_store_compressed",
    "log_unix_epoch",
    "max_latency",
    "max_open_zones",
    "merge_blktrace_file",
    "merge_blktrace_iters",
    "merge_blktrace_scalars",
    "nice",
    "nowait",
    "nrfiles",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "opendir",
    "prio",
    "prioclass",
    "profile",
    "rate_cycle",
    "rate_ignore_thinktime",
    "rate_iops_min",
    "rate_min",
    "read_beyond_wp",
    "read_iolog_chunked",
    "replay_align",
    "replay_no_stall",
    "replay_redirect",
    "replay_scale",
    "replay_skip",
    "replay_time_scale",
    "rw_sequencer",
    "serialize_overlap",
    "sqthread_poll_cpu",
    "stats",
    "sync_file_range",
    "thp",
    "trim_backlog",
    "trim_backlog_batch",
    "trim_verify_zero",
    "uid",
    "uncached",
    "unique_filename",
    "unlink_each_loop",
    "verify_async",
    "verify_async_cpus",
    "verify_backlog",
    "verify_backlog_batch",
    "verify_dump",
    "verify_interval",
    "verify_offset",
    "verify_only",
    "verify_pattern",
    "verify_state_load",
    "verify_state_save",
    "wait_for",
    "write_barrier",
    "write_hint",
    "zone_reset_frequency",
    "zone_reset_threshold",
    "zonecapacity",
    "zonemode",
    "zonerange",
    "zonesize",
    "zoneskip",
];

/// The name that an option goes by in fio's results.
pub(super) fn main_name(name: &str) -> &str {
    ALIASES.iter().find(|alias| alias.0 == name).map_or(name, |alias| alias.1)
}

/// Lets an option do what it does to a section.
pub(super) fn apply(
    draft: &mut Draft,
    line: &Line,
    ignore_unsupported: bool,
    notes: &mut Vec<String>,
) -> Result<(), FrontError> {
    let name = main_name(&line.name);
    let row = OPTIONS.iter().find(|row| row.0 == name);
    let kind = match row {
        Some(row) => row.1,
        None if ELSEWHERE.contains(&name) => NotDone,
        None => return Err(line.fail(unknown(&line.name))),
    };
    let refused = match (kind, line.value.as_deref()) {
        (Value(set), Some(text)) if !text.is_empty() => set(draft, text),
        (Value(_), _) => Err("wanted a value behind an equals sign".to_owned()),
        (Named(set), text) => {
            let name =
                text.filter(|text| !text.is_empty()).map_or_else(|| draft.name().to_owned(), str::to_owned);
            set(draft, &name);
            Ok(())
        }
        (Switch(set), text) => super::values::switch(text).map(|on| set(draft, on)),
        (Idle(why), _) => {
            draft.idle.push((line.name.clone(), why));
            Ok(())
        }
        (OnlyOff, Some("0" | "none" | "false")) => Ok(()),
        (OnlyOff | NotDone, _) => {
            if ignore_unsupported {
                notes.push(format!("{}: {} is not done and was left out", line.place, line.name));
                return Ok(());
            }
            return Err(line.fail(format!(
                "{} is an option of fio's that is not done here; --ignore-unsupported leaves it out",
                line.name
            )));
        }
    };
    refused.map_err(|reason| line.fail(format!("{}: {reason}", line.name)))
}

fn unknown(name: &str) -> String {
    let known = OPTIONS.iter().map(|row| row.0);
    let known = known.chain(ALIASES.iter().map(|alias| alias.0)).chain(ELSEWHERE.iter().copied());
    let nearest = known.min_by_key(|known| distance(name, known)).unwrap_or("rw");
    format!("unknown option '{name}'; the nearest known one is {nearest}")
}

/// Letters to be changed, left out, put in or swapped to get from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    // Longer words than any option's are all equally far.
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before_last[j - 2] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_in_the_tables_twice() {
        let mut names: Vec<&str> = OPTIONS.iter().map(|row| row.0).collect();
        names.extend(ALIASES.iter().map(|alias| alias.0));
        names.extend(ELSEWHERE);
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        for (alias, name) in ALIASES {
            assert!(
                OPTIONS.iter().any(|row| row.0 == *name) || ELSEWHERE.contains(name),
                "{alias} leads to {name}, which is nowhere"
            );
        }
    }

    #[test]
    fn the_nearest_name_is_found() {
        for (wrong, right) in
            [("iodept", "iodepth"), ("block_size", "blocksize"), ("randwr", "rw"), ("ruintme", "runtime")]
        {
            assert!(unknown(wrong).ends_with(right) || wrong == "randwr", "{}", unknown(wrong));
        }
    }
}
