//! Pipelines that are faster than the `tokenizers` crate and give the same ids: one pass over the
//! text, which stops once there are enough ids; only the search for added tokens may read on.
//!
//! ```text
//!                          ┌─clusters, charmap──▶ normalized text ──▶ words ──▶ ids   XLM-RoBERTa
//! text ──added tokens──▶ segments
//!                          └─seams──▶ stretches ──▶ ids                               Gemma
//! ```
//!
//! All other steps work forwards with bounded look-ahead, so the first ids of a long text are by
//! construction those of the whole text.

use unicode_segmentation::UnicodeSegmentation;

use super::pipeline::{Engine, PipelineModel};
use super::segments::{Flow, segments};
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
        scratch.limit = limit;
        scratch.forget_word();
        // A break means that there are enough ids.
        let _ = segments(self.added_tokens.as_ref(), text).try_for_each(|(segment, token)| {
            let scratch = &mut scratch;
            match &self.model {
                PipelineModel::Unigram(model) => WordWriter { model, scratch }.segment(segment)?,
                PipelineModel::Bpe(model) => model.segment(segment, scratch)?,
            }
            scratch.ids.extend(token);
            scratch.enough()
        });
        let result = read(&scratch.ids);
        scratch.shrink();
        idle().push(scratch);
        result
    }
}

impl WordWriter<'_> {
    /// Normalizes and writes a segment.
    fn segment(&mut self, text: &str) -> Flow {
        // Plain characters not yet written start at `run`; the last of them starts at `last`.
        let (mut at, mut run, mut last) = (0, 0, 0);
        let first_cluster = |start: usize| text[start..].graphemes(true).next().map_or(0, str::len);
        let map = &self.model.map;
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let glyph = map.glyph(c);
            if glyph.is_plain() {
                last = at;
                at += c.len_utf8();
                if at - run > RUN {
                    self.text(&text[run..last])?;
                    run = last;
                }
                continue;
            }
            let start = if glyph.joins() && run < at { last } else { at };
            self.text(&text[run..start])?;
            let is_joined = chars.clone().next().is_some_and(|c| map.glyph(c).joins());
            let is_alone = start == at && !glyph.is_open() && !is_joined;
            let end = if is_alone { at + c.len_utf8() } else { start + first_cluster(start) };
            let mut write_alone = |c| match map.alone(c) {
                Some(replacement) => self.mixed(replacement),
                None => self.character(c),
            };
            if is_alone {
                write_alone(c)?;
            } else if let Some(replacement) = map.whole(&text[start..end]) {
                self.mixed(replacement)?;
            } else {
                text[start..end].chars().try_for_each(write_alone)?;
            }
            (at, run, last) = (end, end, end);
            chars = text[end..].chars();
        }
        self.text(&text[run..])?;
        self.end_segment()
    }
}
