//! The model and heads of the run without a cascade, and the encoders of first passes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use polysift_base::error::Result;
use polysift_base::panics::lock;
use polysift_base::progress::Stop;
use polysift_config::{
    CascadeConfig, Chunks, DeviceChoice, EncoderConfig, EncoderPrecision, FirstPass,
};
use polysift_corpus::{Context, Heads};
use polysift_data::parts::DocumentScore;
use polysift_encoder::{EmbeddedTexts, Model, load};
use polysift_runs::run::Plan;

/// The run without a cascade, and the encoders of first passes that are loaded.
pub(super) struct FullRun<'a> {
    pub(super) context: Context<'a>,
    pub(super) settings: &'a CascadeConfig,
    pub(super) plan: &'a Plan,
    pub(super) heads: &'a Heads,
    pub(super) model: &'a Model,
    pub(super) encoders: Mutex<BTreeMap<FirstPass, Arc<PassEncoder>>>,
}

/// The encoder of a first pass, which embeds the first chunk of each text.
pub(super) struct PassEncoder {
    settings: EncoderConfig,
    pub(super) model: Model,
}

impl FullRun<'_> {
    /// Returns the encoder of `pass`; other threads wait while the first call loads it.
    pub(super) fn encoder(&self, pass: FirstPass) -> Result<Arc<PassEncoder>> {
        let Context { config, hub, .. } = self.context;
        let mut encoders = lock(&self.encoders);
        if let Some(encoder) = encoders.get(&pass) {
            return Ok(Arc::clone(encoder));
        }
        let encoder = Arc::new(match pass {
            FirstPass::Auto | FirstPass::Bundled => {
                let (device, precision) = match &self.model.placement.gpus[..] {
                    [] => (DeviceChoice::Cpu, EncoderPrecision::F32),
                    gpus => (DeviceChoice::Cuda(gpus.to_vec()), EncoderPrecision::Bf16),
                };
                let settings = EncoderConfig { device, precision, ..EncoderConfig::default() };
                PassEncoder { model: load(&settings, hub)?, settings }
            }
            FirstPass::Prefix(tokens) => {
                let max_tokens = tokens.min(config.encoder.max_tokens);
                let chunks = Chunks::First;
                let settings = EncoderConfig { max_tokens, chunks, ..config.encoder.clone() };
                PassEncoder { model: self.model.cut(&settings, hub)?, settings }
            }
        });
        encoders.insert(pass, Arc::clone(&encoder));
        Ok(encoder)
    }

    /// Returns the logits that a first pass learns to predict for the head `name` on `texts`:
    /// negated if low ones are kept, NaN if there is none.
    pub(super) fn targets(
        &self,
        name: &str,
        language: &str,
        texts: &[&str],
        embedded: &EmbeddedTexts,
    ) -> Result<Vec<f32>> {
        let sign = self.heads.sign(name, language);
        let scores = score_by_head(self.heads, name, language, texts, embedded)?;
        Ok(scores.into_iter().map(|score| sign * logit(score)).collect())
    }
}

impl PassEncoder {
    pub(super) fn embed(&self, texts: &[&str], stop: &Stop) -> Result<EmbeddedTexts> {
        let Self { settings, model } = self;
        model.embed_texts(texts, Chunks::First, settings, stop, &mut |_, _| {})
    }
}

/// Scores `texts` of one language and their embeddings with the head `name`, not of rows.
pub(super) fn score_by_head(
    heads: &Heads,
    name: &str,
    language: &str,
    texts: &[&str],
    embedded: &EmbeddedTexts,
) -> Result<Vec<Option<DocumentScore>>> {
    let languages = vec![language; texts.len()];
    let some: Vec<Option<&str>> = texts.iter().copied().map(Some).collect();
    heads.score_embedded(name, &languages, &some, embedded)
}

/// Returns the logit; NaN without a score.
pub(super) fn logit(score: Option<DocumentScore>) -> f32 {
    score.map_or(f32::NAN, |score| score.logit)
}

/// Returns the tokens of the encoded chunks of `text`, and the FLOPs to encode them.
pub(super) fn encoding_cost(model: &Model, encoded: Chunks, text: &str) -> Result<(usize, f64)> {
    let mut chunks = model.tokenizer.chunks(text)?;
    if encoded == Chunks::First {
        chunks.truncate(1);
    }
    let flops = |tokens: f64| tokens * model.encoder.info().flops_per_token(tokens);
    let lengths = chunks.iter().map(Vec::len);
    Ok((lengths.clone().sum(), lengths.map(|tokens| flops(tokens as f64)).sum()))
}
