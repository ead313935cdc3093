//! Embeddings of samples that the run directory keeps: each text is encoded once, and nothing else changes.

use std::path::PathBuf;

use assert_cmd::Command;
use polysift::config::HeadConfig;
use polysift::head::AnyHead;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, polysift, root, text};

/// Samples of each language in a workspace, the same texts in both.
const SAMPLES: u64 = 60;

/// `polysift train` in `run`, on the settings of the workspace and `flags`.
fn train(work: &Workspace, run: &str, flags: &[&str]) -> Command {
    let mut command = work.command("train", run);
    command.args(["-v", "--log-format", "json"]).args(flags);
    command
}

/// Samples that `command` took for its heads, and texts that it encoded.
fn counts(mut command: Command) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let output = command.output()?;
    let told = String::from_utf8(output.stderr)?;
    assert!(output.status.success(), "{told}");
    let lines = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let told = lines.filter_map(|line| {
        let fields = &line["fields"];
        Some((fields["samples"].as_u64()?, fields["encoded"].as_u64()?))
    });
    Ok(told.fold((0, 0), |(samples, encoded), more| (samples + more.0, encoded + more.1)))
}

/// The files of embeddings of `run`.
fn stored(work: &Workspace, run: &str) -> Result<Vec<PathBuf>, Box<dyn std::error::Error>> {
    let root = work.path(run).join("samples");
    Ok(digests(&root)?.into_keys().map(|name| root.join(name)).collect())
}

/// The heads of `run` are those of a run of its own, in which nothing was stored.
fn assert_as_alone(work: &Workspace, run: &str, flags: &[&str]) -> TestResult {
    let alone = work.path("alone");
    if alone.exists() {
        std::fs::remove_dir_all(&alone)?;
    }
    let flags: Vec<&str> =
        flags.iter().copied().filter(|f| !["--redo", "train"].contains(f)).collect();
    train(work, "alone", &flags).assert().success();
    assert_eq!(
        digests(&work.path(run).join("heads"))?,
        digests(&alone.join("heads"))?,
        "{flags:?}"
    );
    Ok(())
}

#[test]
fn heads_seeds_and_rounds_encode_each_text_once() -> TestResult {
    let work = Workspace::new()?;
    let more = ["--set", "heads.similar={kind='cosine', train=['samples/{lang}.jsonl']}"];
    assert_eq!(counts(train(&work, "out", &more))?, (4 * SAMPLES, SAMPLES));
    assert_as_alone(&work, "out", &more)?;

    let again = ["--redo", "train", "--seed", "7"];
    assert_eq!(counts(train(&work, "out", &again))?, (2 * SAMPLES, 0));
    assert_as_alone(&work, "out", &again)?;

    // A round later: the samples in another order, each twice, and some new ones.
    let lines = std::fs::read_to_string(work.path("samples/fra_Latn.jsonl"))?;
    let lines: Vec<&str> = lines.lines().chain(lines.lines()).rev().collect();
    let new = (0..10).map(|i| {
        let label = ["positive", "negative"][i % 2];
        json!({"id": format!("new{i}"), "text": text(900 + i), "label": label}).to_string()
    });
    let lines: Vec<String> = lines.into_iter().map(str::to_owned).chain(new).collect();
    work.write("samples/fra_Latn.jsonl", lines.join("\n"))?;
    assert_eq!(counts(train(&work, "out", &again))?, (3 * SAMPLES + 10, 10));
    assert_as_alone(&work, "out", &again)
}

#[test]
fn a_damaged_or_missing_file_costs_time_and_changes_nothing() -> TestResult {
    let work = Workspace::new()?;
    let again = ["--redo", "train"];
    train(&work, "out", &[]).assert().success();
    let (heads, files) = (work.path("out/heads"), stored(&work, "out")?);
    let expected = digests(&heads)?;
    // In blocks of `parts.rows`.
    assert_eq!(files.len(), 4);
    let whole = std::fs::read(&files[0])?;
    let cut = whole[..whole.len() / 2].to_vec();
    let mut damaged = vec![Vec::new(), cut];
    for at in [3, whole.len() / 2, whole.len() - 300, whole.len() - 3] {
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        damaged.push(flipped);
    }
    for bytes in damaged {
        std::fs::write(&files[0], &bytes)?;
        let output = train(&work, "out", &again).output()?;
        let told = String::from_utf8(output.stderr)?;
        assert!(output.status.success(), "{told}");
        assert!(told.contains("damaged") && told.contains("samples/"), "{told}");
        assert_eq!(digests(&heads)?, expected);
        assert!(std::fs::read(&files[0])? == whole, "it was not made again");
    }
    // What a killed process leaves, and what somebody removed.
    let left = files[0].with_file_name(".0123456789abcdef.parquet.1.1.tmp");
    std::fs::write(left, &whole[..100])?;
    std::fs::remove_file(&files[1])?;
    let block = 16;
    assert_eq!(counts(train(&work, "out", &again))?, (2 * SAMPLES, block));
    assert_eq!(digests(&heads)?, expected);
    work.command("run", "out").assert().success();
    std::fs::write(&files[2], b"not a part")?;
    polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}

#[test]
fn embeddings_made_in_another_way_are_not_taken() -> TestResult {
    let work = Workspace::new()?;
    assert_eq!(counts(train(&work, "out", &[]))?.1, SAMPLES);
    let mut files = stored(&work, "out")?.len();
    for setting in [
        &["--set", "encoder.max_tokens=6"][..],
        &["--set", "encoder.prompt='query: '"],
        &["--set", "encoder.pooling='cls'"],
        &["--set", "parts.embeddings='f16'"],
        &["--precision", "int8"],
    ] {
        let flags = [&["--redo", "train"], setting].concat();
        assert_eq!(counts(train(&work, "out", &flags))?.1, SAMPLES, "{setting:?}");
        assert_as_alone(&work, "out", &flags)?;
        let now = stored(&work, "out")?.len();
        assert_eq!(now, files + 4, "{setting:?}");
        files = now;
    }
    // The first way again.
    assert_eq!(counts(train(&work, "out", &["--redo", "train"]))?.1, 0);
    Ok(())
}

/// Trains heads of these `kinds` in `run` with these settings of the encoder and others; what it told.
fn train_kinds(
    work: &Workspace,
    (run, kinds): (&str, &[&str]),
    (others, encoder): (&str, &str),
) -> Result<String, Box<dyn std::error::Error>> {
    let mut settings = format!("{others}\n[encoder]\n{encoder}\n");
    for kind in kinds {
        for part in ["[heads.", kind, "]\nkind = '", kind, "'\ntrain = ['samples/{lang}.jsonl']\n"]
        {
            settings += part;
        }
        settings += match *kind {
            "mlp" => "training = { epochs = 2 }\n",
            "fasttext" => "fasttext = { dim = 4, buckets = 100 }\n",
            _ => "",
        };
    }
    let file = format!("{run}.toml");
    work.write(&file, settings)?;
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["train", "-c", &file, "--run", run]);
    Ok(String::from_utf8(command.assert().success().get_output().stderr.clone())?)
}

/// A digest of the texts of the test split of the head `kind` in `run`, and their number.
fn tested(
    work: &Workspace,
    run: &str,
    kind: &str,
) -> Result<(String, usize), Box<dyn std::error::Error>> {
    let extension = if kind == "fasttext" { "bin" } else { "safetensors" };
    let path = work.path(&format!("{run}/heads/{kind}/fra_Latn.{extension}"));
    let head = AnyHead::load(&path, kind, &HeadConfig::default(), "fra_Latn")?;
    let record = head.card().training.clone().ok_or("no record")?;
    let tested: usize = record.samples["test"].num_samples();
    Ok((record.test_digest.ok_or("no digest")?, tested))
}

/// Neither the kind of head nor the encoder, its precision or its prompt says which texts are tested; the seed does.
#[test]
fn all_heads_are_tested_on_the_same_texts() -> TestResult {
    let work = Workspace::new()?;
    let rows = (100..160).map(|i| json!({"text": text(i), "label": u8::from(i % 3 == 0)}));
    work.write_lines("samples/fra_Latn.jsonl", rows)?;
    std::fs::remove_file(work.path("samples/deu_Latn.jsonl"))?;
    let model = |name: &str| {
        format!("model = '{}'\n", root().join("tests/golden/encoder").join(name).display())
    };
    let small = model("head16-prefixed");
    let kinds = ["mlp", "logistic", "cosine", "ridge", "fasttext"];
    let told = train_kinds(&work, ("all", &kinds), ("", &small))?;
    assert_eq!(told.matches("the test figures are of few texts").count(), kinds.len(), "{told}");
    let expected = tested(&work, "all", "mlp")?;
    // A tenth of the 20 positives and of the 40 others.
    assert_eq!(expected.1, 6);
    for kind in kinds {
        assert_eq!(tested(&work, "all", kind)?, expected, "{kind}");
    }
    for (run, others, encoder) in [
        ("other", "", model("bert") + "max_tokens = 64"),
        ("rounded", "", small.clone() + "precision = 'bf16'"),
        ("prompted", "", small.clone() + "prompt = 'query: '"),
        ("short", "", small.clone() + "max_tokens = 4"),
        ("seeded", "seed = 7", small.clone()),
    ] {
        train_kinds(&work, (run, &["logistic"]), (others, &encoder))?;
        let found = tested(&work, run, "logistic")?;
        assert_eq!(found == expected, run != "seeded", "{run}");
    }
    Ok(())
}
