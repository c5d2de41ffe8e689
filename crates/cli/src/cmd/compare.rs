//! `overdrive compare`: what changed between two records beyond their noise.

use crate::exit::{Ending, refuse};
use crate::flags::CompareFlags;
use crate::output;
use anyhow::Result;
use overdrive_report::compare;
use overdrive_report::record::Record;
use overdrive_report::render;
use std::path::Path;

/// Compares two records.
pub(crate) fn compare(flags: &CompareFlags) -> Result<Ending> {
    let comparison = compare::compare(&load(&flags.old)?, &load(&flags.new)?);
    if comparison.workloads.is_empty() {
        refuse!(
            "{}, {}: the two records have no workload in common; wanted two of the same workloads",
            flags.old.display(),
            flags.new.display()
        );
    }
    if flags.json {
        let mut value = serde_json::to_value(&comparison)?;
        value["schema"] = "overdrive.compare/1".into();
        output::print(&format!("{value:#}\n"))?;
    } else {
        output::print(&render::text::comparison(&comparison, output::text_options()))?;
    }
    Ok(if flags.exit_code && comparison.is_worse() { Ending::BadVerdict } else { Ending::Done })
}

/// A record that can be compared: one of I/O workloads.
pub(crate) fn load(path: &Path) -> Result<Record> {
    let record = output::load_record(path)?;
    if record.paging.is_some() {
        refuse!(
            "{}: a record of `overdrive page`, and only I/O workloads are compared; wanted a record of evaluate or run",
            path.display()
        );
    }
    Ok(record)
}
