//! The inputs of all stages are looked at before the first document is read, and heads are trained
//! before the corpus is embedded.

use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::json;

use crate::util::{TestResult, Workspace, digests, polysift, root, text};

/// `run.toml` with this table of heads.
fn with_heads(work: &Workspace, heads: &str) -> TestResult {
    work.write("run.toml", format!("[input]\nfiles = ['corpus/{{lang}}/*.jsonl']\n{heads}\n"))
}

/// Samples of these labels, some of which name a split.
fn samples(work: &Workspace, file: &str, rows: &[(&str, Option<&str>)]) -> TestResult {
    let row = |(i, (label, split)): (usize, &(&str, Option<&str>))| {
        let mut row = json!({"id": i, "text": text(i), "label": label});
        if let Some(split) = split {
            row["split"] = json!(split);
        }
        row
    };
    work.write_lines(file, rows.iter().enumerate().map(row))
}

/// Expects `code` and `message` of every command that begins the job with these `heads`, and nothing
/// embedded.
fn refused(work: &Workspace, heads: &str, code: i32, message: &str) -> TestResult {
    with_heads(work, heads)?;
    for (command, flags) in [("run", &[][..]), ("run", &["--dry-run"]), ("plan", &[])] {
        let is_told = contains(message).and(contains("{\"").not());
        work.command(command, "out").args(flags).assert().code(code).stderr(is_told);
        assert!(!work.path("out").exists(), "{command} {heads}");
    }
    Ok(())
}

#[test]
fn heads_that_cannot_score_are_told_before_the_first_document_is_read() -> TestResult {
    let work = Workspace::new()?;
    refused(&work, "[heads.q]\npath = 'no.pt'", 66, "no.pt: the file of the head `q` does not")?;
    let of_languages = "has no file for any of the languages deu_Latn, fra_Latn";
    refused(&work, "[heads.q]\npath = 'q/{lang}.pt'", 66, of_languages)?;
    work.write("bad.safetensors", "\u{ff} nonsense")?;
    refused(&work, "[heads.q]\npath = 'bad.safetensors'", 65, "bad.safetensors: neither a")?;
    let fasttext = "[heads.q]\nkind = 'fasttext'\npath = 'bad.safetensors'";
    refused(&work, fasttext, 65, "bad.safetensors: is not a fastText model")?;
    let wide = root().join("tests/golden/heads/quality.safetensors");
    let wide = format!("[heads.q]\npath = '{}'", wide.display());
    refused(&work, &wide, 65, "scores embeddings of 768 values")?;

    // A head that was trained on the embeddings of another encoder: one that has another digest.
    let short = "training = { batch_size = 16, epochs = 6 }\n";
    with_heads(&work, &format!("[heads.quality]\ntrain = ['samples/{{lang}}.jsonl']\n{short}"))?;
    work.command("train", "trained").assert().success();
    let head = std::fs::read(work.path("trained/heads/quality/fra_Latn.safetensors"))?;
    let frozen = work.json("trained/frozen/train.json")?;
    let digest = frozen["encoder"]["digest"].as_str().ok_or("no digest")?.as_bytes().to_vec();
    let at = head.windows(digest.len()).position(|part| part == digest).ok_or("no digest")?;
    let mut other = head.clone();
    other[at..at + digest.len()].copy_from_slice(&b"0123456789abcdef".repeat(4));
    work.write("heads/fra_Latn.safetensors", &other)?;
    let path = "[heads.q]\npath = 'heads/{lang}.safetensors'";
    refused(&work, path, 65, "was trained on embeddings of the encoder 0123456789abcdef")?;
    // The right one is taken; the other language has none, which is said and no error.
    work.write("heads/fra_Latn.safetensors", &head)?;
    let one = contains("no head for the languages deu_Latn; their documents");
    work.command("run", "out").arg("--dry-run").assert().success().stderr(one);
    Ok(())
}

#[test]
fn samples_that_nothing_can_be_learned_from_are_told_before_the_first_document_is_read()
-> TestResult {
    let work = Workspace::new()?;
    let train = |file: &str| format!("[heads.q]\ntrain = ['{file}']");
    refused(&work, &train("none/{lang}.jsonl"), 66, "none/{lang}.jsonl")?;
    work.write_lines("a.jsonl", (0..20).map(|i| json!({"id": i, "text": text(i)})))?;
    refused(&work, &train("a.jsonl"), 65, "a.jsonl: column `label`: is in no line")?;
    samples(&work, "b.jsonl", &[("positive", None); 20])?;
    let both =
        "20 positive and 0 negative sample(s) can be used; needed are samples of both classes";
    refused(&work, &train("b.jsonl"), 65, both)?;
    refused(&work, &train("b.jsonl"), 65, "b.jsonl")?;
    let labels = [[("positive", Some("test")); 10], [("negative", Some("train")); 10]].concat();
    samples(&work, "c.jsonl", &labels)?;
    let learned = "0 positive and 10 negative sample(s) of the training split can be used";
    refused(&work, &train("c.jsonl"), 65, learned)?;
    samples(&work, "d/xyz_Latn.jsonl", &labels)?;
    let none = "samples for none of the languages deu_Latn, fra_Latn";
    refused(&work, &train("d/{lang}.jsonl"), 66, none)?;
    // `train` says so too, before it embeds a sample.
    with_heads(&work, &train("b.jsonl"))?;
    work.command("train", "out").assert().code(65).stderr(contains(both));
    Ok(())
}

#[test]
fn where_a_column_tells_the_language_all_heads_that_are_there_are_looked_at() -> TestResult {
    let work = Workspace::new()?;
    let rows = (0..40).map(|i| json!({"id": i, "text": text(i), "language": "fra_Latn"}));
    work.write_lines("columns/a.jsonl", rows)?;
    let settings = |heads: &str| {
        format!("[input]\nfiles = ['columns']\nlanguage = {{ column = 'language' }}\n{heads}")
    };
    let wide = root().join("tests/golden/heads/quality.safetensors");
    for name in ["aaa_Latn", "fra_Latn"] {
        work.write(&format!("wide/{name}.safetensors"), std::fs::read(&wide)?)?;
    }
    for (heads, code, message) in [
        ("[heads.q]\npath = 'no/{lang}.pt'", 66, "no/{lang}.pt"),
        ("[heads.q]\npath = 'wide/{lang}.safetensors'", 65, "aaa_Latn.safetensors: scores"),
    ] {
        work.write("run.toml", settings(heads))?;
        work.command("run", "out").assert().code(code).stderr(contains(message));
        assert!(!work.path("out").exists(), "{heads}");
    }
    // Languages are known once all is embedded, so heads are trained then.
    work.write("run.toml", settings(
        "[heads.q]\ntrain = ['samples/{lang}.jsonl']\ntraining = { batch_size = 16, epochs = 6 }\n",
    ))?;
    work.command("run", "out").assert().success();
    assert!(work.path("out/heads/q/fra_Latn.safetensors").exists());
    assert!(!work.path("out/heads/q/deu_Latn.safetensors").exists());
    Ok(())
}

#[test]
fn heads_of_another_width_than_the_embeddings_of_the_input_are_told() -> TestResult {
    let work = Workspace::new()?;
    let rows = (0..20).map(|i| json!({"id": i, "text": text(i), "vectors": [[0.5, 0.25, 1.0]]}));
    work.write_lines("embedded/a.jsonl", rows)?;
    let wide = root().join("tests/golden/heads/quality.safetensors");
    let settings = format!(
        "[input]\nfiles = ['embedded']\nembeddings = 'vectors'\n[heads.q]\npath = '{}'\n",
        wide.display()
    );
    work.write("run.toml", settings)?;
    let width = contains("scores embeddings of 768 values, the corpus's have 3");
    work.command("run", "out").assert().code(65).stderr(width);
    assert!(!work.path("out").exists());
    let input = "[input]\nfiles = ['embedded']\nembeddings = 'vectors'\n";
    let head = "[heads.q]\ntrain = ['samples/fra_Latn.jsonl']\n";
    work.write("run.toml", format!("{input}{head}"))?;
    let width = contains("encoder.model: embeds the samples of heads with 384 values")
        .and(contains("the embeddings in `vectors` have 3"));
    work.command("run", "out").assert().code(2).stderr(width);
    assert!(!work.path("out").exists());
    Ok(())
}

#[test]
fn heads_are_trained_before_the_corpus_is_embedded() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "whole").assert().success();
    // The order changes nothing in what is written.
    for stage in ["embed", "train", "score", "threshold", "export"] {
        work.command(stage, "staged").assert().success();
    }
    assert_eq!(digests(&work.path("whole"))?, digests(&work.path("staged"))?);
    // A shard that cannot be embedded shows that the heads were there before.
    work.write("corpus/fra_Latn/b.jsonl", "{\n")?;
    work.command("run", "out").assert().code(3).stderr(contains("b.jsonl: row 1"));
    assert!(work.path("out/heads/quality/fra_Latn.safetensors").exists());
    // By itself `train` needs no embedded corpus either.
    work.command("train", "alone").assert().success();
    assert!(work.path("alone/heads/quality/fra_Latn.safetensors").exists());
    Ok(())
}

#[test]
fn heads_that_all_come_from_files_are_not_missed_in_training() -> TestResult {
    let work = Workspace::with_bundled_encoder()?;
    work.command("train", "trained").assert().success();
    with_heads(&work, "[heads.q]\npath = 'trained/heads/quality/{lang}.safetensors'")?;
    work.command("run", "out").assert().success().stderr(contains("labelled samples").not());
    let told = contains("all of them come from files");
    work.command("train", "out").arg("-v").assert().success().stderr(told);
    Ok(())
}

#[test]
fn a_pytorch_file_that_cannot_be_read_is_one_line_also_with_backtraces() -> TestResult {
    let work = Workspace::new()?;
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.start_file("a/data.pkl", zip::write::SimpleFileOptions::DEFAULT)?;
    // A dict that is filled with no key and no value.
    std::io::Write::write_all(&mut writer, b"\x80\x02}(X\x01\x00\x00\x00au.")?;
    work.write("bad.pt", writer.finish()?.into_inner())?;
    let output = polysift()
        .current_dir(work.dir.path())
        .env("RUST_BACKTRACE", "1")
        .args(["head", "import", "bad.pt", "--out", "heads"])
        .output()?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(65), "{stderr}");
    assert!(stderr.contains("bad.pt") && stderr.trim().lines().count() == 1, "{stderr}");
    Ok(())
}

#[test]
fn what_costs_hours_for_little_is_told_before_the_first_document_is_read() -> TestResult {
    let work = Workspace::new()?;
    let run = |settings: &str, flags: &[&str]| {
        let base = "[encoder]\nmodel = 'none'\n";
        work.write("run.toml", format!("{base}{settings}"))?;
        Ok::<_, Box<dyn std::error::Error>>(work.command("run", "out").args(flags).assert())
    };
    let files = "[input]\nfiles = ['corpus/fra_Latn/*.jsonl']\n";
    let heads = "[heads.r]\nkind = 'random'\n";
    let dry = ["--dry-run"];
    // Nothing that selects, and no language.
    run(files, &dry)?.success().stderr(
        contains("neither a head nor a rate is named").and(contains("no language is named")),
    );
    run(&format!("{files}{heads}"), &dry)?.success().stderr(contains("no rate is named"));
    let french = ["--dry-run", "--retention", "r=0.5", "--language", "fra_Latn"];
    let known = contains("40 (estimated)").and(contains("r: drawn by the id"));
    run(&format!("{files}{heads}"), &french)?
        .success()
        .stderr(contains("WARN").not())
        .stdout(known);
    for (code, hint) in [("fr", "is `fra`"), ("french", "is `fra`"), ("xx", "`xx` is no code")] {
        let flags = ["--dry-run", "--retention", "r=0.5", "--language", code];
        run(&format!("{files}{heads}"), &flags)?.success().stderr(contains(hint));
    }
    // Columns that no file has.
    let flags = ["--id-column", "uid", "--language", "fra_Latn"];
    for command in ["run", "embed", "plan"] {
        let told = contains("column `uid`: is in no line");
        work.command(command, "out").args(flags).assert().code(65).stderr(told);
    }
    assert!(!work.path("out").exists());
    // No document.
    work.write("empty/a.jsonl", "")?;
    let flags = ["--language", "fra_Latn", "--retention", "r=0.5"];
    run(&format!("[input]\nfiles = ['empty/*.jsonl']\n{heads}"), &flags)?
        .success()
        .stderr(contains("no document with text was read"));
    Ok(())
}
