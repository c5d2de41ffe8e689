//! A price list in TOML: dated, in one currency, with what else the servers cost and what the drive is
//! rated for.
//!
//! None is built in. [`EXAMPLE`] shows the form; its prices are made up.

use super::{CostError, Prices};
use serde::Deserialize;
use thiserror::Error;

/// A list to start from, as text.
pub const EXAMPLE: &str = "\
# A price list for `overdrive cost --prices FILE`. These prices are made up: put in your own, with their date.
date = \"2026-01-31\"
currency = \"USD\"
source = \"made up as an example\"

[dram]
per_gib = 6.0

[ssd]
per_gib = 1.5

# What else each server costs, when it shall count: the chassis, a license. Both are named, or neither.
[server]
a_other = 9000
b_other = 9500

# What the maker promises of one drive: either `rating` or `drive_writes_per_day`, `capacity` and `years`.
[drive]
drives = 2
capacity = \"375GB\"
drive_writes_per_day = 30
years = 5
";

/// Why a price list cannot be used.
#[derive(Debug, Error)]
pub enum ListError {
    /// Not TOML of this form.
    #[error("{0}")]
    Form(String),
    /// A price nobody can ask.
    #[error(transparent)]
    Impossible(#[from] CostError),
}

/// A price list as it was written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceList {
    /// Of which day the prices are.
    pub date: String,
    /// What they are in.
    pub currency: String,
    /// Where they are from.
    pub source: Option<String>,
    /// What DRAM costs.
    pub dram: PerGib,
    /// What the SSD costs.
    pub ssd: PerGib,
    /// What else the servers cost.
    #[serde(default)]
    pub server: Others,
    /// What the drive is rated for.
    pub drive: Option<Drive>,
}

/// One price.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerGib {
    /// Of one GiB.
    pub per_gib: f64,
}

/// What else the servers cost, in the list's currency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// Server A.
    pub a_other: f64,
    /// Server B.
    pub b_other: f64,
}

/// What the maker promises of a drive.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// How many there are.
    #[serde(default = "one")]
    pub drives: u32,
    /// Bytes one may take in its life, such as `20.5PB`.
    pub rating: Option<String>,
    /// Its capacity, such as `375GB`.
    pub capacity: Option<String>,
    /// Writes of its whole capacity a day.
    pub drive_writes_per_day: Option<f64>,
    /// Over how many years.
    pub years: Option<f64>,
}

fn one() -> u32 {
    1
}

impl PriceList {
    /// Reads a list and checks its prices.
    ///
    /// # Errors
    /// When it is not of the form of [`EXAMPLE`], or a price is impossible.
    pub fn parse(text: &str) -> Result<Self, ListError> {
        let list: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            ListError::Form(format!("line {line}: {}", error.message()))
        })?;
        for (name, text) in [("date", &list.date), ("currency", &list.currency)] {
            if text.trim().is_empty() {
                return Err(ListError::Form(format!("{name}: it says nothing; wanted the prices' {name}")));
            }
        }
        list.prices().check()?;
        for (name, value) in
            [("server.a_other", list.server.a_other), ("server.b_other", list.server.b_other)]
        {
            if !(0.0..=1e12).contains(&value) {
                return Err(CostError::new(name, value, "0 or more").into());
            }
        }
        Ok(list)
    }

    /// The two prices of memory.
    #[must_use]
    pub fn prices(&self) -> Prices {
        Prices { dram_per_gib: self.dram.per_gib, ssd_per_gib: self.ssd.per_gib }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_price_list() {
        let list = PriceList::parse(EXAMPLE).unwrap();
        assert_eq!(list.prices().ratio(), 4.0);
        assert_eq!((list.server.b_other, list.drive.unwrap().drives), (9500.0, 2));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let of = |text: &str| PriceList::parse(text).unwrap_err().to_string();
        assert!(of("date = \"x\"\ncurrency = 5\n").starts_with("line 2: "), "{}", of("date = 1"));
        assert!(of(&EXAMPLE.replace("per_gib = 6.0", "per_gib = -6.0")).contains("price of DRAM per GiB -6"));
        let misspelt = of(&EXAMPLE.replace("per_gib = 1.5", "pergib = 1.5"));
        assert!(misspelt.starts_with("line 10: ") && misspelt.contains("pergib"), "{misspelt}");
        assert!(of(&EXAMPLE.replace("a_other = 9000", "a_other = -1")).contains("server.a_other -1"));
        assert!(of("").contains("date"));
        // One alone would make that server dearer by what the other has as well.
        assert!(of(&EXAMPLE.replace("b_other = 9500", "")).contains("b_other"));
    }
}
