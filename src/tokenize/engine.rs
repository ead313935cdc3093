//! XLM-RoBERTa's pipeline, with the ids of the `tokenizers`
//! crate and without its cost: one pass over the text, which stops once there are enough ids.
//!
//! ```text
//! text ──added tokens──▶ segments ──clusters, character map──▶ normalized text ──▶ words ──▶ ids
//! ```
//!
//! All of it works forwards on bounded look-ahead, so the first ids of a long text are those of
//! the whole text by construction.

use std::sync::Mutex;

use unicode_segmentation::UnicodeSegmentation;

use super::added_tokens::AddedTokenMatch;
use super::pipeline::UnigramPipeline;
use super::words::{Flow, WordScratch, WordWriter};

use crate::panics::lock;

/// Bytes in which added tokens are looked for at a time.
const WINDOW: usize = if cfg!(test) { 48 } else { 8192 };
/// Bytes that are handed on at a time.
const RUN: usize = if cfg!(test) { 4 } else { 512 };

/// The pipeline.
pub(super) struct Engine {
    pipeline: UnigramPipeline,
    /// Memory of the threads that are not at work.
    idle: Mutex<Vec<WordScratch>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("spacing", &self.pipeline.model.spacing)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// The same pipeline as `tokenizer`.
    ///
    /// # Errors
    /// What is in it that this one has not.
    pub(super) fn new(tokenizer: &tokenizers::Tokenizer) -> Result<Self, &'static str> {
        Ok(Self { pipeline: UnigramPipeline::of(tokenizer)?, idle: Mutex::default() })
    }

    /// Hands the ids of `text` to `read`: all of them, or the first ones and at least `limit`.
    pub(super) fn encode<T>(&self, text: &str, limit: usize, read: impl FnOnce(&[u32]) -> T) -> T {
        let idle = || lock(&self.idle);
        let scratch = idle().pop();
        let mut scratch = scratch.unwrap_or_else(WordScratch::new);
        // A break says that there are enough.
        let _ = self.write(text, &mut WordWriter::new(&self.pipeline.model, &mut scratch, limit));
        let result = read(&scratch.ids);
        scratch.shrink();
        idle().push(scratch);
        result
    }

    /// Segments between added tokens, these as they are.
    fn write(&self, text: &str, out: &mut WordWriter<'_>) -> Flow {
        let mut segment = 0;
        let mut searched = 0;
        loop {
            let (from, found) = self.next_added_token(text, segment, searched, out)?;
            let Some(found) = found else {
                self.normalize(text, from, false, out)?;
                return out.end_segment();
            };
            let before = &text[from..found.start];
            let kept = if found.token.lstrip { before.trim_end().len() } else { before.len() };
            self.normalize(&text[..from + kept], from, false, out)?;
            out.end_segment()?;
            out.id(found.token.id)?;
            searched = found.end;
            segment = found.end;
            if found.token.rstrip {
                segment += text[segment..].len() - text[segment..].trim_start().len();
            }
        }
    }

    /// Looks for the next added token and writes the segment on the way as far as it is certain:
    /// up to white space, which the token may take, and the last cluster, which may go on. Gives
    /// where the text is not yet written.
    fn next_added_token(
        &self,
        text: &str,
        segment: usize,
        searched: usize,
        out: &mut WordWriter<'_>,
    ) -> Flow<(usize, Option<AddedTokenMatch>)> {
        let Some(added_tokens) = &self.pipeline.added_tokens else {
            return Flow::Continue((segment, None));
        };
        let (mut at, mut searched, mut window) = (segment, searched, WINDOW);
        loop {
            let to = text.floor_char_boundary(searched.saturating_add(window));
            let found = added_tokens.find(text, searched, to);
            if found.is_some() || to == text.len() {
                return Flow::Continue((at, found));
            }
            searched = to;
            let certain = text[..to].trim_end().len().max(at);
            let written = self.normalize(&text[..certain], at, true, out)?;
            if written == at {
                window = window.saturating_mul(2);
            }
            at = written;
        }
    }

    /// Writes `text[at..]`; if the text may go on, without the last cluster, which may too. Gives
    /// where it stopped.
    fn normalize(
        &self,
        text: &str,
        mut at: usize,
        goes_on: bool,
        out: &mut WordWriter<'_>,
    ) -> Flow<usize> {
        let bytes = text.as_bytes();
        // Plain characters that are not written yet, and the last of them.
        let (mut run, mut last) = (at, at);
        while let Some((code, len)) = decode(bytes, at) {
            let glyph = self.pipeline.map.glyph(code);
            if glyph.is_plain() {
                last = at;
                at += len;
                if at - run > RUN {
                    out.text(&text[run..last])?;
                    run = last;
                }
                continue;
            }
            let start = if glyph.joins() && run < at { last } else { at };
            out.text(&text[run..start])?;
            let is_alone = start == at && !glyph.is_open() && !self.joins(bytes, at + len);
            let end = if is_alone { at + len } else { start + first_cluster(&text[start..]) };
            if goes_on && end == text.len() {
                return Flow::Continue(start);
            }
            if is_alone {
                out.normal(&self.pipeline.map.single(glyph), &text[start..end])?;
            } else {
                self.write_cluster(&text[start..end], out)?;
            }
            (at, run, last) = (end, end, end);
        }
        let end = if goes_on { last } else { at };
        out.text(&text[run..end])?;
        Flow::Continue(end)
    }

    fn joins(&self, bytes: &[u8], at: usize) -> bool {
        decode(bytes, at).is_some_and(|(code, _)| self.pipeline.map.glyph(code).joins())
    }

    fn write_cluster(&self, cluster: &str, out: &mut WordWriter<'_>) -> Flow {
        if let Some(text) = self.pipeline.map.whole(cluster) {
            return out.any(text);
        }
        let mut bytes = [0; 4];
        for c in cluster.chars() {
            out.normal(&self.pipeline.map.alone(c), c.encode_utf8(&mut bytes))?;
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
