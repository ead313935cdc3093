//! The whole job through the program.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float32Type, Float64Type, Int64Type};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::basic::LogicalType;
use parquet::data_type::{
    ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet, text};

#[test]
fn the_job_ends_with_exactly_the_rates_asked_for_and_every_row_accounted_for() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").arg("--keep-removed").assert().success();
    for (language, scored) in [("fra_Latn", 38u64), ("deu_Latn", 23)] {
        let threshold = &work.json(&format!("out/selection/{language}.json"))?["thresholds"][0];
        assert_eq!(threshold["scored"]["num_documents"], scored);
        for (rate, kept) in threshold["outcomes"].as_array().ok_or("no rates")?.iter().zip([10, 33])
        {
            assert_eq!(rate["kept"]["num_documents"], (scored * kept).div_ceil(100));
        }
        let kept = read_parquet(&work.path(&format!("out/export/{language}/a.parquet")))?;
        assert_eq!(kept.num_rows() as u64, (scored * 33).div_ceil(100));
        let retention = kept.column_by_name("quality_retention").ok_or("no column")?;
        let best = retention.as_primitive::<Float64Type>().iter().filter(|r| *r == Some(0.1));
        assert_eq!(best.count() as u64, scored.div_ceil(10));
        // The column that nobody asked about kept its type and its values.
        let n = kept.column_by_name("n").ok_or("no column")?.as_primitive::<Int64Type>();
        let ids = kept.column_by_name("id").ok_or("no column")?.as_string::<i32>();
        for row in 0..kept.num_rows() {
            assert_eq!(ids.value(row), format!("{language}-{}", n.value(row)));
        }
        let file = format!("out/export/{language}/a.parquet");
        assert_eq!(keys(&settings_of(&work.path(&file))?["head_digests"]["quality"]), [language]);
        let blank = read_parquet(&work.path(&format!("out/removed/no_text/{language}/a.parquet")))?;
        assert_eq!(blank.num_rows(), 2);
        assert_eq!(blank.column_by_name("embeddings").ok_or("no column")?.null_count(), 2);
        assert_eq!(blank.column_by_name("quality_score").ok_or("no column")?.null_count(), 2);
    }
    polysift().args(["verify"]).arg(work.path("out")).assert().success();
    polysift().args(["status"]).arg(work.path("out")).assert().success().stdout(contains("export"));
    Ok(())
}

#[test]
fn the_selection_is_that_of_a_full_sort() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    for language in ["fra_Latn", "deu_Latn"] {
        let mut sorted = Vec::new();
        for part in std::fs::read_dir(work.path(&format!("out/scores/quality/{language}/a")))? {
            let scores = read_parquet(&part?.path())?;
            let ids = scores.column_by_name("id").ok_or("no id")?.as_string::<i32>().clone();
            let logits = scores.column_by_name("logit").ok_or("no logit")?;
            for (row, logit) in logits.as_primitive::<Float32Type>().iter().enumerate() {
                if let Some(logit) = logit {
                    sorted.push((
                        logit,
                        xxhash_rust::xxh3::xxh3_64(ids.value(row).as_bytes()),
                        ids.value(row).to_owned(),
                    ));
                }
            }
        }
        sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let expected: BTreeSet<String> =
            sorted.iter().take((sorted.len() * 33).div_ceil(100)).map(|s| s.2.clone()).collect();
        let kept = read_parquet(&work.path(&format!("out/export/{language}/a.parquet")))?;
        let ids = kept.column_by_name("id").ok_or("no id")?.as_string::<i32>();
        let kept: BTreeSet<String> = ids.iter().flatten().map(str::to_owned).collect();
        assert_eq!(kept, expected);
    }
    Ok(())
}

#[test]
fn results_do_not_depend_on_threads_or_batches() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "one").args(["--threads", "1"]).assert().success();
    work.command("run", "two").args(["--threads", "2", "--batch-tokens", "600"]).assert().success();
    for folder in ["embeddings", "heads", "scores", "selection", "export"] {
        let (one, two) = (work.path("one").join(folder), work.path("two").join(folder));
        assert_eq!(digests(&one)?, digests(&two)?, "{folder}");
    }
    Ok(())
}

#[test]
fn the_stages_one_by_one_give_the_bytes_of_the_run() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "whole").assert().success();
    for stage in ["embed", "train", "score", "threshold", "export"] {
        work.command(stage, "stages").assert().success();
    }
    assert_eq!(digests(&work.path("whole/export"))?, digests(&work.path("stages/export"))?);
    Ok(())
}

#[test]
fn embedding_with_heads_from_files_scores_at_once() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "first").assert().success();
    let head = format!("quality={}", work.path("first/heads/quality/{lang}.safetensors").display());
    work.command("embed", "apart").assert().success();
    work.command("score", "apart").args(["--head", &head]).assert().success();
    work.command("embed", "together").args(["--head", &head]).assert().success();
    for folder in ["embeddings", "scores", "state/score"] {
        let (apart, together) =
            (work.path("apart").join(folder), work.path("together").join(folder));
        assert_eq!(digests(&apart)?, digests(&together)?, "{folder}");
    }
    // Nothing is begun that could not be finished.
    work.command("embed", "none").args(["--head", "quality=no.safetensors"]).assert().code(66);
    work.command("embed", "none").args(["--head", "other=no.safetensors"]).assert().code(2);
    assert!(!work.path("none").exists());
    Ok(())
}

#[test]
fn other_settings_are_refused_with_the_difference_and_can_be_asked_for() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let embeddings = digests(&work.path("out/embeddings"))?;
    work.command("run", "out")
        .args(["--max-tokens", "64"])
        .assert()
        .code(78)
        .stderr(contains("embed.encoder.max_tokens: was 512, now 64"));
    work.command("threshold", "out").args(["--retention", "quality=0.5"]).assert().code(78);
    work.command("threshold", "out")
        .args(["--retention", "quality=0.5", "--redo", "threshold"])
        .assert()
        .success();
    polysift().args(["export", "--run"]).arg(work.path("out")).assert().success();
    let kept = read_parquet(&work.path("out/export/fra_Latn/a.parquet"))?;
    assert_eq!(kept.num_rows(), 19);
    assert_eq!(digests(&work.path("out/embeddings"))?, embeddings);
    Ok(())
}

#[test]
fn a_dry_run_prints_the_plan_and_writes_nothing() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out")
        .arg("--dry-run")
        .assert()
        .success()
        .stdout(contains("encoder digest").and(contains("fra_Latn/a")));
    work.command("run", "out")
        .args(["--dry-run", "--set", "encoder.max_chars=10000"])
        .assert()
        .success()
        .stdout(contains("max_chars          10000 (settings)"));
    work.command("run", "out")
        .args(["--dry-run", "--set", "encoder.max_chars=0"])
        .assert()
        .code(2)
        .stderr(contains("encoder.max_chars").and(contains("at least 1")));
    assert!(!work.path("out").exists());
    Ok(())
}

#[test]
fn verify_finds_a_changed_file_and_a_missing_one() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let export = work.path("out/export/fra_Latn/a.parquet");
    let mut bytes = std::fs::read(&export)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&export, bytes)?;
    std::fs::remove_file(work.path("out/scores/quality/deu_Latn/a/part-00000.parquet"))?;
    polysift()
        .arg("verify")
        .arg(work.path("out"))
        .assert()
        .code(65)
        .stdout(contains("export/fra_Latn/a.parquet").and(contains("part-00000.parquet")));
    Ok(())
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn training_counts_the_cores_once() -> TestResult {
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        eprintln!("passed over: strace is missing");
        return Ok(());
    }
    let work = Workspace::new()?;
    let output = std::process::Command::new("strace")
        .current_dir(work.dir.path())
        .args(["-f", "-e", "trace=openat", "-o", "calls", env!("CARGO_BIN_EXE_polysift")])
        .args(["run", "-c", "run.toml", "--run", "out"])
        .env("POLYSIFT_DEVICE", "cpu")
        .env_remove("RAYON_NUM_THREADS")
        .output()?;
    let calls = std::fs::read_to_string(work.path("calls")).unwrap_or_default();
    if !calls.contains("heads/quality") {
        eprintln!("passed over: {}", String::from_utf8_lossy(&output.stderr));
        return Ok(()); // no process may be traced here
    }
    let counted = calls.lines().filter(|call| call.contains("/proc/cpuinfo")).count();
    assert!(counted <= 1, "{counted}");
    Ok(())
}

#[test]
fn an_exported_file_holds_the_settings_of_its_own_languages_once() -> TestResult {
    let work = Workspace::new()?;
    let languages = ["deu_Latn", "fra_Latn", "ita_Latn", "spa_Latn"];
    for language in languages {
        let rows = (0..4).map(|i| json!({"id": format!("{language}{i}"), "text": text(i)}));
        work.write_lines(&format!("corpus/{language}/a.jsonl"), rows)?;
        work.write(&format!("lists/{language}.txt"), format!("{language}0\n"))?;
    }
    let both =
        (0..4).map(|i| json!({"id": format!("b{i}"), "text": text(i), "lang": languages[i % 2]}));
    work.write_lines("corpus/both.jsonl", both)?;
    for (run, language, files) in [
        ("folders", "", "corpus/{lang}/*.jsonl"),
        ("column", "language = { column = 'lang' }\n", "corpus/both.jsonl"),
    ] {
        let settings = format!(
            "[input]\nfiles = ['{files}']\n{language}[encoder]\nmodel = 'none'\n[export]\nkeep_removed = true\n\
             [filters.gone]\nkind = 'ids'\nlists = ['lists/{{lang}}.txt', 'all.txt']\n\
             [heads.chance]\nkind = 'random'\n[languages._default]\nretention = {{ chance = 0.5 }}\n"
        );
        work.write("all.txt", "none\n")?;
        work.write("run.toml", settings)?;
        work.command("run", run).assert().success();
        polysift().arg("verify").arg(work.path(run)).assert().success();
    }
    for (file, own) in [
        ("folders/export/ita_Latn/a.parquet", &languages[2..3]),
        ("folders/removed/gone/fra_Latn/a.parquet", &languages[1..2]),
        ("column/export/both.parquet", &languages[..2]),
    ] {
        let ours = settings_of(&work.path(file))?;
        assert_eq!(keys(&ours["thresholds"]["thresholds"]), own);
        assert_eq!(ours["thresholds"]["selection"]["weight"], "documents");
        assert_eq!(keys(&ours["head_digests"]["chance"]), ["_all"]);
        assert_eq!(ours["filters"]["filters"]["gone"]["kind"], "ids");
        let lists = keys(&ours["filters"]["lists"]["gone"]);
        assert!(lists.len() == own.len() + 1 && lists[0].ends_with("all.txt"), "{lists:?}");
    }
    Ok(())
}

/// The keys of an object.
fn keys(value: &Value) -> Vec<String> {
    value.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect()
}

/// What the exported file at `path` says of how it was made, which the schema of Arrow in it does not repeat.
fn settings_of(path: &std::path::Path) -> Result<Value, Box<dyn std::error::Error>> {
    let reader = SerializedFileReader::new(std::fs::File::open(path)?)?;
    let metadata = reader.metadata().file_metadata();
    let pairs = metadata.key_value_metadata().ok_or("no pairs")?;
    let arrow = pairs.iter().filter(|pair| pair.key == "ARROW:schema").cloned().collect();
    assert!(parquet_to_arrow_schema(metadata.schema_descr(), Some(&arrow))?.metadata().is_empty());
    let ours = pairs.iter().find(|pair| pair.key == "polysift").ok_or("not ours")?;
    Ok(serde_json::from_str(ours.value.as_deref().unwrap_or_default())?)
}

/// A file of JSON lines says nothing of types: what its own values are is not what those of all files are.
#[test]
fn exported_json_lines_of_a_language_have_one_schema() -> TestResult {
    let work = Workspace::new()?;
    let row = |n: &str| format!("{{\"text\":\"a text of some words\",{n}}}\n");
    work.write("data/fra_Latn/a.jsonl", "")?;
    work.write("data/fra_Latn/b.jsonl", row("\"id\":\"b\",\"n\":1,\"m\":{\"x\":1},\"l\":[]"))?;
    work.write(
        "data/fra_Latn/c.jsonl",
        row("\"id\":\"c\",\"n\":2.5,\"m\":{\"y\":\"z\"},\"l\":[1]"),
    )?;
    work.write("data/deu_Latn/a.jsonl", row("\"id\":\"a\",\"n\":\"word\""))?;
    let settings = "[input]\nfiles = ['data/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n[heads.r]\nkind = 'random'\n\
                    [languages._default]\nretention = { r = 1.0 }\n";
    work.write("run.toml", settings)?;
    work.command("run", "one").assert().success();
    let read =
        |name: &str| read_parquet(&work.path(&format!("one/export/fra_Latn/{name}.parquet")));
    let (a, b, c) = (read("a")?, read("b")?, read("c")?);
    assert_eq!((a.num_rows(), b.num_rows(), c.num_rows()), (0, 1, 1));
    assert_eq!(a.schema().fields(), c.schema().fields());
    assert_eq!(b.schema().fields(), c.schema().fields());
    let types = ["n", "m", "l"].map(|name| {
        c.schema()
            .field_with_name(name)
            .map(|field| field.data_type().to_string())
            .unwrap_or_default()
    });
    assert_eq!(types[0], "Float64");
    assert!(types[1].contains("\"x\": Int64, \"y\": Utf8"), "{}", types[1]);
    assert!(types[2].contains("Int64"), "{}", types[2]);
    // Whoever does it.
    for stage in ["embed", "score", "threshold"] {
        work.command(stage, "two").assert().success();
    }
    for task in ["0", "1"] {
        let task = ["--task", task, "--num-tasks", "2"];
        work.command("export", "two").args(task).assert().success();
    }
    assert_eq!(digests(&work.path("one/export"))?, digests(&work.path("two/export"))?);
    // What was found of a file is not believed once it is damaged.
    std::fs::remove_file(work.path("two/state/export/done/fra_Latn/b.json"))?;
    let columns = work.path("two/state/export/columns/fra_Latn/b.json");
    let damaged = std::fs::read_to_string(&columns)?.replacen("false", "true", 1);
    std::fs::write(&columns, damaged)?;
    let refused = work.command("export", "two").assert().code(65);
    refused.stderr(contains("columns/fra_Latn/b.json").and(contains("remove the file")));
    std::fs::remove_file(&columns)?;
    work.command("export", "two").assert().success();
    assert_eq!(digests(&work.path("one/export"))?, digests(&work.path("two/export"))?);
    work.command("export", "one").args(["--redo", "export"]).assert().success();
    assert_eq!(digests(&work.path("one/export"))?, digests(&work.path("two/export"))?);
    Ok(())
}

/// Files without a schema of Arrow, as DuckDB writes them.
#[test]
fn columns_of_uuids_and_json_keep_their_types_and_decimals_are_scores() -> TestResult {
    let work = Workspace::new()?;
    let message =
        "message m { required binary text (UTF8); required fixed_len_byte_array(16) u (UUID);
                   required binary j (JSON); required int32 s (DECIMAL(5,2)); }";
    let schema = Arc::new(parse_message_type(message)?);
    let file = std::fs::File::create(work.path("a.parquet"))?;
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default())?;
    let mut group = writer.next_row_group()?;
    let texts = ["one text", "another text"].map(ByteArray::from);
    let uuids = [7u8, 8].map(|byte| FixedLenByteArray::from(vec![byte; 16]));
    let mut at = 0;
    while let Some(mut column) = group.next_column()? {
        match at {
            0 => column.typed::<ByteArrayType>().write_batch(&texts, None, None)?,
            1 => column.typed::<FixedLenByteArrayType>().write_batch(&uuids, None, None)?,
            2 => column.typed::<ByteArrayType>().write_batch(
                &["{}", "[1]"].map(ByteArray::from),
                None,
                None,
            )?,
            _ => column.typed::<Int32Type>().write_batch(&[125, 250], None, None)?,
        };
        column.close()?;
        at += 1;
    }
    group.close()?;
    writer.close()?;
    let settings = "[input]\nfiles = ['a.parquet']\nlanguage = 'eng_Latn'\n[encoder]\nmodel = 'none'\n\
                    [heads.q]\nkind = 'column'\nscore = 's'\n[languages._default]\nretention = { q = 0.5 }\n";
    work.write("run.toml", settings)?;
    work.command("run", "out").assert().success();
    let path = work.path("out/export/a.parquet");
    let reader = SerializedFileReader::new(std::fs::File::open(&path)?)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let types: Vec<_> =
        (0..4).map(|column| schema.column(column).logical_type_ref().cloned()).collect();
    assert_eq!(types[1..3], [Some(LogicalType::Uuid), Some(LogicalType::Json)]);
    assert!(matches!(types[3], Some(LogicalType::Decimal { .. })), "{types:?}");
    let rows = read_parquet(&path)?;
    assert_eq!(rows.num_rows(), 1);
    let score = rows.column_by_name("q_score").ok_or("no score")?;
    assert_eq!(score.as_primitive::<Float64Type>().value(0).to_string(), "2.5");
    Ok(())
}
