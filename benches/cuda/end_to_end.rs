//! `polysift embed` from Parquet to Parquet, against the encoder alone on the same documents.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::Common;
use crate::corpus::{parquet_files, read_texts, write_corpus, write_documents};
use crate::encode::{Form, embed, open};
use crate::measure::{Run, Sizes, line, repeat, write_json};

/// Documents on which the encoder alone is measured.
const SAMPLE_DOCUMENTS: usize = 16_384;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The program
    #[arg(long)]
    program: PathBuf,
    /// Folder of Parquet files whose texts are cut up for the corpus
    #[arg(long)]
    texts: PathBuf,
    /// Documents of the corpus
    #[arg(long, default_value_t = 400_000)]
    documents: usize,
    /// Tokens of a batch
    #[arg(long, default_value_t = 16_896)]
    batch_tokens: usize,
    #[command(flatten)]
    form: Form,
}

/// Measures the encoder, the start of the program, and the program.
pub(crate) fn measure(common: &Common, options: &Options) -> Result<()> {
    let corpus = common.data.join("corpus");
    if !corpus.is_dir() {
        write_corpus(&options.texts, options.documents, &corpus)?;
    }
    let sizes = Sizes::read(&common.data.join("model"))?;
    let (alone, device) = encoder_alone(common, options, &corpus, &sizes)?;
    line(&alone.describe())?;

    let one_document = common.data.join("one-document");
    if !one_document.is_dir() {
        write_documents(&one_document, 0, &["One document.".into()])?;
    }
    let start = embed_corpus(common, options, &one_document)?.seconds;
    let mut whole = Vec::new();
    for _ in 0..common.repetitions {
        whole.push(embed_corpus(common, options, &corpus)?);
    }
    let first = whole.first().context("at least one repetition is needed")?;
    let mean_tokens = first.tokens as f64 / first.documents as f64;
    let seconds = crate::measure::median(&whole.iter().map(|w| w.seconds).collect::<Vec<_>>());
    let rate = first.tokens as f64 / seconds;
    let rate_without_start = first.tokens as f64 / (seconds - start);
    line(&format!(
        "polysift embed: {rate:.0} tokens/s, {:.0} documents/s; {:.3} of the encoder alone, {:.3} \
         without the {start:.1} s of its start (expected: 0.99)",
        first.documents as f64 / seconds,
        rate / alone.tokens_per_second,
        rate_without_start / alone.tokens_per_second,
    ))?;
    let result = json!({
        "device": device,
        "documents": first.documents, "tokens": first.tokens, "mean_tokens": mean_tokens,
        "seconds": whole.iter().map(|w| w.seconds).collect::<Vec<_>>(),
        "median_seconds": seconds, "start_seconds": start,
        "tokens_per_second": rate, "documents_per_second": first.documents as f64 / seconds,
        "encoder_tokens_per_second": alone.tokens_per_second,
        "share_of_encoder": rate / alone.tokens_per_second,
        "share_of_encoder_without_start": rate_without_start / alone.tokens_per_second,
        "runs": [alone],
    });
    write_json(&common.out, &result)
}

/// The encoder on the first documents of the corpus, tokenized before the clock starts.
fn encoder_alone(
    common: &Common,
    options: &Options,
    corpus: &Path,
    sizes: &Sizes,
) -> Result<(Run, String)> {
    let model = open(common, &options.form, options.batch_tokens)?;
    let mut texts = Vec::new();
    for path in parquet_files(corpus)? {
        if texts.len() < SAMPLE_DOCUMENTS {
            texts.extend(read_texts(&path)?);
        }
    }
    texts.truncate(SAMPLE_DOCUMENTS);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let tokenized = model.tokenizer.chunks_all(&texts)?;
    let chunks: Vec<&[u32]> =
        tokenized.iter().filter_map(|chunks| chunks.first()).map(Vec::as_slice).collect();
    let encoder = model.encoder.as_ref();
    let (seconds, _) =
        repeat(common.repetitions, || embed(encoder, &chunks, options.batch_tokens))?;
    let settings = json!({"batch_tokens": options.batch_tokens});
    let run = Run::new(("polysift", "corpus", settings), &chunks, sizes, seconds);
    Ok((run, encoder.info().device.clone()))
}

struct Embedded {
    seconds: f64,
    documents: u64,
    tokens: u64,
}

/// Runs the program over `corpus` into a new run directory.
fn embed_corpus(common: &Common, options: &Options, corpus: &Path) -> Result<Embedded> {
    let run = common.data.join("run");
    if run.exists() {
        std::fs::remove_dir_all(&run)?;
    }
    let mut command = Command::new(&options.program);
    command.args(["embed", "--offline", "--quiet", "--language", "und"]).arg(corpus);
    command.arg("--run").arg(&run).arg("--model").arg(common.data.join("model"));
    command.arg("--batch-tokens").arg(options.batch_tokens.to_string());
    for (name, value) in options.form.settings() {
        command.arg(format!("--{name}={value}"));
    }
    if common.device != "cpu" {
        command.args(["--device", &common.device]);
    }
    let began = Instant::now();
    let status = command.stdout(Stdio::null()).status();
    let seconds = began.elapsed().as_secs_f64();
    let status =
        status.with_context(|| format!("{} cannot be started", options.program.display()))?;
    ensure!(status.success(), "polysift embed: {status}");
    let output = Command::new(&options.program).args(["status", "--json"]).arg(&run).output()?;
    ensure!(output.status.success(), "polysift status: {}", output.status);
    let counts: Value = serde_json::from_slice(&output.stdout)?;
    let count = |name: &str| counts[name].as_u64().with_context(|| format!("no {name} in status"));
    Ok(Embedded { seconds, documents: count("documents")?, tokens: count("tokens")? })
}
