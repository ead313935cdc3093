//! fastText models as heads: one label is the score, and a [`TextSpec`] turns texts into words.
//!
//! If polysift trained `<name>.bin`, the [`ModelCard`] is `<name>.json` beside it.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::DocumentScore;
use super::card::{HeadOf, HeadSpec, ModelCard, TextCard};
use super::file::missing_file;
use polysift_base::error::{Error, Result};
use polysift_base::io::{if_there, read};
use polysift_config::{HeadConfig, HeadKind, HeadOutput, Mode, TextSpec};
use polysift_fasttext::{FastTextModel, TextScratch, document_line};

/// A head that scores texts by their words.
pub type FastTextHead = HeadOf<FastTextScorer>;

/// A fastText model, and how texts become its words.
#[derive(Debug, Clone)]
pub struct FastTextScorer {
    /// How a text becomes words.
    pub spec: TextSpec,
    model: FastTextModel,
    /// Index of the label whose probability is the score.
    label: usize,
}

impl FastTextHead {
    /// Returns the path of the card of the model at `path`.
    pub fn card_path(path: &Path) -> PathBuf {
        path.with_extension("json")
    }

    /// Reads the card beside the model at `path`, if there is one.
    pub fn read_card(path: &Path) -> Result<Option<ModelCard>> {
        let path = Self::card_path(path);
        let Some(bytes) = if_there(read(&path))? else { return Ok(None) };
        serde_json::from_slice(&bytes)
            .map_err(|e| Error::model(&path, format!("is not the card of a head: {e}")))
    }

    /// Reads the card beside the model at `path`, if there is one; fails with [`Error::Model`] if
    /// it is of a model with another digest than `digest`.
    pub fn read_matching_card(path: &Path, digest: &str) -> Result<Option<ModelCard>> {
        let card = Self::read_card(path)?;
        let is_its =
            |card: &ModelCard| card.text.as_ref().is_some_and(|t| t.model_digest == digest);
        if card.as_ref().is_none_or(is_its) {
            return Ok(card);
        }
        let reason = "is the card of another file than the model beside it";
        Err(Error::model(&Self::card_path(path), reason))
    }

    /// Reads the head called `name` for texts in `language` from a fastText file at `path`.
    ///
    /// The card beside the file defines how a text becomes words; only [`Mode::Published`] and
    /// `keep` override it. Without a card, `config` defines it.
    pub fn load(path: &Path, name: &str, config: &HeadConfig, language: &str) -> Result<Self> {
        if !path.is_file() {
            return Err(missing_file(path, name));
        }
        let (model, digest) = FastTextModel::read(path)?;
        let mut card = Self::read_matching_card(path, &digest)?.unwrap_or_else(|| {
            let text = TextCard {
                spec: config.fasttext.text_spec(language),
                model_digest: digest.clone(),
                word_ngrams: model.settings.word_ngrams,
                training: None,
            };
            let spec = HeadSpec { keep: config.keep(name), ..HeadSpec::default() };
            ModelCard { text: Some(text), head: name.to_owned(), spec, ..ModelCard::default() }
        });
        card.spec.keep = config.keep.unwrap_or(card.spec.keep);
        if let (Some(text), Mode::Published) = (&mut card.text, config.fasttext.inference) {
            text.spec.inference = Mode::Published;
        }
        Self::new(card, model, digest).map_err(|reason| Error::model(path, reason))
    }

    /// Sets the spec of `card`, except for the kept side, from `model`. Fails if `card` does not
    /// say how texts become words, or if the model lacks the positive label.
    pub(crate) fn new(
        mut card: ModelCard,
        model: FastTextModel,
        digest: String,
    ) -> Result<Self, String> {
        let Some(spec) = card.text.as_ref().map(|text| text.spec.clone()) else {
            return Err("its card does not say how texts become words".to_owned());
        };
        let labels = model.labels();
        let Some(label) = labels.iter().position(|label| *label == spec.positive) else {
            let (positive, count) = (&spec.positive, labels.len());
            let known = labels[..count.min(10)].join(", ");
            return Err(format!("has no label `{positive}`; it has {count} label(s): {known}"));
        };
        card.spec = HeadSpec {
            kind: HeadKind::FastText,
            layer_sizes: vec![model.settings.dim, labels.len()],
            output: HeadOutput::Class(label),
            keep: card.spec.keep,
            ..HeadSpec::default()
        };
        Ok(Self { card, scorer: FastTextScorer { spec, model, label }, digest })
    }

    /// Scores `texts` in parallel on the current rayon pool; a document without text scores `None`.
    pub fn score<T: AsRef<str> + Sync>(&self, texts: &[Option<T>]) -> Vec<Option<DocumentScore>> {
        let score = |scratch: &mut TextScratch, text: &Option<T>| {
            text.as_ref().map(|text| self.score_one(text.as_ref(), scratch))
        };
        texts.par_iter().map_init(TextScratch::default, score).collect()
    }

    /// Scores one text. The score is fastText's, 0.00001 above the probability; the logit is the
    /// log-odds, which still tells documents of probability 1 apart. Both are NaN if the model
    /// knows no word of the text.
    pub fn score_one(&self, text: &str, scratch: &mut TextScratch) -> DocumentScore {
        let FastTextScorer { spec, model, label } = &self.scorer;
        let scored = model.score(&document_line(spec, text), *label, scratch);
        let scored = scored.filter(|(logit, _)| logit.is_finite());
        let (logit, score) = scored.unwrap_or((f32::NAN, f32::NAN));
        DocumentScore { logit, score }
    }
}
