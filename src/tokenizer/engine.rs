//! Pipelines without the cost of the `tokenizers` crate and with its ids: one pass over the text,
//! which stops once there are enough ids.
//!
//! ```text
//!                            ┌─clusters, character map──▶ normalized text ──▶ words ──▶ ids   XLM-RoBERTa
//! text ──added tokens──▶ segments
//!                            └─seams──▶ stretches ──▶ ids                                     Gemma
//! ```
//!
//! All of it works forwards on bounded look-ahead, so the first ids of a long text are those of
//! the whole text by construction.

use std::sync::Mutex;

use unicode_segmentation::UnicodeSegmentation;

use super::charmap::CharMap;
use super::file::UnigramEntries;
use super::pipeline::{PipelineModel, TokenPipeline};
use super::segments::{Flow, SegmentWriter, write};
use super::stretches::StretchWriter;
use super::words::{WordScratch, WordWriter};

use polysift_base::panics::lock;

/// Bytes that are handed on at a time.
const RUN: usize = if cfg!(test) { 4 } else { 512 };

/// The pipeline.
pub(super) struct Engine {
    pipeline: TokenPipeline,
    /// Memory of the threads that are not at work.
    idle: Mutex<Vec<WordScratch>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl Engine {
    /// The same pipeline as `tokenizer`, with the model `unigram` if there is one.
    ///
    /// # Errors
    /// What is in it that this one has not.
    pub(crate) fn new(
        tokenizer: &tokenizers::Tokenizer,
        unigram: Option<&UnigramEntries>,
    ) -> Result<Self, &'static str> {
        Ok(Self { pipeline: TokenPipeline::of(tokenizer, unigram)?, idle: Mutex::default() })
    }

    /// Hands the ids of `text` to `read`: all of them, or the first ones and at least `limit`.
    pub(super) fn encode<T>(&self, text: &str, limit: usize, read: impl FnOnce(&[u32]) -> T) -> T {
        let idle = || lock(&self.idle);
        let scratch = idle().pop();
        let mut scratch = scratch.unwrap_or_else(WordScratch::new);
        let added_tokens = self.pipeline.added_tokens.as_ref();
        // A break says that there are enough.
        let _ = match &self.pipeline.model {
            PipelineModel::Unigram(map, model) => {
                let words = WordWriter::new(model, &mut scratch, limit);
                write(added_tokens, text, &mut NormalizingWriter { map, words })
            }
            PipelineModel::Bpe(model) => {
                write(added_tokens, text, &mut StretchWriter::new(model, &mut scratch, limit))
            }
        };
        let result = read(&scratch.ids);
        scratch.shrink();
        idle().push(scratch);
        result
    }

    /// Whether a text is split before a space or line feed between ASCII characters.
    pub(super) fn splits(&self) -> bool {
        matches!(self.pipeline.model, PipelineModel::Unigram(..))
    }
}

/// Normalizes the text on its way to the words.
struct NormalizingWriter<'a> {
    map: &'a CharMap,
    words: WordWriter<'a>,
}

impl SegmentWriter for NormalizingWriter<'_> {
    fn write(&mut self, text: &str, mut at: usize, goes_on: bool) -> Flow<usize> {
        let bytes = text.as_bytes();
        // Plain characters that are not written yet, and the last of them.
        let (mut run, mut last) = (at, at);
        while let Some((code, len)) = decode(bytes, at) {
            let glyph = self.map.glyph(code);
            if glyph.is_plain() {
                last = at;
                at += len;
                if at - run > RUN {
                    self.words.text(&text[run..last])?;
                    run = last;
                }
                continue;
            }
            let start = if glyph.joins() && run < at { last } else { at };
            self.words.text(&text[run..start])?;
            let is_alone = start == at && !glyph.is_open() && !self.joins(bytes, at + len);
            let end = if is_alone { at + len } else { start + first_cluster(&text[start..]) };
            if goes_on && end == text.len() {
                return Flow::Continue(start);
            }
            if is_alone {
                self.words.normal(&self.map.single(glyph), &text[start..end])?;
            } else {
                self.write_cluster(&text[start..end])?;
            }
            (at, run, last) = (end, end, end);
        }
        let end = if goes_on { last } else { at };
        self.words.text(&text[run..end])?;
        Flow::Continue(end)
    }

    fn end_segment(&mut self) -> Flow {
        self.words.end_segment()
    }

    fn id(&mut self, id: u32) -> Flow {
        self.words.id(id)
    }
}

impl NormalizingWriter<'_> {
    fn joins(&self, bytes: &[u8], at: usize) -> bool {
        decode(bytes, at).is_some_and(|(code, _)| self.map.glyph(code).joins())
    }

    fn write_cluster(&mut self, cluster: &str) -> Flow {
        if let Some(text) = self.map.whole(cluster) {
            return self.words.any(text);
        }
        let mut bytes = [0; 4];
        for c in cluster.chars() {
            self.words.normal(&self.map.alone(c), c.encode_utf8(&mut bytes))?;
        }
        Flow::Continue(())
    }
}

/// Bytes of the first grapheme cluster.
fn first_cluster(text: &str) -> usize {
    text.graphemes(true).next().map_or(0, str::len)
}

/// The character at `at`, which must be a border of one: code and bytes.
#[inline]
fn decode(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let rest = bytes.get(at..)?;
    let more = |byte: u8| u32::from(byte & 0x3F);
    Some(match *rest {
        [a, ..] if a < 0x80 => (u32::from(a), 1),
        [a, b, ..] if a < 0xE0 => (u32::from(a & 0x1F) << 6 | more(b), 2),
        [a, b, c, ..] if a < 0xF0 => (u32::from(a & 0xF) << 12 | more(b) << 6 | more(c), 3),
        [a, b, c, d, ..] => (u32::from(a & 7) << 18 | more(b) << 12 | more(c) << 6 | more(d), 4),
        _ => return None,
    })
}
