//! Texts through the encoder and the heads, as a corpus goes through them.

use crate::stage::context::Context;
use crate::stage::heads::Heads;
use crate::stage::model;
use polysift_base::error::Result;
use polysift_base::progress::{Silent, Stop};
use polysift_config::{ChunkRule, Chunks, RunConfig};
use polysift_data::parts::round_to;
use polysift_encoder::{self as encoder, EmbeddedTexts, HubSettings, Model};
use polysift_heads::head::{AnyHead, DocumentScore};
use polysift_runs::run::{RunDir, Stage, Worker};

/// Texts embedded and scored at once.
pub(super) const BLOCK_TEXTS: usize = 1024;

/// Scores texts with heads.
pub(super) struct TextScorer<'a> {
    /// The heads.
    pub(super) heads: &'a Heads,
    /// Settings of the encoder and of stored embeddings.
    pub(super) config: &'a RunConfig,
    /// Asks for a stop.
    pub(super) stop: &'a Stop,
    model: Option<Model>,
}

impl<'a> TextScorer<'a> {
    /// With the encoder of the settings, if a head needs one; with a `run` in the type that it was begun with.
    /// As many chunks are embedded as the heads' rules look at where that is asked for by `chunks_of_heads`, else
    /// as many as `config` says.
    ///
    /// # Errors
    /// Those of [`encoder::load`]; [`Error::Model`](polysift_base::Error::Model) for a head of another encoder.
    pub(super) fn open(
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
                model::load_model(context, Stage::Score)?
            }
        };
        heads.check_recipe(&model.recipe)?;
        scorer.model = Some(model);
        Ok(scorer)
    }

    /// The encoder, if a head needs one.
    pub(super) fn model(&self) -> Option<&Model> {
        self.model.as_ref()
    }

    /// The embeddings of `texts`, rounded as stored ones are; none where no head needs them, or of a text that is not
    /// there. `on_batch` is that of [`Model::embed_texts`].
    pub(super) fn embed(
        &self,
        texts: &[Option<&str>],
        on_batch: &mut dyn FnMut(usize, usize),
    ) -> Result<EmbeddedTexts> {
        let Some(model) = &self.model else {
            return Ok(EmbeddedTexts {
                values: Vec::new(),
                chunk_offsets: vec![0; texts.len() + 1],
            });
        };
        let present: Vec<&str> = texts.iter().copied().flatten().collect();
        let encoder = &self.config.encoder;
        let found = model.embed_texts(&present, Chunks::All, encoder, self.stop, on_batch)?;
        let EmbeddedTexts { mut values, chunk_offsets } = found;
        round_to(&mut values, self.config.parts.embeddings);
        let mut ends = chunk_offsets.into_iter();
        let mut last = ends.next().unwrap_or_default();
        let mut offsets = vec![last];
        for text in texts {
            last = text.and_then(|_| ends.next()).unwrap_or(last);
            offsets.push(last);
        }
        Ok(EmbeddedTexts { values, chunk_offsets: offsets })
    }

    /// The scores of `texts`, which have these embeddings, by the heads `name`, which are not of rows, of their
    /// `languages`.
    pub(super) fn score(
        &self,
        name: &str,
        languages: &[&str],
        texts: &[Option<&str>],
        embedded: &EmbeddedTexts,
    ) -> Result<Vec<Option<DocumentScore>>> {
        let width = self.model.as_ref().map_or(0, |model| model.encoder.info().embedding_size);
        self.heads.score_embedded(name, languages, texts, (width, embedded))
    }
}
