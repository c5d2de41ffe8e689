//! The whole evaluation, on a simulated device and on a real scratch file.

use crate::support::{folder, has_direct_io, run, written_file};
use serde_json::Value;
use std::path::Path;

fn record(folder: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join("record.json")).unwrap()).unwrap()
}

fn assert_valid(record: &Value) {
    let schema =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/record.schema.json"));
    let schema: Value = serde_json::from_str(&schema.unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(record).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

fn evaluate(target: &[&str], out: &Path) -> (i32, String, String) {
    let mut arguments = vec!["evaluate"];
    arguments.extend(target);
    arguments.extend(["--quick", "--out", out.to_str().unwrap()]);
    run(&arguments)
}

#[test]
fn a_simulated_device_gives_the_figures_it_was_given() {
    let folder = folder();
    let out = folder.path().join("out");
    let device = "sim:read=80us,jitter=0,channels=16,per_kib=0ns,slow=0.01@2ms";
    let (code, text, error) = evaluate(&[device], &out);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("report.html"), "the end says where the report is: {error}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "fits 80 columns:\n{text}");
    let record = record(&out);
    assert_valid(&record);
    assert_eq!(record["status"]["state"], "complete");
    let first = &record["workloads"][0]["outcome"]["read"]["latency"];
    let percentile = |wanted: f64| {
        let all = first["percentiles"].as_array().unwrap();
        all.iter().find(|p| p["percentile"] == wanted).unwrap()["value_ns"].as_f64().unwrap()
    };
    assert!((percentile(50.0) / 80_000.0 - 1.0).abs() < 0.008, "{first}");
    assert!((percentile(99.9) / 2_000_000.0 - 1.0).abs() < 0.008, "{first}");
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(html.contains("<svg"));
    for outside in ["<script", "<link", "<img", "src=", "href=\"http", "url(", "@import"] {
        assert!(!html.contains(outside), "the report is one self-contained file: {outside}");
    }
}

#[test]
fn a_scratch_file_is_measured_with_all_workloads_and_gone() {
    if !has_direct_io("a_scratch_file_is_measured_with_all_workloads_and_gone") {
        return;
    }
    let folder = folder();
    let (scratch, out) = (folder.path().join("scratch"), folder.path().join("out"));
    std::fs::create_dir(&scratch).unwrap();
    let place = scratch.to_str().unwrap();
    let (code, _, error) = evaluate(&["--dir", place, "--size", "32MiB", "--runtime", "100ms"], &out);
    assert_eq!(code, 0, "{error}");
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "nothing is left behind");
    let record = record(&out);
    assert_valid(&record);
    assert_eq!(record["preconditioning"]["kind"], "written");
    assert_eq!(record["preconditioning"]["bytes_written"], 32 << 20);
    let holes = record["findings"].as_array().unwrap().iter().find(|finding| finding["rule"] == "file-holes");
    assert_eq!(holes.unwrap()["status"], "ok", "the audit sees the file as it is measured");
    let workloads = record["workloads"].as_array().unwrap();
    assert!(workloads.len() >= 15, "{}", workloads.len());
    for workload in workloads {
        assert!(workload["outcome"]["ios"].as_u64().unwrap() > 0, "{}", workload["id"]);
        assert!(workload["outcome"]["errors"].as_array().unwrap().is_empty());
        assert!(!workload["verdict"]["because"].as_array().unwrap().is_empty(), "{}", workload["id"]);
    }
    assert!(record["findings"].as_array().unwrap().len() >= 20);
    assert!(record["self_test"]["noise"].as_array().is_some_and(|noise| !noise.is_empty()));
}

#[test]
fn a_dead_drive_is_compared() {
    let folder = folder();
    let record = |name: &str, device: &str| {
        let (_, text, _) = run(&["run", device, "--runtime", "100ms", "--json"]);
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (alive, dead) = (record("alive", "sim"), record("dead", "sim:error=1"));
    let (code, text, error) = run(&["compare", &alive, &dead]);
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("0.00× -") && text.contains("the target differs"), "{text}");
    let (_, text, _) = run(&["compare", &dead, &alive]);
    assert!(text.contains("from 0 +"), "{text}");
    assert_eq!(run(&["compare", "--exit-code", &alive, &dead]).0, 1, "worse");
    let (code, printed, _) = run(&["compare", "--exit-code", "--json", &alive, &dead]);
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &printed["schema"]), (1, &"overdrive.compare/1".into()));
    assert!(printed["workloads"][0]["changes"].is_array(), "{printed}");
    assert_eq!(run(&["compare", "--exit-code", &dead, &alive]).0, 0, "better");
    assert_eq!(run(&["compare", "--exit-code", &alive, &alive]).0, 0);
}

#[test]
fn records_of_other_workloads_are_not_compared() {
    let folder = folder();
    let record = |rw: &str| {
        let (_, text, _) = run(&["run", "sim", "--rw", rw, "--runtime", "100ms", "--json"]);
        let path = folder.path().join(rw);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (one, other) = (record("randread"), record("randwrite"));
    for more in [&[][..], &["--json"], &["--exit-code"]] {
        let (code, text, error) = run(&[&["compare", &one, &other], more].concat());
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{error}");
        assert!(error.contains("no workload in common; wanted"), "{error}");
    }
}

#[test]
fn a_users_file_is_only_read_unless_named_again() {
    if !has_direct_io("a_users_file_is_only_read_unless_named_again") {
        return;
    }
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let before = std::fs::read(&path).unwrap();
    let out = folder.path().join("out");
    let (code, _, error) = evaluate(&[path.to_str().unwrap(), "--runtime", "50ms"], &out);
    assert_eq!(code, 0, "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before, "not a byte has changed");
    let first = record(&out);
    let writes = |record: &Value| {
        let all = record["workloads"].as_array().unwrap();
        all.iter().filter(|workload| !workload["outcome"]["write"].is_null()).count()
    };
    assert_eq!(writes(&first), 0);
    let name = path.to_str().unwrap();
    let (code, _, error) = evaluate(&[name, "--write-to", name, "--runtime", "50ms"], &out);
    assert_eq!(code, 0, "{error}");
    assert!(writes(&record(&out)) >= 4);
    assert_ne!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_full_standard_error_costs_no_result() {
    let folder = folder();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_overdrive"))
        .args(["evaluate", "sim", "--quick", "--runtime", "100ms", "--out"])
        .arg(folder.path())
        .stdout(std::process::Stdio::null())
        .stderr(full)
        .status();
    assert_eq!(status.unwrap().code(), Some(0), "no panic");
    assert_eq!(record(folder.path())["status"]["state"], "complete");
    assert!(folder.path().join("report.html").exists());
}

#[test]
fn errors_of_the_device_are_counted_and_told() {
    let folder = folder();
    let (code, text, error) = evaluate(&["sim:error=0.001"], folder.path());
    assert_eq!(code, 1, "ran, but the result is bad");
    assert!(text.contains("EIO") && error.contains("errors"), "{text}");
    let errors = &record(folder.path())["workloads"][0]["outcome"]["errors"][0];
    assert_eq!((errors["name"].as_str(), errors["operation"].as_str()), (Some("EIO"), Some("read")));
}

#[test]
fn a_device_that_dies_leaves_what_was_measured() {
    let folder = folder();
    let (code, text, _) = evaluate(&["sim:dies=500000,read=20us"], folder.path());
    assert_eq!(code, 3, "the system failed it");
    let record = record(folder.path());
    assert_valid(&record);
    assert_eq!(record["status"]["state"], "failed");
    assert!(record["status"]["reason"].as_str().unwrap().contains("ENODEV"), "{}", record["status"]);
    assert!(record["workloads"].as_array().unwrap().len() >= 2, "workloads before the death are kept");
    assert!(text.contains("ENODEV"), "{text}");
    assert!(folder.path().join("report.html").exists());
}

#[test]
fn json_is_alone_on_standard_output() {
    let folder = folder();
    let out = folder.path().join("out");
    let (code, text, said) = evaluate(&["sim", "--json"], &out);
    let last = said.lines().rev().find_map(|line| line.strip_prefix('[')?.split_once(']')).unwrap().0;
    let (number, steps) = last.split_once('/').unwrap();
    assert_eq!(number.trim(), steps, "the last step is the last that was announced");
    assert_eq!(code, 0);
    let printed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(printed, record(&out));
}

#[test]
fn a_record_compares_with_an_earlier_one() {
    let folder = folder();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    assert_eq!(evaluate(&["sim:read=80us,slow=0@1ms,per_kib=0ns"], &old).0, 0);
    let earlier = old.join("record.json");
    let (code, text, error) =
        evaluate(&["sim:read=40us,slow=0@1ms,per_kib=0ns", "--against", earlier.to_str().unwrap()], &new);
    assert_eq!(code, 0, "{error}");
    assert!(
        text.contains("2.00× +") && text.contains("0.50× +"),
        "twice the rate at half the latency: {text}"
    );
    let (code, again, _) = run(&["compare", earlier.to_str().unwrap(), earlier.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(
        again.contains("1.00× =") && !again.contains("× +") && !again.contains("× -"),
        "equals itself:\n{again}"
    );
    let (code, shown, _) = run(&["report", earlier.to_str().unwrap()]);
    assert_eq!((code, shown.contains("queue depth 1")), (0, true));
}
