//! A page of a command that keeps no record of an evaluation: sections of tables and charts, as values.
//!
//! The caller decides what stands on it. `render::text::page` and `render::html::page` show it; charts
//! are for the second alone.

/// A whole page.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// What kind of page it is, above the title.
    pub kind: String,
    /// Its title.
    pub title: String,
    /// Lines below the title: what was done, on what.
    pub lead: Vec<String>,
    /// What the reader must know before any figure.
    pub warnings: Vec<String>,
    /// In the order of reading.
    pub sections: Vec<Section>,
}

/// A part of a page.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Paragraphs below the heading.
    pub notes: Vec<String>,
    /// Charts, side by side where there is room.
    pub charts: Vec<LineChart>,
    /// Charts of bars, before them.
    pub bars: Vec<BarChart>,
    /// Tables, one below the other.
    pub tables: Vec<Table>,
}

/// A table; the first cell of a row names it.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// What it shows, for readers who cannot see it.
    pub label: String,
    /// The names of its columns.
    pub header: Vec<String>,
    /// Its rows, each as long as the header.
    pub rows: Vec<Vec<String>>,
}

/// A chart of lines with a point for each measurement.
#[derive(Debug, Clone)]
pub struct LineChart {
    /// A word that no other chart of the page has.
    pub id: String,
    /// Above it.
    pub title: String,
    /// In one sentence, for readers who cannot see it.
    pub description: String,
    /// The axis from left to right.
    pub x: Scale,
    /// The axis from bottom to top.
    pub y: Scale,
    /// Label and points of each line.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// How values are put on an axis.
#[derive(Debug, Clone)]
pub struct Scale {
    /// What it shows, with the unit.
    pub name: &'static str,
    /// Whether each step multiplies instead of adding.
    pub logarithmic: bool,
    /// Where a line is drawn, with its label, in rising order.
    pub ticks: Vec<(f64, String)>,
}

/// A chart of bars: one value for each thing compared.
#[derive(Debug, Clone)]
pub struct BarChart {
    /// A word that no other chart of the page has.
    pub id: String,
    /// Above it.
    pub title: String,
    /// In one sentence, for readers who cannot see it.
    pub description: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
    /// A value that should not be exceeded, with its label.
    pub limit: Option<(f64, String)>,
}

/// A bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// What it stands for.
    pub label: String,
    /// Its length, 0 or more.
    pub value: f64,
    /// The value in words, at its end.
    pub text: String,
}
