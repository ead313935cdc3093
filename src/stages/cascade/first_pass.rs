//! First passes: training, storage and use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;

use super::full_run::{FullRun, PassEncoder, logits};
use super::pilot::Pilot;
use polysift_base::error::Result;
use polysift_base::io::{read, remove, write_atomic};
use polysift_base::sample::hash_seed;
use polysift_config::{FirstPass, HeadConfig, HeadKind, Loss};
use polysift_corpus::cascaded::LanguageCascade;
use polysift_corpus::context::Context;
use polysift_corpus::heads::Heads;
use polysift_data::input::{DocumentBuilder, DocumentReader, LANG, Split};
use polysift_data::parts::{ScoreRows, write_scores};
use polysift_encoder::Model;
use polysift_heads::head::Provenance;
use polysift_heads::lexical::{LexicalModel, fit};
use polysift_heads::train::{Samples, TrainingRequest, train_head};
use polysift_runs::run::{PartFile, RunDir, Shard, ShardMarker};

/// Number of documents whose texts are in memory together.
const BATCH_ROWS: usize = 1024;
/// One in so many documents of the training half selects the penalty of a ridge head.
const VALIDATION: usize = 5;

/// Files of a trained first pass.
pub(super) struct TrainedPass {
    pub(super) files: Vec<PartFile>,
}

impl TrainedPass {
    /// Removes the files, because another first pass is better or training failed.
    pub(super) fn discard(&self, run: &RunDir) -> Result<()> {
        self.files.iter().try_for_each(|file| remove(&run.path(&file.path)))
    }
}

/// Returns the file of `pass` for `head` of `language`.
fn path(run: &RunDir, pass: FirstPass, head: &str, language: &str) -> PathBuf {
    let folder = run.path("cascade/heads").join(pass.to_string().replace(':', "-"));
    match pass {
        // One network has an output for each head.
        FirstPass::Lexical => folder.join(format!("{language}.safetensors")),
        _ => folder.join(head).join(format!("{language}.safetensors")),
    }
}

/// Returns the settings of a ridge head; with `{lang}` in `path`, for all languages.
fn head_config(path: String) -> HeadConfig {
    HeadConfig { kind: HeadKind::Ridge, path: Some(path), ..HeadConfig::default() }
}

/// Trains `pass` to predict the scores of `names` on the training half, and writes its files.
pub(super) fn train(
    full: &FullRun<'_>,
    pass: FirstPass,
    language: &str,
    pilot: &Pilot,
    names: &[&str],
) -> Result<TrainedPass> {
    let mut trained = TrainedPass { files: Vec::new() };
    match write_trained(full, pass, language, (pilot, names), &mut trained) {
        Ok(()) => Ok(trained),
        Err(error) => trained.discard(full.context.run).and(Err(error)),
    }
}

/// Trains and writes the first pass; on error the caller deletes the files in `trained`.
fn write_trained(
    full: &FullRun<'_>,
    pass: FirstPass,
    language: &str,
    (pilot, names): (&Pilot, &[&str]),
    trained: &mut TrainedPass,
) -> Result<()> {
    let Context { config, run, stop, .. } = full.context;
    let texts = pilot.training_texts();
    let targets: Vec<Vec<f32>> =
        names.iter().map(|name| pilot.targets(full, name, language)).collect();
    // Documents that a head cannot score are left out.
    let usable: Vec<usize> = (0..texts.len())
        .filter(|&at| targets.iter().all(|targets| targets[at].is_finite()))
        .collect();
    let mut keep = |path: &PathBuf, stamp| {
        trained.files.push(PartFile { path: run.relative(path), rows: 1, stamp });
    };
    if pass == FirstPass::Lexical {
        let sample = |&at: &usize| {
            stop.check()?;
            let scores = targets.iter().map(|targets| targets[at]).collect();
            Ok((first_chunk(full.model, texts[at])?, scores))
        };
        let samples = usable.par_iter().map(sample).collect::<Result<Vec<_>>>()?;
        let seed = hash_seed(&["lexical", language], config.seed.0);
        let path = path(run, pass, "", language);
        let network = fit(&samples, &[], Loss::SquaredError, seed, stop)?;
        keep(&path, write_atomic(&path, &network.to_bytes(&[], None)?)?);
        return Ok(());
    }
    let used: Vec<&str> = usable.iter().map(|&at| texts[at]).collect();
    let mut samples =
        Samples { ids: usable.iter().map(usize::to_string).collect(), ..Samples::default() };
    // A prefix head learns only the difference to the run's own heads on the prefix.
    let mut known = vec![vec![0.0; used.len()]; names.len()];
    if let Some(encoder) = full.encoder(pass)? {
        let (width, embedded) = encoder.embed(&used, stop)?;
        if let FirstPass::Prefix(_) = pass {
            for (name, known) in names.iter().zip(&mut known) {
                *known = full.targets(name, language, &used, (width, &embedded))?;
            }
        }
        samples.hidden_size = width;
        samples.embeddings = embedded.values;
        // No test split, since nobody reads its metrics.
        let split = |at| if at % VALIDATION == 0 { Split::Validation } else { Split::Train };
        samples.splits = (0..used.len()).map(|at| Some(split(at))).collect();
    }
    samples.texts = used.into_iter().map(ToOwned::to_owned).collect();
    for ((name, targets), known) in names.iter().zip(&targets).zip(&known) {
        samples.labels = usable.iter().zip(known).map(|(&at, known)| targets[at] - known).collect();
        let path = path(run, pass, name, language);
        let head = head_config(path.to_string_lossy().into_owned());
        let request = TrainingRequest {
            name,
            language,
            config: &head,
            samples: &samples,
            seed: config.seed.0,
            provenance: Provenance::default(),
        };
        let head = train_head(&request, stop)?;
        keep(&path, write_atomic(&path, &head.to_bytes()?)?);
    }
    Ok(())
}

fn first_chunk(model: &Model, text: &str) -> Result<Vec<u32>> {
    Ok(model.tokenizer.chunks(text)?.into_iter().next().unwrap_or_default())
}

/// The model that scores the documents of a language.
enum Scorer {
    Heads(Heads),
    Lexical(Box<LexicalModel>),
}

pub(super) struct FirstPasses<'a> {
    full: &'a FullRun<'a>,
    languages: BTreeMap<String, LanguagePass>,
}

struct LanguagePass {
    pass: FirstPass,
    /// Heads of the run that it predicts, ascending.
    names: Vec<String>,
    scorer: Scorer,
    encoder: Option<Arc<PassEncoder>>,
}

/// Predicted scores by head and document; infinite, so that it is encoded, if a document has none.
pub(super) type Predicted = BTreeMap<String, Vec<f32>>;

impl<'a> FirstPasses<'a> {
    /// Loads the first passes of the `chosen` languages, each with its heads in ascending order.
    pub(super) fn load(
        full: &'a FullRun<'a>,
        chosen: impl IntoIterator<Item = (String, FirstPass, Vec<String>)>,
    ) -> Result<Self> {
        let run = full.context.run;
        let mut languages = BTreeMap::new();
        for (language, pass, names) in chosen {
            let scorer = if pass == FirstPass::Lexical {
                let path = path(run, pass, "", &language);
                let bytes = read(&path)?;
                Scorer::Lexical(Box::new(LexicalModel::from_bytes(&bytes, &path)?))
            } else {
                let head = |name: &String| {
                    let template = path(run, pass, name, LANG);
                    (name.clone(), head_config(template.to_string_lossy().into_owned()))
                };
                let heads: BTreeMap<String, HeadConfig> = names.iter().map(head).collect();
                Scorer::Heads(Heads::find(&heads, None, [language.clone()].into(), 0)?)
            };
            let encoder = full.encoder(pass)?;
            languages.insert(language, LanguagePass { pass, names, scorer, encoder });
        }
        Ok(Self { full, languages })
    }

    /// Returns true if a first pass has an encoder.
    pub(super) fn encodes(&self) -> bool {
        self.languages.values().any(|language| language.encoder.is_some())
    }

    pub(super) fn predict(&self, language: &str, texts: &[&str]) -> Result<Predicted> {
        let Some(LanguagePass { pass, names, scorer, encoder }) = self.languages.get(language)
        else {
            return Ok(Predicted::new());
        };
        let stop = self.full.context.stop;
        let heads = match scorer {
            Scorer::Heads(heads) => heads,
            Scorer::Lexical(network) => {
                let score = |text: &&str| {
                    stop.check()?;
                    Ok(network.score(&first_chunk(self.full.model, text)?))
                };
                let scores: Vec<Vec<f32>> = texts.par_iter().map(score).collect::<Result<_>>()?;
                let of_head = |(at, name): (usize, &String)| {
                    let own = scores.iter().map(|s| s.get(at).copied().unwrap_or(f32::INFINITY));
                    (name.clone(), own.collect())
                };
                return Ok(names.iter().enumerate().map(of_head).collect());
            }
        };
        let embedded = encoder.as_ref().map(|encoder| encoder.embed(texts, stop)).transpose()?;
        let (width, embedded) = embedded.unwrap_or_default();
        let of_head = |name: &String| {
            let mut scores = logits(heads, name, language, texts, (width, &embedded))?;
            if let FirstPass::Prefix(_) = pass {
                let known = self.full.targets(name, language, texts, (width, &embedded))?;
                scores.iter_mut().zip(known).for_each(|(score, known)| *score += known);
            }
            let or_encoded = |score: f32| if score.is_nan() { f32::INFINITY } else { score };
            Ok((name.clone(), scores.into_iter().map(or_encoded).collect()))
        };
        names.iter().map(of_head).collect()
    }

    /// Returns the FLOPs that the encoder of `pass` takes for `texts`; 0 without an encoder.
    pub(super) fn flops(&self, pass: FirstPass, texts: &[&str]) -> Result<f64> {
        let Some(encoder) = self.full.encoder(pass)? else { return Ok(0.0) };
        let of_text = |text: &&str| {
            let tokens = first_chunk(&encoder.model, text)?.len() as f64;
            Ok(tokens * encoder.model.encoder.info().flops_per_token(tokens))
        };
        Ok(texts.par_iter().map(of_text).collect::<Result<Vec<f64>>>()?.into_iter().sum())
    }

    /// Scores the documents of `shard` and writes their margins over the thresholds of `result`.
    pub(super) fn score_shard(
        &self,
        language: &str,
        result: &LanguageCascade,
        shard: &Shard,
    ) -> Result<ShardMarker> {
        let Context { config, run, stop, progress, .. } = self.full.context;
        let mut marker = ShardMarker::default();
        if result.first_pass.is_none() {
            return Ok(marker);
        }
        let mut reader = DocumentReader::open(&shard.input()?, &config.input)?;
        let (mut documents, mut margins) = (DocumentBuilder::default(), Vec::new());
        loop {
            stop.check()?;
            let left = config.parts.rows - margins.len();
            let batch = reader.next_batch(BATCH_ROWS.min(left))?;
            if let Some(batch) = &batch {
                let (places, texts): (Vec<usize>, Vec<&str>) = batch.texts().unzip();
                let found = above(&self.predict(language, &texts)?, &result.heads);
                let first = margins.len();
                margins.resize(first + batch.len(), None);
                for (place, margin) in places.into_iter().zip(found) {
                    margins[first + place] = Some(margin);
                }
                batch.iter().for_each(|document| documents.push(&document));
                progress.advance(batch.len() as u64, 0);
            }
            let is_last = batch.is_none();
            if margins.len() == config.parts.rows || is_last && !margins.is_empty() {
                let rows = margins.len() as u64;
                let margins = std::mem::take(&mut margins);
                let scores = ScoreRows {
                    documents: documents.finish(),
                    logits: margins.clone(),
                    scores: margins,
                };
                let path = run.first_pass_part(shard, marker.files.len());
                let stamp = write_scores(&path, &scores, config.parts.zstd)?;
                marker.files.push(PartFile { path: run.relative(&path), rows, stamp });
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
pub(super) fn above(predicted: &Predicted, thresholds: &BTreeMap<String, f32>) -> Vec<f32> {
    let len = predicted.values().next().map_or(0, Vec::len);
    let mut margins = vec![f32::NEG_INFINITY; len];
    for (head, threshold) in thresholds {
        for (margin, score) in margins.iter_mut().zip(predicted.get(head).into_iter().flatten()) {
            *margin = margin.max(score - threshold);
        }
    }
    margins
}
