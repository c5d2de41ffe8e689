//! The format is held: the schema to the types, stored records to the schema, the document to both.
//!
//! `OVERDRIVE_BLESS=1 cargo test -p overdrive-report` writes the schema and the stored records anew. Records
//! stored by earlier versions stay where they are: they are what keeps old records readable.

use super::*;
use crate::{fixtures, verdict};
use proptest::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn blessing() -> bool {
    std::env::var_os("OVERDRIVE_BLESS").is_some()
}

#[test]
fn the_published_schema_is_the_one_of_the_types() {
    let path = project().join("docs/record.schema.json");
    let schema = Record::json_schema().unwrap();
    if blessing() {
        std::fs::write(&path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == schema,
        "docs/record.schema.json is stale: OVERDRIVE_BLESS=1 cargo test -p overdrive-report"
    );
}

#[test]
fn stored_records_fit_the_schema_and_read_back() {
    let folder = project().join("fixtures/records");
    if blessing() {
        for (name, mut record) in [
            ("optane", fixtures::optane()),
            ("virtio", fixtures::virtio()),
            ("interrupted", fixtures::interrupted()),
            ("failed", fixtures::empty()),
            ("search", fixtures::searched()),
            ("surface", fixtures::surface()),
        ] {
            verdict::judge_all(&mut record);
            std::fs::write(folder.join(format!("{name}.v1.json")), record.to_json_pretty().unwrap()).unwrap();
        }
    }
    let schema: Value = serde_json::from_str(&Record::json_schema().unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let stored: Value = serde_json::from_str(&text).unwrap();
        let errors: Vec<String> = validator.iter_errors(&stored).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", path.display());
        let record = Record::from_json(&text).unwrap();
        let back: Value = serde_json::from_str(&record.to_json_pretty().unwrap()).unwrap();
        for (key, value) in stored.as_object().unwrap() {
            assert_eq!(back.get(key), Some(value), "{}: {key}", path.display());
        }
        seen += 1;
    }
    assert!(seen >= 6, "{seen} records");
}

#[test]
fn the_schema_refuses_what_is_not_a_record() {
    let schema: Value = serde_json::from_str(&Record::json_schema().unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut record: Value = serde_json::from_str(&fixtures::empty().to_json_pretty().unwrap()).unwrap();
    assert!(validator.is_valid(&record));
    record["target"]["kind"] = "punch card".into();
    assert!(!validator.is_valid(&record));
}

/// The names of all properties in a schema, wherever they are.
fn properties(schema: &Value, into: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Object(named)) = map.get("properties") {
                into.extend(named.keys().cloned());
            }
            map.values().for_each(|value| properties(value, into));
        }
        Value::Array(list) => list.iter().for_each(|value| properties(value, into)),
        _ => {}
    }
}

#[test]
fn the_document_names_every_field() {
    let document = std::fs::read_to_string(project().join("docs/formats.md")).unwrap();
    let mut names = Vec::new();
    properties(&serde_json::from_str(&Record::json_schema().unwrap()).unwrap(), &mut names);
    names.sort();
    names.dedup();
    assert!(names.len() > 100, "{}", names.len());
    let missing: Vec<&String> =
        names.iter().filter(|name| !document.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/formats.md does not describe {missing:?}");
}

#[test]
fn other_schemas_are_refused_by_name() {
    let with = |schema: &str| {
        let text = fixtures::empty().to_json_pretty().unwrap();
        Record::from_json(&text.replace(SCHEMA, schema)).unwrap_err().to_string()
    };
    assert!(
        with("overdrive.record/2").contains("newer than overdrive.record/1"),
        "{}",
        with("overdrive.record/2")
    );
    assert!(with("overdrive.record/0").contains("wanted a record.json (overdrive.record/1)"));
    assert!(with("fio").contains("a record of fio"));
    assert!(Record::from_json("{}").unwrap_err().to_string().contains("names no schema"));
    assert!(Record::from_json("[").unwrap_err().to_string().contains("wanted JSON"));
    let missing = r#"{"schema": "overdrive.record/1"}"#;
    assert!(Record::from_json(missing).unwrap_err().to_string().contains("missing field"));
}

#[test]
fn later_fields_are_ignored() {
    let mut value: Value = serde_json::from_str(&fixtures::empty().to_json_pretty().unwrap()).unwrap();
    value["energy_joules"] = 12.into();
    assert_eq!(Record::from_json(&value.to_string()).unwrap(), fixtures::empty());
}

#[test]
fn the_digest_is_that_of_the_text() {
    let record = fixtures::empty();
    assert_eq!(record.digest().unwrap().len(), 64);
    let mut other = record.clone();
    other.seed += 1;
    assert_ne!(record.digest().unwrap(), other.digest().unwrap());
    assert_eq!(
        Record::from_json(&record.to_json_pretty().unwrap()).unwrap().digest().unwrap(),
        record.digest().unwrap()
    );
}

proptest! {
    #[test]
    fn reading_never_panics(text in ".*") {
        let _ = Record::from_json(&text);
    }

    #[test]
    fn reading_a_damaged_record_never_panics(at in 0.0f64..1.0, byte in 0u8..128) {
        let mut bytes = fixtures::interrupted().to_json_pretty().unwrap().into_bytes();
        let at = (bytes.len() as f64 * at) as usize;
        bytes[at] = byte;
        if let Ok(record) = Record::from_json(&String::from_utf8(bytes).unwrap()) {
            prop_assert!(record.to_json_pretty().is_ok());
        }
    }
}
