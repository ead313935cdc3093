//! Repair against ftfy with the settings of datatrove's formatter.

use std::collections::BTreeMap;

use polysift::dataset::repair;
use serde_json::Value;

use super::golden;
use crate::util::TestResult;

/// Texts of a damage that are not repaired as ftfy repairs them, of 20: European text that was read as
/// ISO 8859-2, Windows-1250, 1251 or 1253 and half a Swedish text, which ftfy leaves as they are (or,
/// in Portuguese, makes `Ê` of `é`) and this makes what they were, and half a Vietnamese text.
const DIFFERENT: [(&str, usize); 5] = [
    ("half latin-1", 2),
    ("iso-8859-2", 2),
    ("sloppy-windows-1250", 1),
    ("sloppy-windows-1251", 9),
    ("sloppy-windows-1253", 6),
];

#[test]
fn repaired_texts_are_those_of_ftfy_but_for_known_differences() -> TestResult {
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(golden("repair.json"))?)?;
    let mut different: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for case in &cases {
        let text = case["text"].as_str().ok_or("no text")?;
        let ftfy = case["ftfy"].as_str().unwrap_or(text);
        if repair(text) != ftfy {
            different.entry(case["damage"].as_str().unwrap_or_default()).or_default().push(text);
        }
    }
    let counts: Vec<_> = different.iter().map(|(damage, texts)| (*damage, texts.len())).collect();
    assert_eq!(counts, DIFFERENT, "{different:#?}");
    assert_eq!(cases.len(), 18 * 20);
    Ok(())
}

#[test]
fn entities_stay_from_the_first_line_with_a_tag_on() {
    assert_eq!(repair("a &amp; b\n<p> &lt;"), "a & b\n<p> &lt;");
    assert_eq!(repair("caf\u{c3}\u{a9} &amp; <br>"), "caf\u{e9} &amp; <br>");
    let long = "\u{c3}\u{a9}".repeat(600_000);
    assert_eq!(repair(&long), "\u{e9}".repeat(600_000));
}
