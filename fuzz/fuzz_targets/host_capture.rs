//! A captured host: its facts, the audit for every disk, plan and topology.
#![no_main]

use overdrive_host::{Root, audit};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(root) = Root::from_capture(text) {
        let _ = audit::of_everything(&root);
    }
});
