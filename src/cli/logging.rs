//! Global options, log lines on stderr (`RUST_LOG` overrides the flags) and the trace.

use std::path::PathBuf;

use clap::{Args, ColorChoice, ValueEnum};
use polysift::{Error, Result};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::trace::Trace;
use crate::RAYON_THREADS;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Print errors only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Log more (-v: a line per unit of work, -vv: debugging)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Format of log lines and progress
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Whether help and errors have colours: auto on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
    /// Write a timeline of all threads to FILE, for Perfetto or chrome://tracing
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) trace_out: Option<PathBuf>,
    /// Number of worker threads, at most 4096 [default: all cores]
    #[arg(long, global = true, env = "POLYSIFT_THREADS")]
    threads: Option<usize>,
}

const MAX_THREADS: usize = 4096;

impl GlobalArgs {
    /// Checks the number of worker threads, and starts a pool of `--threads`; otherwise rayon does.
    pub(crate) fn start_threads(&self) -> Result<()> {
        let of_rayon = || std::env::var(RAYON_THREADS).ok()?.parse().ok();
        let threads = self.threads.or_else(of_rayon).unwrap_or(0);
        let name = if self.threads.is_some() { "--threads" } else { RAYON_THREADS };
        if threads > MAX_THREADS {
            let reason = format!("is {threads}; at most {MAX_THREADS} threads are started");
            return Err(Error::config(name, reason));
        }
        if threads == 0 || self.threads.is_none() {
            return Ok(());
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
        pool.map_err(|e| Error::config(name, e.to_string()))
    }
}

/// Installs the subscriber for the process. The trace ends when the returned value is dropped.
pub(crate) fn install(args: &GlobalArgs) -> Result<Option<Trace>> {
    let levels = ["warn", "info", "debug", "trace"];
    let level = if args.quiet { "error" } else { levels[usize::from(args.verbose.min(3))] };
    let name = EnvFilter::DEFAULT_ENV;
    let filter = match std::env::var(name) {
        Ok(filter) => EnvFilter::try_new(filter).map_err(|e| Error::config(name, e.to_string()))?,
        Err(_) => EnvFilter::new(format!("warn,polysift={level}")),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = match args.log_format {
        LogFormat::Text => lines.without_time().boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let trace = args.trace_out.as_deref().map(Trace::create).transpose()?;
    let ours = Targets::new().with_target("polysift", LevelFilter::TRACE);
    // A second installation happens only in tests that share a process; the first one stays.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(trace.clone().map(|trace| trace.with_filter(ours)))
        .try_init();
    Ok(trace)
}
