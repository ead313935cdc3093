//! Tokenizes text into chunks of token ids, as transformers' fast tokenizers do.
//!
//! A document, or its first characters, is tokenized with the prompt before it. The ids are then
//! split into consecutive chunks without overlap, and every chunk gets the special tokens of the
//! tokenizer's post-processor. The result equals `return_overflowing_tokens` with `stride=0`.
//! Truncation and padding settings of `tokenizer.json` are ignored.
//!
//! The pipelines of XLM-RoBERTa and Gemma run on an engine of our own. It gives the ids of the
//! `tokenizers` crate, and tokenizes only as much of a text as the requested ids need. There is one
//! exception: XLM-RoBERTa's words of over 64 KiB in which no border between two tokens is certain
//! until the end are cut, and may get other ids around the cuts. All other pipelines run on the
//! crate, which gets the start of a text, up to a certain split, if that gives the requested ids.
//!
//! ```
//! use polysift_config::EncoderConfig;
//! use polysift_tokenizer::Tokenizer;
//!
//! let path = std::path::Path::new("../../models/polysift-mini/tokenizer.json");
//! let tokenizer = Tokenizer::from_bytes(&std::fs::read(path)?, path, &EncoderConfig::default())?;
//! let chunks = tokenizer.chunks("A text.")?;
//! assert_eq!((chunks.len(), chunks[0][0]), (1, 0)); // input_ids, which begin with <s>
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod added_tokens;
mod bpe;
mod cache;
mod charmap;
mod engine;
mod file;
mod pipeline;
mod prefix;
mod segments;
mod stretches;
mod unigram;
mod words;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use tokenizers::{Encoding, Token, Tokenizer as CrateTokenizer};

use self::pipeline::Engine;
use self::prefix::{find_cut, splits_at_cuts};
use polysift_base::error::{Error, Result};
use polysift_base::panics::catch_panic;
use polysift_config::{Chunks, EncoderConfig};

/// Bytes of text per requested token that the crate gets at first.
const BYTES_PER_TOKEN: usize = if cfg!(test) { 2 } else { 16 };

/// One tokenized document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tokenized {
    /// Token ids of each chunk with its special tokens, at most `max_tokens`. There is at least one
    /// chunk; a text without content gives `<s></s>`. Only the first chunk under [`Chunks::First`].
    pub chunks: Vec<Vec<u32>>,
    /// Number of tokens of the whole text alone: without a prompt and the special tokens.
    pub num_tokens: u64,
}

/// A tokenizer with the settings of an encoder.
pub struct Tokenizer {
    backend: Backend,
    origin: PathBuf,
    /// Special tokens before the content of a chunk; `after` follows the content.
    before: Vec<u32>,
    after: Vec<u32>,
    /// The largest id that the tokenizer can give.
    pub largest_id: u32,
    content_tokens: usize,
    chunks: Chunks,
    prompt: String,
    max_chars: Option<usize>,
}

enum Backend {
    Engine(Box<Engine>),
    /// The crate, the reason for it, and whether it may get a text in parts.
    Crate(Box<CrateTokenizer>, &'static str, bool),
}

impl Tokenizer {
    /// Reads the contents of a `tokenizer.json`. Returns [`Error::Model`], with `origin`, if they
    /// cannot be read, [`Error::Config`] if `max_tokens` leaves no room for content.
    pub fn from_bytes(json: &[u8], origin: &Path, config: &EncoderConfig) -> Result<Self> {
        // The crate panics on some files, and so may the code that takes its parts.
        catch_panic(|| Self::parse(json, origin, config)).unwrap_or_else(|panic| {
            Err(Error::model(origin, format!("is not a tokenizer, or is damaged: {panic}")))
        })
    }

    /// Does what [`Self::from_bytes`] does, but panics where the crate panics.
    fn parse(json: &[u8], origin: &Path, config: &EncoderConfig) -> Result<Self> {
        let whole = || file::read_whole(json).map_err(|reason| Error::model(origin, reason));
        let (mut inner, unigram) = match file::read_unigram(json) {
            Some((tokenizer, model)) => (tokenizer, Some(model)),
            None => (whole()?, None),
        };
        let (before, after) = special_tokens(&inner)
            .map_err(|e| Error::model(origin, format!("its post-processor fails: {e}")))?;
        let content_tokens = config.max_tokens.saturating_sub(before.len() + after.len());
        if content_tokens == 0 {
            let reason = format!("is {}; the special tokens leave no room", config.max_tokens);
            return Err(Error::config("encoder.max_tokens", reason));
        }
        let last_piece = unigram.as_ref().map(|model| model.vocabulary.len() as u32 - 1);
        let of_vocabulary = inner.get_vocab(true).into_values().chain(last_piece);
        let largest_id = of_vocabulary.chain(before.iter().chain(&after).copied()).max();
        let backend = match Engine::new(&inner, unigram.as_ref()) {
            Ok(engine) => Backend::Engine(Box::new(engine)),
            Err(reason) => {
                if unigram.is_some() {
                    inner = whole()?;
                }
                let splits = splits_at_cuts(&inner);
                Backend::Crate(Box::new(inner), reason, splits)
            }
        };
        let tokenizer = Self {
            backend,
            origin: origin.to_owned(),
            before,
            after,
            largest_id: largest_id.unwrap_or_default(),
            content_tokens,
            chunks: config.chunks,
            prompt: config.prompt.clone().unwrap_or_default(),
            max_chars: config.max_chars,
        };
        tracing::debug!(tokenizer = %origin.display(), engine = tokenizer.engine());
        Ok(tokenizer)
    }

    /// Describes what produces the ids: our engine, or the crate and why. The ids are the same.
    pub fn engine(&self) -> String {
        match &self.backend {
            Backend::Engine(_) => "polysift's engine".into(),
            Backend::Crate(_, reason, true) => format!("the tokenizers crate: {reason}"),
            Backend::Crate(_, reason, false) => {
                format!("the tokenizers crate: {reason}; first chunks read whole texts")
            }
        }
    }

    /// Tokenizes all of one document; the count includes text that the chunks leave out. Returns
    /// [`Error::Model`] if the tokenizer refuses the text (for example, without an unknown token).
    pub fn tokenize(&self, text: &str) -> Result<Tokenized> {
        let is_whole = self.prompt.is_empty() && self.first_chars(text).len() == text.len();
        let read = |ids: &[u32]| (is_whole.then(|| self.wrap_chunks(ids)), ids.len() as u64);
        let (chunks, num_tokens) = self.pass_ids(text, usize::MAX, read)?;
        let chunks = chunks.map_or_else(|| self.chunks(text), Ok)?;
        Ok(Tokenized { chunks, num_tokens })
    }

    /// Returns the chunks of one document, as [`Tokenizer::tokenize`] does. Under
    /// [`Chunks::First`], the text is tokenized only as far as they need, unless the crate makes the
    /// ids and nothing in the text is sure to split it.
    pub fn chunks(&self, text: &str) -> Result<Vec<Vec<u32>>> {
        let text = self.first_chars(text);
        let text = match self.prompt.as_str() {
            "" => Cow::Borrowed(text),
            prompt => Cow::Owned([prompt, text].concat()),
        };
        let limit = match self.chunks {
            Chunks::First => self.content_tokens,
            Chunks::All => usize::MAX,
        };
        self.pass_ids(&text, limit, |ids| self.wrap_chunks(ids))
    }

    /// Passes the ids of `text` to `take`: all of them, or at least the first `limit`. The crate
    /// gets text up to a cut, twice as much after each attempt that gives too few ids.
    fn pass_ids<T>(&self, text: &str, limit: usize, take: impl FnOnce(&[u32]) -> T) -> Result<T> {
        let (inner, splits) = match &self.backend {
            Backend::Engine(engine) => return Ok(engine.encode(text, limit, take)),
            Backend::Crate(inner, _, splits) => (inner, *splits),
        };
        let fail = |reason| Error::model(&self.origin, format!("cannot tokenize a text: {reason}"));
        let mut bytes = if splits { limit.saturating_mul(BYTES_PER_TOKEN) } else { usize::MAX };
        loop {
            let end = find_cut(text, bytes);
            // A damaged normalizer panics at the first text that needs the damaged place.
            let encoding = catch_panic(|| inner.encode_fast(&text[..end], false)).map_err(fail)?;
            let encoding = encoding.map_err(|e| fail(e.to_string()))?;
            if end == text.len() || encoding.len() >= limit {
                return Ok(take(encoding.get_ids()));
            }
            bytes = end.saturating_mul(2);
        }
    }

    /// Returns the chunks of documents, computed in parallel, in the order of `texts`.
    pub fn chunks_all(&self, texts: &[&str]) -> Result<Vec<Vec<Vec<u32>>>> {
        texts.par_iter().map(|text| self.chunks(text)).collect()
    }

    /// Returns the part of `text` that `max_chars` allows; all of it without a limit.
    fn first_chars<'a>(&self, text: &'a str) -> &'a str {
        let cut = self.max_chars.and_then(|chars| text.char_indices().nth(chars));
        cut.map_or(text, |(end, _)| &text[..end])
    }

    /// Splits `ids` into chunks with special tokens; only the first under [`Chunks::First`].
    fn wrap_chunks(&self, ids: &[u32]) -> Vec<Vec<u32>> {
        let wrap = |content: &[u32]| [&self.before[..], content, &self.after[..]].concat();
        let first = &ids[..ids.len().min(self.content_tokens)];
        let mut chunks = vec![wrap(first)];
        if self.chunks == Chunks::All {
            chunks.extend(ids[first.len()..].chunks(self.content_tokens).map(wrap));
        }
        chunks
    }
}

/// Returns the ids that the post-processor puts before and after the content of one sequence.
fn special_tokens(tokenizer: &CrateTokenizer) -> tokenizers::Result<(Vec<u32>, Vec<u32>)> {
    let content = Encoding::from_tokens(vec![Token::new(0, String::new(), (0, 0))], 0);
    let whole = tokenizer.post_process(content, None, true)?;
    let content_at = whole.get_special_tokens_mask().iter().position(|&special| special == 0);
    let (before, rest) = whole.get_ids().split_at(content_at.ok_or("it drops the content")?);
    Ok((before.to_vec(), rest[1..].to_vec()))
}
