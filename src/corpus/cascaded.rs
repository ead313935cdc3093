//! The result of a cascade: which documents are dropped, or encoded for the audit all the same.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twox_hash::XxHash3_64;

use crate::context::Context;
use crate::embedded::{ordinal, require_done};
use crate::languages::{language_of, planned_languages};
use crate::left_out::LeftOut;
use polysift_base::error::{Error, Result};
use polysift_base::io::stamp;
use polysift_base::sample::hash_seed;
use polysift_config::{CascadeConfig, FirstPass, RunConfig};
use polysift_data::parts::read_scores;
use polysift_runs::run::{Plan, RunDir, Shard, ShardMarker, Stage};

/// A candidate for the first pass of a language, and its cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The first pass.
    pub first_pass: FirstPass,
    /// Share of the pilot's evaluation half that the first pass leaves to the encoder.
    pub encoded_share: f64,
    /// FLOPs of pilot, first pass, encoder and audit, relative to the full run.
    pub cost: f64,
}

/// First pass, thresholds and costs of a language: `cascade/languages/<lang>.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LanguageCascade {
    /// The first pass; `None` if all documents are encoded.
    pub first_pass: Option<FirstPass>,
    /// Why all documents are encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of rows of the language.
    pub rows: u64,
    /// Number of documents of the pilot; its first half trains the first pass.
    pub pilot: u64,
    /// Number of documents of the pilot's second half, which gives the thresholds.
    pub evaluation: u64,
    /// Mean number of tokens of a document that are encoded.
    pub tokens_per_document: f64,
    /// Mean number of tokens of a document that the first pass drops.
    pub tokens_per_dropped_document: f64,
    /// Mean floating-point operations of a document that the first pass drops.
    pub flops_per_dropped_document: f64,
    /// Mean floating-point operations of a document that is encoded.
    pub flops_per_document: f64,
    /// Thresholds by head; a document is dropped if its first-pass scores are below all of them.
    pub heads: BTreeMap<String, f32>,
    /// All first passes that were evaluated.
    pub candidates: Vec<Candidate>,
}

impl LanguageCascade {
    /// Returns the candidate that was chosen.
    pub fn candidate(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| Some(candidate.first_pass) == self.first_pass)
    }
}

/// The finished cascade of a run; a run without a cascade drops nothing.
pub struct Cascade {
    /// The result of the cascade by language.
    pub languages: BTreeMap<String, LanguageCascade>,
    /// Margin thresholds of repaired languages, instead of 0.
    repaired: BTreeMap<String, f32>,
    /// One in this many dropped documents is encoded for the audit.
    audit_every: u64,
    seed: u64,
}

/// Returns the key of the unit of work that trains the first pass of `language`.
pub fn language_key(language: &str) -> String {
    format!("languages/{language}")
}

/// Returns the key of the unit of work that scores the documents of `shard`.
pub fn scores_key(shard: &Shard) -> String {
    format!("scores/{}", shard.name)
}

/// Returns the path of the [`LanguageCascade`] of `language`.
pub fn language_file(run: &RunDir, language: &str) -> std::path::PathBuf {
    run.path(format!("cascade/languages/{language}.json"))
}

/// Returns the key of the repair of `language`.
pub fn repair_key(language: &str) -> String {
    format!("repairs/{language}")
}

/// Returns the path of the [`Repair`] of `language`.
pub fn repair_file(run: &RunDir, language: &str) -> std::path::PathBuf {
    run.path(format!("cascade/repairs/{language}.json"))
}

/// Makes the error for a cascade with a lost or damaged file, which would drop other documents.
pub fn lost_cascade(path: &Path) -> Error {
    let reason = "does not drop what was dropped when the corpus was embedded: something of the cascade is gone or \
                  damaged; `polysift run --redo cascade` makes it, and what follows from it, again";
    Error::corrupt(path, reason)
}

/// Marks the repair of `language` as done, after its file is written.
pub fn mark_repair(run: &RunDir, language: &str) -> Result<()> {
    let path = repair_file(run, language);
    let file = run.file(&path, 1, stamp(&path)?);
    let marker = ShardMarker { files: vec![file], ..ShardMarker::default() };
    run.mark_shard(Stage::Cascade, &repair_key(language), &marker)
}

/// The result of a repair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repair {
    /// Margin below which documents are dropped; `None` if none are.
    pub threshold: Option<f32>,
}

impl Cascade {
    /// Returns the keys of the units of work of the stage: those of languages, then of shards.
    pub fn keys(config: &RunConfig, plan: &Plan) -> Vec<String> {
        let languages = planned_languages(config, plan).unwrap_or_default();
        let languages = languages.iter().map(|language| language_key(language));
        languages.chain(plan.shards.iter().map(scores_key)).collect()
    }

    /// Reads the cascade of all languages; [`Error::Missing`] if the first pass is not done.
    pub fn of(context: Context<'_>, plan: &Plan) -> Result<Self> {
        let Context { config, run, .. } = context;
        if config.cascade.is_some() {
            require_done(run, Stage::Cascade, &Self::keys(config, plan), "through the first pass")?;
        }
        Self::of_languages(context, planned_languages(config, plan).unwrap_or_default())
    }

    /// Reads the cascade of some languages, for stages after the embed stage; [`Error::Corrupt`] if
    /// the file of a repair is damaged. It is empty if the settings have no cascade.
    pub fn of_languages(
        context: Context<'_>,
        all: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let Context { config, run, .. } = context;
        let settings = config.cascade.as_ref();
        let (mut languages, mut repaired) = (BTreeMap::new(), BTreeMap::new());
        for language in all.into_iter().filter(|_| settings.is_some()) {
            let path = language_file(run, &language);
            let missing = || Error::missing(&path, "is not there; run `polysift cascade`");
            let result = run.read_output(Stage::Cascade, &language_key(&language), &path)?;
            languages.insert(language.clone(), result.ok_or_else(missing)?);
            let path = repair_file(run, &language);
            let repair = match run.read_output(Stage::Cascade, &repair_key(&language), &path) {
                Err(Error::Corrupt { .. } | Error::Missing { .. }) => {
                    return Err(lost_cascade(&path));
                }
                repair => repair?,
            };
            if let Some(Repair { threshold }) = repair {
                repaired.insert(language, threshold.unwrap_or(f32::NEG_INFINITY));
            }
        }
        let audit_every = settings.map_or(1, CascadeConfig::audit_every);
        let seed = hash_seed(&["audit"], config.seed);
        Ok(Self { languages, repaired, audit_every, seed })
    }

    /// Returns the margin below which documents of `language` are dropped; `None` if none are.
    pub fn threshold(&self, language: &str) -> Option<f32> {
        let is_passed = self.languages.get(language).is_some_and(|l| l.first_pass.is_some());
        is_passed.then(|| self.repaired.get(language).copied().unwrap_or_default())
    }

    /// Finds the dropped and audited rows of `shard`, which has the index `place` in the plan;
    /// [`Error::Corrupt`] if the embed stage dropped another number of rows.
    pub fn left_out_rows(
        &self,
        context: Context<'_>,
        place: u64,
        shard: &Shard,
    ) -> Result<LeftOut> {
        let mut rows = LeftOut { audit_every: self.audit_every, ..LeftOut::default() };
        self.for_each_below(context, shard, &mut |row, margin| {
            let ordinal = ordinal(place, row).to_le_bytes();
            let hash = XxHash3_64::oneshot_with_seed(self.seed, &ordinal);
            if hash.is_multiple_of(self.audit_every) {
                rows.audited.push((row, margin));
            } else {
                rows.dropped.push(row);
            }
        })?;
        let embedded = context.run.shard_marker(Stage::Embed, &shard.name)?;
        let dropped = embedded.and_then(|marker| marker.encoded).map(|encoded| encoded.dropped);
        let is_lost = dropped.is_some_and(|dropped| dropped != rows.dropped.count());
        if is_lost && !self.languages.is_empty() {
            return Err(lost_cascade(&context.run.path("cascade").join(scores_key(shard))));
        }
        Ok(rows)
    }

    /// Calls `visit` with row and margin of every document of `shard` below the threshold, by row.
    pub fn for_each_below(
        &self,
        context: Context<'_>,
        shard: &Shard,
        visit: &mut dyn FnMut(u64, f32),
    ) -> Result<()> {
        let language = language_of(context.config, shard);
        let Some(threshold) = self.threshold(&language) else { return Ok(()) };
        for file in context.run.done(Stage::Cascade, &scores_key(shard))?.files {
            let part = read_scores(&context.run.path(&file.path))?;
            for (&row, score) in part.documents.rows().iter().zip(part.scores) {
                if let Some(margin) = score.filter(|margin| margin.score < threshold) {
                    visit(row, margin.score);
                }
            }
        }
        Ok(())
    }

    /// Returns the settings that embeddings depend on: first pass and thresholds of each language.
    pub fn settings(&self, config: &CascadeConfig) -> Value {
        let languages: BTreeMap<&String, (Option<FirstPass>, &BTreeMap<String, f32>)> =
            self.languages.iter().map(|(l, found)| (l, (found.first_pass, &found.heads))).collect();
        serde_json::json!({"languages": languages, "audit": config.audit})
    }
}

/// Reads the result for each language of a planned run that has one.
pub fn stored_results(
    run: &RunDir,
    config: &RunConfig,
) -> Result<BTreeMap<String, LanguageCascade>> {
    let read = |language: String| {
        let (key, path) = (language_key(&language), language_file(run, &language));
        Ok(run.read_output(Stage::Cascade, &key, &path)?.map(|result| (language, result)))
    };
    let languages = planned_languages(config, &run.plan()?).unwrap_or_default();
    languages.into_iter().filter_map(|language| read(language).transpose()).collect()
}
