//! A histogram in exchange format.
#![no_main]

use overdrive_hist::Histogram;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(histogram) = Histogram::decode_v2_base64(text) {
        let _ = (histogram.estimate(0.999), histogram.encode_v2_base64());
    }
});
