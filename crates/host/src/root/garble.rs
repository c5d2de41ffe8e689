//! A captured host with some of its content damaged, as bytes tell: for tests and fuzzers, so that readers
//! meet what no kernel should ever write.

/// What stands in for a value: empty, not a number, out of any range, a list without end, other alphabets.
const GARBAGE: [&str; 16] = [
    "",
    "-1",
    "0",
    "18446744073709551616",
    "4294967296",
    "nan",
    "[",
    "[]",
    "0-4294967295",
    "65535-0,",
    "none [none",
    ": : :",
    "\u{fffd}\u{0}",
    "GT/s PCIe",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
    "\u{661}\u{662}",
];

const ERRNOS: [&str; 6] = ["EACCES", "EPERM", "EIO", "EINVAL", "ENODATA", "ENODEV"];

/// Damages the text of a capture. Every four bytes damage one line: two choose it, one says how, one with
/// what.
#[must_use]
pub fn garble(capture: &str, bytes: &[u8]) -> String {
    let mut lines: Vec<String> = capture.lines().map(str::to_owned).collect();
    for word in bytes.chunks_exact(4) {
        if lines.is_empty() {
            break;
        }
        let at = usize::from(u16::from_le_bytes([word[0], word[1]])) % lines.len();
        let garbage = GARBAGE[usize::from(word[3]) % GARBAGE.len()];
        let line = std::mem::take(&mut lines[at]);
        let path = line.split([' ', '\t']).next().unwrap_or_default();
        let errno = ERRNOS[usize::from(word[3]) % ERRNOS.len()];
        if !path.starts_with('/') {
            // A line of a longer text is another one now; whatever else it was stays out.
            lines[at] = if line.starts_with('|') { format!("|{garbage}") } else { format!("# {line}") };
            continue;
        }
        if line.ends_with('|') {
            // The text goes with the entry it belonged to.
            let text = lines[at + 1..].iter_mut().take_while(|line| line.starts_with('|'));
            text.for_each(|line| *line = format!("# {line}"));
        }
        lines[at] = match word[2] % 6 {
            0 => format!("{path} = {garbage}"),
            1 => format!("{path} ! {errno}"),
            2 => format!("{path}/"),
            3 => format!("{path} -> /sys"),
            4 => format!("# {line}"),
            _ => format!("{path} = {}{garbage}", line.split_once(" = ").map_or("", |(_, text)| text)),
        };
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_damaged_without_bytes_and_what_they_say_with_them() {
        let text = "/a = 1\n/b |\n|x\n";
        assert_eq!(garble(text, &[1, 2, 3]), text);
        assert_eq!(garble(text, &[0, 0, 1, 0]), "/a ! EACCES\n/b |\n|x\n");
        assert_eq!(garble(text, &[2, 0, 0, 1]), "/a = 1\n/b |\n|-1\n");
        assert_eq!(garble(text, &[1, 0, 1, 2]), "/a = 1\n/b ! EIO\n# |x\n");
        assert_eq!(garble("", &[0; 8]), "\n");
    }
}
