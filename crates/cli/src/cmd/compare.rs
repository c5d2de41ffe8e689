//! `overdrive compare`: what changed between two records beyond their noise.

use crate::exit::Ending;
use crate::flags::CompareFlags;
use crate::output;
use anyhow::Result;
use overdrive_report::compare;
use overdrive_report::render;

/// Compares two records.
pub(crate) fn compare(flags: &CompareFlags) -> Result<Ending> {
    let comparison = compare::compare(&output::load_record(&flags.old)?, &output::load_record(&flags.new)?);
    if flags.json {
        output::print(&(serde_json::to_string_pretty(&comparison)? + "\n"))?;
    } else {
        output::print(&render::text::comparison(&comparison, output::text_options()))?;
    }
    Ok(Ending::Done)
}
