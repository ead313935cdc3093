//! What a first pass is: what it learns, what it predicts, and where it is stored.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::full_run::FullRun;
use super::pilot::Pilot;
use polysift_base::error::Result;
use polysift_config::FirstPass;
use polysift_encoder::Model;
use polysift_runs::run::RunDir;

/// Predicted scores by head and document; infinite, so that it is encoded, if a document has none.
pub(super) type Predicted = BTreeMap<String, Vec<f32>>;

/// A trained first pass of a language.
pub(super) trait Pass: Sync {
    /// Predicts the scores of `texts`.
    fn predict(&self, texts: &[&str]) -> Result<Predicted>;

    /// Returns the FLOPs of the encoder for `texts`; 0 without an encoder.
    fn flops(&self, texts: &[&str]) -> Result<f64>;

    /// Returns true if the pass has an encoder.
    fn is_encoded(&self) -> bool;
}

/// What a first pass learns: to predict the scores of the full run on the training half of a pilot.
pub(super) struct TrainingHalf<'a> {
    /// Texts that all heads score.
    pub(super) texts: Vec<&'a str>,
    /// By head, the scores of the full run of `texts`.
    pub(super) targets: BTreeMap<&'a str, Vec<f32>>,
}

impl<'a> TrainingHalf<'a> {
    /// Leaves out the documents of `pilot` that one of the heads `names` cannot score.
    pub(super) fn of(
        full: &FullRun<'_>,
        language: &str,
        pilot: &'a Pilot,
        names: &[&'a str],
    ) -> Self {
        let all: Vec<Vec<f32>> =
            names.iter().map(|name| pilot.targets(full, name, language)).collect();
        let texts = pilot.training_texts();
        let is_usable = |at: &usize| all.iter().all(|targets| targets[*at].is_finite());
        let usable: Vec<usize> = (0..texts.len()).filter(is_usable).collect();
        let of_head = |targets: &Vec<f32>| usable.iter().map(|&at| targets[at]).collect();
        Self {
            texts: usable.iter().map(|&at| texts[at]).collect(),
            targets: names.iter().copied().zip(all.iter().map(of_head)).collect(),
        }
    }
}

/// Returns the file of `pass` for `head` of `language`; without a head, one for all heads.
pub(super) fn path(run: &RunDir, pass: FirstPass, head: &str, language: &str) -> PathBuf {
    let folder = run.path("cascade/heads").join(pass.to_string().replace(':', "-"));
    folder.join(head).join(format!("{language}.safetensors"))
}

/// Returns the input ids of the first chunk of `text`.
pub(super) fn first_chunk(model: &Model, text: &str) -> Result<Vec<u32>> {
    Ok(model.tokenizer.chunks(text)?.into_iter().next().unwrap_or_default())
}
