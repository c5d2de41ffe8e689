//! The page that lists every rule, held to the table: OVERDRIVE_BLESS=1 writes it anew.

use overdrive_host::finding::Rule;
use overdrive_host::rules;
use std::fmt::Write;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rules.md");

const HEAD: &str = "# The rules\n\n\
Every rule by which `overdrive audit` judges a host; `overdrive audit --explain RULE` says what one of them finds on \n\
this host. The page is generated from the table in `crates/host/src/rules/`; a test keeps the two the same \n\
(`OVERDRIVE_BLESS=1 cargo test -p overdrive-host --test it the_page_of_rules` writes it anew).\n\n\
The brackets behind a rule's title say for which use of a drive it counts: storage (files and block devices), memory \n\
(swap and memory extension) or any. The risk is the class of its fix: A is safe, B has side effects, C is only advised \n\
and never applied. *Unverified* marks a claim from memory that was checked neither in source nor on a system. The effect \n\
given here is the general one; where it can be computed, the finding has the figure of the host.\n";

fn page() -> String {
    let mut text = HEAD.replace(" \n", "\n");
    let list: Vec<&Rule> = rules::all().collect();
    writeln!(text, "\n{} rules.", list.len()).unwrap();
    let mut scopes: Vec<&str> = Vec::new();
    for rule in &list {
        if !scopes.contains(&rule.scope.name()) {
            scopes.push(rule.scope.name());
        }
    }
    for scope in scopes {
        writeln!(text, "\n## {scope}").unwrap();
        for rule in list.iter().filter(|rule| rule.scope.name() == scope) {
            let verified = if rule.verified { "" } else { ", *unverified*" };
            let (profile, risk) = (rule.profile.name(), rule.risk.letter());
            writeln!(text, "\n### {}\n\n**{}** ({profile}, risk {risk}{verified})\n", rule.id, rule.title)
                .unwrap();
            writeln!(text, "- Why: {}", rule.why).unwrap();
            writeln!(text, "- Effect: {}", rule.effect).unwrap();
            writeln!(text, "- Source: {}", rule.source).unwrap();
        }
    }
    text
}

#[test]
fn the_page_of_rules_is_the_table() {
    let wanted = page();
    if std::env::var_os("OVERDRIVE_BLESS").is_some() {
        std::fs::write(PAGE, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(found == wanted, "docs/rules.md is not the table's: run this test with OVERDRIVE_BLESS=1");
}
