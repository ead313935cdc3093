//! Pipelines that are faster than the `tokenizers` crate and give the same ids: one pass over the
//! text, which stops once there are enough ids.
//!
//! ```text
//!                          ┌─clusters, charmap──▶ normalized text ──▶ words ──▶ ids   XLM-RoBERTa
//! text ──added tokens──▶ segments
//!                          └─seams──▶ stretches ──▶ ids                               Gemma
//! ```
//!
//! All steps work forwards with bounded look-ahead, so the first ids of a long text are by
//! construction those of the whole text.

use unicode_segmentation::UnicodeSegmentation;

use super::charmap::CharMap;
use super::pipeline::{Engine, PipelineModel};
use super::segments::{Flow, SegmentWriter, write};
use super::stretches::StretchWriter;
use super::words::WordWriter;

use polysift_base::panics::lock;

/// Bytes of plain characters that are passed on at a time.
const RUN: usize = if cfg!(test) { 4 } else { 512 };

impl Engine {
    /// Passes the ids of `text` to `read`: all of them, or at least the first `limit`.
    pub(super) fn encode<T>(&self, text: &str, limit: usize, read: impl FnOnce(&[u32]) -> T) -> T {
        let idle = || lock(&self.idle);
        let scratch = idle().pop();
        let mut scratch = scratch.unwrap_or_default();
        let added_tokens = self.added_tokens.as_ref();
        scratch.limit = limit;
        scratch.forget_word();
        // A break means that there are enough ids.
        let _ = match &self.model {
            PipelineModel::Unigram(map, model) => {
                let words = WordWriter { model, scratch: &mut scratch };
                write(added_tokens, text, &mut NormalizingWriter { map, words })
            }
            PipelineModel::Bpe(model) => {
                write(added_tokens, text, &mut StretchWriter { model, scratch: &mut scratch })
            }
        };
        let result = read(&scratch.ids);
        scratch.shrink();
        idle().push(scratch);
        result
    }

    /// Returns true if a text is split before a space or line feed between ASCII characters.
    pub(super) fn splits(&self) -> bool {
        matches!(self.model, PipelineModel::Unigram(..))
    }
}

struct NormalizingWriter<'a> {
    map: &'a CharMap,
    words: WordWriter<'a>,
}

impl SegmentWriter for NormalizingWriter<'_> {
    fn write(&mut self, text: &str, mut at: usize, goes_on: bool) -> Flow<usize> {
        let bytes = text.as_bytes();
        // Plain characters not yet written start at `run`; the last of them starts at `last`.
        let (mut run, mut last) = (at, at);
        let first_cluster = |start: usize| text[start..].graphemes(true).next().map_or(0, str::len);
        let joins = |at| decode(bytes, at).is_some_and(|(code, _)| self.map.glyph(code).joins());
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
            let is_alone = start == at && !glyph.is_open() && !joins(at + len);
            let end = if is_alone { at + len } else { start + first_cluster(start) };
            if goes_on && end == text.len() {
                return Flow::Continue(start);
            }
            let cluster = &text[start..end];
            if is_alone {
                self.words.normal(&self.map.single(glyph), cluster)?;
            } else if let Some(replacement) = self.map.whole(cluster) {
                self.words.mixed(replacement)?;
            } else {
                for c in cluster.chars() {
                    self.words.normal(&self.map.alone(c), c.encode_utf8(&mut [0; 4]))?;
                }
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
        self.words.scratch.id(id)
    }
}

/// Decodes the character at `at`, a character boundary. Returns its code point and bytes.
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
