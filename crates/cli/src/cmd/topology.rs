//! `overdrive topology`: the way from the drives to the processors, and what it carries.

use crate::assemble;
use crate::cmd::audit;
use crate::exit::{Ending, Refused};
use crate::flags::TopologyFlags;
use crate::output;
use anyhow::Result;
use overdrive_host::topology::{Known, Topology};
use overdrive_report::{published, render};
use serde_json::json;

/// Reads and prints the picture.
pub(crate) fn topology(flags: &TopologyFlags) -> Result<Ending> {
    let root = match &flags.from_capture {
        Some(file) => audit::load(file)?,
        None => audit::rooted(&flags.root)?,
    };
    let known = Known { bridge: flags.bridge_limit, ..known() };
    let found = Topology::read(&root, &flags.targets, &known).map_err(|error| Refused(error.to_string()))?;
    let topology = assemble::topology(&found);
    if flags.json {
        let mut value = serde_json::to_value(&topology)?;
        value["schema"] = json!("overdrive.topology/1");
        output::print(&(serde_json::to_string_pretty(&value)? + "\n"))?;
    } else {
        output::print(&render::text::topology(&topology, output::text_options()))?;
    }
    Ok(Ending::Done)
}

/// What published figures say of drives.
pub(crate) fn known() -> Known {
    Known { bridge: None, drive: Some(published::reads_bytes_per_s) }
}
