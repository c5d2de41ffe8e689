//! fio's job files: sections of options, understood as a plan.
//!
//! `lines` turns files into options with a place each, `options` is the table of all options fio has,
//! `values` reads their values as fio does, `draft` makes a section of them, and `write` goes the other way.
//! What fio does and Overdrive does not is refused by name: a job that silently does less than it says would
//! be believed.

mod draft;
mod lines;
mod options;
mod values;
mod write;

use super::{FrontError, Plan, WORKERS_MAX};
use draft::Draft;
use lines::{Line, Lines};
pub(super) use values::cpus;
pub use write::{job_file, options_of};

/// Where a job file's words come from.
pub struct Sources<'a> {
    /// Reads an included file.
    pub read: &'a dyn Fn(&str) -> Result<String, String>,
    /// The value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl std::fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// Reads the job file `name`, whose text is given.
///
/// With `ignore_unsupported`, options that fio has and Overdrive does not do are left out and noted.
///
/// # Errors
/// [`FrontError`] with file and line of the first thing that cannot be read.
pub fn parse(
    name: &str,
    text: &str,
    sources: &Sources<'_>,
    ignore_unsupported: bool,
) -> Result<Plan, FrontError> {
    let lines = Lines::read(name, text, sources)?;
    let mut plan = Plan::default();
    let mut globals: Vec<Line> = Vec::new();
    let mut at = lines.all.iter().peekable();
    let (mut phase, mut group, mut workers) = (0, 0, 0);
    while let Some(header) = at.next() {
        let mut own = Vec::new();
        while let Some(line) = at.next_if(|line| !line.is_header) {
            own.push(line.clone());
        }
        // Sizes are read by it wherever it stands, as in fio.
        own.sort_by_key(|line| options::main_name(&line.name) != "kb_base");
        if header.name == "global" {
            plan.globals.extend(own.iter().filter_map(Line::pair));
            globals.extend(own);
            continue;
        }
        let mut draft = Draft::new(&header.name);
        for line in globals.iter().chain(&own) {
            options::apply(&mut draft, line, ignore_unsupported, &mut plan.notes)?;
        }
        if !plan.sections.is_empty() {
            phase += u32::from(draft.stonewall);
            group += u32::from(draft.stonewall || draft.new_group);
        }
        let mut section = draft.finish(header, &mut plan.notes)?;
        (section.phase, section.group) = (phase, group);
        section.options = own.iter().filter_map(Line::pair).collect();
        workers += u64::from(section.spec.workers);
        if workers > WORKERS_MAX {
            return Err(header.fail(format!("more than {WORKERS_MAX} workers over all sections")));
        }
        // Without a filename each of fio's clones has a file of its own, grouped or not.
        let together = section.group_reporting && !section.targets.is_empty();
        if together || section.spec.workers == 1 {
            plan.sections.push(section);
        } else {
            plan.sections.extend(section.apart());
        }
    }
    if plan.sections.is_empty() {
        let reason = "no job in it: wanted a section such as [randread] with its options".to_owned();
        return Err(FrontError { place: name.to_owned(), reason });
    }
    plan.notes.dedup();
    Ok(plan)
}

#[cfg(test)]
mod tests;
