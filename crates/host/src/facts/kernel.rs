//! The running kernel: release, command line, preemption model, and the build options that rules ask for.
//!
//! Build options come from /boot/config-RELEASE, or where that is missing from /proc/config.gz.

use super::parse::{self, Unexpected};
use super::{Fact, FactRow, Rows};
use crate::root::Root;
use std::fmt;

/// What is known of the kernel.
#[derive(Debug, Clone)]
pub struct KernelFacts {
    /// Release, such as 6.12.41+deb13-amd64.
    pub release: Fact<Release>,
    /// Build line, such as `#1 SMP PREEMPT_DYNAMIC ...`.
    pub version: Fact<String>,
    /// Boot command line.
    pub cmdline: Fact<String>,
    /// Preemption model in force.
    pub preempt: Fact<Preempt>,
    /// The build options of [`CONFIG_HINTS`] that are set, as `NAME=value`.
    pub config: Fact<Vec<String>>,
}

/// Build options worth knowing beside a result: timer, preemption, debugging that costs time.
pub const CONFIG_HINTS: [&str; 16] = [
    "CONFIG_HZ",
    "CONFIG_NO_HZ_FULL",
    "CONFIG_PREEMPT_DYNAMIC",
    "CONFIG_PREEMPT_RT",
    "CONFIG_RCU_NOCB_CPU",
    "CONFIG_RCU_NOCB_CPU_DEFAULT_ALL",
    "CONFIG_RCU_LAZY",
    "CONFIG_RCU_LAZY_DEFAULT_OFF",
    "CONFIG_BLK_WBT_MQ",
    "CONFIG_NVME_MULTIPATH",
    "CONFIG_KASAN",
    "CONFIG_PROVE_LOCKING",
    "CONFIG_DEBUG_PAGEALLOC",
    "CONFIG_SLUB_DEBUG_ON",
    "CONFIG_INIT_ON_ALLOC_DEFAULT_ON",
    "CONFIG_IOMMU_DEFAULT_DMA_STRICT",
];

/// A kernel release, ordered by its first two numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number, where there is one.
    pub patch: Option<u32>,
    /// The whole, as `uname -r` prints it.
    pub text: String,
}

impl Release {
    /// Whether this is `major.minor` or newer. Vendors backport: a knob's own answer is stronger evidence.
    #[must_use]
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How readily the kernel interrupts its own code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preempt {
    /// Not at all.
    None,
    /// At marked places.
    Voluntary,
    /// Nearly everywhere.
    Full,
    /// At the next tick, unless a real-time task waits (6.13 and newer).
    Lazy,
    /// Everywhere: a PREEMPT_RT kernel.
    RealTime,
}

impl Preempt {
    /// The kernel's word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Preempt::None => "none",
            Preempt::Voluntary => "voluntary",
            Preempt::Full => "full",
            Preempt::Lazy => "lazy",
            Preempt::RealTime => "rt",
        }
    }
}

impl KernelFacts {
    pub(super) fn read(root: &Root) -> KernelFacts {
        let release = root.text("/proc/sys/kernel/osrelease").parse(release);
        let version = root.text("/proc/sys/kernel/version");
        let cmdline = root.text("/proc/cmdline");
        let preempt = read_preempt(root, &version, &cmdline);
        let config = read_config(root, &release);
        KernelFacts { release, version, cmdline, preempt, config }
    }

    /// The value of a boot parameter: `Some("")` when it stands there without one.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        parameter(self.cmdline.value()?, name)
    }

    /// Whether the kernel is known to be `major.minor` or newer.
    #[must_use]
    pub fn at_least(&self, major: u32, minor: u32) -> Option<bool> {
        Some(self.release.value()?.at_least(major, minor))
    }

    /// Whether a build option of [`CONFIG_HINTS`] is built in; none: the configuration is not known.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<bool> {
        let set = self.config.value()?;
        Some(set.iter().any(|line| line.strip_prefix(name) == Some("=y")))
    }

    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("kernel");
        rows.plain("release", "Kernel", &self.release, "");
        rows.plain("version", "Kernel build", &self.version, "");
        rows.add("preempt", "Preemption", &self.preempt, |preempt| preempt.name().to_owned());
        rows.plain("cmdline", "Command line", &self.cmdline, "");
        rows.add("config", "Build options", &self.config, |set| set.join(" "));
        rows.into_vec()
    }
}

/// Reads `6.12.41+deb13-amd64`.
fn release(text: &str) -> Result<Release, Unexpected> {
    let fail = || Unexpected::new(text, "a release such as 6.12.41");
    let mut parts = text.split('.');
    let mut next = || {
        let part = parts.next()?;
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse().ok()
    };
    let major = next().ok_or_else(fail)?;
    let minor = next().ok_or_else(fail)?;
    let patch = next();
    Ok(Release { major, minor, patch, text: text.to_owned() })
}

/// The last mention of a parameter counts, as in the kernel.
fn parameter<'a>(cmdline: &'a str, name: &str) -> Option<&'a str> {
    let words = parse::quoted_words(cmdline).take_while(|word| *word != "--");
    let value = |rest: &'a str| if rest.is_empty() { Some(rest) } else { rest.strip_prefix('=') };
    // Quotes stand around a word or around its value; the kernel takes - and _ in a name for the same.
    let rest = |word: &'a str| {
        let same = |(a, b): (char, char)| a == b || (a == '_' && b == '-');
        let has_name = word.len() >= name.len() && name.chars().zip(word.chars()).all(same);
        if has_name { word.get(name.len()..) } else { None }
    };
    let bare = words.map(|word| word.trim_matches('"'));
    bare.filter_map(|word| value(rest(word)?)).last().map(|value| value.trim_matches('"'))
}

/// debugfs says it outright; without it the build line does, or for a dynamic model the command line.
fn read_preempt(root: &Root, version: &Fact<String>, cmdline: &Fact<String>) -> Fact<Preempt> {
    let debug = root.text("/sys/kernel/debug/sched/preempt");
    if debug.value().is_some() {
        return debug.parse(|text| preempt_named(&parse::choice(text)?.active));
    }
    let Some(text) = version.value() else { return version.clone().map(|_| Preempt::None) };
    let has = |word: &str| text.split_whitespace().any(|seen| seen == word);
    let asked = cmdline.value().and_then(|line| parameter(line, "preempt"));
    if has("PREEMPT_DYNAMIC") {
        return match asked {
            Some(word) => Fact::known(word, format!("preempt={word}"), cmdline.path())
                .and_then(|word| preempt_named(word)),
            None => Fact::Unreadable {
                path: debug.path().to_owned(),
                errno: debug.errno(),
                why: format!(
                    "the model is set at run time, and debugfs, which would tell, is {}",
                    debug.why().unwrap_or_default()
                ),
            },
        };
    }
    let preempt = if has("PREEMPT_RT") {
        Preempt::RealTime
    } else if has("PREEMPT") {
        Preempt::Full
    } else {
        // The build line does not tell 'none' from 'voluntary'; neither preempts kernel code by itself.
        Preempt::Voluntary
    };
    Fact::known(preempt, text.as_str(), version.path())
}

fn preempt_named(word: &str) -> Result<Preempt, Unexpected> {
    match word {
        "none" => Ok(Preempt::None),
        "voluntary" => Ok(Preempt::Voluntary),
        "full" => Ok(Preempt::Full),
        "lazy" => Ok(Preempt::Lazy),
        _ => Err(Unexpected::new(word, "none, voluntary, full or lazy")),
    }
}

fn read_config(root: &Root, release: &Fact<Release>) -> Fact<Vec<String>> {
    let Some(release) = release.value() else { return release.clone().map(|_| Vec::new()) };
    let is_wanted = |line: &str| line.split_once('=').is_some_and(|(name, _)| CONFIG_HINTS.contains(&name));
    let mut whole = root.text(&format!("/boot/config-{release}"));
    if whole.value().is_none() {
        let packed = root.unpacked("/proc/config.gz", &is_wanted);
        whole = if packed.is_absent() { whole } else { packed };
    }
    let Fact::Known { value, path, .. } = whole else { return whole.map(|_| Vec::new()) };
    let set: Vec<String> = value.lines().filter(|line| is_wanted(line)).map(str::to_owned).collect();
    Fact::known(set.clone(), set.join("\n"), path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_releases() {
        let debian = release("6.12.41+deb13-amd64").unwrap();
        assert!(debian.at_least(6, 12) && debian.at_least(5, 16) && !debian.at_least(6, 13));
        assert_eq!((debian.patch, release("7.0-rc2").unwrap().patch), (Some(41), None));
        assert!(release("7.0-rc2").unwrap().at_least(7, 0));
        assert!(release("").is_err() && release("6").is_err() && release("x.y").is_err());
    }

    #[test]
    fn finds_boot_parameters() {
        let line = "quiet mitigations=auto a=1 a=2 rdinit=/x -- nosmt";
        assert_eq!(parameter(line, "mitigations"), Some("auto"));
        assert_eq!(parameter(line, "a"), Some("2"));
        assert_eq!(parameter(line, "quiet"), Some(""));
        assert_eq!(parameter(line, "qui"), None);
        assert_eq!(parameter(line, "nosmt"), None);
    }

    #[test]
    fn what_stands_in_quotes_is_one_word() {
        let line = r#"dyndbg="file a.c +p; nvme.poll_queues=3 nosmt" "isolcpus=managed_irq, 2" root=x"#;
        assert_eq!(parameter(line, "nvme.poll_queues"), None);
        assert_eq!(parameter(line, "nosmt"), None);
        assert_eq!(parameter(line, "dyndbg"), Some("file a.c +p; nvme.poll_queues=3 nosmt"));
        assert_eq!(parameter(line, "isolcpus"), Some("managed_irq, 2"));
        assert_eq!(parameter(line, "root"), Some("x"));
        assert_eq!(parameter("nvme-core.multipath=N", "nvme_core.multipath"), Some("N"));
    }

    #[test]
    fn build_options_come_packed_where_there_is_no_other_file() {
        use std::io::Write;
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path().join("proc");
        std::fs::create_dir_all(proc.join("sys/kernel")).unwrap();
        std::fs::write(proc.join("sys/kernel/osrelease"), "6.18.44\n").unwrap();
        let pack = |text: &str| {
            let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packed.write_all(text.as_bytes()).unwrap();
            std::fs::write(proc.join("config.gz"), packed.finish().unwrap()).unwrap();
        };
        pack("# x\nCONFIG_HZ=250\nCONFIG_RCU_LAZY=y\nCONFIG_OTHER=y\n# CONFIG_KASAN is not set\n");
        let root = Root::new(folder.path()).recorded();
        let facts = KernelFacts::read(&root);
        assert_eq!(facts.config.value().unwrap(), &["CONFIG_HZ=250", "CONFIG_RCU_LAZY=y"]);
        assert_eq!(facts.config.path(), "/proc/config.gz");
        assert_eq!(
            (facts.option("CONFIG_RCU_LAZY"), facts.option("CONFIG_KASAN")),
            (Some(true), Some(false))
        );
        // A capture holds what was asked for, as text.
        let capture = root.capture().unwrap();
        assert!(capture.contains("CONFIG_RCU_LAZY=y") && !capture.contains("CONFIG_OTHER"), "{capture}");
        let again = KernelFacts::read(&Root::from_capture(&capture).unwrap());
        assert_eq!(again.config.value(), facts.config.value());
        // Nothing else is unpacked, and a bomb neither fills memory nor time.
        std::fs::write(proc.join("config.gz"), "no gzip").unwrap();
        let broken = KernelFacts::read(&Root::new(folder.path()));
        assert!(broken.config.why().is_some() && broken.option("CONFIG_HZ").is_none());
        pack(&"CONFIG_HZ=1\n".repeat(4 << 20));
        let bomb = KernelFacts::read(&Root::new(folder.path()));
        assert!(bomb.config.why().unwrap().contains("larger than"), "{:?}", bomb.config.why());
    }

    #[test]
    fn a_dynamic_model_without_debugfs_is_not_guessed() {
        let known = |text: &str| Fact::known(text.to_owned(), text, "/proc/x");
        let root = Root::from_capture("").unwrap();
        let read = |version: &str, cmdline: &str| read_preempt(&root, &known(version), &known(cmdline));
        assert!(read("#1 SMP PREEMPT_DYNAMIC", "quiet").value().is_none());
        assert_eq!(read("#1 SMP PREEMPT_DYNAMIC", "preempt=full").get(), Some(Preempt::Full));
        assert_eq!(read("#1 SMP PREEMPT_RT x", "").get(), Some(Preempt::RealTime));
        assert!(read("#1 SMP PREEMPT_DYNAMIC", "preempt=what").value().is_none());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,60}") {
            let _ = (release(&text), parameter(&text, "a"), preempt_named(&text));
        }
    }
}
