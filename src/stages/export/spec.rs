//! Place and columns of an export, from the settings.

use std::collections::BTreeSet;
use std::path::PathBuf;

use polysift_config::{DEFAULT_LANGUAGE, FilterAction, FilterConfig, RunConfig};
use polysift_corpus::context::Context;
use polysift_data::export::ExportSpec;

/// Returns the folder or URL below which all files are written.
pub(super) fn place_of(context: Context<'_>) -> PathBuf {
    match &context.config.export.to {
        Some(url) => url.trim_end_matches('/').into(),
        None => context.run.root().to_owned(),
    }
}

/// Returns the heads with a retention in any language.
pub(super) fn retention_heads(config: &RunConfig) -> Vec<String> {
    let languages = config.languages.keys().map(String::as_str).chain([DEFAULT_LANGUAGE]);
    let heads: BTreeSet<String> =
        languages.flat_map(|l| config.thresholds(l).retention.into_keys()).collect();
    heads.into_iter().collect()
}

/// Returns the names of the new text columns: the identified language, then the filters that flag.
fn text_columns(config: &RunConfig) -> impl Iterator<Item = &str> {
    let flags = |(_, filter): &(&String, &FilterConfig)| filter.action == FilterAction::Flag;
    let flags = config.filters.iter().filter(flags).map(|(name, _)| name.as_str());
    config.input.language.new_column().into_iter().chain(flags)
}

/// Returns the columns and layout of the export of `config`.
pub(super) fn spec(config: &RunConfig, retention_heads: &[String]) -> ExportSpec {
    let export = &config.export;
    let cuts = config.filters.values().any(|filter| filter.action == FilterAction::Cut);
    let scores = config.heads.iter().map(|(name, head)| head.column(name));
    let rates = retention_heads
        .iter()
        .filter_map(|name| Some(config.heads.get(name)?.retention_column(name)));
    ExportSpec {
        layout: export.layout,
        embeddings: (export.with_embeddings && config.has_embeddings())
            .then(|| export.embeddings.unwrap_or(config.parts.embeddings)),
        text: config.input.text.clone(),
        id: config.input.id.clone(),
        replace_embeddings: config.input.embeddings.is_some(),
        new_columns: scores.chain(rates).collect(),
        text_columns: text_columns(config).map(str::to_owned).collect(),
        replaces_texts: config.pii.is_some() || cuts,
        counts_pii: config.pii.is_some(),
    }
}
