//! The languages of a run.

use std::collections::BTreeSet;

use polysift_config::{LanguageSource, RunConfig};
use polysift_data::input::UNDETERMINED_LANGUAGE;
use polysift_runs::run::{Plan, Shard};

/// Name, in place of a language code, of a head that serves every language.
pub const ALL_LANGUAGES: &str = "_all";

/// Returns the languages of the documents of `plan`; `None` if a column of the input decides.
pub fn planned_languages(config: &RunConfig, plan: &Plan) -> Option<BTreeSet<String>> {
    match &config.input.language {
        LanguageSource::Column { .. } => None,
        _ => Some(plan.shards.iter().map(|shard| language_of(config, shard)).collect()),
    }
}

/// Returns the language of the documents of `shard`, if no column decides.
pub fn language_of(config: &RunConfig, shard: &Shard) -> String {
    match &config.input.language {
        LanguageSource::Fixed(code) => code.clone(),
        _ => shard.language.as_deref().unwrap_or(UNDETERMINED_LANGUAGE).into(),
    }
}
