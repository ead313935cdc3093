//! A cheap first pass over all documents, so that the encoder sees only those that may be kept.
//!
//! ```text
//!  corpus ──uniform sample──▶ pilot ──encoder, heads──▶ full scores ──first half──▶ first pass
//!                                                           └────────second half──▶ its thresholds
//!  corpus ──first pass──▶ cascade/scores/<shard>/part: below all thresholds is dropped or audited
//! ```
//!
//! # What is guaranteed
//!
//! For each head, rate and language, at most a share 1 − `recall` of the documents that the full
//! run would keep is dropped, with the `confidence` of the settings; [`polysift_base::metrics`] has
//! the bounds and their sources. The guarantee is over the draw of the pilot and holds for any
//! first pass; with a useless one, the language is encoded in full. Documents that a removal head
//! would remove are no loss; its threshold comes from the evaluation half of the pilot. Heads of
//! columns and random heads count as if they removed nothing.
//!
//! # Resume
//!
//! A language is a unit of work, and so is a shard; results do not depend on which process does it.
//! Embeddings of the pilot are stored like those of samples if only first chunks are encoded.

mod first_pass;
mod full_run;
mod pilot;
mod repair;

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::draw::count_rows;
use first_pass::TrainedPass;
use full_run::FullRun;
use pilot::{Kept, Pilot};
use polysift_base::error::{Error, Result};
use polysift_base::io::remove;
use polysift_base::metrics::{allowed_misses, highest_threshold, least_sample};
use polysift_config::{CascadeConfig, FirstPass};
use polysift_corpus::cascaded::{
    Candidate, LanguageCascade, language_file, language_key, lost_cascade, mark_repair,
    repair_file, repair_key, scores_key,
};
use polysift_corpus::languages::{language_of, planned_languages};
use polysift_corpus::model::{freeze_encoded, load_model};
use polysift_corpus::select::{threshold_settings, thresholds_of};
use polysift_corpus::work::own_shards;
use polysift_corpus::{Cascade, Context, FrozenEncoder, Heads, StageWork};
use polysift_encoder::Model;
use polysift_runs::run::{PartFile, Plan, Shard, ShardMarker, Stage};
use polysift_selection::{Threshold, ThresholdKind};
pub(crate) use repair::repair;

/// Maximum share of a language that its pilot may be.
const MAX_PILOT_SHARE: f64 = 0.25;
/// Share of a large language that each half of its pilot is.
const HALF_PILOT_SHARE: f64 = 0.01;
/// Maximum size of a half, as a multiple of the smallest sufficient size.
const MAX_PILOT_FACTOR: u64 = 4;
/// Retention rate that a pilot is sized for if no rate is given.
const NOMINAL_RATE: f64 = 0.1;
/// Maximum relative cost of a first pass; a more expensive one is not used.
const MAX_COST: f64 = 0.95;
/// Number of shards per GPU that are scored at the same time.
const SHARDS_OF_A_GPU: usize = 4;
/// First passes that are evaluated if the settings leave the choice open.
const CANDIDATES: [FirstPass; 3] =
    [FirstPass::Bundled, FirstPass::Prefix(64), FirstPass::Prefix(128)];

/// Trains the first pass of every language and scores all documents with it, unless that is done.
/// [`Error::Config`] without `[cascade]`; [`Error::Missing`] before the heads are trained.
pub fn cascade(context: Context<'_>, plan: &Plan) -> Result<()> {
    let Context { config, run, .. } = context;
    let Some(cascade) = &config.cascade else {
        let reason = "is not in the settings; give `--cascade`, or a table `[cascade]`";
        return Err(Error::config("cascade", reason));
    };
    let languages = planned_languages(config, plan).unwrap_or_default();
    let heads = Heads::find(&config.heads, Some(run), languages, config.seed)?;
    let model = load_model(context, Stage::Cascade)?;
    heads.check_recipe(&model.recipe)?;
    let mut settings = to_freeze(context, plan, &heads, &model)?;
    let mut was_made_for_others = false;
    if let Some(made) = run.frozen_settings(Stage::Cascade)?
        && context.redo != Some(Stage::Cascade)
        && run.try_finish(Stage::Cascade, &Cascade::keys(config, plan))?
    {
        // A finished cascade stays; the audit says what it means for other thresholds.
        was_made_for_others = settings["thresholds"] != made["thresholds"];
        settings["thresholds"] = made["thresholds"].clone();
    }
    freeze_encoded(context, Stage::Cascade, &settings, Some(&model))?;
    run.freeze_plan(plan)?;

    let encoders = Mutex::default();
    let full = FullRun { context, settings: cascade, plan, heads: &heads, model: &model, encoders };
    let languages: Vec<&String> = heads.languages().iter().collect();
    let keys = languages.iter().map(|language| language_key(language)).collect();
    // Every process may train any language and needs all of them.
    let all: Vec<usize> = (0..languages.len()).collect();
    let waiting = Context { waits: true, ..context };
    let work = StageWork { at_once: 1, ..StageWork::new(waiting, Stage::Cascade, keys, &all)? };
    if !work.is_over() {
        // Fitted with other thresholds, it would drop other documents.
        if was_made_for_others && !work.items.own.is_empty() {
            return Err(lost_cascade(&run.path("cascade")));
        }
        let one = |_| Some(1);
        work.claim_all(context, "languages", one, |context, item| {
            context.check_held()?;
            let language = languages[item];
            let (result, mut files) = full.choose_pass(language)?;
            if let Some(reason) = &result.reason {
                tracing::warn!(language, "all documents are encoded: {reason}");
            }
            files.push(run.write_json(&language_file(run, language), &result)?);
            context.progress.advance(1, 0);
            Ok(ShardMarker { files, ..ShardMarker::default() })
        })?;
    }
    for language in languages {
        let key = repair_key(language);
        if repair_file(run, language).exists() && run.shard_marker(Stage::Cascade, &key)?.is_none()
        {
            mark_repair(run, language)?;
        }
    }
    full.score_shards()
}

/// Returns the settings to freeze; `repair` and the filters, which run later, are no part of them.
fn to_freeze(context: Context<'_>, plan: &Plan, heads: &Heads, model: &Model) -> Result<Value> {
    let config = context.config;
    let cascade = config.cascade.as_ref().map(|c| CascadeConfig { repair: false, ..c.clone() });
    let mut thresholds = threshold_settings(context, heads)?;
    thresholds.as_object_mut().and_then(|settings| settings.remove("filters"));
    Ok(json!({
        "plan": plan.digest(),
        "input": {
            "text": config.input.text, "max_rejects": config.input.max_rejects,
            "max_document_bytes": config.input.max_document_bytes,
        },
        "encoder": FrozenEncoder::of(config, Some(model)),
        "chunks": config.encoder.chunks,
        "parts": config.parts,
        "heads": heads.settings(),
        "thresholds": thresholds,
        "cascade": cascade,
        "seed": config.seed,
    }))
}

struct EvaluatedPass {
    candidate: Candidate,
    heads: BTreeMap<String, f32>,
    /// Tokens and FLOPs: [`LanguageCascade::tokens_per_dropped_document`] and the next field.
    dropped_document: (f64, f64),
    files: Vec<PartFile>,
}

impl FullRun<'_> {
    /// Chooses the first pass of `language`; returns the result and the files of the pass.
    fn choose_pass(&self, language: &str) -> Result<(LanguageCascade, Vec<PartFile>)> {
        let of_language =
            |(_, shard): &(u64, &Shard)| language_of(self.context.config, shard) == language;
        let shards: Vec<_> = (0u64..).zip(&self.plan.shards).filter(of_language).collect();
        let rows = count_rows(self.context, &shards)?;
        let mut result = LanguageCascade { rows, ..LanguageCascade::default() };
        let thresholds = thresholds_of(self.context, language, self.heads)?;
        let half = match self.half_pilot(&thresholds, rows) {
            Ok(half) => half,
            Err(reason) => {
                return Ok((LanguageCascade { reason: Some(reason), ..result }, Vec::new()));
            }
        };
        let pilot = Pilot::draw(self, language, &shards, rows, 2 * half as usize)?;
        result.pilot = pilot.len() as u64;
        result.evaluation = pilot.evaluation().len() as u64;
        let tokens: usize = pilot.costs.iter().map(|(tokens, _)| tokens).sum();
        result.tokens_per_document = tokens as f64 / pilot.len().max(1) as f64;
        let flops: f64 = pilot.evaluation_costs().iter().map(|(_, flops)| flops).sum();
        result.flops_per_document = flops / result.evaluation.max(1) as f64;
        let kept = pilot.select(self.context, &thresholds, self.settings.risk() / 2.0)?;
        let (mut evaluated, mut chosen) = (Vec::new(), Vec::new());
        for &pass in self.passes() {
            self.context.stop.check()?;
            match self.evaluate_pass(pass, language, &pilot, &kept) {
                Ok(pass) => evaluated.push(pass),
                // For example, all scores are equal.
                Err(error @ (Error::Training { .. } | Error::Shape { .. })) => {
                    let reason = format!("{pass} cannot be trained: {}", error.report());
                    result.reason = Some(reason);
                }
                Err(error) => return Err(error),
            }
        }
        result.candidates = evaluated.iter().map(|pass| pass.candidate.clone()).collect();
        let by_cost =
            |a: &EvaluatedPass, b: &EvaluatedPass| a.candidate.cost.total_cmp(&b.candidate.cost);
        if let Some(best) = evaluated.into_iter().min_by(by_cost) {
            let Candidate { first_pass, cost, .. } = best.candidate;
            result.reason = (cost > MAX_COST).then(|| {
                let percent = 100.0 * cost;
                format!(
                    "with the best first pass, {first_pass}, the run would cost {percent:.0}% of a run without a cascade"
                )
            });
            if result.reason.is_none() {
                (result.first_pass, result.heads, chosen) =
                    (Some(first_pass), best.heads, best.files);
                (result.tokens_per_dropped_document, result.flops_per_dropped_document) =
                    best.dropped_document;
            }
        }
        for &pass in self.passes().iter().filter(|pass| Some(**pass) != result.first_pass) {
            for head in pilot::heads_of(&kept) {
                remove(&first_pass::head_path(self.context.run, pass, head, language))?;
            }
        }
        Ok((result, chosen))
    }

    /// Returns the first passes to evaluate.
    fn passes(&self) -> &[FirstPass] {
        match &self.settings.first_pass {
            FirstPass::Auto => &CANDIDATES,
            pass => std::slice::from_ref(pass),
        }
    }

    /// Returns the risk of misses per candidate: half of the risk, split over the candidates
    /// (Bonferroni), because the half of the pilot that gives the thresholds also picks the winner.
    fn risk_of_misses(&self) -> f64 {
        self.settings.risk() / 2.0 / self.passes().len() as f64
    }

    /// Returns the size of each half of the pilot for `rows` documents, or why there is none.
    fn half_pilot(&self, thresholds: &[Threshold], rows: u64) -> Result<u64, String> {
        let keeps = |threshold: &&Threshold| !matches!(threshold.kind, ThresholdKind::Remove(_));
        let keeping: Vec<&Threshold> = thresholds.iter().filter(keeps).collect();
        if keeping.is_empty() {
            return Err("no threshold selects among them".to_owned());
        }
        let other = keeping.iter().find(|t| !self.heads.is_encoded(&t.head_name));
        if let Some(other) = other {
            let name = &other.head_name;
            return Err(format!("the head `{name}` keeps documents without the encoder"));
        }
        let rates = keeping.iter().flat_map(|threshold| threshold.rates());
        let least = rates.map(|rate| rate.as_f64()).fold(1.0, f64::min);
        let least = if least < 1.0 { least } else { NOMINAL_RATE };
        let CascadeConfig { recall, confidence, .. } = *self.settings;
        let needed = least_sample((1.0 - recall) * least, self.risk_of_misses());
        let wanted = (rows as f64 * HALF_PILOT_SHARE).ceil() as u64;
        let half = wanted.clamp(needed, needed.saturating_mul(MAX_PILOT_FACTOR));
        if 2.0 * half as f64 > rows as f64 * MAX_PILOT_SHARE {
            return Err(format!(
                "{rows} documents are too few: a recall of {recall} at a rate of {least} with a confidence of \
                 {confidence} takes a pilot of {}, and it may be a fourth of them",
                half.saturating_mul(2)
            ));
        }
        Ok(half)
    }

    /// Trains `pass` on the first half of the pilot; finds thresholds and cost on the other half.
    fn evaluate_pass(
        &self,
        pass: FirstPass,
        language: &str,
        pilot: &Pilot,
        all_kept: &[Kept],
    ) -> Result<EvaluatedPass> {
        let names = pilot::heads_of(all_kept);
        let files = TrainedPass::fit(self, pass, language, pilot, &names)?;
        let names = names.into_iter().map(ToOwned::to_owned).collect();
        let trained = TrainedPass::load(self, pass, language, names)?;
        let texts = pilot.texts_of(pilot.evaluation());
        let predicted = trained.predict(&texts)?;
        let risk = self.risk_of_misses();
        let miss = 1.0 - self.settings.recall;
        let mut thresholds = BTreeMap::new();
        for kept in all_kept {
            let allowed = match kept.rate {
                Some(rate) => allowed_misses(texts.len() as u64, miss * rate.as_f64(), risk),
                None => allowed_misses(kept.documents.len() as u64, miss, risk),
            };
            let scores = kept.documents.iter().map(|&at| predicted[&kept.head][at]).collect();
            let Some(threshold) = highest_threshold(scores, allowed) else {
                let (kept, all) = (kept.documents.len(), texts.len());
                let reason = format!("{kept} kept of {all} documents in the pilot prove nothing");
                return Err(Error::shape("first pass", reason));
            };
            let least = thresholds.entry(kept.head.clone()).or_insert(threshold);
            *least = least.min(threshold);
        }
        let margins = first_pass::margins_above(&predicted, &thresholds);
        let audit = 1.0 / self.settings.audit_every() as f64;
        let (mut flops, mut encoded) = (0.0, 0.0);
        let (mut dropped, mut dropped_tokens, mut dropped_flops) = (0.0, 0, 0.0);
        for ((tokens, own_flops), margin) in pilot.evaluation_costs().iter().zip(&margins) {
            if *margin >= 0.0 {
                encoded += 1.0;
                flops += own_flops;
            } else {
                dropped += 1.0;
                dropped_tokens += tokens;
                dropped_flops += own_flops;
                flops += own_flops * audit;
            }
        }
        let all: f64 = pilot.evaluation_costs().iter().map(|(_, flops)| flops).sum();
        let of_pilot = pilot.len() as f64 / pilot.rows.max(1) as f64;
        // Relative to the FLOPs of the full run.
        let cost = (trained.flops(&texts)? + flops) / all.max(f64::MIN_POSITIVE) + of_pilot;
        let encoded_share = encoded / margins.len().max(1) as f64;
        let dropped = f64::max(dropped, 1.0);
        let dropped_document = (dropped_tokens as f64 / dropped, dropped_flops / dropped);
        let candidate = Candidate { first_pass: pass, encoded_share, cost };
        Ok(EvaluatedPass { candidate, heads: thresholds, dropped_document, files })
    }

    /// Scores the documents of all shards with the first passes of their languages.
    fn score_shards(&self) -> Result<()> {
        let context = self.context;
        let Context { config, run, .. } = context;
        let cascade = Cascade::of_languages(context, self.heads.languages().iter().cloned())?;
        let results = &cascade.languages;
        let keys: Vec<String> = self.plan.shards.iter().map(scores_key).collect();
        let own = own_shards(context, self.plan);
        let mut work = StageWork::new(context, Stage::Cascade, keys, &own)?;
        if !work.is_over() {
            let mut passes: BTreeMap<&String, TrainedPass<'_>> = BTreeMap::new();
            for (language, result) in results {
                run.check_files(Stage::Cascade, &language_key(language))?;
                if let Some(pass) = result.first_pass {
                    let names = result.heads.keys().cloned().collect();
                    passes.insert(language, TrainedPass::load(self, pass, language, names)?);
                }
            }
            // On a CPU an encoder uses all threads; a GPU needs batches while texts are tokenized.
            work.at_once = match &self.model.placement.gpus[..] {
                _ if passes.is_empty() => rayon::current_num_threads(),
                [] => 1,
                gpus => SHARDS_OF_A_GPU * gpus.len(),
            };
            let pass_of = |item: usize| {
                let language = language_of(config, &self.plan.shards[item]);
                passes.get(&language).map(|pass| (pass, &results[&language]))
            };
            let rows =
                |item: usize| pass_of(item).map_or(Some(0), |_| self.plan.shards[item].num_rows);
            let bytes = |&item: &usize| self.plan.shards[item].bytes;
            context.progress.input(0, work.items.own.iter().map(bytes).sum::<u64>().cast_signed());
            let one = |context: Context<'_>, item: usize| {
                let shard = &self.plan.shards[item];
                let marker = match pass_of(item) {
                    Some((pass, result)) => pass.score_shard(context, result, shard)?,
                    None => ShardMarker::default(), // all documents are encoded
                };
                if work.items.is_own[item] {
                    context.progress.input(shard.bytes, 0);
                    context.progress.advance(0, 0);
                }
                Ok(marker)
            };
            work.for_all(context, "documents", rows, one)?;
        }
        run.try_finish(Stage::Cascade, &Cascade::keys(config, self.plan)).map(drop)
    }
}
