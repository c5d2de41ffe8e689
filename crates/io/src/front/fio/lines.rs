//! From the text of a job file to headers and options, each with its place: comments, `include`, variables.

use super::Sources;
use crate::front::FrontError;

/// fio's own limit: deeper than this, files include one another in a circle.
const DEPTH_MAX: u32 = 16;
/// More lines than any job file has; includes multiply.
const LINES_MAX: usize = 100_000;

/// A header `[name]`, or an option `name=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// The file and the line's number, as in `job.fio:12`.
    pub(super) place: String,
    pub(super) is_header: bool,
    pub(super) name: String,
    /// What stands behind the equals sign, if there is one.
    pub(super) value: Option<String>,
}

impl Line {
    pub(super) fn fail(&self, reason: impl Into<String>) -> FrontError {
        FrontError { place: self.place.clone(), reason: reason.into() }
    }

    /// Name and value, if it has one: fio's results repeat no others.
    pub(super) fn pair(&self) -> Option<(String, String)> {
        Some((super::options::main_name(&self.name).to_owned(), self.value.clone()?))
    }
}

/// All lines of a job file and of what it includes.
pub(super) struct Lines {
    pub(super) all: Vec<Line>,
}

impl Lines {
    pub(super) fn read(name: &str, text: &str, sources: &Sources<'_>) -> Result<Self, FrontError> {
        let mut lines = Self { all: Vec::new() };
        lines.add(name, text, sources, 0)?;
        if let Some(first) = lines.all.first().filter(|line| !line.is_header) {
            return Err(first.fail(format!("{} stands before the first [section]", first.name)));
        }
        Ok(lines)
    }

    fn add(&mut self, file: &str, text: &str, sources: &Sources<'_>, depth: u32) -> Result<(), FrontError> {
        // The mark with which editors on Windows begin a text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, raw) in text.lines().enumerate() {
            let place = format!("{file}:{}", index + 1);
            let fail = |reason: String| FrontError { place: place.clone(), reason };
            if self.all.len() >= LINES_MAX {
                return Err(fail(format!("more than {LINES_MAX} lines")));
            }
            let line = raw.trim();
            if let Some(rest) = line.strip_prefix('[') {
                let (name, _) = rest.split_once(']').ok_or_else(|| fail(format!("'{line}' lacks its ]")))?;
                if name.trim().is_empty() {
                    return Err(fail("a section without a name".to_owned()));
                }
                let name = name.trim().to_owned();
                self.all.push(Line { place, is_header: true, name, value: None });
                continue;
            }
            // Like fio, wherever it stands.
            let line = line.split(['#', ';']).next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            if let Some(path) = line.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t'])) {
                let path = path.trim();
                if depth == DEPTH_MAX {
                    return Err(fail(format!("include {path}: more than {DEPTH_MAX} files deep")));
                }
                let beside = beside(file, path);
                let text = (sources.read)(&beside)
                    .map_err(|error| fail(format!("include {path}: {beside}: {error}")))?;
                self.add(&beside, &text, sources, depth + 1)?;
                continue;
            }
            let expanded = expand(line, sources).map_err(fail)?;
            let (name, value) = match expanded.split_once('=') {
                Some((name, value)) => (name.trim(), Some(value.trim().to_owned())),
                None => (expanded.trim(), None),
            };
            self.all.push(Line { place, is_header: false, name: name.to_owned(), value });
        }
        Ok(())
    }
}

/// A path as seen from the file that includes it.
fn beside(file: &str, path: &str) -> String {
    match file.rsplit_once('/') {
        Some((folder, _)) if !path.starts_with('/') => format!("{folder}/{path}"),
        _ => path.to_owned(),
    }
}

/// Replaces `${NAME}` by the variable's value, and fio's words for the machine.
fn expand(line: &str, sources: &Sources<'_>) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        expanded.push_str(before);
        let (name, after) = if let Some(braced) = from.strip_prefix("${") {
            braced.split_once('}').ok_or_else(|| format!("'{from}' lacks its }}"))?
        } else {
            let end = from[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let end = end.map_or(from.len(), |end| end + 1);
            let word = &from[..end];
            if !["$pagesize", "$mb_memory", "$ncpus"].contains(&word) {
                expanded.push_str(word);
                rest = &from[end..];
                continue;
            }
            (word, &from[end..])
        };
        let value = (sources.variable)(name)
            .ok_or_else(|| format!("the variable {name} is not set in the environment"))?;
        expanded.push_str(&value);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}
