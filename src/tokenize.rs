//! Text to chunks of token ids, as transformers' fast tokenizers cut them.
//!
//! A document is tokenized once, whole, with the prompt before it; the ids are then cut into
//! consecutive chunks without overlap, and every chunk gets the special tokens of the tokenizer's
//! own post-processor. That equals `return_overflowing_tokens` with `stride=0`. Truncation and
//! padding that `tokenizer.json` may ask for do not apply.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use tokenizers::{Encoding, Token};

use crate::config::{Chunks, EncoderConfig};
use crate::error::{Error, Result};

/// One tokenized document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokenized {
    /// Token ids of each chunk with its special tokens, at most `max_tokens`; at least one chunk,
    /// which for text without content is `<s></s>`. Only the first one under [`Chunks::First`].
    pub chunks: Vec<Vec<u32>>,
    /// Tokens of the whole text, without the prompt and the special tokens.
    pub num_tokens: u64,
}

/// A tokenizer with the settings of an encoder.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    origin: PathBuf,
    /// Special tokens before and after the content of a chunk.
    before: Vec<u32>,
    after: Vec<u32>,
    content_tokens: usize,
    chunks: Chunks,
    prompt: String,
}

impl Tokenizer {
    /// Reads the contents of a `tokenizer.json`; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Model`] if it cannot be read, [`Error::Config`] if `max_tokens` leaves no room
    /// for content.
    pub fn from_bytes(json: &[u8], origin: &Path, config: &EncoderConfig) -> Result<Self> {
        let mut inner = tokenizers::Tokenizer::from_bytes(json)
            .map_err(|e| Error::model(origin, format!("is not a tokenizer: {e}")))?;
        inner
            .with_truncation(None)
            .map_err(|e| Error::model(origin, format!("truncation cannot be turned off: {e}")))?
            .with_padding(None);
        let (before, after) = special_tokens(&inner)
            .map_err(|e| Error::model(origin, format!("its post-processor fails: {e}")))?;
        let content_tokens = config.max_tokens.saturating_sub(before.len() + after.len());
        if content_tokens == 0 {
            let reason = format!("is {}; the special tokens leave no room", config.max_tokens);
            return Err(Error::config("encoder.max_tokens", reason));
        }
        Ok(Self {
            inner,
            origin: origin.to_owned(),
            before,
            after,
            content_tokens,
            chunks: config.chunks,
            prompt: config.prompt.clone(),
        })
    }

    /// Tokenizes one document.
    ///
    /// # Errors
    /// [`Error::Model`] if the tokenizer refuses the text (no unknown token, for example).
    pub fn tokenize(&self, text: &str) -> Result<Tokenized> {
        let fail = |e| Error::model(&self.origin, format!("cannot tokenize a text: {e}"));
        let (encoding, num_tokens) = if self.prompt.is_empty() {
            let encoding = self.inner.encode_fast(text, false).map_err(fail)?;
            let num_tokens = encoding.len();
            (encoding, num_tokens)
        } else {
            let whole = format!("{}{text}", self.prompt);
            let encoding = self.inner.encode(whole, false).map_err(fail)?;
            let of_text = encoding.get_offsets().iter().filter(|o| o.1 > self.prompt.len());
            let num_tokens = of_text.count();
            (encoding, num_tokens)
        };
        Ok(Tokenized { chunks: self.cut(encoding.get_ids()), num_tokens: num_tokens as u64 })
    }

    /// Tokenizes documents in parallel; results in the order of `texts`.
    ///
    /// # Errors
    /// As [`Tokenizer::tokenize`].
    pub fn tokenize_all(&self, texts: &[&str]) -> Result<Vec<Tokenized>> {
        texts.par_iter().map(|text| self.tokenize(text)).collect()
    }

    fn cut(&self, ids: &[u32]) -> Vec<Vec<u32>> {
        let wrap = |content: &[u32]| [&self.before[..], content, &self.after[..]].concat();
        let first = &ids[..ids.len().min(self.content_tokens)];
        let mut chunks = vec![wrap(first)];
        if self.chunks == Chunks::All {
            chunks.extend(ids[first.len()..].chunks(self.content_tokens).map(wrap));
        }
        chunks
    }
}

/// What the post-processor puts before and after the content of a single sequence.
fn special_tokens(tokenizer: &tokenizers::Tokenizer) -> tokenizers::Result<(Vec<u32>, Vec<u32>)> {
    let content = Encoding::from_tokens(vec![Token::new(0, String::new(), (0, 0))], 0);
    let whole = tokenizer.post_process(content, None, true)?;
    let content_at = whole.get_special_tokens_mask().iter().position(|&special| special == 0);
    let (before, rest) = whole.get_ids().split_at(content_at.ok_or("it drops the content")?);
    Ok((before.to_vec(), rest[1..].to_vec()))
}
