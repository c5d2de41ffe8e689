//! fio's job files: whatever is understood can be written and read again.
#![no_main]

use overdrive_io::front::fio::{Sources, job_file, parse};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let variable = |name: &str| (name != "UNSET").then(|| "4k".to_owned());
    let sources = Sources { read: &|_| Ok("[global]\nbs=8k\n".to_owned()), variable: &variable };
    if let Ok(plan) = parse("job", text, &sources, true) {
        assert!(parse("written", &job_file(&plan), &sources, false).is_ok());
    }
});
