//! DISKSPD lines.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let _ = overdrive_io::front::diskspd::parse(&words, true);
});
