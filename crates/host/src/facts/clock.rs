//! The kernel's time source, which every latency on this host is measured with.
//!
//! What a clock read costs is measured by the tool's self-test, not here.

use super::{Fact, FactRow, Rows};
use crate::root::Root;

const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0";

/// What is known of the time source.
#[derive(Debug, Clone)]
pub struct ClockFacts {
    /// The one in use.
    pub current: Fact<String>,
    /// Those the kernel would accept.
    pub available: Fact<Vec<String>>,
}

impl ClockFacts {
    pub(super) fn read(root: &Root) -> ClockFacts {
        ClockFacts {
            current: root.text(&format!("{SOURCE}/current_clocksource")),
            available: root
                .text(&format!("{SOURCE}/available_clocksource"))
                .map(|text| text.split_whitespace().map(str::to_owned).collect()),
        }
    }

    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("clock");
        rows.plain("source", "Clock source", &self.current, "");
        rows.add("available", "Clock sources available", &self.available, |names| names.join(" "));
        rows.into_vec()
    }
}
