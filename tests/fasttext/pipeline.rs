//! fastText heads in a run: trained, scored, refined, selected and exported beside other heads.

use std::collections::BTreeMap;
use std::error::Error;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Float32Type;
use polysift::config::HeadConfig;
use polysift::head::FastTextHead;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use super::file;
use crate::util::{TestResult, Workspace, digests, polysift, read_parquet, text};

const FAST_TEXT: &str = "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n\
    [parts]\nrows = 16\n\
    [heads.ft]\nkind = 'fasttext'\ntrain = ['samples/{lang}.jsonl']\n\
    [heads.ft.fasttext]\ndim = 8\nbuckets = 1000\nepochs = 10\nlearning_rate = 0.5\n\
    [languages._default]\nretention = { ft = [0.1, 0.33] }\n";

/// A workspace whose only head is a fastText head.
fn workspace() -> Result<Workspace, Box<dyn Error>> {
    let work = Workspace::new()?;
    work.write("run.toml", FAST_TEXT)?;
    Ok(work)
}

/// The bits of logit and score; `None` without text.
type Score = Option<(u32, u32)>;

/// Logit and score by id, of all parts of the French shard.
fn scores(work: &Workspace, folder: &str) -> Result<BTreeMap<String, Score>, Box<dyn Error>> {
    let mut scores = BTreeMap::new();
    for part in 0..3 {
        let path = work.path(&format!("{folder}/ft/fra_Latn/a/part-{part:05}.parquet"));
        let rows = read_parquet(&path)?;
        let column = |name: &str| rows.column_by_name(name).cloned().ok_or("no such column");
        let (ids, logits, scored) = (column("id")?, column("logit")?, column("score")?);
        for (row, id) in ids.as_string::<i32>().iter().flatten().enumerate() {
            let value =
                |array: &dyn Array| array.as_primitive::<Float32Type>().value(row).to_bits();
            let score = (!logits.is_null(row)).then(|| (value(&logits), value(&scored)));
            scores.insert(id.to_owned(), score);
        }
    }
    Ok(scores)
}

#[test]
fn a_run_with_a_fasttext_head_scores_selects_and_holds_together() -> TestResult {
    let work = workspace()?;
    work.command("run", "out").assert().success().stdout(contains("ft"));
    let model = work.path("out/heads/ft/fra_Latn.bin");
    let head = FastTextHead::load(&model, "ft", &HeadConfig::default(), "_all")?;
    let scored = scores(&work, "out/scores")?;
    assert_eq!(scored.len(), 40);
    for i in 0..40 {
        // Two documents have no text.
        let expected = (i != 7 && i != 8).then(|| head.score(&[Some(text(i))])[0]).flatten();
        let expected = expected.map(|score| (score.logit.to_bits(), score.score.to_bits()));
        assert_eq!(scored[&format!("fra_Latn-{i}")], expected, "document {i}");
    }
    let threshold = &work.json("out/selection/fra_Latn.json")?["thresholds"][0];
    let scored = &threshold["scored"]["num_documents"];
    assert_eq!((scored, &threshold["num_unscored"]), (&json!(38), &json!(2)));
    let exported = read_parquet(&work.path("out/export/fra_Latn/a.parquet"))?;
    assert_eq!(exported.num_rows(), 13); // 33% of 38
    assert!(exported.column_by_name("ft_score").is_some());
    polysift().arg("verify").arg(work.path("out")).assert().success();
    let labels = contains("__label__positive").and(contains("collapse"));
    polysift().arg("inspect").arg(&model).assert().success().stdout(labels);
    let before = digests(&work.path("out/scores"))?;
    work.command("run", "out").args(["--redo", "score", "--threads", "1"]).assert().success();
    assert_eq!(digests(&work.path("out/scores"))?, before);
    Ok(())
}

#[test]
fn training_a_fasttext_head_needs_no_encoder() -> TestResult {
    let work = workspace()?;
    work.command("train", "alone")
        .args(["--set", "input.files=[]", "--model", "no/such-model", "--offline"])
        .assert()
        .success();
    let card = work.json("alone/heads/ft/deu_Latn.json")?;
    assert_eq!(card["text"]["spec"]["preprocessing"], "collapse");
    assert_eq!(card["training"]["test"]["accuracy"], 1.0);
    assert_eq!(card["provenance"]["encoder_digest"], Value::Null);
    Ok(())
}

#[test]
fn refinement_leaves_the_scores_of_texts_as_they_are() -> TestResult {
    let work = workspace()?;
    let quality = [
        ["--train-on", "quality=samples/{lang}.jsonl"],
        ["--retention", "quality=0.2"],
        ["--set", "heads.quality.training.epochs=6"],
        ["--set", "heads.quality.training.batch_size=16"],
    ]
    .concat();
    for (run, more) in [("both", &quality[..]), ("alone", &[])] {
        work.command("run", run)
            .args(["--precision", "int8", "--refine"])
            .args(more)
            .assert()
            .success();
        let refined = scores(&work, &format!("{run}/refined"))?;
        assert_eq!(refined, scores(&work, &format!("{run}/scores"))?, "{run}");
        polysift().arg("verify").arg(work.path(run)).assert().success();
    }
    assert_eq!(work.json("alone/refined/report.json")?["refined_tokens"], 0);
    let report = work.json("both/refined/report.json")?;
    let mut heads = report["heads"].as_array().ok_or("no heads")?.iter();
    let head = heads.find(|found| found["head"] == "ft" && found["language"] == "fra_Latn");
    assert_eq!(head.ok_or("no ft")?["largest_difference"], 0.0);
    Ok(())
}

#[test]
fn texts_that_changed_since_they_were_embedded_are_noticed() -> TestResult {
    let work = workspace()?;
    std::fs::remove_dir_all(work.path("corpus/deu_Latn"))?;
    // A file whose middle is not part of its fingerprint.
    let mut texts: Vec<String> = (0..2000).map(|i| format!("{} {:090}", text(i), i)).collect();
    let write = |texts: &[String]| {
        let rows = texts.iter().enumerate().map(|(i, text)| json!({"id": i, "text": text}));
        work.write_lines("corpus/fra_Latn/a.jsonl", rows)
    };
    write(&texts)?;
    for stage in ["embed", "train"] {
        work.command(stage, "out").assert().success();
    }
    let moved = texts[1000].pop().ok_or("no text")?;
    texts[1001].push(moved);
    write(&texts)?;
    work.command("score", "out")
        .assert()
        .code(65)
        .stderr(contains("row 1000 has another text than before"));
    texts.push("one more".to_owned());
    write(&texts)?;
    work.command("score", "out").assert().code(65).stderr(contains("changed since the run"));
    Ok(())
}

#[test]
fn a_model_of_the_library_scores_a_corpus() -> TestResult {
    let work = Workspace::new()?;
    work.write("run.toml", "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n")?;
    let model = format!("ft={}", file("words.bin").display());
    work.command("run", "out").args(["--head", &model, "--retention", "ft=0.5"]).assert().success();
    let exported = read_parquet(&work.path("out/export/fra_Latn/a.parquet"))?;
    assert_eq!(exported.num_rows(), 19);
    polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}

#[test]
fn settings_of_texts_and_of_embeddings_do_not_mix() -> TestResult {
    let work = workspace()?;
    for (setting, reason) in [
        ("heads.ft.chunk=max", "heads.ft.chunk: is not for heads of the kind \"fasttext\""),
        ("heads.ft.kind=mlp", "heads.ft.fasttext: is not for heads of the kind \"mlp\""),
        ("heads.ft.fasttext.positive=good", "__label__"),
        ("heads.ft.fasttext.dim=0", "heads.ft.fasttext.dim"),
    ] {
        let command = ["--set", setting];
        work.command("train", "out").args(command).assert().code(2).stderr(contains(reason));
    }
    Ok(())
}
