//! The stored result of a run: wire types of `overdrive.record/1`, read and written as JSON.
//!
//! These types are the format. They are kept apart from the types that measure, so that those may change
//! without breaking a stored record. Units come last in a name. What is not known is `null`, never a guess
//! and never left out. docs/formats.md describes each field; docs/record.schema.json is generated from here.
//! A reader ignores fields it does not know, so a later `overdrive.record/1` may add fields (as `Option`s).

mod detail;
mod host;
mod measure;
mod paging;
mod search;
mod topology;
mod workload;

pub use detail::*;
pub use host::*;
pub use measure::PERCENTILES;
pub use paging::*;
pub use search::*;
pub use topology::*;
pub use workload::*;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The schema this crate writes.
pub const SCHEMA: &str = "overdrive.record/1";
const SCHEMA_FAMILY: &str = "overdrive.record/";
const SCHEMA_VERSION: u32 = 1;
const WANTED: &str = "a record.json (overdrive.record/1)";

/// A text that is not a record this crate can read.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The text is not JSON, or a field is missing or of the wrong type.
    #[error("not an Overdrive record: {0}; wanted JSON as Overdrive writes it")]
    Malformed(#[from] serde_json::Error),
    /// The JSON names no schema.
    #[error("not an Overdrive record: it names no schema; wanted {wanted}")]
    Nameless {
        /// The file and schema that were wanted.
        wanted: &'static str,
    },
    /// The JSON names a schema of another family.
    #[error("a record of {found}; wanted {wanted}")]
    Foreign {
        /// The schema the document names.
        found: String,
        /// The file and schema that were wanted.
        wanted: &'static str,
    },
    /// The record was written by a newer Overdrive.
    #[error(
        "the record has schema {found}, newer than {known}: read it with the Overdrive that wrote it, or a later one"
    )]
    Newer {
        /// The schema the document names.
        found: String,
        /// The newest one that is known here.
        known: &'static str,
    },
}

/// One evaluation: what was run, on what, how, and what came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Always `overdrive.record/1`.
    pub schema: String,
    /// The program that wrote the record.
    pub tool: Tool,
    /// The command line, one argument each.
    pub command: Vec<String>,
    /// When the run started, RFC 3339.
    pub started_at: String,
    /// How long everything took, seconds.
    pub elapsed_s: f64,
    /// Whether the run came to its end.
    pub status: Status,
    /// The seed that all offsets and contents follow from.
    pub seed: u64,
    /// What was measured.
    pub target: Target,
    /// The machine it was measured on.
    pub host: Host,
    /// What the audit of the host found.
    pub findings: Vec<Finding>,
    /// What the tool found about itself; `null` when the run ended before.
    pub self_test: Option<SelfTest>,
    /// What was done to the target before measuring.
    pub preconditioning: Preconditioning,
    /// What a reader of the whole record must know.
    pub notes: Vec<String>,
    /// The workloads in the order they ran.
    pub workloads: Vec<Workload>,
    /// A search over loads; left out when there was none, and in older records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
    /// The way from the target's drives to the processors; left out where there is no PCI device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// What a program felt when its memory was larger than DRAM; left out when that was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paging: Option<Paging>,
}

/// The program that wrote a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// `overdrive`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Status {
    /// Every workload ran for its time.
    Complete,
    /// The user stopped it; what was measured until then is kept.
    Interrupted,
    /// Something failed; what was measured until then is kept.
    Failed {
        /// What failed, in one line.
        reason: String,
    },
}

impl Record {
    /// Reads a record from JSON.
    ///
    /// # Errors
    /// When the text is not JSON, is not a record, or was written by a newer schema.
    pub fn from_json(text: &str) -> Result<Self, RecordError> {
        let value: serde_json::Value = serde_json::from_str(text)?;
        check_schema(value.get("schema").and_then(serde_json::Value::as_str))?;
        Ok(serde_json::from_value(value)?)
    }

    /// Writes the record as JSON for people and programs, ending in a newline.
    ///
    /// # Errors
    /// When a value has no JSON form.
    pub fn to_json_pretty(&self) -> Result<String, RecordError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The SHA-256 of the record's JSON text in hexadecimal: what `sha256sum record.json` prints.
    ///
    /// # Errors
    /// When a value has no JSON form.
    pub fn digest(&self) -> Result<String, RecordError> {
        let digest = Sha256::digest(self.to_json_pretty()?);
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The JSON Schema of this format, ending in a newline.
    ///
    /// # Errors
    /// When the schema has no JSON form.
    pub fn json_schema() -> Result<String, RecordError> {
        Ok(serde_json::to_string_pretty(&schemars::schema_for!(Self))? + "\n")
    }
}

fn check_schema(found: Option<&str>) -> Result<(), RecordError> {
    let text = found.ok_or(RecordError::Nameless { wanted: WANTED })?;
    let version = text.strip_prefix(SCHEMA_FAMILY).and_then(|version| version.parse::<u32>().ok());
    match version {
        Some(SCHEMA_VERSION) => Ok(()),
        Some(version) if version > SCHEMA_VERSION => {
            Err(RecordError::Newer { found: text.to_owned(), known: SCHEMA })
        }
        _ => Err(RecordError::Foreign { found: text.to_owned(), wanted: WANTED }),
    }
}

#[cfg(test)]
mod tests;
