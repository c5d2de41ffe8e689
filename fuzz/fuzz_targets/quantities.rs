//! Sizes and durations as typed.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = overdrive_base::size::parse_size(text);
    let _ = overdrive_base::time::parse_duration(text);
});
