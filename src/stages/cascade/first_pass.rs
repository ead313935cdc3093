//! The first passes `bundled` and `prefix:N`: ridge heads on the embeddings of a cheaper encoder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;

use super::full_run::{FullRun, PassEncoder, logits};
use super::pilot::Pilot;
use polysift_base::error::Result;
use polysift_base::io::write_atomic;
use polysift_config::{FirstPass, HeadConfig, HeadKind};
use polysift_corpus::Heads;
use polysift_data::input::{LANG, Split};
use polysift_heads::head::Provenance;
use polysift_heads::train::{Samples, TrainingRequest, train_head};
use polysift_runs::run::{PartFile, RunDir};

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

/// Returns the settings of the ridge head of `pass` for `head`.
fn head_config(run: &RunDir, pass: FirstPass, head: &str) -> HeadConfig {
    let path = path(run, pass, head, LANG).to_string_lossy().into_owned();
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
        let (config, run, stop) = (full.context.config, full.context.run, full.context.stop);
        let targets: Vec<Vec<f32>> =
            names.iter().map(|name| pilot.targets(full, name, language)).collect();
        // Documents that one of the heads cannot score are left out.
        let is_usable = |at: &usize| targets.iter().all(|targets| targets[*at].is_finite());
        let usable: Vec<usize> = pilot.training().filter(is_usable).collect();
        let all = pilot.texts_of(pilot.training());
        let texts: Vec<&str> = usable.iter().map(|&at| all[at]).collect();
        let (width, embedded) = full.encoder(pass)?.embed(&texts, stop)?;
        let of_own_heads = |name: &&str| match pass {
            FirstPass::Prefix(_) => full.targets(name, language, &texts, (width, &embedded)),
            _ => Ok(vec![0.0; texts.len()]),
        };
        let known: Vec<Vec<f32>> = names.iter().map(of_own_heads).collect::<Result<_>>()?;
        // No test split, since nobody reads its metrics.
        let split = |at| if at % VALIDATION == 0 { Split::Validation } else { Split::Train };
        let mut samples = Samples {
            ids: (0..texts.len()).map(|at| at.to_string()).collect(),
            splits: (0..texts.len()).map(|at| Some(split(at))).collect(),
            texts: texts.into_iter().map(ToOwned::to_owned).collect(),
            hidden_size: width,
            embeddings: embedded.values,
            ..Samples::default()
        };
        let mut heads = Vec::new();
        for ((name, targets), known) in names.iter().zip(&targets).zip(known) {
            samples.labels =
                usable.iter().zip(known).map(|(&at, known)| targets[at] - known).collect();
            let request = TrainingRequest {
                name,
                language,
                config: &head_config(run, pass, name),
                samples: &samples,
                seed: config.seed.0,
                provenance: Provenance::default(),
            };
            heads.push((path(run, pass, name, language), train_head(&request, stop)?.to_bytes()?));
        }
        let write = |(path, bytes): (PathBuf, Vec<u8>)| {
            Ok(run.file(&path, 1, write_atomic(&path, &bytes)?))
        };
        heads.into_iter().map(write).collect()
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
        Ok(Self {
            full,
            adds_own_heads: matches!(pass, FirstPass::Prefix(_)),
            language: language.to_owned(),
            encoder: full.encoder(pass)?,
            names,
            heads: Heads::find(&heads, None, [language.to_owned()].into(), 0)?,
        })
    }

    pub(super) fn predict(&self, texts: &[&str]) -> Result<Predicted> {
        let Self { full, language, heads, .. } = self;
        let (width, embedded) = self.encoder.embed(texts, full.context.stop)?;
        let of_head = |name: &String| {
            let mut scores = logits(heads, name, language, texts, (width, &embedded))?;
            if self.adds_own_heads {
                let known = full.targets(name, language, texts, (width, &embedded))?;
                scores.iter_mut().zip(known).for_each(|(score, known)| *score += known);
            }
            let or_encoded = |score: f32| if score.is_nan() { f32::INFINITY } else { score };
            Ok((name.clone(), scores.into_iter().map(or_encoded).collect()))
        };
        self.names.iter().map(of_head).collect()
    }

    /// Returns the FLOPs of the encoder for `texts`.
    pub(super) fn flops(&self, texts: &[&str]) -> Result<f64> {
        let model = &self.encoder.model;
        let of_text = |text: &&str| {
            let tokens =
                (model.tokenizer.chunks(text)?.first()).map_or(0.0, |ids| ids.len() as f64);
            Ok(tokens * model.encoder.info().flops_per_token(tokens))
        };
        Ok(texts.par_iter().map(of_text).collect::<Result<Vec<f64>>>()?.into_iter().sum())
    }
}

/// Returns the file of `pass` for `head` of `language`.
pub(super) fn path(run: &RunDir, pass: FirstPass, head: &str, language: &str) -> PathBuf {
    let folder = run.path("cascade/heads").join(pass.to_string().replace(':', "-"));
    folder.join(head).join(format!("{language}.safetensors"))
}
