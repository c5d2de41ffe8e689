//! Job files as people write them, and as nobody should.

use super::*;
use crate::engine::EngineKind;
use crate::front::{Extent, Section};
use crate::job::{Access, NO_TIME_LIMIT, Operation, SizeShare};
use crate::pace::Arrivals;
use proptest::prelude::*;
use std::time::Duration;

fn nothing() -> Sources<'static> {
    Sources { read: &|_| Err("no such file".to_owned()), variable: &|_| None }
}

fn plan(text: &str) -> Plan {
    parse("job.fio", text, &nothing(), false).unwrap()
}

fn error(text: &str) -> String {
    parse("job.fio", text, &nothing(), false).unwrap_err().to_string()
}

#[test]
fn sections_inherit_what_stands_above_them() {
    let text = "; a comment\n[global]\nbs=8k\niodepth=4\nioengine=libaio\n[a]\nrw=randread\n[global]\nbs=16k\n[b]\n\
                stonewall\nrw=write\niodepth=2 # inline\n[c]\n";
    let plan = plan(text);
    let of = |index: usize| {
        let Section { name, spec, phase, group, .. } = &plan.sections[index];
        (name.as_str(), spec.block_size, spec.queue_depth, *phase, *group)
    };
    assert_eq!(of(0), ("a", 8192, 4, 0, 0));
    assert_eq!(of(1), ("b", 16384, 2, 1, 1));
    assert_eq!(of(2), ("c", 16384, 4, 1, 1));
    assert_eq!(plan.sections[0].spec.access, Access::Random);
    assert!(plan.sections[0].spec.random_map && !plan.sections[1].spec.random_map);
    assert_eq!(plan.sections[1].options, [("rw", "write"), ("iodepth", "2")].map(owned));
}

fn owned(pair: (&str, &str)) -> (String, String) {
    (pair.0.to_owned(), pair.1.to_owned())
}

#[test]
fn the_documents_job_files_are_understood() {
    let guide = include_str!("../../../../../fixtures/jobs/guide-qd1.fio");
    let plan = parse("guide.fio", guide, &nothing(), false).unwrap();
    let section = &plan.sections[0];
    assert_eq!((section.spec.engine.clone(), section.spec.polled), (EngineKind::Pvsync2, true));
    assert_eq!(section.targets, ["/dev/nvme0n1"]);
    assert_eq!((section.spec.runtime, section.buffered), (Duration::from_secs(300), false));
    assert_eq!((section.spec.access, section.spec.random_map), (Access::Random, false));
    assert_eq!((section.size, section.cpus.len()), (Some(Extent::Percent(100.0)), 18));
    assert_eq!(section.logs.bandwidth.as_deref(), Some("bw_rd_rnd_qd_1_4k_1w"));
    assert_eq!((section.logs.window, section.logs.largest), (Some(Duration::from_secs(1)), true));
    assert!(section.fresh_seed && section.percentiles.contains(&99.999_999));
    let spdk = include_str!("../../../../../fixtures/jobs/guide-spdk.fio");
    let plan = parse("spdk.fio", spdk, &nothing(), false).unwrap();
    let section = &plan.sections[0];
    assert!(section.best_engine && plan.notes.iter().any(|note| note.contains("ioengine=spdk")), "{plan:?}");
    assert_eq!(section.targets, ["trtype=PCIe traddr=0000.04.00.0 ns=1"]);
    assert_eq!((section.spec.runtime, section.spec.passes), (Duration::from_secs(300), None));
}

#[test]
fn a_job_ends_as_fios_does() {
    let end = |options: &str| {
        let spec = plan(&format!("[a]\n{options}")).sections[0].spec.clone();
        (spec.runtime, spec.passes, spec.io_size)
    };
    assert_eq!(end("size=1m"), (NO_TIME_LIMIT, Some(1), None));
    assert_eq!(end("loops=3\nruntime=5"), (Duration::from_secs(5), Some(3), None));
    assert_eq!(end("io_size=2m\nruntime=500ms"), (Duration::from_millis(500), None, Some(2 << 20)));
    assert_eq!(end("time_based\nruntime=1h\nloops=3"), (Duration::from_secs(3600), None, None));
    assert_eq!(end("time_based"), (NO_TIME_LIMIT, Some(1), None));
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text() {
    assert_eq!(plan("\u{feff}[a]\nbs=8k\n").sections[0].spec.block_size, 8192);
}

#[test]
fn values_are_read_as_fio_reads_them() {
    let spec = |options: &str| plan(&format!("[a]\n{options}")).sections[0].spec.clone();
    assert_eq!(spec("bs=4kb").block_size, 4096);
    assert_eq!(spec("bs=0x1000").block_size, 4096);
    assert_eq!(spec("rw=write\nbs=4k,8k").block_size, 8192);
    assert_eq!(spec("rw=read:8k").stride, 8192);
    for (bs, read, write, trim) in [
        ("4k,8k,16k", 4096, 8192, 16384),
        ("4k,8k", 4096, 8192, 8192),
        (",8k,", 4096, 8192, 4096),
        ("8k", 8192, 8192, 8192),
    ] {
        let sizes = ["read", "write", "trim"].map(|rw| spec(&format!("rw={rw}\nbs={bs}")).block_size);
        assert_eq!(sizes, [read, write, trim], "bs={bs}");
    }
    assert_eq!(spec("bs=4k\nkb_base=1000").block_size, 4000, "sizes above it too");
    let share = |bytes| SizeShare { bytes, percent: 50 };
    let split = |text: &str| spec(text).size_mix;
    assert_eq!(split("bssplit=4kb/50:8k/50"), [share(4096), share(8192)], "as in bs");
    assert_eq!(split("kb_base=1000\nbssplit=4kib/50:8k/50"), [share(4096), share(8000)]);
    assert_eq!(spec("steadystate=iops:1%").steady, None, "fio's default of 0 looks for none");
    let steady = spec("steadystate=iops:1%\nss_dur=20").steady.unwrap();
    assert_eq!(steady.duration, Duration::from_secs(20));
    let share = |bytes, percent| SizeShare { bytes, percent };
    assert_eq!(spec("bsrange=4k-12k").size_mix, [share(4096, 34), share(8192, 33), share(12288, 33)]);
    assert_eq!(spec("rw=randrw\nrwmixwrite=30").operation, Operation::Mixed { read_percent: 70 });
    assert_eq!(spec("rate_iops=500").arrivals, Some(Arrivals::Constant { per_s: 500.0 }));
    assert_eq!(
        spec("rate=1m\nbs=4k\nrate_process=poisson").arrivals,
        Some(Arrivals::Poisson { per_s: 256.0 })
    );
    assert_eq!(spec("rw=randrw\nrate_iops=500").arrivals, Some(Arrivals::Constant { per_s: 1000.0 }));
    assert_eq!(spec("thinktime=50").think.unwrap().time, Duration::from_micros(50));
    assert_eq!(plan("[a]\nfilename=/dev/a:/dev/b\n").sections[0].targets, ["/dev/a", "/dev/b"]);
    assert_eq!(plan("[a]\nfilename=x\\:y:sim:read=80us\n").sections[0].targets, ["x:y", "sim:read=80us"]);
    assert_eq!(plan("[a]\ncpus_allowed=0-2,5\n").sections[0].cpus, [0, 1, 2, 5]);
}

#[test]
fn workers_are_told_apart_unless_they_are_grouped() {
    let apart = plan("[a]\nnumjobs=3\noffset_increment=1m\noffset=1m");
    let offsets: Vec<Extent> = apart.sections.iter().map(|section| section.offset).collect();
    assert_eq!(offsets, [1, 2, 3].map(|mib| Extent::Bytes(mib << 20)));
    let workers = |text: &str| {
        let sections = plan(text).sections;
        assert!(sections.iter().all(|section| section.group == 0));
        (sections.len(), sections[0].spec.workers)
    };
    assert_eq!(workers("[a]\nfilename=x\nnumjobs=3\ngroup_reporting"), (1, 3));
    assert_eq!(workers("[a]\nfilename=x\nnumjobs=3"), (3, 1));
    assert_eq!(workers("[a]\nsize=1m\nnumjobs=3\ngroup_reporting"), (3, 1), "a scratch file each, as in fio");
}

#[test]
fn workers_that_verify_one_target_stay_together_on_a_share_each() {
    let verify = "[a]\nrw=randwrite\nverify=crc32c\nnumjobs=4\n";
    let plan = plan(&format!("{verify}filename=x\n"));
    let [section] = plan.sections.as_slice() else { panic!("{:?}", plan.sections) };
    assert_eq!((section.spec.workers, section.spec.worker_offset, section.group_reporting), (4, None, true));
    assert!(plan.notes.iter().any(|note| note.contains("one result")), "{:?}", plan.notes);
    let scratch = parse("a", &format!("{verify}size=1m\n"), &nothing(), false).unwrap();
    assert!(scratch.sections.len() == 4 && scratch.notes.is_empty(), "each has a file: {:?}", scratch.notes);
}

#[test]
fn workers_on_several_files_have_a_part_of_the_job_each() {
    let spec = |text: &str| plan(&format!("[a]\nfilename=x:y\n{text}")).sections[0].spec.clone();
    let rated = spec("rate_iops=1000\nnumber_ios=64\nio_size=1m");
    assert_eq!(rated.arrivals, Some(Arrivals::Constant { per_s: 500.0 }));
    assert_eq!((rated.workers, rated.number_ios, rated.io_size), (2, Some(32), Some(512 << 10)));
    let enough = spec("rate_iops=1000\nnumber_ios=64\nnumjobs=2");
    assert_eq!(enough.arrivals, Some(Arrivals::Constant { per_s: 1000.0 }));
    assert_eq!((enough.workers, enough.number_ios), (2, Some(64)));
    assert!(
        error("[a]\nfilename=x:y\nnumber_ios=7").contains("number_ios=7: 2 files cannot share it evenly")
    );
    assert!(error("[a]\nfilename=x:y:z\nio_size=1m").contains("io_size=1048576: 3 files"));
    // Time overrides a size, so nobody shares it.
    assert_eq!(spec("io_size=1k\ntime_based\nruntime=1").io_size, None);
}

#[test]
fn shares_for_reads_and_writes_are_those_of_what_the_job_does() {
    let percent = |text: &str| plan(&format!("[a]\n{text}")).sections[0].spec.random_percent;
    assert_eq!(percent("rw=randwrite\npercentage_random=100,0"), 0);
    assert_eq!(percent("percentage_random=100,0\nrw=randread"), 100);
    assert_eq!(percent("rw=randrw\npercentage_random=30,30"), 30);
    assert_eq!(percent("rw=randtrim\npercentage_random=1,2,3"), 3);
    assert!(
        error("[a]\nrw=randrw\npercentage_random=100,0").contains("percentage_random=100,0: shares of their")
    );
}

#[test]
fn variables_and_included_files_are_put_in() {
    let read = |path: &str| match path {
        "jobs/common.fio" => Ok("[global]\nbs=${SIZE}\n".to_owned()),
        "jobs/loop.fio" => Ok("include loop.fio\n".to_owned()),
        _ => Err("no such file".to_owned()),
    };
    let variable = |name: &str| match name {
        "SIZE" => Some("16k".to_owned()),
        "$ncpus" => Some("2".to_owned()),
        _ => None,
    };
    let sources = Sources { read: &read, variable: &variable };
    let go = |text: &str| parse("jobs/a.fio", text, &sources, false);
    let plan = go("include common.fio\n[a]\nnumjobs=$ncpus\n").unwrap();
    assert_eq!((plan.sections.len(), plan.sections[0].spec.block_size), (2, 16384));
    let error = |text: &str| go(text).unwrap_err().to_string();
    assert!(error("[a]\nbs=${OTHER}\n").starts_with("jobs/a.fio:2: the variable OTHER is not set"));
    assert!(error("include gone.fio\n").contains("jobs/gone.fio: no such file"));
    assert!(error("include loop.fio\n").contains("16 files deep"));
}

#[test]
fn what_is_done_otherwise_is_said() {
    let of = |text: &str| {
        let plan = plan(&format!("[a]\nfilename=x\n{text}\n"));
        (plan.sections[0].clone(), plan.notes.join(" "))
    };
    let (section, notes) =
        of("rw=randread\npercentage_random=30\npre_read=1\nwrite_hist_log\nlog_hist_msec=250");
    assert_eq!((section.spec.random_percent, section.spec.random_map), (30, false));
    assert!(section.spec.page_cache.pre_read && notes.contains("norandommap"), "{notes}");
    assert_eq!(section.logs.histogram.as_deref(), Some("a"));
    assert_eq!(section.logs.histogram_window, Some(Duration::from_millis(250)));
    let (section, notes) = of("rw=write\nverify=md5\nrate_iops=10\nthinktime=1s");
    assert!(section.spec.verify.is_some() && notes.contains("CRC-32C"), "{notes}");
    assert!(section.spec.think.is_none() && notes.contains("no pauses"), "{notes}");
}

#[test]
fn whatever_is_wrong_is_named_with_its_line() {
    for (text, words) in [
        ("[a]\niodept=4", "job.fio:2: unknown option 'iodept'; the nearest known one is iodepth"),
        ("[a]\nzonemode=zbd", "job.fio:2: zonemode is an option of fio's that is not done here"),
        ("[a]\nbs=4x", "job.fio:2: bs: '4x' has an unknown unit"),
        ("[a]\nbs=", "job.fio:2: bs: wanted a value"),
        ("[a]\ndirect=2", "'2' is neither 0 nor 1"),
        ("[a]\niodepth=5000", "whole number from 1 to 4096"),
        ("[a]\nrw=randreed", "'randreed' is no workload; wanted read"),
        ("[a]\nioengine=windowsaio", "wanted one of psync"),
        ("[a]\nrw=randrw\nbs=4k,8k", "job.fio:1: bs=4096,8192"),
        ("[a]\nrw=randrw\nrate_iops=900,100", "90 % reads, and rwmixread is 50"),
        ("[a]\nverify=pattern", "wanted crc32c or 0"),
        ("[a]\nruntime=soon", "'soon' has an unknown unit"),
        ("[a]\ncpus_allowed=3-1", "not a list of CPUs"),
        ("[a]\npercentile_list=101", "wanted up to 20 numbers"),
        (
            "[a]\nnumjobs=2\noffset=10%\noffset_increment=1g",
            "job.fio:1: offset=10% and offset_increment=1073741824",
        ),
        ("bs=4k\n[a]", "job.fio:1: bs stands before the first [section]"),
        ("[a\nbs=4k", "lacks its ]"),
        ("[global]\nbs=4k", "job.fio: no job in it"),
    ] {
        assert!(error(text).contains(words), "{text}: {}", error(text));
    }
    let plan = parse("job.fio", "[a]\nzonemode=zbd", &nothing(), true).unwrap();
    assert_eq!(plan.notes, ["job.fio:2: zonemode is not done and was left out"]);
}

#[test]
fn a_written_job_file_says_the_same() {
    for text in [
        "[a]\nrw=randrw\nrwmixread=70\nbssplit=4k/60:64k/40\nnorandommap\nioengine=io_uring\niodepth=32\ndirect=1\n\
         runtime=30\ntime_based\nramp_time=2\nfilename=/dev/nvme0n1\npercentile_list=50:99.9\n[b]\nstonewall\nrw=write\n\
         numjobs=4\ngroup_reporting\nsize=50%\noffset=1g\nrate_iops=1000\nrate_process=poisson\nrandseed=9",
        "[c]\nfilename=sim:read=80us\nrw=read:8k\nthinktime=50\nthinktime_blocks=4\ncpus_allowed=0-1\nverify=crc32c\n\
         [d]\nnew_group\nioengine=spdk\nrw=randread\nrandom_distribution=zoned:80/20:20/80\nloops=2\nrandrepeat=0\nbuffer_pattern=0xdeadbeef\nrefill_buffers\nfsync=8\nsync=dsync\n\
         invalidate=0\nfadvise_hint=random\nstartdelay=250ms\niodepth_low=4\niodepth=16\nbuffer_compress_percentage=50\nlatency_target=200\nlatency_window=1s\nlatency_percentile=99.9\n\
         steadystate=bw_slope:1%\nss_dur=10\nwrite_bw_log\nwrite_lat_log=x\nlog_avg_msec=500\nlog_max_value=1",
    ] {
        let first = plan(text);
        let written = job_file(&first);
        let second = parse("written.fio", &written, &nothing(), false).unwrap();
        for (first, second) in first.sections.iter().zip(&second.sections) {
            let first = Section { options: second.options.clone(), ..first.clone() };
            assert_eq!(&first, second, "{written}");
        }
        assert_eq!(first.sections.len(), second.sections.len());
    }
    let simulated = plan("[a]\nfilename=sim\nioengine=sim\n");
    assert!(job_file(&simulated).contains("ioengine=sim\n") && simulated.notes.is_empty(), "{simulated:?}");
}

proptest! {
    #[test]
    fn reading_never_panics(text in ".*", name in "[a-z_]{1,12}", value in ".*") {
        let _ = parse("a", &text, &nothing(), true);
        let _ = parse("a", &format!("[a]\n{name}={value}\n"), &nothing(), true);
    }

    #[test]
    fn every_option_takes_any_value_without_panic(
        name in prop::sample::select(vec![
            "bs", "bsrange", "bssplit", "size", "offset", "rate", "rate_iops", "runtime", "cpus_allowed", "cpumask",
            "percentile_list", "filename", "rw", "random_distribution", "thinktime", "numjobs", "kb_base", "loops",
        ]),
        value in "[0-9a-z%:,./-]{0,12}",
    ) {
        let _ = parse("a", &format!("[a]\n{name}={value}\n"), &nothing(), true);
    }
}
