//! Stored embeddings to scores, per head; the encoder is never run here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::embed::FOREIGN_ENCODER;
use super::{ALL_LANGUAGES, Context};
use crate::config::HeadConfig;
use crate::error::{Error, Result};
use crate::head::{DocumentScore, Head};
use crate::run::{PartFile, Plan, Shard, ShardMarker, Stage};
use crate::store::{EmbeddingRows, ScoreRows, read_embeddings, write_scores};

/// The heads of a run: by head name, then by language (or [`ALL_LANGUAGES`]).
pub struct Heads {
    languages: BTreeSet<String>,
    by_name: BTreeMap<String, ByLanguage>,
}

type ByLanguage = BTreeMap<String, Loaded>;

/// A head and the file it came from.
struct Loaded {
    path: PathBuf,
    head: Head,
}

impl Heads {
    /// Loads every head that serves one of the run's languages.
    pub fn load(context: Context<'_>) -> Result<Self> {
        let languages = super::languages_of(context.run)?;
        let mut by_name = BTreeMap::new();
        for (name, config) in &context.config.heads {
            let mut heads = ByLanguage::new();
            for language in languages.iter().map(String::as_str).chain([ALL_LANGUAGES]) {
                if let Some(path) = head_path(context, name, config, language) {
                    let head = Head::load(&path, name, config)?;
                    heads.insert(language.to_owned(), Loaded { path, head });
                }
            }
            if heads.is_empty() {
                return Err(Error::Missing {
                    path: config.path.clone().unwrap_or_else(|| format!("heads/{name}")),
                    reason: format!("no head `{name}` for any of the languages {languages:?}"),
                });
            }
            by_name.insert(name.clone(), heads);
        }
        Ok(Self { languages, by_name })
    }

    /// Languages of the run.
    pub fn languages(&self) -> &BTreeSet<String> {
        &self.languages
    }

    /// The head `name` for `language`: its own, else the one for all.
    pub fn get(&self, name: &str, language: &str) -> Option<&Head> {
        self.loaded(name, language).map(|loaded| &loaded.head)
    }

    fn loaded(&self, name: &str, language: &str) -> Option<&Loaded> {
        let heads = self.by_name.get(name)?;
        heads.get(language).or_else(|| heads.get(ALL_LANGUAGES))
    }

    /// Digest and specification per head and language, frozen with the scores.
    pub fn settings(&self) -> Value {
        let digests = |heads: &ByLanguage| {
            heads
                .iter()
                .map(|(language, Loaded { head, .. })| {
                    (language.clone(), json!({"digest": head.digest(), "spec": head.spec()}))
                })
                .collect()
        };
        self.by_name.iter().map(|(n, heads)| (n.clone(), Value::Object(digests(heads)))).collect()
    }
}

/// The file of a head, if it exists: trained in this run, or the configured path.
fn head_path(
    context: Context<'_>,
    name: &str,
    config: &HeadConfig,
    language: &str,
) -> Option<PathBuf> {
    let path = match &config.path {
        None => context.run.head_file(name, language),
        Some(template) if template.contains("{lang}") => {
            template.replace("{lang}", language).into()
        }
        Some(path) if language == ALL_LANGUAGES => path.into(),
        Some(_) => return None,
    };
    path.is_file().then_some(path)
}

/// Scores every shard with every head where that is not done yet.
pub fn score(context: Context<'_>) -> Result<()> {
    let Context { run, .. } = context;
    let plan = super::embed::finished_plan(run)?;
    let heads = Heads::load(context)?;
    same_encoder(context, &heads)?;
    context.freeze(Stage::Score, &heads.settings())?;
    let mut todo = Vec::new();
    for name in heads.by_name.keys() {
        for shard in &plan.shards {
            if !run.is_done(Stage::Score, &format!("{name}/{}", shard.name))? {
                todo.push((name.as_str(), shard));
            }
        }
    }
    if todo.is_empty() {
        return Ok(());
    }
    for name in heads.by_name.keys() {
        for language in heads.languages.iter().filter(|l| heads.get(name, l).is_none()) {
            tracing::warn!(head = %name, %language, "no head for this language; not scored");
        }
    }
    let rows = super::embedded_rows(run, todo.iter().map(|(_, shard)| *shard))?;
    context.progress.begin("score", Some(rows), "documents");
    let outcome = super::for_all_shards(
        &todo,
        |&(_, shard)| &shard.name,
        |&(name, shard)| score_shard(context, &heads, name, shard),
    );
    context.progress.end();
    outcome
}

/// Refuses heads that were trained on the embeddings of another encoder than the corpus's.
fn same_encoder(context: Context<'_>, heads: &Heads) -> Result<()> {
    let run = context.run;
    let embed = run.frozen_settings(Stage::Embed)?.unwrap_or_default();
    let digest = embed["encoder"]["digest"].as_str().unwrap_or_default();
    if digest == FOREIGN_ENCODER {
        return Ok(()); // the input says nothing about what made its embeddings
    }
    for Loaded { path, head } in heads.by_name.values().flat_map(ByLanguage::values) {
        if let Some(provenance) = &head.card().provenance
            && provenance.encoder_digest != digest
        {
            let trained = &provenance.encoder_digest;
            return Err(Error::model(
                path,
                format!(
                    "was trained on embeddings of the encoder {trained}, the corpus's is {digest}"
                ),
            ));
        }
    }
    let corpus = json!({"encoder": embed["encoder"], "embeddings": embed["store"]["embeddings"]});
    let train = run.frozen_settings(Stage::Train)?.unwrap_or_default();
    let samples = json!({"encoder": train["encoder"], "embeddings": train["embeddings"]});
    if train.is_null() || samples == corpus {
        return Ok(());
    }
    Err(Error::Mismatch {
        path: run.root().to_owned(),
        difference: format!(
            "  the heads were trained with {samples}\n  the corpus is embedded with {corpus}"
        ),
        hint: "train again with `--redo train`, or embed again with `--redo embed`".into(),
    })
}

fn score_shard(context: Context<'_>, heads: &Heads, name: &str, shard: &Shard) -> Result<()> {
    let run = context.run;
    let mut marker = ShardMarker::default();
    let embedded = run.shard_marker(Stage::Embed, &shard.name)?.unwrap_or_default();
    for (index, part) in embedded.files.iter().enumerate() {
        context.stop.check()?;
        let embeddings = read_embeddings(&run.path(&part.path))?;
        let rows = score_part(heads, name, embeddings)?;
        for outcome in rows.logits.iter().map(|l| match l {
            None => "null",
            Some(logit) if logit.is_nan() => "nan",
            Some(_) => "scored",
        }) {
            *marker.counts.entry(outcome.to_owned()).or_default() += 1;
        }
        let path = run.scores_part(name, shard, index);
        let stamp = write_scores(&path, &rows, context.config.store.zstd)?;
        let num_rows = rows.rows.len() as u64;
        marker.rows += num_rows;
        marker.files.push(PartFile { path: run.relative(&path), rows: num_rows, stamp });
        context.progress.advance(num_rows, 0);
    }
    run.mark_shard(Stage::Score, &format!("{name}/{}", shard.name), &marker)
}

/// Scores a part, each document by the head of its language.
fn score_part(heads: &Heads, name: &str, part: EmbeddingRows) -> Result<ScoreRows> {
    let mut scores: Vec<Option<DocumentScore>> = vec![None; part.rows.len()];
    let mut by_language: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (row, language) in part.languages.iter().enumerate() {
        by_language.entry(language).or_default().push(row);
    }
    for (language, rows) in by_language {
        let Some(Loaded { path, head }) = heads.loaded(name, language) else { continue };
        if part.hidden_size > 0 {
            head.check_hidden_size(path, part.hidden_size)?;
        }
        let (mut values, mut offsets) = (Vec::new(), vec![0]);
        for &row in &rows {
            values.extend_from_slice(part.chunks(row));
            offsets.push(values.len() / part.hidden_size.max(1));
        }
        for (row, score) in rows.into_iter().zip(head.score(&values, &offsets)?) {
            scores[row] = score;
        }
    }
    Ok(ScoreRows {
        logits: scores.iter().map(|s| s.map(|s| s.logit)).collect(),
        scores: scores.iter().map(|s| s.map(|s| s.score)).collect(),
        rows: part.rows,
        ids: part.ids,
        languages: part.languages,
        num_bytes: part.num_bytes,
        num_tokens: part.num_tokens,
    })
}

/// The plan of a run that every head scored completely; [`Error::Missing`] otherwise.
pub(crate) fn finished_plan(context: Context<'_>) -> Result<Plan> {
    let plan = super::embed::finished_plan(context.run)?;
    for name in context.config.heads.keys() {
        for shard in &plan.shards {
            if !context.run.is_done(Stage::Score, &format!("{name}/{}", shard.name))? {
                return Err(Error::Missing {
                    path: context.run.root().display().to_string(),
                    reason: format!(
                        "shard {} is not scored by `{name}` yet; run `polysift score`",
                        shard.name
                    ),
                });
            }
        }
    }
    Ok(plan)
}
