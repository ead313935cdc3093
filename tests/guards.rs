//! What must not be mixed, lost or taken for done.

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::json;

use crate::util::{TestResult, Workspace, polysift, read_parquet, root, text};

#[test]
fn thresholds_are_refused_for_heads_that_did_not_make_the_scores() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    work.command("threshold", "out")
        .args(["--set", "heads.quality.keep=below", "--redo", "threshold"])
        .assert()
        .code(78)
        .stderr(contains("keep"));
    Ok(())
}

#[test]
fn a_rule_for_chunks_that_are_not_embedded_is_told() -> TestResult {
    let work = Workspace::new()?;
    let max = ["--set", "heads.quality.chunk=max"];
    let told = || contains("`chunk` has no effect");
    work.command("run", "out").args(max).assert().success().stderr(told());
    work.command("run", "all").args(max).args(["--chunks", "all"]).assert().stderr(told().not());
    Ok(())
}

/// Other settings of the samples would give another head.
#[test]
fn a_trained_head_is_not_taken_for_one_of_other_settings() -> TestResult {
    let work = Workspace::new()?;
    work.command("train", "out").assert().success();
    for (flags, key) in [
        (["--set", "heads.quality.preset=toxicity"], "quality.preset"),
        (["--id-column", "number"], "input.id"),
    ] {
        work.command("train", "out").args(flags).assert().code(78).stderr(contains(key));
    }
    let samples = std::fs::read_to_string(work.path("samples/fra_Latn.jsonl"))?;
    work.write("samples/more.jsonl", samples.replace("\"id\":\"", "\"id\":\"more-"))?;
    work.command("train", "two")
        .args(["--train-on", "quality=samples/fra_Latn.jsonl"])
        .args(["--train-on", "quality=samples/more.jsonl"])
        .assert()
        .success();
    let settings = std::fs::read_to_string(work.path("two/config.toml"))?;
    for file in ["samples/fra_Latn.jsonl", "samples/more.jsonl"] {
        assert!(settings.contains(file), "{settings}");
    }
    let mut evaluate = polysift();
    evaluate.current_dir(work.dir.path()).args(["evaluate", "--run", "two"]);
    evaluate.args(["--data", "samples/more.jsonl", "--out", "samples/more.jsonl"]);
    evaluate.assert().code(2).stderr(contains("--out: is a file of labelled texts"));
    Ok(())
}

#[test]
fn a_head_keeps_its_own_side_under_another_name() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    work.write_toxicity_samples()?;
    work.command("run", "out")
        .args(["--train-on", "toxicity=toxic/{lang}.jsonl"])
        .assert()
        .success();
    polysift()
        .current_dir(work.dir.path())
        .args(["run", "corpus/{lang}/*.jsonl", "--run", "again"])
        .args(["--head", "second=out/heads/toxicity/fra_Latn.safetensors"])
        .args(["--removal", "second=0.5"])
        .assert()
        .success();
    assert_eq!(
        work.json("again/selection/fra_Latn.json")?["thresholds"][0]["threshold"]["keep"],
        "below"
    );
    Ok(())
}

#[test]
fn heads_of_another_prompt_are_refused() -> TestResult {
    let work = Workspace::new()?;
    for stage in ["embed", "train"] {
        let mut command = work.command(stage, "out");
        if stage == "train" {
            command.args(["--prompt", "query: "]);
        }
        command.assert().success();
    }
    work.command("score", "out").assert().code(78).stderr(contains("query: "));
    Ok(())
}

#[test]
fn a_head_for_embeddings_made_in_another_way_is_refused_with_the_flags_that_mend_it() -> TestResult
{
    let work = Workspace::with_bundled_encoder()?;
    work.command("train", "first")
        .args(["--prompt", "query: ", "--set", "encoder.normalize=true"])
        .assert()
        .success();
    let card = polysift()
        .args(["inspect", "--json"])
        .arg(work.path("first/heads/quality/fra_Latn.safetensors"))
        .output()?;
    let card: serde_json::Value = serde_json::from_slice(&card.stdout)?;
    let provenance = &card["card"]["provenance"];
    assert_eq!(provenance["recipe"]["prompt"], "query: ");
    assert_eq!(provenance["recipe_digest"].as_str().map(str::len), Some(64));
    let embed = |flags: &[&str]| {
        let mut command = polysift();
        command.current_dir(work.dir.path()).args([
            "run",
            "corpus/{lang}/*.jsonl",
            "--run",
            "second",
        ]);
        command.args(["--head", "quality=first/heads/quality/{lang}.safetensors"]).args(flags);
        command.args(["--retention", "quality=0.5"]).assert()
    };
    let mend = "--set 'encoder.normalize=true' --set 'encoder.prompt=\"query: \"'";
    embed(&[]).code(65).stderr(contains(mend));
    let flags = ["--set", "encoder.normalize=true", "--set", "encoder.prompt=\"query: \""];
    embed(&flags).success();
    Ok(())
}

#[test]
fn verify_misses_no_file_of_the_thresholds_and_no_marker() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    for lost in [
        "selection/deu_Latn.json",
        "state/threshold/done/fra_Latn.json",
        "state/score/done/quality/deu_Latn/a.json",
        "state/export/done/deu_Latn/a.json",
        "frozen/embed.json",
    ] {
        let path = work.path("out").join(lost);
        let content = std::fs::read(&path)?;
        std::fs::remove_file(&path)?;
        polysift().arg("verify").arg(work.path("out")).assert().code(65);
        std::fs::write(&path, content)?;
    }
    polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}

#[test]
fn verify_names_what_the_run_did_not_write() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    for foreign in [
        "export/deu_Latn/b.parquet",
        "removed/quality/deu_Latn/a.parquet",
        "embeddings/deu_Latn/a/part-00002.parquet",
        "scores/quality/deu_Latn/a/part-00000 (copy).parquet",
        "heads/quality/ita_Latn.safetensors",
        "selection/notes.txt",
    ] {
        work.write(&format!("out/{foreign}"), b"")?;
        let mut verify = polysift();
        verify.arg("verify").arg(work.path("out"));
        verify.assert().code(65).stdout(contains(foreign));
        std::fs::remove_file(work.path("out").join(foreign))?;
    }
    // What a killed process leaves is swept up by the next one, and read by nobody.
    work.write("out/export/deu_Latn/.a.parquet.17-0.tmp", b"")?;
    polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}

#[test]
fn an_output_that_is_gone_is_made_again() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let before = crate::util::digests(&work.path("out"))?;
    for gone in [
        "embeddings/fra_Latn/a/part-00001.parquet",
        "scores/quality/fra_Latn/a/part-00000.parquet",
        "heads/quality/fra_Latn.safetensors",
        "selection/fra_Latn.json",
        "export/fra_Latn/a.parquet",
    ] {
        std::fs::remove_file(work.path("out").join(gone))?;
        work.command("run", "out").assert().success();
        assert_eq!(crate::util::digests(&work.path("out"))?, before, "{gone}");
    }
    Ok(())
}

#[test]
fn a_run_without_the_settings_of_a_stage_waits_for_them_or_for_a_redo() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let before = crate::util::digests(&work.path("out"))?;
    let rate = ["--retention", "quality=0.5"];
    for (lost, command, flags) in [
        ("embed", "run", &["--set", "encoder.max_tokens=8"][..]),
        ("embed", "run", &[]),
        ("threshold", "run", &rate),
        ("train", "threshold", &["--redo", "threshold"]),
    ] {
        let lost = work.path(&format!("out/frozen/{lost}.json"));
        let settings = std::fs::read(&lost)?;
        std::fs::remove_file(&lost)?;
        let refused = work.command(command, "out").args(flags).assert().code(65);
        refused.stderr(contains(lost.file_name().unwrap_or_default().to_string_lossy()));
        std::fs::write(&lost, settings)?;
        assert_eq!(crate::util::digests(&work.path("out"))?, before, "{command} {flags:?}");
    }
    std::fs::remove_file(work.path("out/frozen/threshold.json"))?;
    work.command("run", "out").args(rate).args(["--redo", "threshold"]).assert().success();
    work.command("run", "fresh").args(rate).assert().success();
    let exported = |run: &str| crate::util::digests(&work.path(run).join("export"));
    assert_eq!(exported("out")?, exported("fresh")?);
    Ok(())
}

#[test]
fn a_failed_command_leaves_the_settings_and_the_outputs_alone() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let before = crate::util::digests(&work.path("out"))?;
    work.command("score", "out")
        .args(["--head", "quality=nowhere.safetensors", "--redo", "score"])
        .assert()
        .code(66);
    work.command("export", "out").args(["--redo", "score"]).assert().code(2);
    assert_eq!(crate::util::digests(&work.path("out"))?, before);
    Ok(())
}

#[test]
fn blank_text_is_not_selected_even_if_it_has_embeddings() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    work.command("run", "out").args(["--retention", "quality=1"]).assert().success();
    let rows = (0..6).map(|i| {
        let text = if i == 3 { "   ".to_owned() } else { text(i) };
        let values: Vec<f64> = (0..384).map(|j| f64::from((i * 31 + j) as u8) / 64.0).collect();
        json!({"id": i.to_string(), "text": text, "embeddings": [values]})
    });
    work.write_lines("stored/a.jsonl", rows)?;
    polysift()
        .current_dir(work.dir.path())
        .args(["run", "stored", "--run", "again", "--retention", "quality=1"])
        .args(["--head", "quality=out/heads/quality/fra_Latn.safetensors"])
        .args(["--set", "input.embeddings=embeddings", "--set", "export.embeddings=f32"])
        .assert()
        .success();
    assert_eq!(read_parquet(&work.path("again/export/a.parquet"))?.num_rows(), 5);
    Ok(())
}

#[test]
fn a_text_without_an_embedding_keeps_its_other_scores() -> TestResult {
    let work = Workspace::new()?;
    let rows = (0..6).map(|i| {
        let embeddings = match i {
            1 => json!(null),
            2 => json!([]),
            _ => json!([vec![0.5; 768]]),
        };
        let text = if i == 3 { "   ".to_owned() } else { text(i) };
        json!({"id": i.to_string(), "text": text, "edu": i, "embeddings": embeddings})
    });
    work.write_lines("stored/a.jsonl", rows)?;
    let golden = |path: &str| root().join("tests/golden").join(path).display().to_string();
    let mut run = polysift();
    run.current_dir(work.dir.path())
        .args(["run", "stored", "--run", "out", "--language", "fra_Latn"])
        .args(["--set", "input.embeddings=embeddings", "--score-column", "edu=edu"])
        .args(["--head", &format!("quality={}", golden("heads/quality.safetensors"))])
        .args(["--head", &format!("words={}", golden("fasttext/words.bin"))])
        .args(["--set", "heads.words.label=positive", "--set", "heads.chance={kind='random'}"])
        .args(["--retention", "edu=1"]);
    let said = contains("texts without an embedding in the input").and(contains("rows=2"));
    run.assert().success().stderr(said);
    let exported = read_parquet(&work.path("out/export/a.parquet"))?;
    let lacks = |column: &str| -> Vec<bool> {
        let column = exported.column_by_name(column);
        (0..exported.num_rows()).map(|row| column.is_none_or(|c| c.is_null(row))).collect()
    };
    for column in ["embeddings", "quality_score"] {
        assert_eq!(lacks(column), [false, true, true, false, false], "{column}");
    }
    for column in ["edu_score", "words_score", "chance_score"] {
        assert_eq!(lacks(column), [false; 5], "{column}");
    }
    let status = polysift().args(["status", "--json"]).arg(work.path("out")).output()?;
    let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
    assert_eq!((&status["documents"], &status["without_embedding"]), (&json!(5), &json!(2)));
    polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}

#[test]
fn an_incomplete_order_is_refused_before_any_work() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out")
        .args(["--removal", "toxicity=0.1", "--head", "toxicity=t.safetensors"])
        .args(["--set", "selection.order=['quality']"])
        .assert()
        .code(2)
        .stderr(contains("toxicity"));
    assert!(!work.path("out").exists());
    Ok(())
}

#[test]
fn a_first_attempt_that_did_nothing_binds_nobody() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "first").assert().success();
    let embed = |column: &str| {
        let mut command = polysift();
        command.current_dir(work.dir.path()).args(["embed", "first/export/{lang}/*.parquet"]);
        command.args(["--run", "out", "--text-column", column]);
        command
    };
    embed("nope").assert().code(65);
    embed("text").assert().success();
    embed("nope").assert().code(78);
    Ok(())
}

#[test]
fn columns_that_are_taken_are_refused_before_any_work() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    polysift()
        .current_dir(work.dir.path())
        .args(["run", "out/export/{lang}/*.parquet", "--run", "again"])
        .args(["--head", "quality=out/heads/quality/{lang}.safetensors"])
        .args(["--set", "input.embeddings=embeddings"])
        .assert()
        .code(65)
        .stderr(contains("quality_score"));
    assert!(!work.path("again").exists());
    Ok(())
}

#[test]
fn output_that_cannot_be_written_is_an_error() -> TestResult {
    let work = Workspace::new()?;
    for arguments in [&["completions", "bash"][..], &["tokenize", "corpus/{lang}/*.jsonl"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_polysift"))
            .current_dir(work.dir.path())
            .args(arguments)
            .stdout(std::fs::File::options().write(true).open("/dev/full")?)
            .output()?;
        assert_eq!(output.status.code(), Some(74));
        assert!(String::from_utf8_lossy(&output.stderr).contains("stdout: write failed"));
    }
    Ok(())
}

#[test]
fn a_file_that_may_not_grow_is_a_full_disk() -> TestResult {
    let work = Workspace::new()?;
    // Sixteen blocks of 512 bytes, or of 1024 where the shell counts so.
    let program = env!("CARGO_BIN_EXE_polysift");
    let script = format!("ulimit -f 16; exec {program} run -c run.toml --run out");
    let output = std::process::Command::new("sh")
        .current_dir(work.dir.path())
        .env("POLYSIFT_DEVICE", "cpu")
        .args(["-c", &script])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{said}");
    assert!(said.contains("File too large"), "{said}");
    Ok(())
}

#[test]
fn counts_that_no_machine_has_are_refused_or_harmless() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").assert().success();
    let command = |arguments: &str| {
        let mut command = polysift();
        command.current_dir(work.dir.path()).args(arguments.split(' '));
        command.timeout(std::time::Duration::from_mins(1));
        command
    };
    command("status out --threads 100000").assert().code(2).stderr(contains("at most 4096"));
    for variable in ["POLYSIFT_THREADS", "RAYON_NUM_THREADS"] {
        let mut status = command("status out");
        status.env(variable, "100000").assert().code(2).stderr(contains("at most 4096"));
        command("status out").env(variable, "2").assert().success();
    }
    let most = i64::MAX;
    let fast_text = "heads.f={kind='fasttext',train=['samples/{lang}.jsonl'],fasttext={dim=100,buckets=1000000000}}";
    command(&format!("run -c run.toml --run other --set {fast_text}"))
        .assert()
        .code(2)
        .stderr(contains("2^32"));
    for harmless in [
        "run -c run.toml --run out --redo export --task 0 --num-tasks 4294967295".to_owned(),
        "retry out --num-tasks 4294967295".to_owned(),
        format!(
            "export --run out --redo export --max-file-mb {most} --set export.row_group_mb={most}"
        ),
        format!("report out --examples {most} --sample {most}"),
        format!("inspect out/export --rows {most}"),
    ] {
        command(&harmless).assert().success();
    }
    Ok(())
}

#[test]
fn a_pipe_is_no_input_file() -> TestResult {
    let work = Workspace::new()?;
    std::process::Command::new("mkfifo").arg(work.path("pipe.jsonl")).status()?;
    polysift()
        .current_dir(work.dir.path())
        .args(["embed", "pipe.jsonl", "--run", "out"])
        .timeout(std::time::Duration::from_secs(20))
        .assert()
        .code(66)
        .stderr(contains("pipe.jsonl"));
    Ok(())
}

#[test]
fn dates_in_parquet_stay_dates() -> TestResult {
    use arrow::array::{Date64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;

    let work = Workspace::new()?;
    let day = 86_400_000;
    let batch = RecordBatch::try_from_iter([
        ("text", std::sync::Arc::new(StringArray::from(vec!["a b", "c d"])) as _),
        ("when", std::sync::Arc::new(Date64Array::from(vec![3 * day, 4 * day])) as _),
    ])?;
    // What pyarrow writes: days, with the Arrow type beside them.
    let properties = WriterProperties::builder().set_coerce_types(true).build();
    let file = std::fs::File::create(work.path("dates.parquet"))?;
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    polysift()
        .current_dir(work.dir.path())
        .args(["run", "dates.parquet", "--run", "out"])
        .assert()
        .success();
    let exported = read_parquet(&work.path("out/export/dates.parquet"))?;
    let when = exported.column_by_name("when").ok_or("no column")?;
    assert_eq!(*when.data_type(), arrow::datatypes::DataType::Date32);
    assert_eq!(arrow::util::display::array_value_to_string(when, 1)?, "1970-01-05");
    Ok(())
}

#[test]
fn types_that_an_export_cannot_keep_become_wider_ones() -> TestResult {
    use std::sync::Arc;

    use arrow::array::{AsArray, DictionaryArray, Int8Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit, TimestampMicrosecondType};
    use parquet::arrow::ArrowWriter;
    use parquet::data_type::{ByteArray, ByteArrayType, Int96, Int96Type};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    let work = Workspace::new()?;
    // Two row groups of a pandas categorical: 200 values, while a key of 8 bits counts 128.
    let words = DataType::Dictionary(DataType::Int8.into(), DataType::Utf8.into());
    let word = Field::new("word", words, true).with_dict_is_ordered(true);
    let schema = Arc::new(Schema::new(vec![Field::new("text", DataType::Utf8, true), word]));
    let file = std::fs::File::create(work.path("words.parquet"))?;
    let mut writer = ArrowWriter::try_new(file, Arc::clone(&schema), None)?;
    for group in 0..2 {
        let values = StringArray::from_iter_values((0..100).map(|i| format!("w{group}-{i}")));
        let words =
            DictionaryArray::try_new(Int8Array::from_iter_values(0..100), Arc::new(values))?;
        let texts = StringArray::from_iter_values((0..100).map(|i| format!("text {i}")));
        let columns: Vec<arrow::array::ArrayRef> = vec![Arc::new(texts), Arc::new(words)];
        writer.write(&RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
        writer.flush()?;
    }
    writer.close()?;
    // Timestamps as Spark and Hive write them: nanoseconds of a day and its Julian number.
    let schema =
        parse_message_type("message m { required binary text (STRING); required int96 expires; }")?;
    let file = std::fs::File::create(work.path("days.parquet"))?;
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default())?;
    let mut group = writer.next_row_group()?;
    let mut column = group.next_column()?.ok_or("no column")?;
    let texts = ["a b", "c d"].map(ByteArray::from);
    column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
    column.close()?;
    let mut column = group.next_column()?.ok_or("no column")?;
    let day = |julian: u32| {
        let mut day = Int96::new();
        day.set_data(1000, 0, julian);
        day
    };
    // 1970-01-01 is Julian day 2,440,588; 9999-12-31 is 5,373,484.
    let days = [day(2_440_588), day(5_373_484)];
    column.typed::<Int96Type>().write_batch(&days, None, None)?;
    column.close()?;
    group.close()?;
    writer.close()?;

    for name in ["words", "days"] {
        polysift()
            .current_dir(work.dir.path())
            .args(["run", &format!("{name}.parquet"), "--run", name])
            .assert()
            .success();
    }
    let words = read_parquet(&work.path("words/export/words.parquet"))?;
    let schema = words.schema();
    let wide = DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into());
    assert_eq!(*schema.field(1).data_type(), wide);
    assert_ne!(schema.field(1).dict_is_ordered(), Some(true));
    let last = arrow::util::display::array_value_to_string(words.column(1), 199)?;
    assert_eq!(last, "w1-99");
    let days = read_parquet(&work.path("days/export/days.parquet"))?;
    let expires = days.column_by_name("expires").ok_or("no column")?;
    assert_eq!(*expires.data_type(), DataType::Timestamp(TimeUnit::Microsecond, None));
    let expires = expires.as_primitive::<TimestampMicrosecondType>();
    // 1,000 nanoseconds are a microsecond.
    assert_eq!(expires.values(), &[1, (5_373_484 - 2_440_588) * 86_400_000_000 + 1]);
    Ok(())
}

#[test]
fn an_export_is_not_written_over_its_input() -> TestResult {
    let work = Workspace::new()?;
    std::fs::create_dir_all(work.path("data/export"))?;
    std::fs::copy(work.path("corpus/fra_Latn/a.jsonl"), work.path("data/export/fra_Latn.jsonl"))?;
    let files = "input.files=['data/export/{lang}.jsonl']";
    for to in ["data", "out"] {
        let mut command = work.command("run", "out");
        command.args(["--set", files, "--export-to"]).arg(work.path(to));
        command.assert().code(2).stderr(contains("export.to"));
        assert!(!work.path("out/embeddings").exists());
    }
    Ok(())
}

#[test]
fn a_folder_with_folders_that_no_run_made_is_no_run_directory() -> TestResult {
    let work = Workspace::new()?;
    work.write("project/heads/mine.txt", "my own")?;
    let refused = work.command("run", "project").assert().code(2);
    refused.stderr(contains("has `heads`, which no run made"));
    assert!(!work.path("project/format.json").exists());
    Ok(())
}

#[test]
#[cfg(target_os = "linux")]
fn a_name_that_is_not_utf8_is_shown_as_well_as_it_can_be() -> TestResult {
    use std::os::unix::ffi::OsStrExt;

    let work = Workspace::new()?;
    let folder = work.path("folder").with_file_name(std::ffi::OsStr::from_bytes(b"n\xff"));
    std::fs::create_dir(&folder)?;
    std::fs::copy(work.path("corpus/fra_Latn/a.jsonl"), folder.join("a.jsonl"))?;
    for args in [&["inspect"][..], &["inspect", "--rows", "1"]] {
        let inspect = polysift().args(args).arg(folder.join("a.jsonl")).assert().success();
        inspect.stdout(contains("n\u{fffd}"));
    }
    Ok(())
}
