//! polysift's encoder and candle's on the CPU as engines of `run.py`, and what all engines read.
//!
//! ```text
//! peers prepare DATA                    a model of random weights and token ids, the same every time
//! peers serve polysift DATA MODEL       embeds what standard input names, until it ends
//! peers serve candle DATA MODEL
//! ```
//!
//! `serve` speaks lines of JSON, as `engines.py` does: `{"engine", "dtype", "version"}` once it is
//! loaded; for each `{"workload": NAME, "documents": N or null, "out": FILE or null}` it embeds (the first
//! N of) `DATA/NAME`, answers `{"secs"}`, and writes the embeddings to `out` as .npy. Threads:
//! `RAYON_NUM_THREADS`.

#[path = "../candle_padded.rs"]
mod candle_padded;
#[path = "../model.rs"]
#[expect(dead_code, reason = "benches of several families keep it in files")]
mod model;
mod serve;
#[path = "../workload.rs"]
mod workload;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use self::model::{Shape, write_model};
use self::workload::{Lengths, Workload};

/// The encoder alone does not use it.
const TOKENIZER: &[u8] =
    include_bytes!("../../tests/golden/encoder/head16-prefixed/tokenizer.json");

/// Name, lengths and number of the documents.
const WORKLOADS: [(&str, Lengths, usize); 5] = [
    ("W1", Lengths::Full, 64),
    ("W2", Lengths::Web, 256),
    // documents that selections are compared on, the first 500 to train a head with
    ("SEL", Lengths::Web, 2500),
    // what static quantisation is calibrated with
    ("CAL", Lengths::Web, 64),
    ("WARM", Lengths::Web, 8),
];

#[derive(Debug, Parser)]
#[command(about = "Engines of the comparison with other programs' encoders")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// What `cargo bench` adds; changes nothing
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a model of random weights and token ids; what is there is kept
    Prepare { data: PathBuf },
    /// Embed what standard input names
    Serve(serve::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Some(Command::Prepare { data }) => prepare(&data),
        Some(Command::Serve(options)) => serve::serve(&options),
        None => line("peers: `make bench-peers` measures them"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a place to say it there is nothing left to do.
            let _ = writeln!(std::io::stderr(), "peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

fn prepare(data: &Path) -> Result<()> {
    let model = data.join("model");
    if model.join("model.safetensors").is_file() {
        return line(&format!("{}: is there, kept", model.display()));
    }
    std::fs::create_dir_all(&model)?;
    for (seed, (name, lengths, documents)) in (1..).zip(WORKLOADS) {
        let workload = Workload::draw(name, lengths, documents, Shape::BASE.vocab_size, seed);
        workload.write(data)?;
        let tokens: usize = workload.sequences.iter().map(Vec::len).sum();
        line(&format!("{}: {documents} documents, {tokens} tokens", workload.name))?;
    }
    // Last: a folder with weights is whole.
    write_model(&Shape::BASE, TOKENIZER, &model)?;
    line(&format!("{}: random weights of the {} shape", model.display(), Shape::BASE.name))
}
