//! What a cascade left of the corpus, as later stages need it: which documents are dropped, and which of those are
//! encoded all the same.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use twox_hash::XxHash3_64;

use super::context::Context;
use super::embedded::{all_done, ordinal};
use super::plan::{language_of, planned_languages};
use polysift_base::error::{Error, Result};
use polysift_base::io::stamp;
use polysift_base::sample::hash_seed;
use polysift_config::{CascadeConfig, FirstPass, RunConfig};
use polysift_data::parts::read_scores;
use polysift_runs::run::{PartFile, Plan, RunDir, Shard, ShardMarker, Stage};

/// What a first pass would cost in a language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The first pass.
    pub first_pass: FirstPass,
    /// Share of the documents that it leaves to the encoder, in the pilot's evaluation half.
    pub encoded_share: f64,
    /// Floating-point operations of all, the pilot, the first pass and the audit included, by those of the full run.
    pub cost: f64,
}

/// How the cascade treats a language: `cascade/languages/<lang>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LanguageCascade {
    /// What looks at its documents; `None`: nothing, they are all encoded.
    pub first_pass: Option<FirstPass>,
    /// Why they are all encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Rows of the language.
    pub rows: u64,
    /// Documents of the pilot, whose first half teaches the first pass.
    pub pilot: u64,
    /// Documents of its other half, which the thresholds are of.
    pub evaluation: u64,
    /// Tokens that the encoder takes of a document, in the mean.
    pub tokens_per_document: f64,
    /// The same of the documents that the first pass drops.
    pub tokens_per_dropped_document: f64,
    /// And floating-point operations.
    pub flops_per_dropped_document: f64,
    /// Mean floating-point operations of a document; 0 in run directories that lack the field.
    #[serde(default)]
    pub flops_per_document: f64,
    /// By head: a document with a lower score of the first pass is dropped, unless another head's is not.
    pub heads: BTreeMap<String, f32>,
    /// What was tried.
    pub candidates: Vec<Candidate>,
}

impl LanguageCascade {
    /// The first pass that was taken, as the pilot shows it.
    pub fn candidate(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| Some(candidate.first_pass) == self.first_pass)
    }
}

/// The cascade of a run of which the first pass is done; of a run without one it drops nothing.
pub(crate) struct Cascade {
    languages: BTreeMap<String, LanguageCascade>,
    /// By language the threshold that a repair put in the place of 0.
    repaired: BTreeMap<String, f32>,
    audit_every: u64,
    seed: u64,
}

/// What becomes of the documents of a shard; rows ascend.
#[derive(Debug, Default)]
pub(crate) struct CascadeRows {
    /// Documents that are not encoded.
    pub(crate) dropped: Vec<u64>,
    /// Documents that are encoded though the first pass would drop them, with their scores there.
    pub(crate) audited: Vec<(u64, f32)>,
}

impl CascadeRows {
    /// Whether the document of `row` is not encoded.
    pub(crate) fn is_dropped(&self, row: u64) -> bool {
        self.dropped.binary_search(&row).is_ok()
    }

    /// Its score in the first pass, where it is encoded though that would drop it.
    pub(crate) fn audited_margin(&self, row: u64) -> Option<f32> {
        let at = self.audited.binary_search_by_key(&row, |(row, _)| *row).ok()?;
        Some(self.audited[at].1)
    }
}

/// Key of the item that teaches the first pass of `language`.
pub(crate) fn language_key(language: &str) -> String {
    format!("languages/{language}")
}

/// Key of the item that scores the documents of `shard`.
pub(crate) fn scores_key(shard: &Shard) -> String {
    format!("scores/{}", shard.name)
}

/// Where it is said how `language` is treated.
pub(crate) fn language_file(run: &RunDir, language: &str) -> std::path::PathBuf {
    run.path(format!("cascade/languages/{language}.json"))
}

/// Key of the repair of `language`.
pub(crate) fn repair_key(language: &str) -> String {
    format!("repairs/{language}")
}

/// Where it is said what a repair of `language` found.
pub(crate) fn repair_file(run: &RunDir, language: &str) -> std::path::PathBuf {
    run.path(format!("cascade/repairs/{language}.json"))
}

/// The error of `path` where the cascade would drop other documents than when the corpus was embedded, because a
/// repair or another file of it is gone or damaged.
fn lost(path: &Path) -> Error {
    let reason = "does not drop what was dropped when the corpus was embedded: something of the cascade is gone or \
                  damaged; `polysift run --redo cascade` makes it, and what follows from it, again";
    Error::corrupt(path, reason)
}

/// Marks the repair of `language` as done; its file is written.
pub(crate) fn mark_repair(run: &RunDir, language: &str) -> Result<()> {
    let path = repair_file(run, language);
    let file = PartFile { path: run.relative(&path), rows: 1, stamp: stamp(&path)? };
    let marker = ShardMarker { files: vec![file], ..ShardMarker::default() };
    run.mark_shard(Stage::Cascade, &repair_key(language), &marker)
}

/// What a repair found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Repair {
    /// Below which score of the first pass documents are dropped; `None`: none are.
    pub(crate) threshold: Option<f32>,
}

impl Cascade {
    /// Keys of the items of the stage.
    pub(crate) fn keys(config: &RunConfig, plan: &Plan) -> Vec<String> {
        let languages = planned_languages(config, plan).unwrap_or_default();
        let languages = languages.iter().map(|language| language_key(language));
        languages.chain(plan.shards.iter().map(scores_key)).collect()
    }

    /// That of the run of `context`, all of it.
    ///
    /// # Errors
    /// [`Error::Missing`] where the first pass is not done.
    pub(crate) fn of(context: Context<'_>, plan: &Plan) -> Result<Self> {
        let Context { config, run, .. } = context;
        if config.cascade.is_some() {
            all_done(run, Stage::Cascade, &Self::keys(config, plan), "through the first pass")?;
        }
        Self::of_languages(context, planned_languages(config, plan).unwrap_or_default())
    }

    /// The same of some languages, for stages that come after the corpus is embedded.
    pub(crate) fn of_languages(
        context: Context<'_>,
        all: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let Context { config, run, .. } = context;
        let settings = config.cascade.as_ref();
        let (mut languages, mut repaired) = (BTreeMap::new(), BTreeMap::new());
        for language in all.into_iter().filter(|_| settings.is_some()) {
            let path = language_file(run, &language);
            let missing = || Error::missing(&path, "is not there; run `polysift cascade`");
            let treated = run.read_output(Stage::Cascade, &language_key(&language), &path)?;
            languages.insert(language.clone(), treated.ok_or_else(missing)?);
            let path = repair_file(run, &language);
            let repair = match run.read_output(Stage::Cascade, &repair_key(&language), &path) {
                Err(Error::Corrupt { .. } | Error::Missing { .. }) => return Err(lost(&path)),
                repair => repair?,
            };
            if let Some(Repair { threshold }) = repair {
                repaired.insert(language, threshold.unwrap_or(f32::NEG_INFINITY));
            }
        }
        let audit_every = settings.map_or(1, CascadeConfig::audit_every);
        let seed = hash_seed(&["audit"], config.seed.0);
        Ok(Self { languages, repaired, audit_every, seed })
    }

    /// How each language is treated.
    pub(crate) fn languages(&self) -> &BTreeMap<String, LanguageCascade> {
        &self.languages
    }

    /// How `language` is treated; `None` where it has no documents.
    pub(crate) fn language(&self, language: &str) -> Option<&LanguageCascade> {
        self.languages.get(language)
    }

    /// Below which score of the first pass documents of `language` are dropped; `None`: none are.
    pub(crate) fn threshold(&self, language: &str) -> Option<f32> {
        let is_passed = self.languages.get(language).is_some_and(|l| l.first_pass.is_some());
        is_passed.then(|| self.repaired.get(language).copied().unwrap_or_default())
    }

    /// One in so many dropped documents is encoded all the same.
    pub(crate) fn audit_every(&self) -> u64 {
        self.audit_every
    }

    /// What becomes of the documents of `shard`, which is at `place` of the plan.
    pub(crate) fn rows_of(
        &self,
        context: Context<'_>,
        place: u64,
        shard: &Shard,
    ) -> Result<CascadeRows> {
        let mut rows = CascadeRows::default();
        self.for_each_below(context, shard, &mut |row, margin| {
            if self.is_audited(place, row) {
                rows.audited.push((row, margin));
            } else {
                rows.dropped.push(row);
            }
        })?;
        let embedded = context.run.shard_marker(Stage::Embed, &shard.name)?;
        let dropped = embedded.and_then(|marker| marker.encoded).map(|encoded| encoded.dropped);
        let is_lost = dropped.is_some_and(|dropped| dropped != rows.dropped.len() as u64);
        if is_lost && !self.languages.is_empty() {
            return Err(lost(&context.run.path("cascade").join(scores_key(shard))));
        }
        Ok(rows)
    }

    /// Calls `visit` with the score of every document of `shard` that the first pass drops, audited or not.
    pub(crate) fn for_each_dropped(
        &self,
        context: Context<'_>,
        shard: &Shard,
        visit: &mut dyn FnMut(f32),
    ) -> Result<()> {
        self.for_each_below(context, shard, &mut |_, margin| visit(margin))
    }

    /// Whether a dropped document is encoded all the same.
    fn is_audited(&self, place: u64, row: u64) -> bool {
        let ordinal = ordinal(place, row);
        let hash = XxHash3_64::oneshot_with_seed(self.seed, &ordinal.to_le_bytes());
        hash.is_multiple_of(self.audit_every)
    }

    /// Calls `visit` with row and score of every document of `shard` below the threshold, in ascending order of rows.
    fn for_each_below(
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
                if let Some(margin) = score.filter(|score| *score < threshold) {
                    visit(row, margin);
                }
            }
        }
        Ok(())
    }

    /// What embeddings depend on: how each language is treated.
    pub(crate) fn settings(&self, config: &CascadeConfig) -> Value {
        let languages: BTreeMap<&String, (Option<FirstPass>, &BTreeMap<String, f32>)> =
            self.languages.iter().map(|(l, found)| (l, (found.first_pass, &found.heads))).collect();
        serde_json::json!({"languages": languages, "audit": config.audit})
    }
}

/// How the languages of the run are treated, for people; empty without a cascade or before it is done.
pub fn languages(run: &RunDir, config: &RunConfig) -> Result<BTreeMap<String, LanguageCascade>> {
    let mut found = BTreeMap::new();
    if config.cascade.is_some() && run.has_plan() {
        for language in planned_languages(config, &run.plan()?).unwrap_or_default() {
            let (key, path) = (language_key(&language), language_file(run, &language));
            if let Some(treated) = run.read_output(Stage::Cascade, &key, &path)? {
                found.insert(language, treated);
            }
        }
    }
    Ok(found)
}
