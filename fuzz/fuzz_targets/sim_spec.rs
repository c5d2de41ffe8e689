//! The line that describes a simulated device.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = overdrive_io::engine::sim::SimSpec::parse(text);
});
