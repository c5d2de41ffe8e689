//! Every input in the fuzz corpora goes through its parser again: none may panic, and what was found stays found.

use overdrive_host::root::garble::garble;
use overdrive_host::{Root, audit};
use overdrive_report::record::Record;
use overdrive_report::{render, verdict};
use std::path::Path;

fn replay(target: &str, parse: impl Fn(&str)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let inputs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(inputs.len() >= 2, "{} has no corpus", folder.display());
    for input in inputs {
        parse(&String::from_utf8_lossy(&std::fs::read(&input).unwrap()));
    }
}

#[test]
fn quantities() {
    replay("quantities", |text| {
        let _ = overdrive_base::size::parse_size(text);
        let _ = overdrive_base::time::parse_duration(text);
    });
}

#[test]
fn simulated_devices() {
    replay("sim_spec", |text| drop(overdrive_io::engine::sim::SimSpec::parse(text)));
}

#[test]
fn job_files() {
    use overdrive_io::front::fio::{Sources, job_file, parse};
    let variable = |name: &str| (name != "UNSET").then(|| "4k".to_owned());
    let sources = Sources { read: &|_| Ok("[global]\nbs=8k\n".to_owned()), variable: &variable };
    replay("job_file", |text| {
        let Ok(plan) = parse("job", text, &sources, true) else { return };
        let written = job_file(&plan);
        assert!(parse("written", &written, &sources, false).is_ok(), "{written}");
    });
}

#[test]
fn other_tools_lines() {
    use overdrive_io::front::{diskspd, spdk_perf};
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    replay("diskspd_line", |text| drop(diskspd::parse(&words(text), true)));
    replay("spdk_perf_line", |text| drop(spdk_perf::parse(&words(text), true)));
}

#[test]
fn records() {
    replay("record", |text| {
        let Ok(mut record) = Record::from_json(text) else { return };
        verdict::judge_all(&mut record);
        drop(render::text::record(&record, render::text::TextOptions::default()));
        assert!(render::html::report(&record, None).is_ok());
    });
}

#[test]
fn captured_hosts() {
    replay("host_capture", |text| {
        if let Ok(root) = Root::from_capture(text) {
            let _ = audit::of_everything(&root);
        }
    });
}

#[test]
fn damaged_hosts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let hosts = ["reference-virtio", "p4800x-two-socket", "memory-extension", "crypt-behind-vmd"];
    let hosts = hosts.map(|name| {
        std::fs::read_to_string(folder.join("fixtures/hosts").join(name).with_extension("tree")).unwrap()
    });
    let mut seen = 0;
    for entry in std::fs::read_dir(folder.join("fuzz/corpus/host_garbled")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let (first, rest) = bytes.split_first().unwrap();
        if let Ok(root) = Root::from_capture(&garble(&hosts[usize::from(*first) % hosts.len()], rest)) {
            let _ = audit::of_everything(&root);
        }
        seen += 1;
    }
    assert!(seen >= 4);
}

#[test]
fn histograms() {
    replay("histogram", |text| drop(overdrive_hist::Histogram::decode_v2_base64(text)));
}
