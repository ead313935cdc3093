//! The languages of a run.

use std::collections::BTreeSet;

use polysift_base::language::UNDETERMINED_LANGUAGE;
use polysift_config::{LanguageSource, RunConfig};
use polysift_runs::run::{Plan, Shard};

/// Name, in place of a language code, of a head that serves every language.
pub const ALL_LANGUAGES: &str = "_all";

/// Returns the languages of the documents of `plan`; `None` if each document has its own.
pub fn planned_languages(config: &RunConfig, plan: &Plan) -> Option<BTreeSet<String>> {
    let languages = || plan.shards.iter().map(|shard| language_of(config, shard)).collect();
    (!config.input.language.is_by_document()).then(languages)
}

/// Returns the language of the documents of `shard`, if they do not have their own.
pub fn language_of(config: &RunConfig, shard: &Shard) -> String {
    match &config.input.language {
        LanguageSource::Fixed(code) => code.clone(),
        _ => shard.language.as_deref().unwrap_or(UNDETERMINED_LANGUAGE).into(),
    }
}
