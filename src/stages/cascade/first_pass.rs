//! The first passes `bundled` and `prefix:N`: ridge heads on the embeddings of a cheaper encoder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;

use super::full_run::{FullRun, PassEncoder, encoding_cost, logit, score_by_head};
use super::pilot::Pilot;
use polysift_base::error::Result;
use polysift_base::io::write_atomic;
use polysift_config::{Chunks, FirstPass, HeadConfig, HeadKind};
use polysift_corpus::cascaded::LanguageCascade;
use polysift_corpus::{Context, Heads};
use polysift_data::input::{DocumentBuilder, DocumentReader, LANG, Split};
use polysift_data::parts::{DocumentScore, ScoreRows, write_scores};
use polysift_heads::head::Provenance;
use polysift_heads::train::{Samples, TrainingRequest, train_head};
use polysift_runs::run::{PartFile, RunDir, Shard, ShardMarker};

/// Number of documents whose texts are in memory together.
const BATCH_ROWS: usize = 1024;
/// One in this many documents of the training half helps to select the penalty of a ridge head.
const VALIDATION: usize = 5;

/// Predicted scores by head and document. A document without one has infinity, so it is encoded.
pub(super) type Predicted = BTreeMap<String, Vec<f32>>;

/// A trained first pass of a language.
pub(super) struct TrainedPass<'a> {
    full: &'a FullRun<'a>,
    /// True if the run's own heads score the embeddings too, and the ridge heads predict the rest.
    adds_own_heads: bool,
    language: String,
    encoder: Arc<PassEncoder>,
    names: Vec<String>,
    heads: Heads,
}

/// Returns the settings of the ridge heads of `pass` that predict the run's head `head`.
fn head_config(run: &RunDir, pass: FirstPass, head: &str) -> HeadConfig {
    let path = head_path(run, pass, head, LANG).to_string_lossy().into_owned();
    HeadConfig { kind: HeadKind::Ridge, path: Some(path), ..HeadConfig::default() }
}

impl<'a> TrainedPass<'a> {
    /// Trains `pass` for `language` on `pilot`: a ridge head for each of the run's heads `names`,
    /// which predicts its score. Returns the files.
    pub(super) fn fit(
        full: &FullRun<'_>,
        pass: FirstPass,
        language: &str,
        pilot: &Pilot,
        names: &BTreeSet<&str>,
    ) -> Result<Vec<PartFile>> {
        let Context { config, run, stop, .. } = full.context;
        let seed = config.seed;
        let targets: Vec<Vec<f32>> =
            names.iter().map(|name| pilot.targets(full, name, language)).collect();
        // Documents that one of the heads cannot score are left out.
        let is_usable = |at: &usize| targets.iter().all(|targets| targets[*at].is_finite());
        let usable: Vec<usize> = pilot.training().filter(is_usable).collect();
        let all = pilot.texts_of(pilot.training());
        let texts: Vec<&str> = usable.iter().map(|&at| all[at]).collect();
        let embedded = full.encoder(pass)?.embed(&texts, stop)?;
        let of_own_heads = |name: &&str| match pass {
            FirstPass::Prefix(_) => full.targets(name, language, &texts, &embedded),
            _ => Ok(vec![0.0; texts.len()]),
        };
        let known: Vec<Vec<f32>> = names.iter().map(of_own_heads).collect::<Result<_>>()?;
        // No test split, since nobody reads its metrics.
        let split = |at| if at % VALIDATION == 0 { Split::Validation } else { Split::Train };
        let ids = (0..texts.len()).map(|at| at.to_string()).collect();
        let splits = (0..texts.len()).map(|at| Some(split(at))).collect();
        let texts = texts.into_iter().map(ToOwned::to_owned).collect();
        let (hidden_size, embeddings) = (embedded.width, embedded.values);
        let none = Samples::default();
        let mut samples = Samples { ids, splits, texts, hidden_size, embeddings, ..none };
        let mut files = Vec::new();
        for ((name, targets), known) in names.iter().zip(&targets).zip(known) {
            samples.labels =
                usable.iter().zip(known).map(|(&at, known)| targets[at] - known).collect();
            let (config, provenance) = (&head_config(run, pass, name), Provenance::default());
            let samples = &samples;
            let request =
                TrainingRequest { name, language, config, samples, seed, provenance, stop };
            let path = head_path(run, pass, name, language);
            let bytes = train_head(&request)?.to_bytes()?;
            files.push(run.file(&path, 1, write_atomic(&path, &bytes)?));
        }
        Ok(files)
    }

    /// Loads `pass` of `language`, which predicts the heads `names`, in ascending order.
    pub(super) fn load(
        full: &'a FullRun<'a>,
        pass: FirstPass,
        language: &str,
        names: Vec<String>,
    ) -> Result<Self> {
        let head = |name: &String| (name.clone(), head_config(full.context.run, pass, name));
        let heads: BTreeMap<String, HeadConfig> = names.iter().map(head).collect();
        let (adds_own_heads, encoder) = (matches!(pass, FirstPass::Prefix(_)), full.encoder(pass)?);
        let heads = Heads::find(&heads, None, [language.to_owned()].into(), 0)?;
        let language = language.to_owned();
        Ok(Self { full, adds_own_heads, language, encoder, names, heads })
    }

    /// Predicts the scores of `texts` by head.
    pub(super) fn predict(&self, texts: &[&str]) -> Result<Predicted> {
        let Self { full, language, heads, .. } = self;
        let embedded = self.encoder.embed(texts, full.context.stop)?;
        let of_head = |name: &String| {
            let scores = score_by_head(heads, name, language, texts, &embedded)?;
            let mut logits: Vec<f32> = scores.into_iter().map(logit).collect();
            if self.adds_own_heads {
                let known = full.targets(name, language, texts, &embedded)?;
                logits.iter_mut().zip(known).for_each(|(logit, known)| *logit += known);
            }
            let or_encoded = |logit: f32| if logit.is_nan() { f32::INFINITY } else { logit };
            Ok((name.clone(), logits.into_iter().map(or_encoded).collect()))
        };
        self.names.iter().map(of_head).collect()
    }

    /// Returns the FLOPs to encode `texts` with the encoder of the first pass.
    pub(super) fn flops(&self, texts: &[&str]) -> Result<f64> {
        let of_text = |text: &&str| Ok(encoding_cost(&self.encoder.model, Chunks::First, text)?.1);
        Ok(texts.par_iter().map(of_text).collect::<Result<Vec<f64>>>()?.into_iter().sum())
    }

    /// Scores the documents of `shard` and writes their margins over the thresholds of `result`.
    pub(super) fn score_shard(
        &self,
        context: Context<'_>,
        result: &LanguageCascade,
        shard: &Shard,
    ) -> Result<ShardMarker> {
        let Context { config, run, stop, progress, .. } = context;
        let mut marker = ShardMarker::default();
        let mut reader = DocumentReader::open(&shard.input()?, &config.input)?;
        let (mut documents, mut margins) = (DocumentBuilder::default(), Vec::new());
        loop {
            stop.check()?;
            let left = config.parts.rows - margins.len();
            let batch = reader.next_batch(BATCH_ROWS.min(left))?;
            if let Some(batch) = &batch {
                let (places, texts): (Vec<usize>, Vec<&str>) = batch.texts().unzip();
                let found = margins_above(&self.predict(&texts)?, &result.heads);
                let first = margins.len();
                margins.resize(first + batch.len(), None);
                for (place, margin) in places.into_iter().zip(found) {
                    margins[first + place] = Some(DocumentScore { logit: margin, score: margin });
                }
                batch.iter().for_each(|document| documents.push(&document));
                progress.advance(batch.len() as u64, 0);
            }
            let is_last = batch.is_none();
            if margins.len() == config.parts.rows || is_last && !margins.is_empty() {
                let rows = margins.len() as u64;
                let margins = std::mem::take(&mut margins);
                let scores = ScoreRows { documents: documents.finish(), scores: margins };
                let (name, index) = (&shard.name, marker.files.len());
                let path = run.path(format!("cascade/scores/{name}/part-{index:05}.parquet"));
                context.check_held()?;
                let stamp = write_scores(&path, &scores, None, config.parts.zstd)?;
                marker.files.push(run.file(&path, rows, stamp));
                marker.rows += rows;
            }
            if is_last {
                return Ok(marker);
            }
        }
    }
}

/// Returns the margin of each document: the largest difference of its scores to the `thresholds`.
/// It is at least 0 if one head wants the document.
pub(super) fn margins_above(predicted: &Predicted, thresholds: &BTreeMap<String, f32>) -> Vec<f32> {
    let len = predicted.values().next().map_or(0, Vec::len);
    let mut margins = vec![f32::NEG_INFINITY; len];
    for (head, threshold) in thresholds {
        for (margin, score) in margins.iter_mut().zip(predicted.get(head).into_iter().flatten()) {
            *margin = margin.max(score - threshold);
        }
    }
    margins
}

/// Returns the file of a ridge head of `pass`.
pub(super) fn head_path(run: &RunDir, pass: FirstPass, head: &str, language: &str) -> PathBuf {
    let folder = run.path("cascade/heads").join(pass.to_string().replace(':', "-"));
    folder.join(head).join(format!("{language}.safetensors"))
}
