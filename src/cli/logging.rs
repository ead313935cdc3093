//! Log lines on stderr: text or JSON; `RUST_LOG` overrides the flags.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::args::{GlobalArgs, LogFormat};

/// Installs the subscriber for the whole process.
pub(crate) fn install(args: &GlobalArgs) {
    let level = match (args.quiet, args.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,polysift={level}")));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // A second installation can only happen in tests of the same process; the first one stays.
    let _ = match args.log_format {
        LogFormat::Text => builder.without_time().try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
