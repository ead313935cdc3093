//! What can be typed. Records and names only; `resolve` turns it into settings.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use polysift::config::DeviceChoice;

use super::dataset::DatasetCommand;
use super::evaluate::EvaluateArgs;
use super::head::HeadCommand;
use super::kubernetes::KubernetesCommand;
use super::share::ShareArgs;
use super::slurm::SlurmCommand;

/// Version with the commit it was built from.
pub(crate) const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("POLYSIFT_COMMIT"), ")");

/// Names of the stages.
pub(crate) const STAGES: [&str; 6] = ["embed", "train", "score", "refine", "threshold", "export"];

/// Picks the best pretraining text, in every language, at web scale.
///
/// The job: embed every document with an XLM-RoBERTa encoder, train small heads from labelled
/// samples, score the stored embeddings, find exact thresholds per language, and export the
/// selected documents with all their columns, the scores and the embeddings.
///
/// Settings come from a TOML file (-c), from the flags, or both; flags win. Every stage writes
/// into a run directory (--run) and goes on there when it was interrupted.
#[derive(Debug, Parser)]
#[command(name = "polysift", version = VERSION, max_term_width = 100, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run all stages: embed, train, score, refine where asked for, threshold, export
    Run {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        /// Print the plan, estimates of time and disk, and all digests; write nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Freeze the list of shards for all commands to come, and estimate time and disk
    #[command(mut_arg("redo", |redo| redo.num_args(0..=1).default_missing_value("embed").help(
        "Discard the plan and all outputs, then plan again from the files that are there now"
    )))]
    Plan {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        /// Print the plan and the estimates; write nothing
        #[arg(long)]
        dry_run: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Turn text into embeddings, stored in the run directory; with --head also into scores
    Embed(#[command(flatten)] Box<SettingsArgs>),
    /// Train the heads that have labelled samples
    Train(#[command(flatten)] Box<SettingsArgs>),
    /// Score the stored embeddings with every head (never runs the encoder)
    Score(#[command(flatten)] Box<SettingsArgs>),
    /// Score the documents near the cuts again in f32 (of fp8 in bf16), so that the selection is that of f32
    Refine(#[command(flatten)] Box<SettingsArgs>),
    /// Find the exact thresholds of every language from the stored scores
    Threshold(#[command(flatten)] Box<SettingsArgs>),
    /// Write the selected documents with scores and embeddings
    Export(#[command(flatten)] Box<SettingsArgs>),
    /// Show how far a run is
    Status {
        /// The run directory
        run: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print which shares of a stage have something left to do, as the array expression of a scheduler
    Retry(RetryArgs),
    /// Check a run: outputs present, digests right, counts adding up, thresholds recomputed
    Verify {
        /// The run directory
        run: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Describe data files, heads or runs: schema, counts, score quantiles
    Inspect {
        /// Parquet or JSON lines files, directories of them, heads (.safetensors, .pt, .pth, a fastText
        /// .bin or .ftz), run directories
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Print JSON: an object, or with several files an object a line, the last with their total
        #[arg(long)]
        json: bool,
    },
    /// Measure heads on labelled texts, or compare the heads of a run on its stored scores
    Evaluate(#[command(flatten)] Box<EvaluateArgs>),
    /// Import heads that others have published, export heads for other programs
    #[command(subcommand)]
    Head(HeadCommand),
    /// List the cards of this machine and what `--device auto` would take
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the input_ids of every chunk as JSON lines
    Tokenize(#[command(flatten)] Box<SettingsArgs>),
    /// Build labelled samples from published sources
    #[command(subcommand)]
    Dataset(DatasetCommand),
    /// Run the stages of a planned run as Slurm jobs
    #[command(subcommand)]
    Slurm(SlurmCommand),
    /// Run the stages of a planned run as Kubernetes jobs
    #[command(subcommand)]
    Kubernetes(KubernetesCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    /// The run directory
    pub(crate) run: PathBuf,
    /// The stage [default: the first that is not done]
    #[arg(long, value_parser = STAGES)]
    pub(crate) stage: Option<String>,
    /// Number of shares that the next attempt is made with [default: one for every shard]
    #[arg(long, value_name = "N", env = "POLYSIFT_NUM_SHARDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) num_shards: Option<u32>,
    /// Print JSON: the stage, the number of pieces left, the shares
    #[arg(long)]
    pub(crate) json: bool,
}

/// Form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct GlobalArgs {
    /// Print errors only
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// Log more (-v: a line per shard, -vv: debugging)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,
    /// Form of log lines and progress
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        help_heading = "Global options"
    )]
    pub(crate) log_format: LogFormat,
    /// Write what every thread did and when to FILE, for Perfetto or chrome://tracing
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) trace_out: Option<PathBuf>,
    /// Worker threads [default: all cores]
    #[arg(long, global = true, env = "POLYSIFT_THREADS", help_heading = "Global options")]
    pub(crate) threads: Option<usize>,
}

/// Settings; each flag names the TOML key that it overrides.
#[derive(Debug, Args, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct SettingsArgs {
    /// Settings file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Run directory; its own settings are used when no --config is given [run_dir]
    #[arg(long, value_name = "DIR", env = "POLYSIFT_RUN")]
    pub(crate) run: Option<PathBuf>,
    /// Discard the outputs of this stage and of those after it, then do them again
    #[arg(long, value_name = "STAGE", value_parser = STAGES)]
    pub(crate) redo: Option<String>,
    /// Set any key of the settings file, e.g. --set heads.quality.training.epochs=10
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Seed of everything random [seed]
    #[arg(long, value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) seed: Option<i64>,
    #[command(flatten)]
    pub(crate) share: ShareArgs,

    /// Files, directories or globs; {lang} stands for the language code [input.files]
    #[arg(value_name = "INPUT", help_heading = "Input")]
    pub(crate) input: Vec<String>,
    /// Language of all documents [input.language]
    #[arg(long, value_name = "CODE", help_heading = "Input")]
    pub(crate) language: Option<String>,
    /// Column of the text [input.text]
    #[arg(long, value_name = "COLUMN", help_heading = "Input")]
    pub(crate) text_column: Option<String>,
    /// Column of the id [input.id]
    #[arg(long, value_name = "COLUMN", help_heading = "Input")]
    pub(crate) id_column: Option<String>,
    /// Malformed rows per file to set aside before the file fails [input.max_rejects]
    #[arg(long, value_name = "N", help_heading = "Input", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) max_rejects: Option<i64>,

    /// polysift-mini (built in), a Hugging Face directory or hub id [encoder.model]
    #[arg(long, help_heading = "Encoder")]
    pub(crate) model: Option<String>,
    /// Revision of a hub id [encoder.revision]
    #[arg(long, help_heading = "Encoder")]
    pub(crate) revision: Option<String>,
    /// mean or cls [encoder.pooling]
    #[arg(long, value_parser = ["mean", "cls"], help_heading = "Encoder")]
    pub(crate) pooling: Option<String>,
    /// Longest chunk in tokens, <s> and </s> included [encoder.max_tokens]
    #[arg(long, value_name = "TOKENS", help_heading = "Encoder", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) max_tokens: Option<i64>,
    /// Which chunks are embedded [encoder.chunks]
    #[arg(long, value_parser = ["first", "all"], help_heading = "Encoder")]
    pub(crate) chunks: Option<String>,
    /// Text put before every document, e.g. "query: " [encoder.prompt]
    #[arg(long, value_name = "TEXT", help_heading = "Encoder")]
    pub(crate) prompt: Option<String>,
    /// What computes: auto, cpu, cuda (all cards), or cards by number as in cuda:0,2 [encoder.device]
    #[arg(long, env = "POLYSIFT_DEVICE", help_heading = "Encoder")]
    pub(crate) device: Option<DeviceChoice>,
    /// In what: auto, bf16; on a card fp8; on the CPU f32, f16 or int8 [encoder.dtype]
    #[arg(long, value_parser = ["auto", "f32", "bf16", "f16", "int8", "fp8"], help_heading = "Encoder")]
    pub(crate) dtype: Option<String>,
    /// Form of the GELU: erf (exact), or tanh (cards only) [encoder.gelu]
    #[arg(long, value_parser = ["erf", "tanh"], help_heading = "Encoder")]
    pub(crate) gelu: Option<String>,
    /// Most tokens in a packed batch [encoder.batch_tokens]
    #[arg(long, value_name = "TOKENS", help_heading = "Encoder", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) batch_tokens: Option<i64>,
    /// Use only files that are already here, never the hub
    #[arg(long, help_heading = "Encoder")]
    pub(crate) offline: bool,
    /// How embeddings are stored: f32, f16 or bf16-in-f32 [parts.embeddings]
    #[arg(long, value_name = "DTYPE", value_parser = ["f32", "f16", "bf16-in-f32"], help_heading = "Encoder")]
    pub(crate) embeddings: Option<String>,

    /// Load a head, e.g. quality=heads/{lang}.safetensors [heads.NAME.path]
    #[arg(long, value_name = "NAME=PATH", help_heading = "Heads and cuts")]
    pub(crate) head: Vec<String>,
    /// Train a head on labelled samples, e.g. quality=samples/{lang}.jsonl [heads.NAME.train]
    #[arg(long, value_name = "NAME=PATH", help_heading = "Heads and cuts")]
    pub(crate) train_on: Vec<String>,
    /// Rates of documents to keep, e.g. quality=0.1,0.33 [languages._default.retention]
    #[arg(long, value_name = "NAME=RATES", help_heading = "Heads and cuts")]
    pub(crate) retention: Vec<String>,
    /// Rate of documents to remove, e.g. toxicity=0.05 [languages._default.removal]
    #[arg(long, value_name = "NAME=RATE", help_heading = "Heads and cuts")]
    pub(crate) removal: Vec<String>,
    /// What rates count [selection.weight]
    #[arg(long, value_parser = ["documents", "bytes", "tokens"], help_heading = "Heads and cuts")]
    pub(crate) weight: Option<String>,
    /// exact, or reference: the published code's sampled thresholds [selection.mode]
    #[arg(long, value_parser = ["exact", "reference"], help_heading = "Heads and cuts")]
    pub(crate) mode: Option<String>,

    /// Encode in a fast type and select what f32 would select (for fp8: what bf16 would), by scoring
    /// documents near a cut again in it [selection.refine]
    #[arg(long, help_heading = "Heads and cuts")]
    pub(crate) refine: bool,

    /// Export to a store, s3://bucket/prefix, gs:// or az://, instead of the run directory [export.to]
    #[arg(long, value_name = "URL", help_heading = "Export")]
    pub(crate) export_to: Option<String>,
    /// Export without embeddings [export.with_embeddings]
    #[arg(long, help_heading = "Export")]
    pub(crate) no_embeddings: bool,
    /// flat (FineWeb2-HQ) or nested (datatrove) columns [export.layout]
    #[arg(long, value_parser = ["flat", "nested"], help_heading = "Export")]
    pub(crate) layout: Option<String>,
    /// Start a new file after this many megabytes [export.max_file_mb]
    #[arg(long, value_name = "MB", help_heading = "Export", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) max_file_mb: Option<i64>,
    /// Also write the documents that were not selected, by reason [export.keep_removed]
    #[arg(long, help_heading = "Export")]
    pub(crate) keep_removed: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_argument_tree_is_consistent() {
        Cli::command().debug_assert();
    }
}
