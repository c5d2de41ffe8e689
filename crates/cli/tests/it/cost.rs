//! `overdrive cost`: the documents' figures from the command line, price lists, and what is refused.

use crate::support::{folder, run, words_of};
use serde_json::Value;

const BLUEPRINT: [&str; 7] = ["cost", "--dram-a", "384GiB", "--dram-b", "192GiB", "--ssd-b", "200GiB"];

fn cost(arguments: &[&str]) -> (i32, String, String) {
    run(&[&BLUEPRINT[..], arguments].concat())
}

#[test]
fn the_blueprints_example_comes_out() {
    let (code, text, _) = cost(&["--price-ratio", "4"]);
    assert_eq!(code, 0);
    assert!(text.starts_with("server B costs 0.630 of server A (37.0 % less)\n"), "{text}");
    assert!(text.contains("from a price ratio of 1.042 on"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn equal_costs_and_no_writes_have_words_of_their_own() {
    let equal = ["cost", "--dram-a", "2GiB", "--dram-b", "2GiB", "--price-ratio", "4", "--rating", "1PB"];
    let (_, text, error) = run(&[&equal[..], &["--writes-per-day", "0"]].concat());
    assert!(text.starts_with("server B costs 1.000 of server A (the same)\n"), "{text}{error}");
    assert!(words_of(&text).contains("Nothing is written: it is never used up: the blueprint's"), "{text}");
    let (_, text, error) = run(&[&equal[..], &["--writes-per-day", "100PB"]].concat());
    assert!(words_of(&text).contains("100 PB a day use it up within a day"), "{text}{error}");
}

#[test]
fn the_redis_studys_numbers_of_machines_price_each() {
    let arguments = ["--price-ratio", "4", "--instances-a", "31", "--instances-b", "108", "--json"];
    let (code, text, _) = cost(&arguments);
    assert_eq!(code, 0);
    let value: Value = serde_json::from_str(&text).unwrap();
    let each = value["relative_cost_per_instance"].as_f64().unwrap();
    assert!((each - 968.0 / 1536.0 * 31.0 / 108.0).abs() < 1e-9, "{each}");
}

#[test]
fn a_price_list_prices_servers_and_drives_and_the_page_is_whole() {
    let folder = folder();
    let (list, page) = (folder.path().join("prices.toml"), folder.path().join("cost.html"));
    std::fs::write(&list, run(&["cost", "--print-prices"]).1).unwrap();
    let (list, page) = (list.to_str().unwrap(), page.to_str().unwrap());
    let (code, text, error) = cost(&["--prices", list, "--write-rate", "600MB", "--html", page]);
    assert_eq!(code, 0, "{error}");
    // 384 x 6 + 9000, and 192 x 6 + 200 x 1.5 + 9500; two drives of 375 GB with 30 writes a day last 5 years
    // at 260 MB/s.
    assert!(text.contains("11304") && text.contains("10952"), "{text}");
    let text = words_of(&text);
    assert!(text.contains("260 MB a second") && text.contains("do not hold"), "{text}");
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("<svg") && html.contains("Endurance") && !html.contains("<script"), "{page}");
}

#[test]
fn impossible_prices_are_refused_in_one_line() {
    let folder = folder();
    let list = folder.path().join("prices.toml");
    std::fs::write(&list, "date = \"2026\"\ncurrency = \"USD\"\n[dram]\nper_gib = -1\n[ssd]\nper_gib = 1\n")
        .unwrap();
    let other = folder.path().join("record.json");
    std::fs::write(&other, "{\"schema\": \"overdrive.record/1\"}").unwrap();
    let (list, other) = (list.to_str().unwrap(), other.to_str().unwrap());
    let example = run(&["cost", "--print-prices"]).1;
    let (both, wrong) = (folder.path().join("both.toml"), folder.path().join("wrong.toml"));
    std::fs::write(&both, example.replace("years = 5", "years = 5\nrating = \"20PB\"")).unwrap();
    std::fs::write(&wrong, example.replace("375GB", "large")).unwrap();
    let (both, wrong) = (both.to_str().unwrap(), wrong.to_str().unwrap());
    let (bare, blank) = (folder.path().join("bare.toml"), folder.path().join("blank.toml"));
    std::fs::write(&bare, example.replace("375GB", "375")).unwrap();
    std::fs::write(&blank, example.replace("\"USD\"", "\" \"")).unwrap();
    let (bare, blank) = (bare.to_str().unwrap(), blank.to_str().unwrap());
    for (arguments, words) in [
        (vec!["--price-ratio", "0"], "--price-ratio 0: wanted"),
        (vec!["--price-ratio", "-4"], "--price-ratio -4: wanted"),
        (vec!["--price-ratio", "nan"], "--price-ratio NaN: wanted"),
        (vec![], "no prices"),
        (vec!["--prices", list], "price of DRAM per GiB -1"),
        (vec!["--prices", "/no/such/list"], "/no/such/list"),
        (vec!["--price-ratio", "4", "--instances-a", "3"], "--instances-b"),
        (vec!["--price-ratio", "4", "--write-rate", "5MB"], "--rating"),
        (vec!["--price-ratio", "4", "--drives", "2"], "--drives, but no rating of one: wanted --rating"),
        (vec!["--price-ratio", "4", "--sweep-share", "200"], "0 to 1"),
        (vec!["--price-ratio", "1e-300"], "--price-ratio 1e-300: wanted a number from 0.000001 to 1000000"),
        (vec!["--price-ratio", "1e308"], "--price-ratio 1e308: wanted a number from 0.000001 to 1000000"),
        (
            vec!["--price-ratio", "4", "--sweep-ratio", "4,1e9"],
            "--sweep-ratio 1000000000: wanted a number from",
        ),
        (vec!["--price-ratio", "4", "--sweep-share", "50,101"], "--sweep-share 101: wanted 0 to 100"),
        (vec!["--price-ratio", "4", "--rating", "1PB", "--drives", "0"], "--drives 0: wanted"),
        (vec!["--prices", both], "both.toml: [drive]: wanted rating alone, or capacity with"),
        (vec!["--prices", wrong], "wrong.toml: drive.capacity: "),
        (vec!["--prices", bare], "bare.toml: drive.capacity: '375' has no unit"),
        (vec!["--prices", blank], "blank.toml: currency: it says nothing; wanted the prices' currency"),
        (vec!["--price-ratio", "4", "--from", list], "wanted a density.json"),
        (
            vec!["--price-ratio", "4", "--from", other],
            "record.json: a record of overdrive.record/1; wanted a density.json (overdrive.density/1)",
        ),
        (vec!["--price-ratio", "4", "--ssd-a", "384"], "wanted a unit, such as 384GiB"),
        (vec!["--price-ratio", "four"], "wanted a number"),
    ] {
        let (code, text, error) = cost(&arguments);
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    assert_eq!(run(&["cost", "--price-ratio", "4"]).0, 2);
}
