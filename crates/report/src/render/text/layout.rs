//! Fitting text into a width: word wrap, and tables that continue below instead of overflowing.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// Wraps `text` at words to `width` columns; a word longer than a line is left whole, so that paths and
/// commands can be copied.
pub(super) fn wrap(text: &str, width: usize, first: &str, rest: &str) -> String {
    let mut out = first.to_owned();
    let mut column = first.chars().count();
    let mut at_start = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !at_start && column + 1 + length > width {
            out.push('\n');
            out += rest;
            column = rest.chars().count();
            at_start = true;
        }
        if !at_start {
            out.push(' ');
            column += 1;
        }
        out.extend(word.chars().map(shown));
        column += length;
        at_start = false;
    }
    out.push('\n');
    out
}

/// What a device or a file says of itself must not steer the terminal: of control characters only those that
/// lay out text are left.
pub fn shown(c: char) -> char {
    if c.is_control() && !matches!(c, '\n' | '\t') { char::REPLACEMENT_CHARACTER } else { c }
}

/// A table whose first columns are repeated when it has to continue below.
pub(super) struct Grid {
    /// How many columns name a row.
    pub(super) keys: usize,
    /// The heads of the columns.
    pub(super) header: Vec<String>,
    /// The cells, as many in each row as there are heads.
    pub(super) rows: Vec<Vec<String>>,
}

impl Grid {
    /// Draws the grid in one piece if it fits `width`, in several if not.
    pub(super) fn draw(&self, width: usize) -> String {
        let widths: Vec<usize> = (0..self.header.len()).map(|column| self.column_width(column)).collect();
        let whole: usize = widths.iter().sum();
        let gap = if whole + 2 * (widths.len() - 1) <= width { 2 } else { 1 };
        let keys: usize = widths[..self.keys].iter().map(|width| width + gap).sum();
        let mut parts = vec![Vec::new()];
        let mut used = keys;
        for (column, &own) in widths.iter().enumerate().skip(self.keys) {
            let current = parts.len() - 1;
            if used + own > width && !parts[current].is_empty() {
                parts.push(vec![column]);
                used = keys + own + gap;
            } else {
                parts[current].push(column);
                used += own + gap;
            }
        }
        parts.iter().map(|columns| self.part(columns, gap)).collect::<Vec<_>>().join("\n")
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| &row[column]);
        cells.chain([&self.header[column]]).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn part(&self, columns: &[usize], gap: usize) -> String {
        let all: Vec<usize> = (0..self.keys).chain(columns.iter().copied()).collect();
        let pick =
            |row: &[String]| -> Vec<String> { all.iter().map(|&column| row[column].clone()).collect() };
        let mut table = Table::new();
        table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(pick(&self.header));
        for row in &self.rows {
            table.add_row(pick(row));
        }
        for (position, column) in table.column_iter_mut().enumerate() {
            let last = position + 1 == all.len();
            // The line under the heads has junctions, and they are the first column of each gap.
            column.set_padding((0, if last { 0 } else { gap as u16 - 1 }));
            if position >= self.keys {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wide_table_continues_below_with_its_keys() {
        let cell = |text: &str| text.to_owned();
        let grid = Grid {
            keys: 1,
            header: (0..8).map(|n| format!("column {n}")).collect(),
            rows: vec![(0..8).map(|n| cell(&n.to_string())).collect()],
        };
        let text = grid.draw(40);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert_eq!(text.matches("column 0").count(), 3);
        assert_eq!(grid.draw(200).matches("column 0").count(), 1);
    }

    proptest! {
        #[test]
        fn no_control_character_comes_through(text in "[a-z\\x00-\\x1f\\x7f-\\u{9f} ]{0,80}") {
            prop_assert!(wrap(&text, 40, "- ", "  ").chars().all(|c| c == '\n' || !c.is_control()));
        }

        #[test]
        fn wrapping_keeps_every_word(text in "[a-z ]{0,300}", width in 10usize..100) {
            let wrapped = wrap(&text, width, "- ", "  ");
            let words: Vec<&str> = wrapped.split_whitespace().skip(1).collect();
            prop_assert_eq!(words, text.split_whitespace().collect::<Vec<_>>());
            for line in wrapped.lines().filter(|line| line.trim().contains(' ')) {
                let longest = line.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
                prop_assert!(line.chars().count() <= width.max(longest + 2), "{}", line);
            }
        }
    }
}
