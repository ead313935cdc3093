//! `polysift dataset mkc`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::Value;

use super::{all_rows, copy, expected, golden, strings, texts};
use crate::util::{TestResult, digests, polysift};

const LANGUAGES: [&str; 2] = ["deu_Latn", "fra_Latn"];

/// `polysift dataset mkc` over the golden corpus.
fn mkc(sources: &Path, out: &Path) -> Command {
    let mut command = polysift();
    command.args(["dataset", "mkc", "--sources"]).arg(sources).arg("--out").arg(out);
    command.arg("--corpus").arg(golden("corpus/{lang}/train/*"));
    command
}

/// Positives by source.
fn positives(rows: &BTreeMap<String, Vec<Value>>, source: &str) -> Vec<String> {
    texts(rows, |row| row["source"] == source && row["label"] == "positive")
}

#[test]
fn the_positives_are_those_of_the_published_script() -> TestResult {
    let expected = expected()?;
    for mode in ["default", "published"] {
        let out = tempfile::tempdir()?;
        let mut command = mkc(&golden("sources"), out.path());
        // The reference draws negatives from three files; French has one.
        let languages = if mode == "default" { "deu_Latn,fra_Latn" } else { "deu_Latn" };
        command.args(["--mode", mode, "--languages", languages]).assert().success();
        for language in languages.split(',') {
            let rows = all_rows(&out.path().join(language))?;
            for source in ["mmmlu", "include", "aya_dataset", "aya_collection"] {
                let wanted = strings(&expected[language][source][mode]);
                assert!(!wanted.is_empty());
                assert_eq!(positives(&rows, source), wanted, "{language} {source} {mode}");
            }
        }
    }
    Ok(())
}

#[test]
fn at_most_two_conversations_of_a_root_are_taken_and_stay_in_one_split() -> TestResult {
    let expected = expected()?;
    let roots = expected["deu_Latn"]["oasst2"].as_object().ok_or("no roots")?;
    let mut taken = BTreeSet::new();
    for seed in 0..8 {
        let out = tempfile::tempdir()?;
        mkc(&golden("sources"), out.path())
            .args(["--languages", "deu_Latn", "--seed", &seed.to_string()])
            .assert()
            .success();
        let rows = all_rows(&out.path().join("deu_Latn"))?;
        let found = positives(&rows, "oasst2");
        let mut number = 0;
        for conversations in roots.values().map(strings) {
            let own: Vec<_> = found.iter().filter(|text| conversations.contains(text)).collect();
            assert_eq!(own.len(), conversations.len().min(2));
            number += own.len();
            let files = rows.values().filter(|rows| {
                rows.iter().any(|row| own.iter().any(|text| row["text"] == text.as_str()))
            });
            assert_eq!(files.count(), 1, "{own:?}");
            taken.extend(own.into_iter().cloned());
        }
        assert_eq!(number, found.len());
        // Their roots are in another language, their tree is one.
        let files = |id: &str| {
            let has = |rows: &&Vec<Value>| rows.iter().any(|row| row["id"] == id);
            rows.iter().find(|(_, rows)| has(rows)).map(|(name, _)| name.clone())
        };
        assert_eq!(files("oasst2/d1"), files("oasst2/d2"));
    }
    // Of the root with four leaves, each is taken by some seed: 8 draws of 2 of 4 miss one of them
    // with a probability of 4 / 2^8; these seeds do not.
    assert_eq!(taken.len(), roots.values().map(|c| strings(c).len()).sum::<usize>());
    Ok(())
}

#[test]
fn splits_are_disjoint_and_as_large_as_they_should_be() -> TestResult {
    let out = tempfile::tempdir()?;
    mkc(&golden("sources"), out.path()).assert().success();
    for language in LANGUAGES {
        let rows = all_rows(&out.path().join(language))?;
        let names: Vec<&str> = rows.keys().map(String::as_str).collect();
        assert_eq!(names, ["test_10.jsonl", "train_80.jsonl", "valid_10.jsonl"]);
        let all: Vec<&Value> = rows.values().flatten().collect();
        let distinct: BTreeSet<String> = all.iter().map(|row| row["text"].to_string()).collect();
        assert_eq!(distinct.len(), all.len());
        for label in ["positive", "negative"] {
            let count = |name: &str| rows[name].iter().filter(|row| row["label"] == label).count();
            let total: usize = names.iter().map(|name| count(name)).sum();
            let tenth = (total + 5) / 10;
            assert_eq!(total, all.len() / 2);
            assert_eq!((count("valid_10.jsonl"), count("test_10.jsonl")), (tenth, tenth));
        }
        for (name, split) in [
            ("train_80.jsonl", "train"),
            ("valid_10.jsonl", "validation"),
            ("test_10.jsonl", "test"),
        ] {
            assert!(rows[name].iter().all(|row| row["split"] == split));
        }
    }
    Ok(())
}

#[test]
fn the_order_and_number_of_files_and_threads_change_nothing_but_the_card() -> TestResult {
    let first = tempfile::tempdir()?;
    mkc(&golden("sources"), first.path()).args(["--threads", "1"]).assert().success();
    let again = tempfile::tempdir()?;
    mkc(&golden("sources"), again.path()).args(["--threads", "3"]).assert().success();
    assert_eq!(digests(first.path())?, digests(again.path())?);

    // The corpus under other names, so that its files come in another order.
    let work = tempfile::tempdir()?;
    let folder = golden("corpus/deu_Latn/train");
    for (number, name) in (0..4).zip(["d", "b", "a", "c"]) {
        let target = work.path().join(format!("{name}.parquet"));
        std::fs::copy(folder.join(format!("000_0000{number}.parquet")), target)?;
    }
    let other = tempfile::tempdir()?;
    polysift()
        .args(["dataset", "mkc", "--languages", "deu_Latn", "--sources"])
        .arg(golden("sources"))
        .arg("--out")
        .arg(other.path())
        .arg("--corpus")
        .arg(work.path())
        .assert()
        .success();
    let same = |name: &str| -> Result<bool, std::io::Error> {
        let read = |out: &Path| std::fs::read(out.join("deu_Latn").join(name));
        Ok(read(first.path())? == read(other.path())?)
    };
    assert!(same("train_80.jsonl")? && same("valid_10.jsonl")? && same("test_10.jsonl")?);

    let seeded = tempfile::tempdir()?;
    mkc(&golden("sources"), seeded.path()).args(["--seed", "7"]).assert().success();
    assert_ne!(digests(first.path())?, digests(seeded.path())?);
    Ok(())
}

#[test]
fn the_card_accounts_for_every_row() -> TestResult {
    let out = tempfile::tempdir()?;
    mkc(&golden("sources"), out.path()).assert().success().stdout(contains("aya_collection"));
    for language in LANGUAGES {
        let path = out.path().join(language).join("card.json");
        let card: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        let rows = all_rows(&out.path().join(language))?;
        for (name, source) in card["sources"].as_object().ok_or("no sources")? {
            let kept = texts(&rows, |row| row["source"] == name.as_str()).len() as u64;
            assert_eq!(source["kept"].as_u64(), Some(kept), "{language} {name}");
            let dropped = source["dropped"].as_object().ok_or("no dropped")?;
            let dropped: u64 = dropped.values().filter_map(Value::as_u64).sum();
            assert_eq!(source["rows"].as_u64(), Some(kept + dropped), "{language} {name}");
            for file in source["files"].as_array().ok_or("no files")? {
                let whole = file["blake3"].as_str();
                if let (Some(digest), Some(file)) = (whole, file["name"].as_str()) {
                    let path = golden("sources").join(name).join(file);
                    assert_eq!(digest, blake3::hash(&std::fs::read(path)?).to_hex().as_str());
                }
            }
        }
        for (name, stamp) in card["files"].as_object().ok_or("no files")? {
            let written = std::fs::read(out.path().join(language).join(name))?;
            assert_eq!(stamp["blake3"], blake3::hash(&written).to_hex().as_str());
        }
        assert_eq!((&card["dataset"], &card["mode"]), (&"mkc+".into(), &"default".into()));
        let collection = &card["sources"]["aya_collection"];
        assert_eq!(collection["dropped"]["<unk>"], 1);
        assert_eq!(collection["repaired"], 2);
        assert!(!card.to_string().contains(&golden("").display().to_string()));
    }
    Ok(())
}

#[test]
fn positives_are_capped_and_mkc_has_no_aya_collection() -> TestResult {
    let out = tempfile::tempdir()?;
    mkc(&golden("sources"), out.path())
        .args(["--languages", "deu_Latn", "--max-positives", "50"])
        .assert()
        .success();
    let rows = all_rows(&out.path().join("deu_Latn"))?;
    let count = |label: &str| texts(&rows, |row| row["label"] == label).len();
    assert_eq!((count("positive"), count("negative")), (50, 50));
    // 12 questions each, 6 prompts and 6 conversations: all of them, the rest is filled up.
    assert_eq!(positives(&rows, "aya_collection").len(), 50 - 12 - 12 - 6 - 6);

    mkc(&golden("sources"), out.path())
        .args(["--languages", "deu_Latn", "--variant", "mkc", "--max-positives", "20"])
        .assert()
        .success();
    let rows = all_rows(&out.path().join("deu_Latn"))?;
    assert_eq!(positives(&rows, "aya_collection").len(), 0);
    assert_eq!(texts(&rows, |row| row["label"] == "positive").len(), 20);
    Ok(())
}

#[test]
fn translations_of_a_question_are_in_one_split_of_all_languages() -> TestResult {
    let work = tempfile::tempdir()?;
    let questions = |language: &str, folder: &str| -> TestResult {
        let folder = work.path().join("sources/mmmlu").join(folder);
        std::fs::create_dir_all(&folder)?;
        let row = |i: usize| format!("{language} question {},a {i},b,c,d,A\n", i / 2);
        let rows: String = (0..250).map(row).collect();
        Ok(std::fs::write(folder.join("t.csv"), format!("Question,A,B,C,D,Answer\n{rows}"))?)
    };
    questions("german", "DE_DE")?;
    questions("french", "FR_FR")?;
    // One language has another source besides, so that its tenths are others.
    copy(&golden("sources/include/German"), &work.path().join("sources/include/German"))?;
    let mut splits: Vec<BTreeMap<String, String>> = Vec::new();
    for language in LANGUAGES {
        let out = work.path().join("out");
        // Built one by one: they have to agree without knowing of one another.
        mkc(&work.path().join("sources"), &out).args(["--languages", language]).assert().success();
        let rows = all_rows(&out.join(language))?;
        let all = rows.iter().flat_map(|(name, rows)| rows.iter().map(move |row| (name, row)));
        let of_questions = all.filter(|(_, row)| row["source"] == "mmmlu");
        let number = |row: &Value| Some(row["id"].as_str()?.rsplit_once('/')?.1.to_owned());
        let found = of_questions.map(|(name, row)| Some((number(row)?, name.clone())));
        splits.push(found.collect::<Option<_>>().ok_or("no id")?);
    }
    assert_eq!(splits[0].len(), 250);
    assert_eq!(splits[0], splits[1]);
    let sizes = |name: &str| splits[0].values().filter(|split| *split == name).count();
    // 25 are expected of 250 draws of a tenth; 6 and 50 are four and five standard deviations away.
    for name in ["valid_10.jsonl", "test_10.jsonl"] {
        assert!((6..50).contains(&sizes(name)), "{name}: {}", sizes(name));
    }
    Ok(())
}

#[test]
fn equal_texts_of_the_aya_collection_are_counted_as_repeated() -> TestResult {
    let work = tempfile::tempdir()?;
    let folder = work.path().join("sources/aya_collection");
    std::fs::create_dir_all(&folder)?;
    let row = |i: usize, case: &str| format!("{{\"inputs\":\"{case} {i}\",\"targets\":\"x\"}}\n");
    let rows: String =
        (0..10).map(|i| row(i, "Frage")).chain((0..4).map(|i| row(i, "FRAGE"))).collect();
    std::fs::write(folder.join("german.jsonl"), rows)?;
    let out = work.path().join("out");
    let mut command = mkc(&work.path().join("sources"), &out);
    command.args(["--languages", "deu_Latn", "--max-positives", "8"]).assert().success();
    let card: Value = serde_json::from_slice(&std::fs::read(out.join("deu_Latn/card.json"))?)?;
    let source = &card["sources"]["aya_collection"];
    assert_eq!((&source["rows"], &source["kept"]), (&14.into(), &8.into()));
    assert_eq!(source["dropped"], serde_json::json!({"repeated": 4, "not drawn": 2}));
    Ok(())
}

#[test]
fn too_few_positives_are_refused() -> TestResult {
    for number in ["0", "1", "4"] {
        let out = tempfile::tempdir()?;
        mkc(&golden("sources"), out.path())
            .args(["--max-positives", number])
            .assert()
            .code(2)
            .stderr(contains(format!("--max-positives: is {number}; at least 5 are needed")));
    }
    Ok(())
}

#[test]
fn the_reference_takes_blank_rows_as_the_published_script_does() -> TestResult {
    let work = tempfile::tempdir()?;
    let write = |name: &str, content: &str| -> TestResult {
        let path = work.path().join(name);
        std::fs::create_dir_all(path.parent().ok_or("no parent")?)?;
        Ok(std::fs::write(path, content)?)
    };
    // strip(question) + " " + strip(answer), and inputs + " " + targets, whatever they are.
    write("sources/mmmlu/DE_DE/t.csv", "Question,A,B,C,D,Answer\n  , x ,b,c,d,A\nq,a,b,c,d,B\n")?;
    write("sources/aya_collection/german.jsonl", "{\"inputs\":\" \",\"targets\":\"\"}\n")?;
    for name in ["a", "b", "c"] {
        write(&format!("corpus/{name}.jsonl"), "{\"text\":\" \\n\"}\n{\"text\":null}\n")?;
    }
    for (mode, positives, negatives) in
        [("published", vec!["  ", " x", "q b"], vec![" \n"; 3]), ("default", vec!["q b"], vec![])]
    {
        let out = work.path().join(mode);
        polysift()
            .args(["dataset", "mkc", "--languages", "deu_Latn", "--mode", mode, "--sources"])
            .arg(work.path().join("sources"))
            .arg("--corpus")
            .arg(work.path().join("corpus"))
            .arg("--out")
            .arg(&out)
            .assert()
            .success();
        let rows = all_rows(&out.join("deu_Latn"))?;
        assert_eq!(texts(&rows, |row| row["label"] == "positive"), positives, "{mode}");
        assert_eq!(texts(&rows, |row| row["label"] == "negative"), negatives, "{mode}");
    }
    Ok(())
}

#[test]
fn negatives_equal_to_a_positive_and_duplicates_are_left_out() -> TestResult {
    let work = tempfile::tempdir()?;
    copy(&golden("sources"), &work.path().join("sources"))?;
    let out = work.path().join("out");
    mkc(&work.path().join("sources"), &out).args(["--languages", "deu_Latn"]).assert().success();
    let positive = positives(&all_rows(&out.join("deu_Latn"))?, "mmmlu")[0].clone();
    // The same words, in another case and with other white space.
    let shouted = positive.to_uppercase().to_lowercase().replace(' ', "  ");
    let line = |text: &str, id: u32| serde_json::json!({"text": text, "id": id}).to_string();
    let mut lines = vec![line(&shouted, 0)];
    lines.extend((1..40).map(|id| line(&format!("Satz {}", id % 30), id)));
    std::fs::write(work.path().join("c.jsonl"), lines.join("\n"))?;
    polysift()
        .args(["dataset", "mkc", "--languages", "deu_Latn", "--sources"])
        .arg(work.path().join("sources"))
        .arg("--out")
        .arg(&out)
        .arg("--corpus")
        .arg(work.path().join("c.jsonl"))
        .assert()
        .success()
        .stderr(contains("too few documents"));
    let negatives = texts(&all_rows(&out.join("deu_Latn"))?, |row| row["label"] == "negative");
    assert_eq!(negatives.len(), 30, "{negatives:?}");
    let card: Value = serde_json::from_slice(&std::fs::read(out.join("deu_Latn/card.json"))?)?;
    assert_eq!(card["sources"]["corpus"]["dropped"]["equal to a positive"], 1);
    Ok(())
}

#[test]
fn a_table_of_languages_can_be_brought_along() -> TestResult {
    let work = tempfile::tempdir()?;
    std::fs::write(
        work.path().join("t.toml"),
        "[deu_Latn]\nmmmlu = 'FR_FR'\noasst2 = ''\n[bar_Latn]\naya_dataset = 'deu'\n",
    )?;
    let out = work.path().join("out");
    mkc(&golden("sources"), &out)
        .args(["--languages", "deu_Latn", "--table"])
        .arg(work.path().join("t.toml"))
        .assert()
        .success();
    let rows = all_rows(&out.join("deu_Latn"))?;
    let french = strings(&expected()?["fra_Latn"]["mmmlu"]["default"]);
    assert_eq!(positives(&rows, "mmmlu"), french);
    assert_eq!(positives(&rows, "oasst2").len(), 0);
    mkc(&golden("sources"), &out)
        .args(["--languages", "bar_Latn"])
        .assert()
        .code(2)
        .stderr(contains("bar_Latn").and(contains("--table")));
    Ok(())
}

#[test]
fn a_head_is_trained_on_the_splits_of_the_dataset() -> TestResult {
    let work = tempfile::tempdir()?;
    let out = work.path().join("mkc");
    mkc(&golden("sources"), &out).assert().success();
    polysift()
        .current_dir(work.path())
        .args(["train", "--run", "run", "--train-on", "quality=mkc/{lang}/*.jsonl"])
        .args(["--set", "heads.quality.training.epochs=1"])
        .assert()
        .success();
    for language in LANGUAGES {
        let card: Value =
            serde_json::from_slice(&std::fs::read(out.join(language).join("card.json"))?)?;
        let head = work.path().join(format!("run/heads/quality/{language}.safetensors"));
        let head =
            polysift::head::Head::load(&head, "quality", &polysift::config::HeadConfig::default())?;
        let training = head.card.training.clone().ok_or("no training")?;
        for (file, split) in [
            ("train_80.jsonl", "train"),
            ("valid_10.jsonl", "validation"),
            ("test_10.jsonl", "test"),
        ] {
            let counts = training.samples[split];
            assert_eq!(card["samples"][file], serde_json::to_value(counts)?, "{language} {split}");
        }
    }
    Ok(())
}
