//! Where results go: text to the terminal, files in one step, JSON alone on standard output.

use anyhow::{Context, Result};
use overdrive_base::size::format_size;
use overdrive_report::record::Record;
use overdrive_report::render::text::{TextOptions, paragraph, shown};
use overdrive_sys::file::open_special_for_writing;
use std::borrow::Cow;
use std::env::var_os;
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Prints text that ends in a newline.
pub(crate) fn print(text: &str) -> Result<()> {
    write_out("", text)
}

/// Prints text in place of all that is on the terminal; elsewhere behind what was printed before.
pub(crate) fn print_screen(text: &str) -> Result<()> {
    // Home, then clear what is below: without flicker.
    write_out(if std::io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" }, text)
}

fn write_out(before: &str, text: &str) -> Result<()> {
    let stdout = std::io::stdout();
    let text = fit_for(&stdout, text);
    stdout.lock().write_all(format!("{before}{text}").as_bytes()).context("writing to standard output")
}

/// The text as this stream may be given it: files and pipes get it as it is.
fn fit_for<'a>(stream: &impl IsTerminal, text: &'a str) -> Cow<'a, str> {
    if stream.is_terminal() { harmless(text) } else { text.into() }
}

/// What a terminal may be given: names in records, of jobs and of drives are anybody's, and could move the
/// cursor or change the title. All that steers a terminal is replaced, but for colours.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| shown(c) == c) {
        return text.into();
    }
    let mut pieces = text.split('\x1b');
    let mut out: String = pieces.next().into_iter().flat_map(str::chars).map(shown).collect();
    for piece in pieces {
        out.push(if is_colour(piece) { '\x1b' } else { char::REPLACEMENT_CHARACTER });
        out.extend(piece.chars().map(shown));
    }
    out.into()
}

/// Whether this, behind an escape, sets colour or weight: `[1;31m`.
fn is_colour(piece: &str) -> bool {
    let arguments = piece.strip_prefix('[').and_then(|rest| rest.split_once('m'));
    arguments.is_some_and(|(arguments, _)| arguments.bytes().all(|b| b.is_ascii_digit() || b == b';'))
}

/// Tells people one line on standard error. A full disk or a closed terminal there is no reason to lose a
/// result or to leave something behind, so nothing that goes wrong here matters; `eprintln!` would panic, and
/// clippy refuses it.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::say_line(format_args!($($text)*))
    };
}
pub(crate) use say;

/// What [`say!`] does: on a terminal the line is wrapped as results are, elsewhere it stays one line.
pub(crate) fn say_line(line: std::fmt::Arguments<'_>) {
    let stderr = std::io::stderr();
    let columns = stderr.is_terminal().then(|| columns_of(&stderr));
    let text: String = line.to_string().split('\n').map(|line| lines_of(line, columns)).collect();
    let _ = stderr.lock().write_all(fit_for(&stderr, &text).as_bytes());
}

/// A line as it is said; one that fits keeps the spaces that line it up with others.
fn lines_of(line: &str, columns: Option<usize>) -> String {
    match columns {
        Some(columns) if line.chars().count() > columns => paragraph(line, columns),
        _ => format!("{line}\n"),
    }
}

/// How wide text for a stream may be: as its terminal, between 80 and 120 columns.
fn columns_of(stream: &impl AsFd) -> usize {
    overdrive_sys::terminal_columns(stream).unwrap_or(80).clamp(80, 120)
}

/// As wide as the terminal allows; colour on a terminal, unless NO_COLOR is set or it is a dumb one.
pub(crate) fn text_options() -> TextOptions {
    let stdout = std::io::stdout();
    let width = columns_of(&stdout);
    let colour = stdout.is_terminal() && wants_colour(var_os("NO_COLOR"), var_os("TERM"));
    TextOptions { width, colour }
}

/// How many lines the terminal has; none when the output goes elsewhere.
pub(crate) fn terminal_rows() -> Option<usize> {
    overdrive_sys::terminal_rows(std::io::stdout())
}

/// Whether the environment leaves colour to a terminal.
fn wants_colour(no_color: Option<OsString>, term: Option<OsString>) -> bool {
    no_color.is_none_or(|value| value.is_empty()) && term.is_none_or(|name| name != "dumb")
}

/// Replaces a file in one step, so that a reader or a crash sees the old one or the new one, whole. What is
/// no regular file (a device, a pipe) is written to, without waiting for a reader, who may never come.
pub(crate) fn replace_file(path: &Path, text: &str) -> Result<()> {
    let written = if is_special(path) {
        open_special_for_writing(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(explained)
    } else {
        let place = place_of(path);
        unfinished_for(&place).and_then(|(unfinished, mut file)| {
            file.write_all(text.as_bytes())
                .and_then(|()| file.sync_all())
                .and_then(|()| std::fs::rename(&unfinished, &place))
                .inspect_err(|_| drop(std::fs::remove_file(&unfinished)))
        })
    };
    written.with_context(|| format!("writing {}", path.display()))
}

/// Finds out whether the file of an option could be replaced, before there is anything to write to it.
pub(crate) fn check_replaceable(option: &str, path: &Path) -> Result<()> {
    let outcome = if path.is_dir() {
        Err(std::io::Error::from(std::io::ErrorKind::IsADirectory))
    } else if is_special(path) {
        // Not opened: a pipe may have no reader yet.
        overdrive_sys::file::check_writable(path).map_err(std::io::Error::from)
    } else {
        unfinished_for(&place_of(path)).and_then(|(unfinished, _)| std::fs::remove_file(unfinished))
    };
    outcome.map_err(|error| {
        let text = format!(
            "{option} {}: cannot be written ({error}); wanted a file in a folder of this user's",
            path.display()
        );
        crate::exit::Refused(text).into()
    })
}

/// Of a pipe that nobody reads from the system says that there is no such device.
fn explained(error: std::io::Error) -> std::io::Error {
    if error.raw_os_error() == Some(overdrive_sys::Errno::NXIO.raw_os_error()) {
        std::io::Error::new(error.kind(), "a pipe that nobody reads from")
    } else {
        error
    }
}

/// Whether something is there that must not be replaced by a file.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| !about.is_file())
}

/// What a path names in the end: a link stays, and its target is replaced.
fn place_of(path: &Path) -> PathBuf {
    const LINKS_MAX: usize = 40;
    let mut place = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(&place) else { break };
        place = place.parent().unwrap_or(Path::new("")).join(target);
    }
    place
}

/// A new file beside `place`, under a name that nobody else has.
fn unfinished_for(place: &Path) -> std::io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let mut name = place.as_os_str().to_owned();
        name.push(format!(".{}-{number}.part", std::process::id()));
        let name = PathBuf::from(name);
        match File::create_new(&name) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
            outcome => return outcome.map(|file| (name, file)),
        }
    }
}

/// Makes the folder for results before anything is measured, so that a typo costs nothing.
pub(crate) fn result_folder(folder: &Path) -> Result<&Path> {
    std::fs::create_dir_all(folder)
        .and_then(|()| unfinished_for(&folder.join("record.json")))
        .and_then(|(probe, _)| std::fs::remove_file(probe))
        .map_err(|error| {
            crate::exit::Refused(format!("--out {}: cannot write there: {error}", folder.display()))
        })?;
    Ok(folder)
}

/// The words of the command line, for a record. A path may hold bytes that are no text: their place is
/// marked.
pub(crate) fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Reads a record from a file.
pub(crate) fn load_record(path: &Path) -> Result<Record> {
    let text = read_text(path).map_err(|error| {
        crate::exit::Refused(format!("{}: {error}; wanted a record.json", path.display()))
    })?;
    let record = Record::from_json(&text)
        .map_err(|error| crate::exit::Refused(format!("{}: {error}", path.display())))?;
    Ok(record)
}

/// The most that is read of a file that a user names.
const TEXT_MAX: u64 = 1 << 30;

/// Reads a file of text. One without an end, as /dev/zero is, would fill the memory.
pub(crate) fn read_text(path: &Path) -> std::io::Result<String> {
    read_at_most(path, TEXT_MAX)
}

fn read_at_most(path: &Path, most: u64) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if read as u64 > most {
        return Err(std::io::Error::other(format!("larger than {}", format_size(most))));
    }
    String::from_utf8(bytes).map_err(|_| std::io::Error::other("not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "a".repeat(1024)).unwrap();
        assert_eq!(read_at_most(&path, 1024).unwrap().len(), 1024);
        for (path, most) in [(path.as_path(), 1023), (Path::new("/dev/zero"), 1 << 20)] {
            let error = read_at_most(path, most).unwrap_err().to_string();
            assert_eq!(error, format!("larger than {}", format_size(most)));
        }
        std::fs::write(&path, [0xFF]).unwrap();
        assert_eq!(read_text(&path).unwrap_err().to_string(), "not UTF-8 text");
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(harmless("plain, bold \x1b[1m\x1b[0;31mred\n"), "plain, bold \x1b[1m\x1b[0;31mred\n");
        let title = harmless("a\x1b]0;title\x07b\x1b[2Jc\rd\u{9b}5A\x1b[?25l\x1b");
        assert_eq!(title, "a\u{fffd}]0;title\u{fffd}b\u{fffd}[2Jc\u{fffd}d\u{fffd}5A\u{fffd}[?25l\u{fffd}");
    }

    #[test]
    fn what_is_said_is_wrapped_on_a_terminal_only() {
        let long = format!("overdrive: {}end", "a few words ".repeat(10));
        assert_eq!(lines_of(&long, None), format!("{long}\n"));
        let wrapped = lines_of(&long, Some(80));
        assert!(wrapped.lines().count() == 2 && wrapped.lines().all(|line| line.len() <= 80), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>().join(" "), long);
        assert_eq!(lines_of("[ 1/10] a      b", Some(80)), "[ 1/10] a      b\n");
    }

    #[test]
    fn colour_is_left_out_where_it_is_unwanted_or_not_shown() {
        for (no_color, term, wanted) in [
            (None, None, true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (None, Some("dumb"), false),
        ] {
            let found = wants_colour(no_color.map(OsString::from), term.map(OsString::from));
            assert_eq!(found, wanted, "NO_COLOR {no_color:?}, TERM {term:?}");
        }
    }

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

    #[test]
    fn a_device_a_link_and_a_file_of_the_users_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("x.part"), "the user's").unwrap();
        std::os::unix::fs::symlink("x", at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/null", at("null")).unwrap();
        for text in ["made", "replaced"] {
            check_replaceable("--stats", &at("link")).unwrap();
            replace_file(&at("link"), text).unwrap();
            assert_eq!(std::fs::read_to_string(at("x")).unwrap(), text);
        }
        assert_eq!(std::fs::read_link(at("link")).unwrap(), Path::new("x"));
        assert_eq!(std::fs::read_to_string(at("x.part")).unwrap(), "the user's");
        check_replaceable("--stats", &at("null")).unwrap();
        replace_file(&at("null"), "nowhere").unwrap();
        assert!(!std::fs::metadata(at("null")).unwrap().is_file());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4);
    }
}
