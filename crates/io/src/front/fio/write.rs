//! From a plan to a job file: what any command of Overdrive's would be in fio's words.

use crate::engine::EngineKind;
use crate::front::{Extent, Plan, Section};
use crate::job::words::{distribution_words, rw_word, steady_state_words};
use crate::job::{Access, Advice, Distribution, NO_TIME_LIMIT, Operation, SyncMode};
use crate::pace::Arrivals;
use crate::verify::Verify;
use std::fmt::{Display, Write};
use std::time::Duration;

/// The job file that says what the plan says; what cannot be said in one stands in it as a comment.
#[must_use]
pub fn job_file(plan: &Plan) -> String {
    let mut text = String::new();
    for (index, section) in plan.sections.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| &plan.sections[before]);
        if index > 0 {
            text.push('\n');
        }
        let _ = writeln!(text, "[{}]", section.name);
        if before.is_some_and(|before| before.phase != section.phase) {
            text.push_str("stonewall\n");
        } else if before.is_some_and(|before| before.group != section.group) {
            text.push_str("new_group\n");
        }
        for (name, value) in options_of(section) {
            let _ = writeln!(text, "{name}={value}");
        }
        if !section.spec.cooldown.is_zero() {
            let _ = writeln!(
                text,
                "# {} of cool-down, which a job file has no word for",
                time(section.spec.cooldown)
            );
        }
        if let Some(Arrivals::Trace(times)) = &section.spec.arrivals {
            let _ =
                writeln!(text, "# {} arrivals from a trace, which a job file has no word for", times.len());
        }
    }
    text
}

/// A section's options as fio spells them, except those that have fio's own default.
#[must_use]
pub fn options_of(section: &Section) -> Vec<(String, String)> {
    let spec = &section.spec;
    let mut options = Options(Vec::new());
    let names: Vec<String> = section.targets.iter().map(|name| escaped(name)).collect();
    options.put_if("filename", &names.join(":"), !names.is_empty());
    options.put_some("directory", section.directory.clone());
    options.put("rw", &rw(section));
    if let Operation::Mixed { read_percent } = spec.operation {
        options.put_if("rwmixread", &read_percent, read_percent != 50);
    }
    match spec.size_mix.as_slice() {
        [] => options.put("bs", &spec.block_size),
        mix => {
            let shares = mix.iter().map(|share| format!("{}/{}", share.bytes, share.percent));
            options.put("bssplit", &shares.collect::<Vec<String>>().join(":"));
        }
    }
    options.put_some("blockalign", spec.block_align);
    options.put_if("offset", &extent(section.offset), section.offset != Extent::Bytes(0));
    options.put_some("size", section.size.map(extent));
    options.put_some("offset_increment", spec.worker_offset.filter(|&step| step > 0));
    options.put_some("io_size", spec.io_size);
    options.put_some("number_ios", spec.number_ios);
    options.put_some("loops", spec.passes.filter(|&passes| passes > 1));
    if spec.access == Access::Random {
        options.put_if("random_distribution", &distribution_words(&spec.distribution), {
            spec.distribution != Distribution::Uniform
        });
        options.put_if("percentage_random", &spec.random_percent, spec.random_percent < 100);
        options.put_if("norandommap", &1, !spec.random_map);
    }
    put_engine(&mut options, section);
    put_time(&mut options, section);
    put_writes(&mut options, section);
    put_goals(&mut options, section);
    options.put_if("numjobs", &spec.workers, spec.workers > 1);
    options.put_if("group_reporting", &1, section.group_reporting);
    options.put_some("verify", spec.verify.map(|_| "crc32c"));
    options.put_if("do_verify", &0, spec.verify == Some(Verify::WriteOnly));
    let list = |all: &[f64]| all.iter().map(f64::to_string).collect::<Vec<String>>().join(":");
    options.put_if("percentile_list", &list(&section.percentiles), !section.percentiles.is_empty());
    let cpus: Vec<String> = section.cpus.iter().map(usize::to_string).collect();
    options.put_if("cpus_allowed", &cpus.join(","), !cpus.is_empty());
    options.put_if("outliers", &spec.outliers, spec.outliers != 16);
    options.put_if("randrepeat", &0, section.fresh_seed);
    options.put_if("randseed", &spec.seed, !section.fresh_seed);
    options.0
}

/// Options in the order in which they are written.
struct Options(Vec<(String, String)>);

impl Options {
    fn put(&mut self, name: &str, value: &dyn Display) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    fn put_if(&mut self, name: &str, value: &dyn Display, wanted: bool) {
        if wanted {
            self.put(name, value);
        }
    }

    fn put_some(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.put(name, &value);
        }
    }
}

fn put_engine(options: &mut Options, section: &Section) {
    let spec = &section.spec;
    let engine = match &spec.engine {
        _ if section.best_engine => "spdk",
        EngineKind::Sim(_) => "sim",
        engine => engine.name(),
    };
    options.put("ioengine", &engine);
    options.put_if("iodepth", &spec.queue_depth, spec.queue_depth != 1);
    options.put_if("direct", &1, !section.buffered);
    options.put_if("hipri", &1, spec.polled);
    options.put_if("hybrid_poll", &1, spec.hybrid_poll);
    options.put_if("sqthread_poll", &1, spec.sq_poll);
}

/// What writes carry, how durable they are, and the page cache.
fn put_writes(options: &mut Options, section: &Section) {
    let spec = &section.spec;
    let pattern = spec.content.pattern.as_ref();
    options.put_some(
        "buffer_pattern",
        pattern.map(|bytes| {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{digits}")
        }),
    );
    options.put_some("buffer_compress_percentage", spec.content.compress_percent);
    options.put_some("buffer_compress_chunk", spec.content.compress_chunk);
    options.put_if("refill_buffers", &1, spec.content.refill);
    options.put_some("fsync", spec.fsync_every);
    options.put_some("fdatasync", spec.fdatasync_every);
    match spec.sync {
        SyncMode::None => {}
        SyncMode::Sync => options.put("sync", &"sync"),
        SyncMode::DataSync => options.put("sync", &"dsync"),
    }
    match spec.page_cache.advice {
        Advice::AsAccessed => {}
        Advice::None => options.put("fadvise_hint", &0),
        Advice::Random => options.put("fadvise_hint", &"random"),
        Advice::Sequential => options.put("fadvise_hint", &"sequential"),
    }
    options.put_if("invalidate", &0, !spec.page_cache.invalidate);
    options.put_if("pre_read", &1, spec.page_cache.pre_read);
    options.put_some("iodepth_batch", spec.batch.submit);
    options.put_some("iodepth_batch_complete_min", spec.batch.complete);
    options.put_some("iodepth_low", spec.batch.low);
}

/// What the run looks for, and what it logs.
fn put_goals(options: &mut Options, section: &Section) {
    let (spec, logs) = (&section.spec, &section.logs);
    if let Some(target) = spec.latency_target {
        options.put("latency_target", &time(target.limit));
        options.put("latency_window", &time(target.window));
        options.put_if("latency_percentile", &target.percentile, target.percentile < 100.0);
        options.put_if("latency_run", &1, target.keep_running);
    }
    if let Some(steady) = spec.steady {
        options.put("steadystate", &steady_state_words(&steady));
        options.put("steadystate_duration", &time(steady.duration));
        options.put_if("steadystate_ramp_time", &time(steady.ramp), !steady.ramp.is_zero());
    }
    options.put_some("write_bw_log", logs.bandwidth.as_ref());
    options.put_some("write_iops_log", logs.iops.as_ref());
    options.put_some("write_lat_log", logs.latency.as_ref());
    options.put_some("write_hist_log", logs.histogram.as_ref());
    options.put_some("log_hist_msec", logs.histogram_window.map(|window| window.as_millis()));
    options.put_some("log_avg_msec", logs.window.map(|window| window.as_millis()));
    options.put_if("log_max_value", &1, logs.largest);
    options.put_if("log_offset", &1, logs.offsets);
    options.put_if("per_job_logs", &0, logs.shared);
}

fn put_time(options: &mut Options, section: &Section) {
    let spec = &section.spec;
    if spec.runtime < NO_TIME_LIMIT {
        options.put("runtime", &time(spec.runtime));
        options.put_if("time_based", &1, spec.passes.is_none() && spec.io_size.is_none());
    }
    options.put_if("startdelay", &time(spec.start_delay), !spec.start_delay.is_zero());
    options.put_if("ramp_time", &time(spec.warmup), !spec.warmup.is_zero());
    if let Some(think) = spec.think {
        options.put("thinktime", &time(think.time));
        options.put_if("thinktime_blocks", &think.every, think.every != 1);
    }
    let Some(arrivals) = &spec.arrivals else { return };
    let Some(per_s) = arrivals.per_s() else { return };
    let rate = match spec.operation {
        Operation::Mixed { read_percent } => {
            let reads = per_s * f64::from(read_percent) / 100.0;
            format!("{reads},{}", per_s - reads)
        }
        Operation::Read | Operation::Write | Operation::Trim => per_s.to_string(),
    };
    options.put("rate_iops", &rate);
    match arrivals {
        Arrivals::Poisson { .. } => options.put("rate_process", &"poisson"),
        Arrivals::Bursts { size, .. } => options.put("rate_process", &format!("burst:{size}")),
        Arrivals::Constant { .. } | Arrivals::Trace(_) => {}
    }
}

fn rw(section: &Section) -> String {
    let spec = &section.spec;
    let word = rw_word(spec.access, spec.operation);
    if spec.stride > 0 { format!("{word}:{}", spec.stride) } else { word.to_owned() }
}

fn extent(extent: Extent) -> String {
    match extent {
        Extent::Bytes(bytes) => bytes.to_string(),
        Extent::Percent(percent) => format!("{percent}%"),
    }
}

/// In the largest unit that divides it.
fn time(time: Duration) -> String {
    let ns = time.as_nanos();
    [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")]
        .iter()
        .find(|(unit, _)| ns.is_multiple_of(*unit))
        .map_or_else(|| format!("{ns}ns"), |(unit, name)| format!("{}{name}", ns / unit))
}

fn escaped(name: &str) -> String {
    if name.contains("traddr") { name.to_owned() } else { name.replace(':', "\\:") }
}
