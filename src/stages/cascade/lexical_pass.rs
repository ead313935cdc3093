//! The first pass `lexical`: one small network over the input ids of the encoder, with an output
//! for each head.

use std::path::PathBuf;

use rayon::prelude::*;

use super::full_run::FullRun;
use super::pass::{Pass, Predicted, TrainingHalf, first_chunk, path};
use polysift_base::error::Result;
use polysift_base::io::read;
use polysift_base::sample::hash_seed;
use polysift_config::{FirstPass, Loss};
use polysift_heads::lexical::{LexicalModel, fit};

pub(super) struct LexicalPass<'a> {
    full: &'a FullRun<'a>,
    names: Vec<String>,
    network: LexicalModel,
}

impl<'a> LexicalPass<'a> {
    /// Trains the network on `half`; returns its file and bytes.
    pub(super) fn fit(
        full: &FullRun<'_>,
        language: &str,
        half: &TrainingHalf<'_>,
    ) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let (run, stop) = (full.context.run, full.context.stop);
        let sample = |at: usize| {
            stop.check()?;
            let scores = half.targets.values().map(|targets| targets[at]).collect();
            Ok((first_chunk(full.model, half.texts[at])?, scores))
        };
        let samples =
            (0..half.texts.len()).into_par_iter().map(sample).collect::<Result<Vec<_>>>()?;
        let seed = hash_seed(&["lexical", language], full.context.config.seed.0);
        let network = fit(&samples, &[], Loss::SquaredError, seed, stop)?;
        Ok(vec![(path(run, FirstPass::Lexical, "", language), network.to_bytes(&[], None)?)])
    }

    pub(super) fn load(full: &'a FullRun<'a>, language: &str, names: Vec<String>) -> Result<Self> {
        let path = path(full.context.run, FirstPass::Lexical, "", language);
        let network = LexicalModel::from_bytes(&read(&path)?, &path)?;
        Ok(Self { full, names, network })
    }
}

impl Pass for LexicalPass<'_> {
    fn predict(&self, texts: &[&str]) -> Result<Predicted> {
        let score = |text: &&str| {
            self.full.context.stop.check()?;
            Ok(self.network.score(&first_chunk(self.full.model, text)?))
        };
        let scores: Vec<Vec<f32>> = texts.par_iter().map(score).collect::<Result<_>>()?;
        let of_head = |(at, name): (usize, &String)| {
            let own = scores.iter().map(|s| s.get(at).copied().unwrap_or(f32::INFINITY));
            (name.clone(), own.collect())
        };
        Ok(self.names.iter().enumerate().map(of_head).collect())
    }

    fn flops(&self, _texts: &[&str]) -> Result<f64> {
        Ok(0.0)
    }

    fn is_encoded(&self) -> bool {
        false
    }
}
