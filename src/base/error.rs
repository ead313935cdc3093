//! Error type of the library. Each variant states when it is returned and names the data concerned.
//!
//! Messages are lower case, without a period. A cause is only in `source`: no chain repeats it.

use std::path::{Path, PathBuf};

use polysift_kernels::cuda::CudaError;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Cause of an [`Error`], as foreign crates return it.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// Errors of the library; [`Error::exit_code`] maps each to the program's exit status.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // --- what the user asked for ---
    /// A setting is missing, contradictory or out of range; `name` is the flag or the TOML key.
    #[error("{name}: {reason}")]
    Config {
        /// Flag or dotted TOML key.
        name: String,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// The settings differ from those that the run directory was created with.
    #[error("{}: made with other settings\n{difference}\n{hint}", path.display())]
    Mismatch {
        /// The run directory.
        path: PathBuf,
        /// One line per differing key: name, frozen value, new value.
        difference: String,
        /// Advice for the user.
        hint: String,
    },

    // --- input data ---
    /// A pattern matches nothing or a named file does not exist.
    #[error("{path}: {reason}")]
    Missing {
        /// Path or pattern as the user wrote it.
        path: String,
        /// What was looked for.
        reason: String,
    },
    /// A file cannot be decoded (truncated, corrupt, not of the format its name says).
    #[error("{}: cannot be read as {format}", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// Format that was expected.
        format: &'static str,
        /// Decoder's message.
        #[source]
        source: Source,
    },
    /// A column is missing or has an unsupported type.
    #[error("{}: column `{column}`: {reason}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// What is wrong.
        reason: String,
    },
    /// Some rows cannot be used; returned after the whole file was read and its bad rows counted.
    #[error("{}: row {row}: {reason} ({count} bad row(s) in this file)", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// First bad row, counted from 1 (the line number in JSON lines).
        row: u64,
        /// What is wrong with it.
        reason: String,
        /// How many rows of the file are bad.
        count: u64,
    },

    // --- models and heads ---
    /// A model, tokenizer or head file is unusable.
    #[error("{}: {reason}", path.display())]
    Model {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A numeric operation failed, or was given arrays that do not fit together.
    #[error("{op}: {reason}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The shapes, expected and given, or the message of the operation.
        reason: String,
    },
    /// A head cannot be trained on what was given (no samples, one class only...).
    #[error("head `{head}`, {language}: {reason}")]
    Training {
        /// Name of the head.
        head: String,
        /// Language code.
        language: String,
        /// What is wrong.
        reason: String,
    },

    // --- the world ---
    /// A file operation failed.
    #[error("{}: {action} failed", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done ("create", "write", "rename"...).
        action: &'static str,
        /// The system's message.
        #[source]
        source: std::io::Error,
    },
    /// Other processes use this run directory, but the command needs exclusive access.
    #[error("{}: in use by another process; stop it, or wait for it, and run this again", .0.display())]
    Busy(PathBuf),
    /// Another process took over this unit of work or run directory, as no heartbeat came in time.
    #[error("{}: taken over by another process, as this one sent no heartbeat for too long", .0.display())]
    Lost(PathBuf),
    /// A GPU or its driver failed or cannot be used.
    #[error(transparent)]
    Device(#[from] CudaError),
    /// The hub, an object store or the scheduler does not answer or refuses, after retries.
    #[error("{name}: {reason}")]
    Service {
        /// Repository, URL, or the scheduler's command (`scontrol`).
        name: String,
        /// What happened, with the service's own message.
        reason: String,
    },
    /// A file is missing, changed or inconsistent. `verify` finds this, or a stage that reads it.
    #[error("{}: {reason}", path.display())]
    Corrupt {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Some shards failed, and each was reported before; the others are done.
    #[error("{failed} of {total} unit(s) of work failed; the others are done")]
    Shards {
        /// Number of failed shards.
        failed: usize,
        /// Number of shards of the stage.
        total: usize,
    },
    /// A signal asked for a stop; all finished work is saved.
    #[error("stopped by a signal; finished work is saved, and a run goes on with the same command")]
    Stopped,
}

impl Error {
    /// Returns an [`Error::Config`] for `name`.
    pub fn config(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config { name: name.into(), reason: reason.into() }
    }

    /// Returns an [`Error::Config`] for `name`, which needs the Cargo feature `feature`.
    pub fn without_feature(name: impl Into<String>, feature: &str) -> Self {
        let reason = format!(
            "this polysift was built without the feature `{feature}`; build it with \
             `cargo build --release --features {feature}`"
        );
        Self::config(name, reason)
    }

    /// Returns an [`Error::Missing`] for `path`.
    pub fn missing(path: impl AsRef<Path>, reason: impl Into<String>) -> Self {
        Self::Missing { path: path.as_ref().display().to_string(), reason: reason.into() }
    }

    /// Returns an [`Error::Decode`] for `path`.
    pub fn decode(path: &Path, format: &'static str, source: impl Into<Source>) -> Self {
        Self::Decode { path: path.to_owned(), format, source: source.into() }
    }

    /// Returns an [`Error::Model`] for `path`.
    pub fn model(path: &Path, reason: impl Into<String>) -> Self {
        Self::Model { path: path.to_owned(), reason: reason.into() }
    }

    /// Returns an [`Error::Schema`] for `column` of `path`.
    pub fn schema(path: &Path, column: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Schema { path: path.to_owned(), column: column.into(), reason: reason.into() }
    }

    /// Returns an [`Error::Shape`] for `op`.
    pub fn shape(op: &'static str, reason: impl Into<String>) -> Self {
        Self::Shape { op, reason: reason.into() }
    }

    /// Returns an [`Error::Corrupt`] for `path`.
    pub fn corrupt(path: &Path, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), reason: reason.into() }
    }

    /// Returns an [`Error::Io`] for another crate's failed write; its cause shows a full disk.
    pub fn write(path: &Path, source: impl Into<Source>) -> Self {
        Self::io(path, "write")(std::io::Error::other(source))
    }

    /// Returns a closure for `map_err` that adds the file and the action to the system's error.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }

    /// Returns the exit status of the program (`sysexits` where one fits): see docs/exit-codes.md.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config { .. } | Self::Device(CudaError::NotBuilt) => 2,
            Self::Shards { .. } => 3,
            Self::Decode { .. }
            | Self::Schema { .. }
            | Self::Row { .. }
            | Self::Model { .. }
            | Self::Training { .. }
            | Self::Corrupt { .. } => 65,
            Self::Missing { .. } => 66,
            // The machine may be at fault; another one may succeed.
            Self::Device(CudaError::Driver { .. } | CudaError::Hung { .. }) => 71,
            Self::Service { .. } | Self::Device(_) => 69,
            Self::Shape { .. } => 70,
            Self::Io { .. } => 74,
            Self::Busy(_) | Self::Lost(_) | Self::Stopped => 75,
            Self::Mismatch { .. } => 78,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_not_repeated_in_the_message() {
        let error = Error::io(Path::new("a"), "open")(std::io::Error::other("boom"));
        assert_eq!(error.to_string(), "a: open failed");
        assert_eq!(std::error::Error::source(&error).map(ToString::to_string), Some("boom".into()));
    }

    #[test]
    fn signals_and_mismatches_have_the_codes_schedulers_rely_on() {
        assert_eq!(Error::Stopped.exit_code(), 75);
        let mismatch =
            Error::Mismatch { path: "r".into(), difference: String::new(), hint: String::new() };
        assert_eq!(mismatch.exit_code(), 78);
    }
}
