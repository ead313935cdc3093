//! The encoder on a GPU: rates, its embeddings for the fidelity check, Parquet to Parquet.
//!
//! A plain program, so that it runs where there is no cargo (see `gpu/run.sh` for the order):
//!
//! ```text
//! cuda prepare       DATA            a model of random weights and token ids, the same every time
//! cuda prepare-text   DATA            a trained model and documents of real text
//! cuda encode        DATA --out F    the encoder alone, for each bucket size
//! cuda kernels       DATA --out F    every operation alone, and the GPU's matrix rate
//! cuda embeddings    DATA --out F    embeddings of the corpus SEL, for `cuda_fidelity.py`
//! cuda end-to-end    DATA --out F    `polysift embed` from Parquet to Parquet
//! cuda node          DATA            `embed` with GPUs that take no time; needs no GPU
//! cuda report        RESULTS         one table of all results
//! ```

mod corpus;
#[path = "../cpu_seconds.rs"]
mod cpu_seconds;
mod encode;
mod end_to_end;
mod expected;
mod kernels;
mod measure;
#[path = "../model.rs"]
mod model;
mod node;
mod prepare;
mod report;
#[path = "../workload.rs"]
mod workload;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use polysift_kernels::cuda;

use self::measure::line;

#[derive(Debug, Parser)]
#[command(about = "The encoder on a GPU, measured")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// What `cargo bench` adds; changes nothing
    #[arg(long, hide = true)]
    bench: bool,
}

/// What most commands need.
#[derive(Debug, Args)]
struct Common {
    /// Folder that `prepare` filled
    data: PathBuf,
    /// As `polysift --device`
    #[arg(long, default_value = "cuda")]
    device: String,
    /// Timed repetitions, after one that is not
    #[arg(long, default_value_t = 7)]
    repetitions: usize,
    /// File that is written
    #[arg(long)]
    out: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the GPUs; fails if there is no GPU
    Devices,
    /// Make a model of random weights and token ids
    Prepare(prepare::Options),
    /// Take a trained model and make documents of real text for it
    PrepareText(prepare::TextOptions),
    /// Measure the encoder alone
    Encode {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        options: encode::Options,
    },
    /// Measure every operation of the forward pass alone, and the GPU's matrix rate
    Kernels {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        options: kernels::Options,
    },
    /// Write the embeddings of the corpus SEL as .npy
    Embeddings {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        form: encode::Form,
    },
    /// Measure `polysift embed` from Parquet to Parquet
    EndToEnd {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        options: end_to_end::Options,
    },
    /// Measure `embed` with simulated GPUs that take no time
    Node(node::Options),
    /// Print all results of a folder as one table
    Report {
        /// Folder of the results
        results: PathBuf,
    },
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a place to say it there is nothing left to do.
            let _ = writeln!(std::io::stderr(), "cuda: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    match Cli::parse().command {
        Some(Command::Devices) => devices(),
        Some(Command::Node(options)) => node::measure(&options),
        Some(Command::Prepare(options)) => prepare::prepare(&options),
        Some(Command::PrepareText(options)) => prepare::prepare_text(&options),
        Some(Command::Encode { common, options }) => encode::measure(&common, &options),
        Some(Command::Kernels { common, options }) => kernels::measure(&common, &options),
        Some(Command::Embeddings { common, form }) => encode::embeddings(&common, &form),
        Some(Command::EndToEnd { common, options }) => end_to_end::measure(&common, &options),
        Some(Command::Report { results }) => report::print(&results),
        None => overview(),
    }
}

/// What `cargo bench` shows: a machine without a GPU is no failure there.
fn overview() -> Result<()> {
    match devices() {
        Err(error) => line(&format!("cuda: nothing measured: {error}")),
        Ok(()) => line("cuda: `make bench-cuda` measures them"),
    }
}

fn devices() -> Result<()> {
    let devices = cuda::devices()?;
    anyhow::ensure!(!devices.is_empty(), "the CUDA driver knows no GPU");
    for device in devices {
        line(&format!("cuda:{} {}", device.ordinal, device.name))?;
    }
    Ok(())
}
