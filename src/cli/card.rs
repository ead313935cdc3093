//! `polysift card`: prints the dataset card of a run's export.

use std::path::PathBuf;

use clap::Args;

use polysift::Result;
use polysift::config::CardConfig;
use polysift::corpus::Context;
use polysift::stages::export::{card_facts, render_card};

use super::printer;
use super::settings::{BaseArgs, RunDirArgs, SettingsArgs, resolve};

#[derive(Debug, Args)]
pub(crate) struct CardArgs {
    #[command(flatten)]
    pub(crate) run: RunDirArgs,
    /// Settings file that has the table [card] [default: the run's own settings]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set a key of [card], e.g. --set card.license=odc-by
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Template that replaces the built-in one [card.template]
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Print the facts that the template receives, as JSON
    #[arg(long)]
    json: bool,
}

impl CardArgs {
    /// Prints the card of the run in `context`, or the facts for it.
    pub(crate) fn print(&self, context: Context<'_>) -> Result<()> {
        let Self { run, config, set, template, json } = self;
        let (config, run, set) = (config.clone(), Some(run.path().to_owned()), set.clone());
        let base = BaseArgs { config, run, set };
        let settings = resolve(&SettingsArgs { base, ..SettingsArgs::default() })?.card;
        let template = template.as_ref().map(|path| path.display().to_string());
        let settings = CardConfig { template: template.or(settings.template.clone()), ..settings };
        let facts = card_facts(context, &settings)?;
        if *json {
            printer::print_json(&facts);
        } else {
            printer::print_bytes(render_card(&settings, Some(&facts))?.as_bytes());
        }
        Ok(())
    }
}
