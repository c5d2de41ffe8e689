//! Readers of the few text shapes that /proc and /sys use: numbers, switches, choices, lists, columns.
//!
//! Pure, and total: any text gives a value or an [`Unexpected`] that quotes it. No path, no meaning.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The largest CPU or node number a list may name; the kernel's own limit is 8192.
const CPU_MAX: u32 = 65_535;

/// Text that is not what the file should hold.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{value}' read, {wanted} wanted")]
pub struct Unexpected {
    /// The text, shortened.
    pub value: String,
    /// What should stand there.
    pub wanted: &'static str,
}

impl Unexpected {
    /// Quotes at most 80 characters of `text`.
    #[must_use]
    pub fn new(text: &str, wanted: &'static str) -> Unexpected {
        Unexpected { value: text.chars().take(80).collect(), wanted }
    }
}

/// A whole number.
///
/// # Errors
/// When the text is none or does not fit the type.
pub fn number<T: FromStr>(text: &str) -> Result<T, Unexpected> {
    text.trim().parse().map_err(|_| Unexpected::new(text, "a whole number"))
}

/// A switch: `0`/`1`, `N`/`Y`, `false`/`true`, `off`/`on`.
///
/// # Errors
/// When the text is none of them.
pub fn switch(text: &str) -> Result<bool, Unexpected> {
    match text.trim() {
        "0" | "N" | "n" | "false" | "off" => Ok(false),
        "1" | "Y" | "y" | "true" | "on" => Ok(true),
        _ => Err(Unexpected::new(text, "0 or 1, N or Y")),
    }
}

/// One of several, as in `none [mq-deadline] kyber`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The one in force.
    pub active: String,
    /// All of them, the active one included, in the kernel's order.
    pub available: Vec<String>,
}

/// A choice whose active entry stands in brackets, or in parentheses as in debugfs; a single word is active.
///
/// # Errors
/// When nothing is marked and there is more than one word, or none.
pub fn choice(text: &str) -> Result<Choice, Unexpected> {
    let bare = |word: &str| word.trim_matches(['[', ']', '(', ')']).to_owned();
    let words: Vec<&str> = text.split_whitespace().collect();
    let marked = words.iter().find(|word| word.starts_with(['[', '(']));
    let active = match (marked, words.as_slice()) {
        (Some(word), _) => bare(word),
        (None, [only]) => bare(only),
        _ => return Err(Unexpected::new(text, "words with the active one in brackets")),
    };
    Ok(Choice { active, available: words.into_iter().map(bare).collect() })
}

/// A set of CPU numbers, in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuSet(Vec<u32>);

impl CpuSet {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `cpu` is in it.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Whether all of it lies in `other`.
    #[must_use]
    pub fn is_subset_of(&self, other: &CpuSet) -> bool {
        self.iter().all(|cpu| other.contains(cpu))
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut list: Vec<u32> = cpus.into_iter().collect();
        list.sort_unstable();
        list.dedup();
        CpuSet(list)
    }
}

impl fmt::Display for CpuSet {
    /// As the kernel writes it: `0-3,8`; `none` when empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|&(&cpu, wanted)| cpu == wanted).count();
            match run {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", rest[run - 1])?,
            }
            rest = &rest[run..];
            separator = ",";
        }
        Ok(())
    }
}

/// A CPU list as the kernel writes it: `0-3,8`, `0, 1`, or nothing.
///
/// # Errors
/// When a part is neither a number nor a range, or is beyond any real machine.
pub fn cpu_list(text: &str) -> Result<CpuSet, Unexpected> {
    let fail = || Unexpected::new(text, "a CPU list such as 0-3,8");
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().map_err(|_| fail())?;
        let last: u32 = last.trim().parse().map_err(|_| fail())?;
        if first > last || last > CPU_MAX || cpus.len() > CPU_MAX as usize {
            return Err(fail());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus.into_iter().collect())
}

/// Words between blanks; double quotes keep blanks inside a word, as the kernel reads its command line.
pub fn quoted_words(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let words = text.split(move |c: char| {
        is_quoted ^= c == '"';
        !is_quoted && c.is_whitespace()
    });
    words.filter(|word| !word.is_empty())
}

/// The value of `key` in lines of `key : value` or `key: value`.
#[must_use]
pub fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// Bytes of a line such as `MemTotal:  24684112 kB`.
///
/// # Errors
/// When the line is missing or its number cannot be read.
pub fn field_kib(text: &str, key: &str) -> Result<u64, Unexpected> {
    let value = field(text, key).ok_or_else(|| Unexpected::new(key, "a line of that name"))?;
    let count: u64 = number(value.trim_end_matches("kB"))?;
    count.checked_mul(1024).ok_or_else(|| Unexpected::new(value, "a size in kB"))
}

/// Numbers in columns.
///
/// # Errors
/// When a word is no whole number.
pub fn numbers(text: &str) -> Result<Vec<u64>, Unexpected> {
    text.split_whitespace().map(number).collect()
}

/// The sum, at most the largest number: counts that a file makes up must not stop who adds them.
pub fn sum<N: std::borrow::Borrow<u64>>(numbers: impl IntoIterator<Item = N>) -> u64 {
    numbers.into_iter().fold(0, |sum, number| sum.saturating_add(*number.borrow()))
}

/// Undoes the octal escapes (`\040` for a blank) of mountinfo and /proc/swaps.
#[must_use]
pub fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| byte == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match octal {
            Some(value) => {
                bytes.push(value);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_choices_of_both_kinds() {
        let scheduler = choice("none [mq-deadline] kyber bfq ").unwrap();
        assert_eq!(scheduler.active, "mq-deadline");
        assert_eq!(scheduler.available, ["none", "mq-deadline", "kyber", "bfq"]);
        assert_eq!(choice("none voluntary (full)").unwrap().active, "full");
        assert_eq!(choice("none").unwrap().active, "none");
        assert!(choice("a b").is_err() && choice("").is_err());
    }

    #[test]
    fn reads_cpu_lists_as_the_kernel_writes_them() {
        assert_eq!(cpu_list("0-3,8").unwrap(), [0, 1, 2, 3, 8].into_iter().collect());
        assert_eq!(cpu_list("0, 1").unwrap().to_string(), "0-1");
        assert!(cpu_list("").unwrap().is_empty());
        for text in ["a", "3-1", "0-4294967295", "1-", "-1"] {
            assert!(cpu_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn finds_fields_and_sizes() {
        let text = "model name\t: Xeon\nMemTotal:       24684112 kB\nBroken: x kB\n";
        assert_eq!(field(text, "model name"), Some("Xeon"));
        assert_eq!(field_kib(text, "MemTotal"), Ok(24_684_112 * 1024));
        assert!(field_kib(text, "Broken").is_err() && field_kib(text, "None").is_err());
    }

    #[test]
    fn undoes_escapes() {
        assert_eq!(unescape("/mnt/a\\040b\\011"), "/mnt/a b\t");
        assert_eq!(unescape("\\0 \\999 \\"), "\\0 \\999 \\");
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,60}") {
            let _ = (number::<u64>(&text), switch(&text), choice(&text), cpu_list(&text), numbers(&text));
            let _ = (field(&text, "a"), field_kib(&text, "a"), unescape(&text));
        }

        #[test]
        fn a_cpu_set_reads_back_as_it_is_shown(cpus in prop::collection::vec(0u32..300, 1..40)) {
            let set: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(cpu_list(&set.to_string()).unwrap(), set);
        }
    }
}
