//! Where results go: text to the terminal, files in one step, JSON alone on standard output.

use anyhow::{Context, Result};
use overdrive_report::record::Record;
use overdrive_report::render::text::TextOptions;
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Prints text that ends in a newline.
pub(crate) fn print(text: &str) -> Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes()).context("writing to standard output")
}

/// As wide as the terminal, between 80 and 120 columns; colour on a terminal unless NO_COLOR is set.
pub(crate) fn text_options() -> TextOptions {
    let stdout = std::io::stdout();
    let width = overdrive_sys::terminal_columns(&stdout).unwrap_or(80).clamp(80, 120);
    let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    TextOptions { width, colour }
}

/// Replaces a file in one step, so that a reader or a crash sees the old one or the new one, whole.
pub(crate) fn replace_file(path: &Path, text: &str) -> Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".part");
    let unfinished = Path::new(&unfinished);
    let written = std::fs::File::create(unfinished).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(unfinished, path)
    });
    written
        .inspect_err(|_| drop(std::fs::remove_file(unfinished)))
        .with_context(|| format!("writing {}", path.display()))
}

/// Finds out whether the file of an option could be replaced, before there is anything to write to it.
pub(crate) fn check_replaceable(option: &str, path: &Path) -> Result<()> {
    let mut probe = path.as_os_str().to_owned();
    probe.push(".part");
    let probe = Path::new(&probe);
    let outcome = if path.is_dir() {
        Err(std::io::Error::from(std::io::ErrorKind::IsADirectory))
    } else {
        std::fs::File::create(probe).and_then(|_| std::fs::remove_file(probe))
    };
    outcome.map_err(|error| {
        let text = format!(
            "{option} {}: cannot be written ({error}); wanted a file in a folder of this user's",
            path.display()
        );
        crate::exit::Refused(text).into()
    })
}

/// Makes the folder for results before anything is measured, so that a typo costs nothing.
pub(crate) fn result_folder(folder: &Path) -> Result<&Path> {
    let probe = folder.join("record.json.part");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&probe, ""))
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|error| {
            crate::exit::Refused(format!("--out {}: cannot write there: {error}", folder.display()))
        })?;
    Ok(folder)
}

/// Reads a record from a file.
pub(crate) fn load_record(path: &Path) -> Result<Record> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        crate::exit::Refused(format!("{}: {error}; wanted a record.json", path.display()))
    })?;
    let record = Record::from_json(&text)
        .map_err(|error| crate::exit::Refused(format!("{}: {error}", path.display())))?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.json");
        replace_file(&path, "old").unwrap();
        replace_file(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(replace_file(&directory.path().join("missing/record.json"), "x").is_err());
    }
}
