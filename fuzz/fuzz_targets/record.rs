//! A stored record, and everything that is made of it.
#![no_main]

use overdrive_report::{compare, record::Record, render, verdict};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(mut record) = Record::from_json(text) else { return };
    verdict::judge_all(&mut record);
    let _ = render::text::record(&record, render::text::TextOptions { width: 80, colour: false });
    let _ = render::html::report(&record, Some(&compare::compare(&record, &record)));
});
