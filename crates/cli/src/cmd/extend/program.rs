//! What a program is, as far as a preload library is concerned: found where, linked how, with whose rights.
//!
//! Read from the file itself; nothing is run to find out.

use crate::exit::{Refused, refuse};
use anyhow::Result;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What ends or refuses where other threads are beside its own: it makes or enters user namespaces, or takes
/// rights from its one thread before the C library changes the user in all.
const ALONE: [&str; 5] = ["bwrap", "chromium", "nsenter", "setpriv", "unshare"];
/// How many scripts may name each other as interpreter.
const SCRIPTS_MAX: usize = 4;

/// A program that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its file.
    pub(crate) path: PathBuf,
    /// Why a preload library does not reach it.
    pub(crate) unreachable: Option<String>,
}

impl Program {
    /// Finds a command as a shell does and looks at it.
    pub(crate) fn find(command: &OsStr) -> Result<Self> {
        let path = locate(command)?;
        let unreachable = unreachable(&path)?;
        Ok(Self { path, unreachable })
    }

    /// Whether it bears no threads beside its own.
    pub(crate) fn insists_on_one_thread(&self) -> bool {
        self.path.file_name().is_some_and(|name| ALONE.iter().any(|alone| name == *alone))
    }
}

/// The file that a command names: itself when it has a slash, else the first that can be run in PATH.
fn locate(command: &OsStr) -> Result<PathBuf> {
    let shown = command.to_string_lossy();
    let can_run = |path: &Path| {
        path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match path.metadata() {
            Err(error) => Err(Refused(format!("{shown}: {error}: wanted a program after --")).into()),
            Ok(_) if can_run(&path) => Ok(path),
            Ok(_) => refuse!("{shown}: not a file that can be run: wanted a program after --"),
        };
    }
    let places = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let found = std::env::split_paths(&places).map(|place| place.join(command)).find(|path| can_run(path));
    Ok(found.ok_or_else(|| Refused(format!("{shown}: command not found in PATH")))?)
}

fn unreachable(path: &Path) -> Result<Option<String>> {
    let mut path = path.to_path_buf();
    for _ in 0..SCRIPTS_MAX {
        let shown = path.display().to_string();
        if let Some(whose) = foreign_rights(&path) {
            return Ok(Some(format!(
                "{shown} runs with {whose} and the loader ignores preload libraries then"
            )));
        }
        let file = File::open(&path).map_err(|error| {
            Refused(format!("{shown}: {error}: it must be readable to see how it is linked"))
        })?;
        let mut start = Vec::new();
        file.take(4096).read_to_end(&mut start)?;
        if start.starts_with(b"#!") {
            path = interpreter_of(&start);
            continue;
        }
        let linked = Linked::read(&start);
        return Ok(linked.obstacle().map(|why| format!("{shown} is {why}")));
    }
    refuse!("{}: more than {SCRIPTS_MAX} scripts name each other as interpreter", path.display())
}

/// The program of a `#!` line.
fn interpreter_of(start: &[u8]) -> PathBuf {
    let mut line = String::new();
    // Not text is no path either: the file then does not exist, and says so.
    let _ = BufReader::new(&start[2..]).read_line(&mut line);
    PathBuf::from(line.split_ascii_whitespace().next().unwrap_or_default())
}

/// Whose rights a file gives to who runs it, if not the user's own.
fn foreign_rights(path: &Path) -> Option<&'static str> {
    let about = path.metadata().ok()?;
    let user = overdrive_sys::relay::effective_user();
    let set = about.permissions().mode();
    if set & 0o4000 != 0 && about.uid() != user {
        return Some("its owner's rights (setuid)");
    }
    // Root's too: the loader compares the group.
    if set & 0o2000 != 0 && set & 0o010 != 0 && about.gid() != overdrive_sys::relay::effective_group() {
        return Some("its group's rights (setgid)");
    }
    (user != 0 && overdrive_sys::file::has_capabilities(path)).then_some("capabilities of its file")
}

/// Whether a file can be loaded as a library into the programs that ours is built for.
pub(crate) fn is_library(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(4096).read_to_end(&mut start)?;
    // One that names a loader is a program, which cannot be preloaded.
    let is_shared = number(&start, ELF_TYPE, 2) == Some(ET_DYN);
    Ok(is_shared && Linked::read(&start) == Linked::Static)
}

/// What an ELF header tells of how a program is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linked {
    /// The loader of the C library that ours is built for.
    Dynamic,
    /// Another C library's loader.
    OtherLoader,
    Static,
    Width32,
    OtherMachine,
    Unknown,
}

/// Fields of the ELF header and of a program header (64 bits), from elf(5).
const ELF_TYPE: usize = 16;
const ET_DYN: u64 = 3;
const ELF_PHOFF: usize = 32;
const ELF_PHENTSIZE: usize = 54;
const ELF_PHNUM: usize = 56;
const PT_INTERP: u64 = 3;

impl Linked {
    /// From the first bytes of a file; what lies beyond them counts as not there.
    fn read(start: &[u8]) -> Self {
        if !start.starts_with(b"\x7fELF") || start.len() < 64 {
            return Linked::Unknown;
        }
        if start[4] != 2 {
            return Linked::Width32;
        }
        let machine = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        // Byte 5: 1 is little-endian, as this machine is.
        if start[5] != 1 || number(start, 18, 2) != Some(machine) {
            return Linked::OtherMachine;
        }
        let field = |at, bytes| number(start, at, bytes).unwrap_or(0) as usize;
        let (first, size, count) = (field(ELF_PHOFF, 8), field(ELF_PHENTSIZE, 2), field(ELF_PHNUM, 2));
        for header in (0..count).filter_map(|index| first.checked_add(index * size)) {
            if number(start, header, 4) != Some(PT_INTERP) {
                continue;
            }
            let place = number(start, header.saturating_add(8), 8).unwrap_or(0) as usize;
            let rest = start.get(place..).unwrap_or_default();
            let name = rest.split(|&byte| byte == 0).next().unwrap_or_default();
            let is_musl = name.windows(7).any(|part| part == b"ld-musl");
            return if is_musl { Linked::OtherLoader } else { Linked::Dynamic };
        }
        Linked::Static
    }

    /// What stands in the way of a preload library.
    fn obstacle(self) -> Option<&'static str> {
        match self {
            Linked::Dynamic => None,
            Linked::OtherLoader => Some("linked with musl; the preload library is built for glibc"),
            Linked::Static => Some("statically linked, so no library can be preloaded"),
            Linked::Width32 => Some("a 32-bit program; the preload library is 64-bit"),
            Linked::OtherMachine => Some("built for another machine"),
            Linked::Unknown => Some("neither an ELF program nor a script with a #! line"),
        }
    }
}

/// A little-endian number of a few bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(length)?)?;
    Some(field.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one program header of `kind`, whose content is `interpreter`.
    fn elf(kind: u8, interpreter: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 200];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18] = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        file[ELF_PHOFF] = 64;
        file[ELF_PHENTSIZE] = 56;
        file[ELF_PHNUM] = 1;
        file[64] = kind;
        file[72] = 120;
        file[120..120 + interpreter.len()].copy_from_slice(interpreter);
        file
    }

    #[test]
    fn the_header_tells_how_a_program_is_linked() {
        assert_eq!(Linked::read(&elf(3, b"/lib64/ld-linux-x86-64.so.2")), Linked::Dynamic);
        assert_eq!(Linked::read(&elf(3, b"/lib/ld-musl-x86_64.so.1")), Linked::OtherLoader);
        assert_eq!(Linked::read(&elf(1, b"")), Linked::Static);
        let mut narrow = elf(3, b"");
        narrow[4] = 1;
        assert_eq!(Linked::read(&narrow), Linked::Width32);
        let mut other = elf(3, b"");
        other[18] = 8;
        assert_eq!(Linked::read(&other), Linked::OtherMachine);
    }

    #[test]
    fn a_library_is_not_a_text_a_program_nor_another_machines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lib.so");
        let found = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            is_library(&path).unwrap()
        };
        let mut library = elf(1, b"");
        library[ELF_TYPE] = 3;
        assert!(found(&library));
        assert!(!found(b"hello") && !found(b"") && !found(&elf(1, b"")) && !found(&elf(3, b"/lib64/ld.so")));
        library[18] = 8;
        assert!(!found(&library));
    }

    #[test]
    fn a_group_that_the_user_has_not_is_seen_for_root_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("setgid");
        std::fs::copy("/bin/true", &path).unwrap();
        let set = || std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o2755)).unwrap();
        set();
        assert_eq!(unreachable(&path).unwrap(), None, "its group is the user's own");
        if std::os::unix::fs::chown(&path, None, Some(65_534)).is_ok() {
            set();
            let why = unreachable(&path).unwrap().expect("the loader ignores the library");
            assert!(why.contains("setgid"), "{why}");
        }
    }

    #[test]
    fn a_damaged_header_is_survived() {
        let whole = elf(3, b"/lib64/ld.so");
        for length in 0..whole.len() {
            Linked::read(&whole[..length]);
        }
        for at in 0..120 {
            let mut bent = whole.clone();
            bent[at] = 0xff;
            Linked::read(&bent);
        }
        assert_eq!(Linked::read(b"hello"), Linked::Unknown);
    }

    #[test]
    fn this_test_is_dynamic_and_what_is_not_there_is_named() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(Program::find(own.as_os_str()).unwrap().unreachable, None);
        let missing = Program::find(OsStr::new("no-such-command")).unwrap_err().to_string();
        assert!(missing.contains("not found in PATH"), "{missing}");
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let missing = Program::find(script.as_os_str()).unwrap_err().to_string();
        assert!(missing.contains("/no/such/interpreter"), "{missing}");
    }
}
