//! Texts to embeddings in memory: for samples, which are few; the corpus goes through the embed stage.

use super::{Model, batch_tokens, embed_chunks};
use crate::config::{Chunks, EncoderConfig};
use crate::error::Result;
use crate::progress::Stop;

/// The embeddings of some texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmbeddedTexts {
    /// `[num_chunks, D]` f32, row-major, in the order of the texts.
    pub values: Vec<f32>,
    /// The chunks of text `i` are the rows `chunk_offsets[i]..chunk_offsets[i + 1]`.
    pub chunk_offsets: Vec<usize>,
}

impl Model {
    /// Embeds `texts`: the first chunk of each, or all that the model's tokenizer makes. `on_batch`
    /// is that of [`embed_chunks`], as are the errors, with those of
    /// [`Tokenizer::chunks_all`](crate::tokenize::Tokenizer::chunks_all).
    pub fn embed_texts(
        &self,
        texts: &[&str],
        chunks: Chunks,
        config: &EncoderConfig,
        stop: &Stop,
        on_batch: &mut dyn FnMut(usize, usize),
    ) -> Result<EmbeddedTexts> {
        let mut tokenized = self.tokenizer.chunks_all(texts)?;
        if chunks == Chunks::First {
            for chunks in &mut tokenized {
                chunks.truncate(1);
            }
        }
        let chunk_offsets = std::iter::once(0)
            .chain(tokenized.iter().scan(0, |end, chunks| {
                *end += chunks.len();
                Some(*end)
            }))
            .collect();
        let chunks: Vec<&[u32]> = tokenized.iter().flatten().map(Vec::as_slice).collect();
        let encoder = self.encoder.as_ref();
        let batch_tokens = batch_tokens(config, encoder);
        let values = embed_chunks(encoder, &chunks, batch_tokens, stop, on_batch)?;
        Ok(EmbeddedTexts { values, chunk_offsets })
    }
}
