//! A Rust text made searchable: comments and literals blanked, test code marked, items found by their braces.
//!
//! This is a lexer, not a parser. It trusts that the compiler accepts the text; where it cannot tell (a macro
//! that opens a brace in a string it builds, say) it errs on the side of saying nothing.

/// A Rust text prepared for searching.
#[derive(Debug)]
pub(super) struct Source {
    /// The text as it stands.
    raw: Vec<String>,
    /// The same lines with comments and the insides of literals as spaces.
    code: Vec<char>,
    /// The line (from 0) of each character of `code`.
    line_of: Vec<usize>,
    /// Whether each line is test code.
    test: Vec<bool>,
}

/// A function found in a source.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// The line of `fn`, from 1.
    pub(super) line: usize,
    /// From the line of `fn` to that of the closing brace.
    pub(super) line_count: usize,
}

impl Source {
    /// Prepares `text`; `all_test` marks a file that is nothing but tests.
    pub(super) fn new(text: &str, all_test: bool) -> Self {
        let raw: Vec<String> = text.lines().map(str::to_owned).collect();
        let code = blank(text);
        let mut line = 0;
        let line_of = code
            .iter()
            .map(|&c| {
                let here = line;
                line += usize::from(c == '\n');
                here
            })
            .collect();
        let mut source = Self { test: vec![all_test; raw.len()], raw, code, line_of };
        if !all_test {
            source.mark_tests();
        }
        source
    }

    /// The lines as they stand.
    pub(super) fn raw_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.raw.iter().enumerate().map(|(index, line)| (index + 1, line.as_str()))
    }

    /// How many lines are not test code.
    pub(super) fn product_line_count(&self) -> usize {
        self.test.iter().filter(|&&test| !test).count()
    }

    /// Whether line `line` (from 1) is test code.
    pub(super) fn is_test(&self, line: usize) -> bool {
        self.test.get(line - 1).copied().unwrap_or(false)
    }

    /// The lines (from 1) where `pattern` stands in code, its ends not inside a longer word.
    pub(super) fn find(&self, pattern: &str) -> Vec<usize> {
        self.positions(pattern).into_iter().map(|at| self.line_of[at] + 1).collect()
    }

    /// Each attribute (`#[...]`, `#![...]`) with its line (from 1) and its text between the brackets.
    pub(super) fn attributes(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for at in (0..self.code.len()).filter(|&at| self.code[at] == '#') {
            let open = at + 1 + usize::from(self.code.get(at + 1) == Some(&'!'));
            if self.code.get(open) == Some(&'[')
                && let Some(close) = self.closing(open)
            {
                found.push((self.line_of[at] + 1, self.code[open + 1..close].iter().collect()));
            }
        }
        found
    }

    /// Each `std::{...}` group with its line (from 1) and what stands between the braces.
    pub(super) fn std_groups(&self) -> Vec<(usize, String)> {
        let group = |at: usize| {
            let open = at + "std::".len();
            Some((self.line_of[at] + 1, self.code[open + 1..self.closing(open)?].iter().collect()))
        };
        self.positions("std::{").into_iter().filter_map(group).collect()
    }

    /// The modules in other files that are compiled for tests only.
    pub(super) fn test_modules(&self) -> Vec<String> {
        let module = |start: usize| {
            let end = self.item_end(start)?;
            let text: String = self.code[start..end].iter().collect();
            let name =
                text.rsplit_once(']')?.1.trim().trim_start_matches("pub(crate) ").strip_prefix("mod ")?;
            (self.code[end] == ';').then(|| name.to_owned())
        };
        self.positions("#[cfg(test)]").into_iter().filter_map(module).collect()
    }

    /// Marks the whole text as test code.
    pub(super) fn mark_all_test(&mut self) {
        self.test.fill(true);
    }

    /// Every function with a body, nested ones too.
    pub(super) fn functions(&self) -> Vec<Function> {
        self.positions("fn").into_iter().filter_map(|at| self.function_at(at)).collect()
    }

    fn function_at(&self, at: usize) -> Option<Function> {
        let rest = &self.code[at + 2..];
        let gap = rest.iter().take_while(|c| c.is_whitespace()).count();
        let name: String = rest[gap..].iter().take_while(|c| is_word(**c)).collect();
        if name.is_empty() {
            return None; // a function pointer type
        }
        let end = self.item_end(at)?;
        if self.code[end] != '}' {
            return None; // declared without a body
        }
        let line = self.line_of[at];
        Some(Function { name, line: line + 1, line_count: self.line_of[end] - line + 1 })
    }

    fn positions(&self, pattern: &str) -> Vec<usize> {
        let pattern: Vec<char> = pattern.chars().collect();
        let (first, last) = (pattern[0], pattern[pattern.len() - 1]);
        let fits = |&at: &usize| {
            let end = at + pattern.len();
            self.code[at..end] == pattern[..]
                && !(is_word(first) && at > 0 && is_word(self.code[at - 1]))
                && !(is_word(last) && self.code.get(end).is_some_and(|&c| is_word(c)))
        };
        (0..(self.code.len() + 1).saturating_sub(pattern.len())).filter(fits).collect()
    }

    /// The index of the bracket that closes the one at `open`.
    fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0usize;
        for at in open..self.code.len() {
            match self.code[at] {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' if depth == 1 => return Some(at),
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        None
    }

    /// Where the item that begins at `start` ends: the closing brace of its body, or its semicolon.
    fn item_end(&self, start: usize) -> Option<usize> {
        let mut at = start;
        while at < self.code.len() {
            match self.code[at] {
                '(' | '[' => at = self.closing(at)?,
                '{' => return self.closing(at),
                ';' => return Some(at),
                _ => {}
            }
            at += 1;
        }
        None
    }

    fn mark_tests(&mut self) {
        let starts: Vec<usize> = ["#[cfg(test)]", "#[cfg(all(test", "#[test]"]
            .iter()
            .flat_map(|attribute| self.positions(attribute))
            .collect();
        if !self.positions("#![cfg(test)]").is_empty() {
            self.test.fill(true);
        }
        for start in starts {
            let end = self.item_end(start).map_or(self.test.len() - 1, |end| self.line_of[end]);
            self.test[self.line_of[start]..=end].fill(true);
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Replaces comments and the insides of string and character literals by spaces; line breaks stay.
fn blank(text: &str) -> Vec<char> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = chars.clone();
    let mut at = 0;
    while at < chars.len() {
        let Some((from, to)) = hidden(&chars, at) else {
            at += 1;
            continue;
        };
        for c in out[from..to].iter_mut().filter(|c| **c != '\n') {
            *c = ' ';
        }
        let quoted = chars[at] != '/';
        at = to + usize::from(quoted);
    }
    out
}

/// What is to be blanked when a comment or a literal begins at `at`: from where, and up to where.
fn hidden(chars: &[char], at: usize) -> Option<(usize, usize)> {
    match (chars[at], chars.get(at + 1)) {
        ('/', Some('/')) => Some((at, line_end(chars, at))),
        ('/', Some('*')) => Some((at, block_comment_end(chars, at))),
        ('"', _) => Some((at + 1, string_end(chars, at + 1))),
        ('r', Some('"' | '#')) if !is_suffix(chars, at) => raw_string(chars, at),
        ('\'', _) => char_literal(chars, at),
        _ => None,
    }
}

/// Whether the `r` at `at` ends a longer word (`br` and `cr` still begin a literal).
fn is_suffix(chars: &[char], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|index| chars[index]);
    match before(1) {
        Some('b' | 'c') => before(2).is_some_and(is_word),
        Some(c) => is_word(c),
        None => false,
    }
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..].iter().position(|&c| c == '\n').map_or(chars.len(), |offset| at + offset)
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0usize;
    let mut at = start;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

/// The index of the quote that ends the string whose inside starts at `at`.
fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() && chars[at] != '"' {
        at += 1 + usize::from(chars[at] == '\\');
    }
    at.min(chars.len())
}

/// The inside of the raw string that begins with the `r` at `at`.
fn raw_string(chars: &[char], at: usize) -> Option<(usize, usize)> {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None; // a raw identifier
    }
    let closes = |&end: &usize| {
        chars[end] == '"' && chars[end + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
    };
    Some((open + 1, (open + 1..chars.len()).find(closes).unwrap_or(chars.len())))
}

/// The inside of the character literal at `at`; `None` for a lifetime.
fn char_literal(chars: &[char], at: usize) -> Option<(usize, usize)> {
    match chars.get(at + 1)? {
        '\\' => {
            let close = (at + 3..chars.len()).find(|&end| chars[end] == '\'')?;
            Some((at + 1, close))
        }
        _ if chars.get(at + 2) == Some(&'\'') => Some((at + 1, at + 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blanked(text: &str) -> String {
        blank(text).into_iter().collect()
    }

    #[test]
    fn comments_and_literals_are_blank() {
        for (text, wanted) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"a("b\"c", d)"#, r#"a("    ", d)"#),
            (r##"r#"a"b"# + c"##, r##"r#"   "# + c"##),
            (r#"br"x\" y"#, r#"br"  " y"#),
            ("'x' 'a: '\\'' b", "' ' 'a: '  ' b"),
            ("'\"' a", "' ' a"),
            ("'/' // x\n", "' '     \n"),
            ("r#type = \"x\"", "r#type = \" \""),
            ("\"\" x", "\"\" x"),
        ] {
            assert_eq!(blanked(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_text_that_ends_too_early_is_survived() {
        for text in ["\"abc", "/* abc", "r#\"abc", "'", "'\\", "fn a(", "#[", "\\", "\"a\\"] {
            let source = Source::new(text, false);
            let _ = (source.functions(), source.attributes(), source.std_groups(), source.test_modules());
        }
    }

    #[test]
    fn words_are_found_whole() {
        let source = Source::new("unsafe {}\nlet unsafe_code = 1; // unsafe\nnot_unsafe", false);
        assert_eq!(source.find("unsafe"), [1]);
    }

    #[test]
    fn functions_are_measured_from_fn_to_brace() {
        let text =
            "type F = fn(u8);\nfn a(x: [u8; 4]) -> u8 {\n    \"}\";\n    fn b() {}\n}\ntrait T { fn c(); }\n";
        let found: Vec<(String, usize, usize)> = Source::new(text, false)
            .functions()
            .into_iter()
            .map(|function| (function.name, function.line, function.line_count))
            .collect();
        assert_eq!(found, [("a".to_owned(), 2, 4), ("b".to_owned(), 4, 1)]);
    }

    #[test]
    fn test_modules_in_other_files_are_named() {
        let text = "#[cfg(test)]\nmod a;\nmod b;\n#[cfg(test)]\nmod c {}\n#[cfg(test)]\npub(crate) mod d;\n";
        assert_eq!(Source::new(text, false).test_modules(), ["a", "d"]);
    }

    #[test]
    fn test_items_are_marked() {
        let text = "fn a() {}\n#[cfg(test)]\nuse x;\nfn b() {}\n#[cfg(test)]\nmod t {\n    fn c() {}\n}\nfn d() {}\n";
        let source = Source::new(text, false);
        let marked: Vec<usize> = (1..=9).filter(|&line| source.is_test(line)).collect();
        assert_eq!(marked, [2, 3, 5, 6, 7, 8]);
        assert_eq!(source.product_line_count(), 3);
    }
}
