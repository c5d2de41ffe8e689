//! A record in the JSON of `fio --output-format=json`, key by key, so that what reads fio's results reads
//! these.
//!
//! What fio has and is not measured here stands as 0: submission latency apart from the rest (`slat_ns`, with
//! `N` 0), page faults, and how many I/Os went into one system call. There is one latency, from just before
//! submission to the completion seen; it is `clat_ns` and `lat_ns` alike.

mod steady;

use super::merged::{Shown, Side, cpu_seconds, spread};
use crate::record::{Operation, Record, Workload};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// What a record does not hold and fio's JSON has.
#[derive(Debug, Clone, Default)]
pub struct FioView {
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// The same for people, as in `Sat Nov 21 23:16:16 2026`.
    pub time: String,
    /// Options given for all jobs.
    pub globals: Vec<(String, String)>,
    /// The jobs.
    pub jobs: Vec<Shown>,
    /// What the disks counted.
    pub disks: Vec<DiskUse>,
    /// With every bucket of the histograms (json+).
    pub bins: bool,
}

/// What a disk counted over the whole run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiskUse {
    /// Its name, such as `nvme0n1`.
    pub name: String,
    /// Reads and writes completed.
    pub ios: [u64; 2],
    /// Reads and writes merged into others.
    pub merges: [u64; 2],
    /// Time reads and writes waited, summed, in ms.
    pub ticks_ms: [u64; 2],
    /// Time with at least one request in the device, in per cent of the run.
    pub busy_percent: f64,
}

/// fio's own list.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// The record as fio would print it, with a newline at the end.
///
/// # Errors
/// When the text cannot be made, which no value of a record brings about.
pub fn fio_json(record: &Record, view: &FioView) -> serde_json::Result<String> {
    let mut top = vec![
        ("fio version", Json::Text(format!("{}-{}", record.tool.name, record.tool.version))),
        ("timestamp", Json::Signed(view.timestamp_ms.div_euclid(1000))),
        ("timestamp_ms", Json::Signed(view.timestamp_ms)),
        ("time", Json::Text(view.time.clone())),
    ];
    if !view.globals.is_empty() {
        top.push(("global options", options(&view.globals)));
    }
    top.push(("jobs", Json::List(view.jobs.iter().map(|job| shown(record, job, view.bins)).collect())));
    top.push(("disk_util", Json::List(view.disks.iter().map(disk).collect())));
    Ok(serde_json::to_string_pretty(&map(top))? + "\n")
}

fn shown(record: &Record, job: &Shown, bins: bool) -> Json {
    let workloads: Vec<&Workload> =
        job.workloads.iter().filter_map(|&index| record.workloads.get(index)).collect();
    let percentiles = if job.percentiles.is_empty() { &PERCENTILES[..] } else { &job.percentiles };
    let of = |operation| Side::of(&workloads, operation);
    let (read, write) = (of(Operation::Read), of(Operation::Write));
    let (trim, sync) = (of(Operation::Trim), of(Operation::Sync));
    let failed: u64 = workloads.iter().flat_map(|workload| &workload.outcome.errors).map(|e| e.count).sum();
    let first_error = workloads.iter().flat_map(|workload| &workload.outcome.errors).next();
    let short: u64 = workloads.iter().map(|workload| workload.outcome.short_ios).sum();
    let elapsed_s = read.elapsed_s.max(write.elapsed_s).max(trim.elapsed_s);
    let (user_s, system_s, worker_s) = cpu_seconds(&workloads);
    let percent = |seconds: f64| Json::Float(if worker_s > 0.0 { seconds / worker_s * 100.0 } else { 0.0 });
    let cpus = || workloads.iter().filter_map(|workload| workload.outcome.cpu.as_ref());
    let switches = cpus().map(|cpu| cpu.voluntary_switches + cpu.involuntary_switches).sum();
    let depth = workloads.iter().map(|workload| workload.job.queue_depth_per_worker).max().unwrap_or(1);
    let error = if failed > 0 { first_error.map_or(0, |error| i64::from(error.errno)) } else { 0 };
    let total = read.clone().and(&write).and(&trim);
    let mut all = vec![
        ("jobname", Json::Text(job.name.clone())),
        ("groupid", Json::Whole(u64::from(job.group))),
        ("error", Json::Signed(error)),
        ("eta", Json::Whole(0)),
        ("elapsed", Json::Whole(elapsed_s.ceil() as u64)),
        ("job options", options(&job.options)),
        ("read", side(&read, short, percentiles, bins)),
        ("write", side(&write, 0, percentiles, bins)),
        ("trim", side(&trim, 0, percentiles, bins)),
        (
            "sync",
            map(vec![("total_ios", Json::Whole(sync.ios)), ("lat_ns", completion(&sync, percentiles, bins))]),
        ),
        ("job_runtime", Json::Whole((worker_s * 1000.0).round() as u64)),
        ("usr_cpu", percent(user_s)),
        ("sys_cpu", percent(system_s)),
        ("ctx", Json::Whole(switches)),
        ("majf", Json::Whole(0)),
        ("minf", Json::Whole(0)),
        ("iodepth_level", depth_level(depth, total.ios)),
        ("iodepth_submit", unmeasured(&["0", "4", "8", "16", "32", "64", ">=64"])),
        ("iodepth_complete", unmeasured(&["0", "4", "8", "16", "32", "64", ">=64"])),
        ("latency_ns", shares(&total, &BELOW, 1, false)),
        ("latency_us", shares(&total, &BELOW, 1000, false)),
        ("latency_ms", shares(&total, &BELOW_MS, 1_000_000, true)),
        ("latency_depth", Json::Whole(u64::from(depth))),
        ("latency_target", Json::Whole(0)),
        ("latency_percentile", Json::Float(100.0)),
        ("latency_window", Json::Whole(0)),
    ];
    all.extend(steady::steady_state(&workloads).map(|steady| ("steadystate", steady)));
    map(all)
}

fn side(side: &Side, short_ios: u64, percentiles: &[f64], bins: bool) -> Json {
    // A side of a mix has no samples of its own, but it has a rate.
    let (bw_mean, bw_dev) =
        if side.bytes_per_s.is_empty() { (side.rates.1, 0.0) } else { spread(&side.bytes_per_s) };
    let (iops_mean, iops_dev) = if side.iops.is_empty() { (side.rates.0, 0.0) } else { spread(&side.iops) };
    let edge = |values: &[f64], pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick).unwrap_or(0.0);
    let kib = |bytes: f64| Json::Whole((bytes / 1024.0) as u64);
    let samples = Json::Whole(side.iops.len() as u64);
    let nothing = vec![("min", 0), ("max", 0)].into_iter().map(|(name, value)| (name, Json::Whole(value)));
    let mut slat: Vec<(&str, Json)> = nothing.collect();
    slat.extend([("mean", Json::Float(0.0)), ("stddev", Json::Float(0.0)), ("N", Json::Whole(0))]);
    map(vec![
        ("io_bytes", Json::Whole(side.bytes)),
        ("io_kbytes", Json::Whole(side.bytes / 1024)),
        ("bw_bytes", Json::Whole(side.per_s(side.bytes) as u64)),
        ("bw", kib(side.per_s(side.bytes))),
        ("iops", Json::Float(side.per_s(side.ios))),
        ("runtime", Json::Whole((side.elapsed_s * 1000.0).round() as u64)),
        ("total_ios", Json::Whole(side.ios)),
        ("short_ios", Json::Whole(short_ios)),
        ("drop_ios", Json::Whole(0)),
        ("slat_ns", map(slat)),
        ("clat_ns", completion(side, percentiles, bins)),
        ("lat_ns", latency(side)),
        ("bw_min", kib(edge(&side.bytes_per_s, f64::min))),
        ("bw_max", kib(edge(&side.bytes_per_s, f64::max))),
        ("bw_agg", Json::Float(if side.ios > 0 { 100.0 } else { 0.0 })),
        ("bw_mean", Json::Float(bw_mean / 1024.0)),
        ("bw_dev", Json::Float(bw_dev / 1024.0)),
        ("bw_samples", samples.clone()),
        ("iops_min", Json::Whole(edge(&side.iops, f64::min) as u64)),
        ("iops_max", Json::Whole(edge(&side.iops, f64::max) as u64)),
        ("iops_mean", Json::Float(iops_mean)),
        ("iops_stddev", Json::Float(iops_dev)),
        ("iops_samples", samples),
    ])
}

fn moments(side: &Side) -> Vec<(&'static str, Json)> {
    let latency = side.latency;
    vec![
        ("min", Json::Whole(latency.min_ns)),
        ("max", Json::Whole(latency.max_ns)),
        ("mean", Json::Float(latency.mean_ns)),
        ("stddev", Json::Float(latency.stddev_ns)),
        ("N", Json::Whole(latency.count)),
    ]
}

fn latency(side: &Side) -> Json {
    map(moments(side))
}

fn completion(side: &Side, percentiles: &[f64], bins: bool) -> Json {
    let mut entries = moments(side);
    if side.latency.count > 0 {
        let value = |&percentile: &f64| {
            let value = side.percentile_ns(percentile).unwrap_or(0);
            (format!("{percentile:.6}"), Json::Whole(value))
        };
        entries.push(("percentile", Json::Map(percentiles.iter().map(value).collect())));
        if bins {
            // Like fio's, a bucket's key is its middle.
            let buckets = side.histogram.buckets().map(|bucket| {
                let middle = bucket.low + (bucket.high - bucket.low) / 2;
                (middle.to_string(), Json::Whole(bucket.count))
            });
            entries.push(("bins", Json::Map(buckets.collect())));
        }
    }
    map(entries)
}

/// Upper bounds of fio's latency classes, in their unit.
const BELOW: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
const BELOW_MS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

/// Shares of I/Os by latency: each class goes from the bound before it to its own.
fn shares(side: &Side, bounds: &[u64], unit_ns: u64, open: bool) -> Json {
    let from = if unit_ns == 1 { 0 } else { unit_ns };
    let total = side.histogram.count().max(1) as f64;
    let within = |low: u64, high: u64| -> Json {
        let inside = |bucket: &overdrive_hist::Bucket| {
            let middle = bucket.low + (bucket.high - bucket.low) / 2;
            middle >= low && middle < high
        };
        let count: u64 = side.histogram.buckets().filter(inside).map(|bucket| bucket.count).sum();
        Json::Float(count as f64 / total * 100.0)
    };
    let mut low = from;
    let mut classes = Vec::new();
    for bound in bounds {
        let high = bound * unit_ns;
        classes.push((bound.to_string(), within(low, high)));
        low = high;
    }
    if open {
        classes.push((">=2000".to_owned(), within(low, u64::MAX)));
    }
    Json::Map(classes)
}

/// In a closed loop the queue is as deep as asked.
fn depth_level(depth: u32, ios: u64) -> Json {
    let levels = ["1", "2", "4", "8", "16", "32", ">=64"];
    let index = (depth.max(1).ilog2() as usize).min(levels.len() - 1);
    let share = |at: usize| if at == index && ios > 0 { 100.0 } else { 0.0 };
    Json::Map(
        levels.iter().enumerate().map(|(at, &level)| (level.to_owned(), Json::Float(share(at)))).collect(),
    )
}

fn unmeasured(keys: &[&str]) -> Json {
    Json::Map(keys.iter().map(|&key| (key.to_owned(), Json::Float(0.0))).collect())
}

fn disk(disk: &DiskUse) -> Json {
    map(vec![
        ("name", Json::Text(disk.name.clone())),
        ("read_ios", Json::Whole(disk.ios[0])),
        ("write_ios", Json::Whole(disk.ios[1])),
        ("read_merges", Json::Whole(disk.merges[0])),
        ("write_merges", Json::Whole(disk.merges[1])),
        ("read_ticks", Json::Whole(disk.ticks_ms[0])),
        ("write_ticks", Json::Whole(disk.ticks_ms[1])),
        ("in_queue", Json::Whole(disk.ticks_ms[0] + disk.ticks_ms[1])),
        ("util", Json::Float(disk.busy_percent)),
    ])
}

fn options(options: &[(String, String)]) -> Json {
    Json::Map(options.iter().map(|(name, value)| (name.clone(), Json::Text(value.clone()))).collect())
}

fn map(entries: Vec<(&str, Json)>) -> Json {
    Json::Map(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// JSON whose keys keep their order: people compare these files by eye.
#[derive(Clone)]
enum Json {
    Text(String),
    Whole(u64),
    Signed(i64),
    Float(f64),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Whole(number) => serializer.serialize_u64(*number),
            Self::Signed(number) => serializer.serialize_i64(*number),
            // Six digits behind the point, as fio has them.
            Self::Float(number) => serializer.serialize_f64((number * 1e6).round() / 1e6),
            Self::List(all) => {
                let mut list = serializer.serialize_seq(Some(all.len()))?;
                all.iter().try_for_each(|one| list.serialize_element(one))?;
                list.end()
            }
            Self::Map(all) => {
                let mut map = serializer.serialize_map(Some(all.len()))?;
                all.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use serde_json::Value;

    #[test]
    fn a_group_is_the_sum_of_its_jobs() {
        let record = fixtures::optane();
        let members: Vec<usize> = (0..2).collect();
        let job = Shown { name: "both".to_owned(), workloads: members.clone(), ..Shown::default() };
        let view = FioView { jobs: vec![job], bins: true, ..FioView::default() };
        let json: Value = serde_json::from_str(&fio_json(&record, &view).unwrap()).unwrap();
        let read = &json["jobs"][0]["read"];
        let ios: u64 = members
            .iter()
            .map(|&at| record.workloads[at].outcome.read.as_ref().map_or(0, |read| read.ios))
            .sum();
        assert_eq!(read["total_ios"], ios);
        let bins: u64 = read["clat_ns"]["bins"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(read["clat_ns"]["N"], bins);
        let percentiles = read["clat_ns"]["percentile"].as_object().unwrap();
        assert_eq!(percentiles.len(), PERCENTILES.len());
        let at = |name: &str| percentiles[name].as_u64().unwrap();
        assert!(
            at("50.000000") <= at("99.990000") && at("99.990000") <= read["clat_ns"]["max"].as_u64().unwrap()
        );
        let classes = ["latency_ns", "latency_us", "latency_ms"]
            .iter()
            .flat_map(|name| json["jobs"][0][name].as_object().unwrap().values().filter_map(Value::as_f64));
        assert!((classes.sum::<f64>() - 100.0).abs() < 0.01);
    }

    #[test]
    fn the_sides_of_a_mix_have_means_without_samples() {
        let record = fixtures::optane();
        let at = record.workloads.iter().position(|workload| workload.job.operation == Operation::Mixed);
        let job = Shown { workloads: vec![at.unwrap()], ..Shown::default() };
        let view = FioView { jobs: vec![job], ..FioView::default() };
        let json: Value = serde_json::from_str(&fio_json(&record, &view).unwrap()).unwrap();
        for name in ["read", "write"] {
            let side = &json["jobs"][0][name];
            let of = |key: &str| side[key].as_f64().unwrap();
            assert!(of("iops_mean") > 0.0 && (of("iops_mean") / of("iops") - 1.0).abs() < 0.01, "{side}");
            assert!((of("bw_mean") / of("bw") - 1.0).abs() < 0.01, "{side}");
            assert_eq!(of("iops_samples"), 0.0, "{side}");
        }
    }
}
