//! Malformed sources: the file, the row and the reason are told, and nothing is left behind.

use std::path::PathBuf;

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use super::{copy, golden};
use crate::util::{TestResult, polysift};

/// Folders and files of one case: the file of a source, its content, what the error says.
struct Case {
    file: &'static str,
    content: Vec<u8>,
    expected: Vec<&'static str>,
}

fn case(file: &'static str, content: impl AsRef<[u8]>, expected: &[&'static str]) -> Case {
    Case { file, content: content.as_ref().to_vec(), expected: expected.to_vec() }
}

/// Builds MKC from one file only.
fn build(
    case: &Case,
) -> Result<(tempfile::TempDir, PathBuf, assert_cmd::Command), Box<dyn std::error::Error>> {
    let work = tempfile::tempdir()?;
    let file = work.path().join("sources").join(case.file);
    std::fs::create_dir_all(file.parent().ok_or("no parent")?)?;
    std::fs::write(&file, &case.content)?;
    let out = work.path().join("out");
    let mut command = polysift();
    command
        .args(["dataset", "mkc", "--languages", "deu_Latn", "--sources"])
        .arg(work.path().join("sources"))
        .arg("--out")
        .arg(&out)
        .arg("--corpus")
        .arg(golden("corpus/{lang}/train/*"));
    Ok((work, out, command))
}

#[test]
fn rows_that_cannot_be_used_are_told_with_file_and_row() -> TestResult {
    let header = "Question,A,B,C,D,Answer\n";
    let mut bad_utf8 = format!("{header}ok,1,2,3,4,A\n").into_bytes();
    bad_utf8.extend(b"\xff,1,2,3,4,A\n");
    for case in [
        case(
            "mmmlu/DE_DE/t.csv",
            format!("{header}q,1,2,3,4,A\nq,1,2,3,4,E\nq,1,2,3,4,\n"),
            &["t.csv: row 2: `Answer` is \"E\"", "(2 bad row(s)"],
        ),
        case(
            "mmmlu/DE_DE/t.csv",
            format!("{header}q,1,2,3,4,A\nq,1,2"),
            &["t.csv: row 2: has 3 field(s), the header has 6"],
        ),
        case(
            "mmmlu/DE_DE/t.csv",
            format!("{header}q,1,2,3,4,A\nq,1,2,3,4,\"A\nq,1,2,3,4,A\n"),
            &["t.csv: row 2: the file ends inside a quoted field"],
        ),
        case("mmmlu/DE_DE/t.csv", bad_utf8, &["t.csv: row 2: `Question` is not UTF-8 at byte 1"]),
        case(
            "mmmlu/DE_DE/t.csv",
            "Question,A,B,C,Answer\nq,1,2,3,A\n",
            &["t.csv: column `D`: is not in the file, which has: Question, A, B, C, Answer"],
        ),
        case("mmmlu/DE_DE/t.csv", "frage,antwort\nq,1\n", &["column `choices`", "frage, antwort"]),
        case(
            "include/German/t.jsonl",
            r#"{"question":"q","choices":["a","b"],"answer":2}"#,
            &["t.jsonl: row 1: `answer` is \"2\"; there are 2 choices, counted from 0"],
        ),
        case(
            "include/German/t.jsonl",
            r#"{"question":"q","choices":["a","b"],"answer":-1}"#,
            &["`answer` is \"-1\""],
        ),
        case(
            "include/German/t.jsonl",
            r#"{"question":null,"choices":["a","b"],"answer":1}"#,
            &["row 1: `question` is null"],
        ),
        case(
            "include/German/t.jsonl",
            r#"{"question":"q","choices":"a","answer":1}"#,
            &["row 1: `choices` is text, not a list"],
        ),
        case(
            "include/German/t.jsonl",
            "{\"question\":\"q\",\"choices\":[],\"answer\":1}\n{oops",
            &["row 1: `answer` is \"1\"; there are 0 choices", "(2 bad row(s)"],
        ),
        case(
            "include/German/t.parquet",
            "PAR1 and then nothing",
            &["t.parquet: cannot be read as Parquet"],
        ),
        case(
            "oasst2/m.jsonl",
            r#"{"message_id":"a","text":"t"}"#,
            &["column `lang`: is in no line; the first has: message_id, text"],
        ),
        case("aya_dataset/d.csv", "inputs,language_code\na,deu\n", &["column `targets`"]),
        case(
            "aya_collection/german.jsonl",
            r#"{"inputs":["a"],"targets":"b"}"#,
            &["german.jsonl: row 1: `inputs` is an array, not a string, a boolean or a number"],
        ),
    ] {
        let (_work, out, mut command) = build(&case)?;
        let mut assert = command.assert().code(65);
        for text in &case.expected {
            assert = assert.stderr(contains(*text));
        }
        assert!(!out.exists());
    }
    Ok(())
}

#[test]
fn a_cyclic_tree_is_told_with_the_row_it_begins_in() -> TestResult {
    let line = |id: &str, parent: &str| {
        format!(
            "{{\"message_id\":\"{id}\",\"parent_id\":{parent},\"text\":\"t\",\"lang\":\"de\"}}\n"
        )
    };
    let lines = [
        line("r", "null"),
        line("a", "\"c\""),
        line("b", "\"a\""),
        line("c", "\"b\""),
        // Hangs below the cycle and is no part of it.
        line("leaf", "\"b\""),
    ];
    for order in [[0, 1, 2, 3, 4], [4, 0, 1, 2, 3]] {
        let content: String = order.iter().map(|&at| lines[at].as_str()).collect();
        let row = order.iter().position(|&at| at == 1).unwrap_or(0) + 1;
        let (_work, _out, mut command) = build(&case("oasst2/m.jsonl", content, &[]))?;
        let expected = format!("m.jsonl: row {row}: the message \"a\" is its own ancestor (3 bad");
        command.assert().code(65).stderr(contains(expected));
    }
    let all = case("oasst2/m.jsonl", lines.concat(), &[]);
    build(&all)?.2.args(["--max-rejects", "9"]).assert().code(65).stderr(contains("(3 bad"));
    let own = case("oasst2/m.jsonl", line("a", "\"a\""), &[]);
    build(&own)?
        .2
        .assert()
        .code(65)
        .stderr(contains("row 1: the message \"a\" is its own ancestor"));
    let twice = case("oasst2/m.jsonl", [line("a", "null"), line("a", "null")].concat(), &[]);
    build(&twice)?.2.assert().code(65).stderr(contains("row 2: the message \"a\" is there twice"));
    Ok(())
}

#[test]
fn rows_within_the_allowance_are_counted_in_the_card() -> TestResult {
    let lines = "Question,A,B,C,D,Answer\nq,1,2,3,4,A\nq,1,2,3,4,E\nr,1,2,3,4,B\nx,1\n";
    let case = case("mmmlu/DE_DE/t.csv", lines, &[]);
    let (_work, out, mut command) = build(&case)?;
    command.args(["--max-rejects", "1"]).assert().code(65).stderr(contains("(2 bad"));
    command.args(["--max-rejects", "2"]);
    let (_work, out_again, mut again) = build(&case)?;
    again.args(["--max-rejects", "2"]).assert().success();
    let card = std::fs::read(out_again.join("deu_Latn/card.json"))?;
    let card: serde_json::Value = serde_json::from_slice(&card)?;
    assert_eq!(card["sources"]["mmmlu"]["dropped"]["malformed"], 2);
    assert_eq!(card["sources"]["mmmlu"]["kept"], 2);
    assert!(!out.exists());
    Ok(())
}

#[test]
fn what_is_not_there_is_said() -> TestResult {
    let work = tempfile::tempdir()?;
    let mkc = |arguments: &[&str]| {
        let mut command = polysift();
        command.args(["dataset", "mkc", "--out"]).arg(work.path().join("out"));
        command.args(arguments);
        command
    };
    let corpus = golden("corpus/{lang}/train/*").display().to_string();
    let nothing = work.path().display().to_string();
    mkc(&["--sources", &nothing, "--corpus", &corpus])
        .assert()
        .code(66)
        .stderr(contains("aya_dataset"));
    let sources = golden("sources").display().to_string();
    mkc(&["--sources", &sources, "--corpus", &corpus, "--languages", "ces_Latn"])
        .assert()
        .code(66)
        .stderr(contains("ces_Latn"));
    mkc(&["--sources", &sources, "--corpus", &golden("corpus/fra_Latn").display().to_string()])
        .assert()
        .code(2)
        .stderr(contains("{lang}"));
    mkc(&["--sources", &sources, "--corpus", &corpus, "--mode", "published"])
        .assert()
        .code(2)
        .stderr(contains("3 files").and(contains("there are 1")));
    // A source without the language's rows counts for nothing; the others are used.
    copy(&golden("sources"), &work.path().join("sources"))?;
    std::fs::remove_dir_all(work.path().join("sources/include"))?;
    let sources = work.path().join("sources").display().to_string();
    mkc(&["--sources", &sources, "--corpus", &corpus])
        .assert()
        .success()
        .stderr(contains("no such source").and(contains("include")));
    Ok(())
}
