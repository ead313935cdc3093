//! Embeds and scores texts as a corpus is embedded and scored.

use polysift_base::error::Result;
use polysift_base::progress::{Silent, Stop};
use polysift_config::{ChunkRule, Chunks, RunConfig};
use polysift_corpus::model;
use polysift_corpus::{Context, Heads};
use polysift_data::parts::round_to;
use polysift_encoder::{self as encoder, EmbeddedTexts, HubSettings, Model};
use polysift_heads::head::AnyHead;
use polysift_runs::run::{RunDir, Stage, Worker};

pub(super) const BLOCK_TEXTS: usize = 1024;

/// Embeds and scores texts; without encoder if no head needs embeddings.
pub struct TextScorer<'a> {
    pub(super) heads: &'a Heads,
    pub(super) config: &'a RunConfig,
    pub(super) stop: &'a Stop,
    pub(super) model: Option<Model>,
}

impl<'a> TextScorer<'a> {
    /// Loads the encoder, if a head needs one, in the numeric type of the `run`, if there is one,
    /// for as many chunks as the heads' rules need (`chunks_of_heads`) or `config` says.
    pub fn open(
        heads: &'a Heads,
        config: &'a RunConfig,
        run: Option<&RunDir>,
        chunks_of_heads: bool,
        (hub, stop): (&'a HubSettings, &'a Stop),
    ) -> Result<Self> {
        let mut scorer = Self { heads, config, stop, model: None };
        if heads.all().all(|head| head.as_embedding().is_none()) {
            return Ok(scorer);
        }
        let mut config = config.clone();
        let looks_further = |head: &AnyHead| head.spec().chunk != ChunkRule::First;
        if chunks_of_heads {
            config.encoder.chunks =
                if heads.all().any(looks_further) { Chunks::All } else { Chunks::First };
        }
        let model = match run {
            None => encoder::load(&config.encoder, hub)?,
            Some(run) => {
                let worker = Worker::observer(run);
                let context = Context::observing(&config, run, hub, stop, &Silent, &worker);
                let model = model::load_model(context, Stage::Score)?;
                model::check_encoder(run, &model)?;
                model
            }
        };
        heads.check_recipe(&model.recipe)?;
        scorer.model = Some(model);
        Ok(scorer)
    }

    /// Embeds `texts` and rounds as stored embeddings are; a missing text, or any text without an
    /// encoder, has no chunk. `on_batch` receives the numbers of chunks and tokens.
    pub(super) fn embed(
        &self,
        texts: &[Option<&str>],
        on_batch: &mut dyn FnMut(usize, usize),
    ) -> Result<EmbeddedTexts> {
        let Some(model) = &self.model else {
            let chunk_offsets = vec![0; texts.len() + 1];
            return Ok(EmbeddedTexts { chunk_offsets, ..EmbeddedTexts::default() });
        };
        let present: Vec<&str> = texts.iter().copied().flatten().collect();
        let encoder = &self.config.encoder;
        let mut found = model.embed_texts(&present, Chunks::All, encoder, self.stop, on_batch)?;
        round_to(&mut found.values, self.config.parts.embeddings);
        let mut ends = found.chunk_offsets.into_iter();
        let mut last = ends.next().unwrap_or_default();
        let mut offsets = vec![last];
        for text in texts {
            last = text.and_then(|_| ends.next()).unwrap_or(last);
            offsets.push(last);
        }
        Ok(EmbeddedTexts { chunk_offsets: offsets, ..found })
    }
}
