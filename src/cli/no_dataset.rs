//! `polysift dataset` in a build without the feature `datasets`.

use std::ffi::OsString;

use clap::Subcommand;

use polysift::progress::Stop;
use polysift::{Error, Result};

use super::progress::Display;

#[derive(Debug, Subcommand)]
pub(crate) enum DatasetCommand {
    /// Needs a build with the feature `datasets`
    #[command(external_subcommand)]
    Any(Vec<OsString>),
}

pub(crate) fn run(command: &DatasetCommand, _: &Stop, _: &Display) -> Result<()> {
    let DatasetCommand::Any(words) = command;
    let name = words.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    Err(Error::without_feature(format!("polysift dataset {name}"), "datasets"))
}
