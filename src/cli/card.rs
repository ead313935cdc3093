//! `polysift card`: its arguments.

use std::path::PathBuf;

use clap::Args;

use polysift::Result;
use polysift::config::CardConfig;
use polysift::stage::Context;
use polysift::stage::export::{card_facts, render_card};

use super::printer;
use super::settings::{BaseArgs, SettingsArgs, resolve};

/// Of which run, and what it does not know itself.
#[derive(Debug, Args)]
pub(crate) struct CardArgs {
    /// The run directory
    pub(crate) run: PathBuf,
    /// Settings file whose table [card] is taken [default: the run's own settings]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set a key of [card], e.g. --set card.license=odc-by
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Template in place of the built-in one [card.template]
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Print JSON: what the template is given
    #[arg(long)]
    json: bool,
}

impl CardArgs {
    /// Prints the card of the export of the run.
    pub(crate) fn print(&self, context: Context<'_>) -> Result<()> {
        let Self { run, config, set, template, json } = self;
        let (config, run, set) = (config.clone(), Some(run.clone()), set.clone());
        let base = BaseArgs { config, run, set };
        let settings = resolve(&SettingsArgs { base, ..SettingsArgs::default() })?.config.card;
        let template = template.as_ref().map(|path| path.display().to_string());
        let settings = CardConfig { template: template.or(settings.template.clone()), ..settings };
        let facts = card_facts(context, &settings)?;
        if *json {
            printer::json(&facts);
        } else {
            printer::bytes(render_card(&settings, &facts)?.as_bytes());
        }
        Ok(())
    }
}
