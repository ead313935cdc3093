//! Log lines on stderr, text or JSON, where `RUST_LOG` overrides the flags; and the trace.

use std::io::IsTerminal;

use polysift::Result;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::args::{GlobalArgs, LogFormat};
use super::trace::{Trace, TraceEnd};

/// Installs the subscriber for the whole process. Where a trace is asked for, it ends with what is
/// returned.
pub(crate) fn install(args: &GlobalArgs) -> Result<Option<TraceEnd>> {
    let level = match (args.quiet, args.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,polysift={level}")));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let lines = match args.log_format {
        LogFormat::Text => lines.without_time().boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let trace = args.trace_out.as_deref().map(Trace::create).transpose()?;
    let ours = Targets::new().with_target("polysift", LevelFilter::TRACE);
    let end = trace.as_ref().map(Trace::end);
    // A second installation can only happen in tests of the same process; the first one stays.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(trace.map(|trace| trace.with_filter(ours)))
        .try_init();
    Ok(end)
}
