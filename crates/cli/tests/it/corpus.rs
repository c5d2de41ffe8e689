//! Every input in the fuzz corpora goes through its parser again, whole and damaged: none may panic, and what was
//! found stays found.

use overdrive_base::rng::Rng;
use overdrive_host::root::garble::garble;
use overdrive_host::{Root, audit};
use overdrive_report::record::Record;
use overdrive_report::{render, verdict};
use std::path::Path;

/// Words that parsers look for, and numbers at the edges.
const PIECES: [&str; 32] = [
    "0",
    "-1",
    "1",
    "100",
    "101",
    "255",
    "4096",
    "65536",
    "4294967296",
    "18446744073709551615",
    "1e400",
    "nan",
    "k",
    "G",
    "%",
    ":",
    "/",
    ",",
    "=",
    "\n",
    "[x]\n",
    "[global]\n",
    "${A}",
    "\"",
    "\\",
    "{",
    "}",
    "\u{0}",
    "\u{fffd}",
    "-",
    " ",
    "include ",
];

/// The text with a few places cut, doubled, swapped or overwritten; the same for the same state of `rng`.
fn damaged(text: &str, rng: &mut Rng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=rng.below(4) {
        let place = |rng: &mut Rng, length: usize| rng.below(length as u64 + 1) as usize;
        let at = place(rng, chars.len());
        let to = (at + place(rng, 12)).min(chars.len());
        match rng.below(5) {
            0 => drop(chars.drain(at..to)),
            1 => {
                let copy: Vec<char> = chars[at..to].to_vec();
                chars.splice(at..at, copy);
            }
            2 => chars.truncate(at.max(1)),
            3 => {
                let other = place(rng, chars.len());
                if at < chars.len() && other < chars.len() {
                    chars.swap(at, other);
                }
            }
            _ => {
                let piece = PIECES[rng.below(PIECES.len() as u64) as usize];
                chars.splice(at..to, piece.chars());
            }
        }
    }
    chars.into_iter().collect()
}

fn replay(target: &str, parse: impl Fn(&str)) {
    replay_and_damage(target, 500, parse);
}

/// Each input, and so many damaged ones made of it.
fn replay_and_damage(target: &str, times: u64, parse: impl Fn(&str)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let inputs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(inputs.len() >= 2, "{} has no corpus", folder.display());
    for input in inputs {
        let text = String::from_utf8_lossy(&std::fs::read(&input).unwrap()).into_owned();
        parse(&text);
        for seed in 0..times {
            parse(&damaged(&text, &mut Rng::new(seed)));
        }
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
    replay_and_damage("record", 40, |text| {
        let Ok(mut record) = Record::from_json(text) else { return };
        verdict::judge_all(&mut record);
        drop(render::text::record(&record, render::text::TextOptions::default()));
        assert!(render::html::report(&record, None).is_ok());
    });
}

#[test]
fn captured_hosts() {
    replay_and_damage("host_capture", 10, |text| {
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
