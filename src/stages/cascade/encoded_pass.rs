//! The first passes `bundled` and `prefix:N`: ridge heads on the embeddings of a cheaper encoder.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;

use super::full_run::{FullRun, PassEncoder, logits};
use super::pass::{Pass, Predicted, TrainingHalf, first_chunk, path};
use polysift_base::error::Result;
use polysift_config::{FirstPass, HeadConfig, HeadKind};
use polysift_corpus::heads::Heads;
use polysift_data::input::{LANG, Split};
use polysift_heads::head::Provenance;
use polysift_heads::train::{Samples, TrainingRequest, train_head};
use polysift_runs::run::RunDir;

/// One in so many documents of the training half selects the penalty of a ridge head.
const VALIDATION: usize = 5;

pub(super) struct EncodedPass<'a> {
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

impl<'a> EncodedPass<'a> {
    /// Trains a ridge head for each head of `half`; returns their files and bytes.
    pub(super) fn fit(
        full: &FullRun<'_>,
        pass: FirstPass,
        language: &str,
        half: &TrainingHalf<'_>,
    ) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let (config, run, stop) = (full.context.config, full.context.run, full.context.stop);
        let (width, embedded) = full.encoder(pass)?.embed(&half.texts, stop)?;
        let of_own_heads = |name: &str| match pass {
            FirstPass::Prefix(_) => full.targets(name, language, &half.texts, (width, &embedded)),
            _ => Ok(vec![0.0; half.texts.len()]),
        };
        let known = half.targets.keys().map(|name| of_own_heads(name));
        let known: Vec<Vec<f32>> = known.collect::<Result<_>>()?;
        // No test split, since nobody reads its metrics.
        let split = |at| if at % VALIDATION == 0 { Split::Validation } else { Split::Train };
        let mut samples = Samples {
            ids: (0..half.texts.len()).map(|at| at.to_string()).collect(),
            splits: (0..half.texts.len()).map(|at| Some(split(at))).collect(),
            texts: half.texts.iter().map(|text| (*text).to_owned()).collect(),
            hidden_size: width,
            embeddings: embedded.values,
            ..Samples::default()
        };
        let mut files = Vec::new();
        for ((name, targets), known) in half.targets.iter().zip(known) {
            samples.labels =
                targets.iter().zip(known).map(|(target, known)| target - known).collect();
            let request = TrainingRequest {
                name,
                language,
                config: &head_config(run, pass, name),
                samples: &samples,
                seed: config.seed.0,
                provenance: Provenance::default(),
            };
            files.push((path(run, pass, name, language), train_head(&request, stop)?.to_bytes()?));
        }
        Ok(files)
    }

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
}

impl Pass for EncodedPass<'_> {
    fn predict(&self, texts: &[&str]) -> Result<Predicted> {
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

    fn flops(&self, texts: &[&str]) -> Result<f64> {
        let model = &self.encoder.model;
        let of_text = |text: &&str| {
            let tokens = first_chunk(model, text)?.len() as f64;
            Ok(tokens * model.encoder.info().flops_per_token(tokens))
        };
        Ok(texts.par_iter().map(of_text).collect::<Result<Vec<f64>>>()?.into_iter().sum())
    }

    fn is_encoded(&self) -> bool {
        true
    }
}
