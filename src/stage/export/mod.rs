//! The selected documents with all their columns, the new ones beside them; files mirror the inputs.

mod place;
mod shard;
mod sidecar;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::context::Context;
use super::corpus::{ScoreFiles, stored_selections};
use super::embedded::Embedded;
use super::model::encoder_digest;
use crate::config::{DEFAULT_LANGUAGE, RunConfig};
use crate::error::Result;
use crate::export::{ExportSpec, WriterOptions, export_schema};
use crate::input::{Format, RowReader};
use crate::run::{Shard, Stage, StageWork};
use crate::selection::Selection;
pub(super) use place::warn_of_place;
use shard::ShardExport;

/// What is the same for all shards.
pub(super) struct Job<'a> {
    pub(super) context: Context<'a>,
    pub(super) scores: ScoreFiles,
    pub(super) spec: ExportSpec,
    /// Heads with a retention column, in the order of the columns.
    pub(super) retention_heads: Vec<String>,
    pub(super) selections: BTreeMap<String, Selection>,
    pub(super) provenance: Value,
}

impl Job<'_> {
    /// The place below which all files are written.
    pub(super) fn root(&self) -> PathBuf {
        match &self.context.config.export.to {
            Some(url) => url.trim_end_matches('/').into(),
            None => self.context.run.root().to_owned(),
        }
    }

    pub(super) fn writer_options(&self, reason: Option<&str>) -> WriterOptions {
        let export = &self.context.config.export;
        let mut provenance = self.provenance.clone();
        if let Some(reason) = reason {
            provenance["removed_by"] = json!(reason);
        }
        WriterOptions {
            zstd: export.zstd,
            row_group_bytes: export.row_group_mb as u64 * 1_000_000,
            max_file_bytes: export.max_file_mb.map(|mb| mb as u64 * 1_000_000),
            metadata: vec![("polysift".to_owned(), provenance.to_string())],
        }
    }
}

/// Heads that any language retains by.
fn retention_heads(config: &RunConfig) -> Vec<String> {
    let languages = config.languages.keys().map(String::as_str).chain([DEFAULT_LANGUAGE]);
    let heads: BTreeSet<String> =
        languages.flat_map(|l| config.thresholds(l).retention.into_keys()).collect();
    heads.into_iter().collect()
}

fn spec(config: &RunConfig, retention_heads: &[String]) -> ExportSpec {
    let export = &config.export;
    ExportSpec {
        layout: export.layout,
        embeddings: export
            .with_embeddings
            .then(|| export.embeddings.unwrap_or(config.parts.embeddings)),
        text: config.input.text.clone(),
        id: config.input.id.clone(),
        replace_embeddings: config.input.embeddings.is_some(),
        score_columns: config.heads.iter().map(|(name, head)| head.column(name)).collect(),
        retention_columns: retention_heads
            .iter()
            .filter_map(|name| Some(config.heads.get(name)?.retention_column(name)))
            .collect(),
    }
}

/// Files whose columns [`check_columns`] looks at; those of one corpus are alike.
const MAX_CHECKED_FILES: usize = 100;

/// Whether the columns of the input leave room for the new ones, as far as footers tell.
pub fn check_columns(config: &RunConfig, shards: &[Shard]) -> Result<()> {
    let spec = spec(config, &retention_heads(config));
    // A damaged file is the embed stage's to report, with its shard.
    let files = shards.iter().filter_map(|shard| shard.input().ok());
    let parquet = files.filter(|file| file.format == Format::Parquet);
    for file in parquet.take(MAX_CHECKED_FILES) {
        if let Ok(reader) = RowReader::open(&file, &config.input) {
            export_schema(&reader.schema(), &spec, &file.path)?;
        }
    }
    Ok(())
}

/// Settings that the exported files depend on.
pub fn settings(config: &RunConfig, selections: &BTreeMap<String, Selection>) -> Value {
    let columns: BTreeMap<&String, String> =
        config.heads.iter().map(|(name, head)| (name, head.column(name))).collect();
    json!({"export": config.export, "columns": columns, "selections": selections})
}

/// Exports every shard that is not exported yet.
pub fn export(context: Context<'_>) -> Result<()> {
    let Context { config, run, .. } = context;
    let names: Vec<&str> = config.heads.keys().map(String::as_str).collect();
    let embedded = Embedded::scored(run, &names)?;
    let selections = stored_selections(run, embedded.languages())?;
    context.freeze(Stage::Export, &settings(config, &selections))?;
    let work = StageWork::of_shards(context, Stage::Export, &embedded.plan)?;
    if work.is_over() {
        return work.finish(run);
    }
    if let Some(to) = &config.export.to {
        place::claim(context, to)?;
    }
    let retention_heads = retention_heads(config);
    let job = Job {
        context,
        scores: ScoreFiles::selected(context)?,
        spec: spec(config, &retention_heads),
        retention_heads,
        selections,
        provenance: json!({
            "version": env!("CARGO_PKG_VERSION"),
            "encoder_digest": encoder_digest(run)?,
            "head_digests": run.frozen_settings(Stage::Score)?,
            "thresholds": run.frozen_settings(Stage::Threshold)?,
        }),
    };
    let rows = embedded.rows(work.own.iter().copied());
    context.progress.begin("export", Some(rows), "documents");
    let outcome = work.for_all(context, |place| {
        work.extend(context, place, embedded.rows([place]));
        ShardExport::new(&job, place as u64, &embedded.plan.shards[place])?.run()
    });
    context.progress.end();
    outcome?;
    work.finish(run)
}
