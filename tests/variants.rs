//! Other shapes of the job: languages from columns, stored embeddings, layouts, cosine heads, two thresholds.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::datatypes::Float64Type;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::json;

use crate::util::{TestResult, Workspace, polysift, read_parquet, text};

/// Ids with the values of a float64 column.
fn column(
    batch: &RecordBatch,
    name: &str,
) -> Result<BTreeMap<String, f64>, Box<dyn std::error::Error>> {
    let ids = batch.column_by_name("id").ok_or("no id")?.as_string::<i32>();
    let values = batch.column_by_name(name).ok_or("no such column")?.as_primitive::<Float64Type>();
    Ok(ids.iter().flatten().map(str::to_owned).zip(values.iter().flatten()).collect())
}

#[test]
fn languages_come_from_two_columns_and_each_has_its_own_thresholds() -> TestResult {
    let work = Workspace::new()?;
    let rows = (0..60).map(|i| {
        let language = if i % 2 == 0 { "fra" } else { "deu" };
        json!({"id": i, "text": text(i), "language": language, "language_script": "Latn"})
    });
    work.write_lines("mixed/all.jsonl", rows)?;
    work.command("run", "out")
        .arg("mixed")
        .args(["--set", "input.language={column='language', script_column='language_script'}"])
        .assert()
        .success();
    for language in ["fra_Latn", "deu_Latn"] {
        let threshold = &work.json(&format!("out/selection/{language}.json"))?["thresholds"][0];
        let kept = &threshold["outcomes"][0]["kept"]["num_documents"];
        assert_eq!((&threshold["scored"]["num_documents"], kept), (&json!(30), &json!(3)));
    }
    polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}

/// Scores of files with several languages are read together, those of the other files language by language.
#[test]
fn files_of_several_languages_have_the_thresholds_of_files_of_one() -> TestResult {
    let work = Workspace::new()?;
    let languages = ["fra_Latn", "deu_Latn", "swe_Latn"];
    let row = |i: usize| {
        // Many scores are equal, so that ids decide; some are missing.
        let quality = (!i.is_multiple_of(11)).then_some((i * 7 % 4) as f64 / 4.0);
        json!({"id": format!("<{i}>"), "text": text(i), "lang": languages[i % 7 % 3],
               "q": quality, "t": (i % 5) as f64})
    };
    for part in 0..3 {
        let rows = (part * 50..part * 50 + 50).map(row);
        work.write_lines(&format!("mixed/{part}.jsonl"), rows)?;
    }
    for language in languages {
        let rows = (0..150).map(row).filter(|row| row["lang"] == language);
        work.write_lines(&format!("single/{language}.jsonl"), rows)?;
    }
    let removed: Vec<String> = (0..150).step_by(9).map(|i| format!("<{i}>")).collect();
    work.write("optout.txt", removed.join("\n"))?;
    let settings = "[encoder]\nmodel = 'none'\n[parts]\nrows = 16\n\
        [heads.quality]\nkind = 'column'\nscore = 'q'\n\
        [heads.toxicity]\nkind = 'column'\nscore = 't'\n\
        [filters.optout]\nkind = 'ids'\nlists = ['optout.txt']\n\
        [selection]\nweight = 'bytes'\n\
        [languages._default]\nretention = { quality = [0.1, 0.33] }\nremoval = { toxicity = 0.05 }\n";
    for (name, input) in [
        ("mixed", "['mixed/*.jsonl']\nlanguage = { column = 'lang' }"),
        ("single", "['single/{lang}.jsonl']"),
    ] {
        work.write("run.toml", format!("[input]\nfiles = {input}\n{settings}"))?;
        work.command("run", name).assert().success();
        polysift().arg("verify").arg(work.path(name)).assert().success();
    }
    for language in languages {
        let [mixed, single] =
            ["mixed", "single"].map(|name| work.json(&format!("{name}/selection/{language}.json")));
        let mixed = mixed?;
        assert!(mixed["thresholds"][0]["scored"]["num_documents"].as_u64() > Some(20));
        assert_eq!(mixed, single?);
    }
    Ok(())
}

#[test]
fn embeddings_from_the_input_lose_neither_a_column_nor_their_values() -> TestResult {
    let work = Workspace::new()?;
    let vector = |i: usize| vec![if i == 2 { 1e5 } else { 0.1 }; 48];
    let row = |i| json!({"id": i, "text": text(i), "emb": vector(i), "embeddings": "keep me"});
    work.write_lines("given/fra_Latn.jsonl", (0..4).map(row))?;
    let run = |name: &str, args: &[&str]| {
        let mut command = work.command("run", name);
        command.args(["given/{lang}.jsonl", "--set", "input.embeddings=emb"]);
        command.args(["--retention", "quality=1"]).args(args).assert()
    };
    let clash = "column `embeddings`: is already in the input";
    run("both", &[]).code(65).stderr(contains(clash));
    run("kept", &["--no-embeddings"]).success();
    let kept = read_parquet(&work.path("kept/export/fra_Latn.parquet"))?;
    let own = kept.column_by_name("embeddings").ok_or("no column")?.as_string::<i32>();
    assert!(own.iter().all(|value| value == Some("keep me")));

    let row = |i| json!({"id": i, "text": text(i), "emb": vector(i)});
    work.write_lines("given/fra_Latn.jsonl", (0..4).map(row))?;
    let f16 = ["--set", "export.embeddings=f16"];
    run("infinite", &f16).code(65).stderr(contains("values that this type makes infinite"));
    let warned = contains("not finite in this type").and(contains("rows=1"));
    run("stored", &["--embeddings", "f16"]).success().stderr(warned);
    Ok(())
}

#[test]
fn exported_embeddings_can_be_scored_again_without_an_encoder() -> TestResult {
    let work = Workspace::new()?;
    for layout in ["flat", "nested"] {
        let first = format!("first-{layout}");
        work.command("run", &first)
            .args(["--retention", "quality=1", "--layout", layout])
            .assert()
            .success();
        polysift()
            .current_dir(work.dir.path())
            .args(["run", &format!("{first}/export/{{lang}}/*.parquet"), "--run"])
            .arg(format!("again-{layout}"))
            .args(["--head", &format!("quality={first}/heads/quality/{{lang}}.safetensors")])
            .args(["--set", "heads.quality.column=score_again", "--retention", "quality=1"])
            .args(["--set", "input.embeddings=embeddings", "--model", "no/such-model", "--offline"])
            .assert()
            .success();
        let again = read_parquet(&work.path(&format!("again-{layout}/export/fra_Latn/a.parquet")));
        let again = again.or_else(|_| {
            read_parquet(&work.path(&format!("again-{layout}/export/fra_Latn.parquet")))
        })?;
        assert_eq!(column(&again, "quality_score")?, column(&again, "score_again")?);
        assert_eq!(again.num_rows(), 38);
    }
    Ok(())
}

#[test]
fn a_nested_export_holds_everything_but_text_and_id_in_metadata() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").args(["--layout", "nested"]).assert().success();
    let batch = read_parquet(&work.path("out/export/fra_Latn/a.parquet"))?;
    let schema = batch.schema();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["text", "id", "metadata"]);
    let metadata = batch.column(2).as_struct();
    for name in ["n", "embeddings", "quality_score", "quality_retention"] {
        assert_eq!(metadata.column_by_name(name).ok_or(name)?.null_count(), 0, "{name}");
    }
    Ok(())
}

#[test]
fn parquet_keeps_its_metadata_and_small_row_groups_become_large_ones() -> TestResult {
    let work = Workspace::new()?;
    let texts: StringArray = (0..300).map(|i| Some(text(i))).collect();
    let batch = RecordBatch::try_from_iter([("text", Arc::new(texts) as ArrayRef)])?;
    let schema = batch.schema().as_ref().clone().with_metadata([("licence", "ODC-By")]);
    let batch = batch.with_schema(Arc::new(schema))?;
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1)).build();
    let file = std::fs::File::create(work.path("small.parquet"))?;
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    assert_eq!(writer.close()?.num_row_groups(), 300);
    work.command("run", "out")
        .args(["small.parquet", "--language", "fra_Latn", "--retention", "quality=1"])
        .args(["--train-on", "quality=samples/fra_Latn.jsonl"])
        .assert()
        .success();
    let path = work.path("out/export/small.parquet");
    let footer = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path)?)?;
    assert_eq!(footer.metadata().num_row_groups(), 1);
    assert_eq!(footer.schema().metadata()["licence"], "ODC-By");
    let exported = read_parquet(&path)?;
    assert_eq!(exported.column_by_name("text"), batch.column_by_name("text"));
    Ok(())
}

#[test]
fn a_cosine_head_says_that_there_were_fewer_references_than_asked_for() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out")
        .args(["--set", "heads.quality={kind='cosine', train=['samples/{lang}.jsonl']}"])
        .current_dir(work.dir.path())
        .assert()
        .success();
    let head = polysift()
        .args(["inspect", "--json"])
        .arg(work.path("out/heads/quality/fra_Latn.safetensors"))
        .output()?;
    let card: serde_json::Value = serde_json::from_slice(&head.stdout)?;
    assert_eq!(card["card"]["references"]["requested"], 8192);
    assert!(card["card"]["references"]["available"].as_u64() < Some(8192));
    Ok(())
}

#[test]
fn a_removal_takes_its_share_first_and_the_retention_is_of_all_documents() -> TestResult {
    let work = Workspace::new()?;
    work.write_toxicity_samples()?;
    work.command("run", "out")
        .args(["--train-on", "toxicity=toxic/{lang}.jsonl", "--removal", "toxicity=0.05"])
        .args(["--keep-removed"])
        .assert()
        .success();
    let marker = work.json("out/state/export/done/fra_Latn/a.json")?;
    // 38 documents with text: ceil(5%) = 2 go first, ceil(33%) = 13 of all 38 are kept.
    assert_eq!(marker["counts"], json!({"kept": 13, "no_text": 2, "quality": 23, "toxicity": 2}));
    let removed = read_parquet(&work.path("out/removed/toxicity/fra_Latn/a.parquet"))?;
    let kept = read_parquet(&work.path("out/export/fra_Latn/a.parquet"))?;
    let worst_kept = column(&kept, "toxicity_score")?.into_values().fold(0.0, f64::max);
    let mildest_removed = column(&removed, "toxicity_score")?.into_values().fold(1.0, f64::min);
    assert!(worst_kept <= mildest_removed);
    // German has no toxicity samples: nothing is removed there, and nothing fails.
    let marker = work.json("out/state/export/done/deu_Latn/a.json")?;
    assert_eq!(marker["counts"]["toxicity"], serde_json::Value::Null);
    polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}

#[test]
fn rates_can_count_tokens() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").args(["--weight", "tokens"]).assert().success();
    let threshold = &work.json("out/selection/fra_Latn.json")?["thresholds"][0];
    let total = threshold["scored"]["weight"].as_u64().ok_or("no weight")?;
    let kept = &threshold["outcomes"][0]["kept"];
    assert!(kept["weight"].as_u64() >= Some(total.div_ceil(10)));
    assert!(total > 200 && kept["num_documents"].as_u64() < Some(10), "{threshold}");
    Ok(())
}

#[test]
fn the_published_thresholds_can_be_had_by_name() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").args(["--mode", "published"]).assert().success();
    let report = work.json("out/selection/fra_Latn.json")?;
    assert_eq!(report["mode"], "published");
    let kept = read_parquet(&work.path("out/export/fra_Latn/a.parquet"))?;
    // numpy's quantile at 0.67 of 38 scores lies between the 25th and 26th: 13 are above it.
    let rates = &report["thresholds"][0]["outcomes"];
    assert_eq!(rates[1]["kept"]["num_documents"], kept.num_rows());
    let threshold = rates[1]["threshold_score"].as_f64().ok_or("no threshold")?;
    assert!(column(&kept, "quality_score")?.into_values().all(|score| score > threshold));
    Ok(())
}
