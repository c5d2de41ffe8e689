//! Lines of SPDK's perf.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let _ = overdrive_io::front::spdk_perf::parse(&words, true);
});
