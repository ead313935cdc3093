//! `polysift dataset toxicity`.

use std::path::Path;

use assert_cmd::Command;
use predicates::str::contains;
use serde_json::Value;

use super::{Fallible, all_rows, expected, golden, strings, texts};
use crate::util::{TestResult, digests, polysift};

fn toxicity(file: &Path, language: &str, out: &Path) -> Command {
    let mut command = polysift();
    command.args(["dataset", "toxicity", "--language", language, "--out"]).arg(out).arg(file);
    command
}

fn card(folder: &Path) -> Fallible<Value> {
    Ok(serde_json::from_slice(&std::fs::read(folder.join("card.json"))?)?)
}

/// Texts without those that differ from an earlier one in case and white space only.
fn distinct(mut texts: Vec<String>) -> Vec<String> {
    texts.dedup_by_key(|text| text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" "));
    texts
}

#[test]
fn classes_are_those_of_the_published_script_and_balanced() -> TestResult {
    let expected = expected()?;
    for (file, name, language) in [
        ("annotated_French-PD.csv", "toxic_commons", "fra_Latn"),
        ("SexComment.csv", "swsr", "cmn_Hani"),
    ] {
        let out = tempfile::tempdir()?;
        toxicity(&golden("toxicity").join(file), language, out.path()).assert().success();
        let rows = all_rows(&out.path().join(language))?;
        let found = |label: &str| texts(&rows, |row| row["label"] == label);
        let (toxic, other) = (found("toxic"), found("nontoxic"));
        let all = |label: &str| distinct(strings(&expected[name][label]));
        let size = all("toxic").len().min(all("nontoxic").len());
        assert!(size > 10);
        assert_eq!((toxic.len(), other.len()), (size, size));
        assert!(toxic.iter().all(|text| all("toxic").contains(text)), "{name}");
        assert!(other.iter().all(|text| all("nontoxic").contains(text)), "{name}");
        let tenth = (size + 5) / 10;
        for name in ["valid_10.jsonl", "test_10.jsonl"] {
            let of = |label| rows[name].iter().filter(|row| row["label"] == label).count();
            assert_eq!((of("toxic"), of("nontoxic")), (tenth, tenth));
        }
        let card = card(&out.path().join(language))?;
        for source in card["sources"].as_object().ok_or("no sources")?.values() {
            let dropped = source["dropped"].as_object().ok_or("no dropped")?;
            let dropped: u64 = dropped.values().filter_map(Value::as_u64).sum();
            let kept = source["kept"].as_u64().unwrap_or_default();
            assert_eq!(source["rows"].as_u64(), Some(kept + dropped));
        }
        if name == "toxic_commons" {
            let dropped = &card["sources"]
                .as_object()
                .and_then(|s| s.values().next())
                .ok_or("none")?["dropped"];
            assert_eq!((&dropped["malformed scores"], &dropped["no text"]), (&2.into(), &1.into()));
        }
    }
    Ok(())
}

#[test]
fn the_reference_has_no_test_split_and_keeps_all_that_is_toxic() -> TestResult {
    let expected = expected()?;
    let out = tempfile::tempdir()?;
    let file = golden("toxicity/annotated_French-PD.csv");
    toxicity(&file, "fra_Latn", out.path()).assert().success();
    toxicity(&file, "fra_Latn", out.path()).args(["--mode", "published"]).assert().success();
    let rows = all_rows(&out.path().join("fra_Latn"))?;
    let names: Vec<&str> = rows.keys().map(String::as_str).collect();
    assert_eq!(names, ["train_90.jsonl", "valid_10.jsonl"], "what the other mode wrote is gone");
    let toxic = texts(&rows, |row| row["label"] == "toxic");
    assert_eq!(toxic, strings(&expected["toxic_commons"]["toxic"]));
    let other = texts(&rows, |row| row["label"] == "nontoxic").len();
    assert_eq!(other, strings(&expected["toxic_commons"]["nontoxic"]).len().min(toxic.len()));
    let total = toxic.len() + other;
    assert_eq!(rows["valid_10.jsonl"].len(), (total + 5) / 10);
    Ok(())
}

#[test]
fn any_two_columns_serve_and_equal_texts_with_two_labels_do_not() -> TestResult {
    let work = tempfile::tempdir()?;
    let mut lines = vec!["comment,class".to_owned()];
    lines.extend((0..30).map(|i| format!("\"Text, {i}\",{}", i % 2)));
    lines.extend(["\"text,  3\",1", "\"TEXT, 4\",1", "\"Text, 7\",0"].map(str::to_owned));
    std::fs::write(work.path().join("a.csv"), lines.join("\r\n"))?;
    let out = work.path().join("out");
    let columns = ["--text-column", "comment", "--label-column", "class"];
    toxicity(&work.path().join("a.csv"), "x", &out).args(columns).assert().success();
    let rows = all_rows(&out.join("x"))?;
    let toxic = texts(&rows, |row| row["label"] == "toxic");
    assert!(!texts(&rows, |_| true).iter().any(|text| text.to_lowercase() == "text, 4"));
    assert_eq!(toxic.len(), 14);
    let card = card(&out.join("x"))?;
    let dropped = &card["sources"]["a.csv"]["dropped"];
    assert_eq!(
        (&dropped["both labels"], &dropped["repeated"]),
        (&4.into(), &1.into()),
        "{dropped}"
    );
    toxicity(&work.path().join("a.csv"), "x", &out)
        .assert()
        .code(65)
        .stderr(contains("comment, class"));
    Ok(())
}

#[test]
fn the_reference_keeps_blank_texts_and_no_null() -> TestResult {
    let work = tempfile::tempdir()?;
    let file = work.path().join("a.jsonl");
    let row = |i: usize, text: &str| format!("{{\"text\":{text},\"label\":{}}}\n", i % 2);
    let mut rows: String = (0..8).map(|i| row(i, &format!("\"t {i}\""))).collect();
    rows.extend([row(1, "\" \""), row(0, "\"\""), row(1, "null")]);
    std::fs::write(&file, rows)?;
    for (mode, toxic, dropped) in [("published", 5, 1), ("default", 4, 3)] {
        let out = work.path().join(mode);
        toxicity(&file, "x", &out).args(["--mode", mode]).assert().success();
        let rows = all_rows(&out.join("x"))?;
        assert_eq!(texts(&rows, |row| row["label"] == "toxic").len(), toxic, "{mode}");
        let card = card(&out.join("x"))?;
        assert_eq!(card["sources"]["a"]["dropped"]["no text"], dropped, "{mode}");
    }
    Ok(())
}

#[test]
fn the_order_of_the_files_changes_nothing() -> TestResult {
    let work = tempfile::tempdir()?;
    let files = [golden("toxicity/annotated_French-PD.csv"), golden("toxicity/SexComment.csv")];
    let mut found = Vec::new();
    for order in [[0, 1], [1, 0]] {
        let out = work.path().join(order[0].to_string());
        toxicity(&files[order[0]], "x", &out).arg(&files[order[1]]).assert().success();
        found.push(digests(&out)?);
    }
    assert_eq!(found[0], found[1]);
    Ok(())
}

#[test]
fn what_cannot_be_used_is_told() -> TestResult {
    let work = tempfile::tempdir()?;
    let out = work.path().join("out");
    let file = work.path().join("a.jsonl");
    std::fs::write(&file, "{\"text\":\"a\",\"label\":1}\n{\"text\":\"b\",\"label\":\"maybe\"}\n")?;
    toxicity(&file, "x", &out)
        .assert()
        .code(65)
        .stderr(contains("a.jsonl: row 2: `label` is \"maybe\""));
    toxicity(&file, "x", &out).args(["--max-rejects", "1"]).assert().code(66).stderr(contains(
        "a.jsonl: nothing but toxic texts is there: the files hold 1 toxic and 0",
    ));
    toxicity(&file, "a/b", &out).assert().code(2).stderr(contains("--language"));
    toxicity(&work.path().join("no.csv"), "x", &out).assert().code(66).stderr(contains("no.csv"));
    std::fs::write(
        work.path().join("t.csv"),
        "original_text,scores\n\"a\",\"[0, 1]\"\n\"b,\"[0]\"\n",
    )?;
    toxicity(&work.path().join("t.csv"), "x", &out)
        .assert()
        .code(65)
        .stderr(contains("t.csv: row 2"));
    Ok(())
}
