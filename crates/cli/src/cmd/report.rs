//! `overdrive report`: a stored record, shown again.

use crate::exit::{Ending, Refused, refuse};
use crate::flags::ReportFlags;
use crate::output;
use anyhow::Result;
use overdrive_report::density::{DensityRecord, show};
use overdrive_report::render;
use std::path::Path;

/// Renders a record as text, HTML, JSON or an HdrHistogram log.
pub(crate) fn report(flags: &ReportFlags) -> Result<Ending> {
    for (option, path) in [("--html", &flags.html), ("--hlog", &flags.hlog)] {
        path.as_deref().map_or(Ok(()), |path| output::check_replaceable(option, path))?;
    }
    if let Some(record) = density_record(&flags.record)? {
        return density(&record, flags);
    }
    let record = output::load_record(&flags.record)?;
    if flags.json {
        output::print(&record.to_json_pretty()?)?;
    } else if let Some(path) = &flags.html {
        output::replace_file(path, &render::html::report(&record, None)?)?;
    } else if let Some(path) = &flags.hlog {
        hlog(path, render::hlog::log(&record), flags)?;
    } else {
        output::print(&render::text::record(&record, output::text_options()))?;
    }
    Ok(Ending::Done)
}

/// The record of a density run, when the file says that it is one. What else it may be, others find out.
fn density_record(path: &Path) -> Result<Option<DensityRecord>> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(None) };
    if !DensityRecord::is_one(&text) {
        return Ok(None);
    }
    let record = DensityRecord::from_json(&text);
    Ok(Some(record.map_err(|error| Refused(format!("{}: {error}", path.display())))?))
}

fn density(record: &DensityRecord, flags: &ReportFlags) -> Result<Ending> {
    let page = show::page(record);
    if flags.json {
        output::print(&record.to_json_pretty()?)?;
    } else if let Some(path) = &flags.html {
        output::replace_file(path, &render::html::page(&page)?)?;
    } else if let Some(path) = &flags.hlog {
        hlog(path, render::hlog::density_log(record), flags)?;
    } else {
        output::print(&render::text::page(&page, output::text_options()))?;
    }
    Ok(Ending::Done)
}

/// A log without a line would look like one of a run in which nothing was waited for.
fn hlog(path: &Path, log: Option<String>, flags: &ReportFlags) -> Result<()> {
    let Some(log) = log else {
        refuse!("--hlog: {} holds no latency; wanted a record of a run that measured", flags.record.display())
    };
    output::replace_file(path, &log)
}
