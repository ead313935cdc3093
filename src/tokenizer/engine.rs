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
use super::segments::{Flow, split_segments};
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
        let _ =
            split_segments(self.added_tokens.as_ref(), text).try_for_each(|(segment, token)| {
                let scratch = &mut scratch;
                match &self.model {
                    PipelineModel::Unigram(model) => {
                        WordWriter { model, scratch }.write_segment(segment)?;
                    }
                    PipelineModel::Bpe(model) => model.encode_segment(segment, scratch)?,
                }
                scratch.ids.extend(token);
                scratch.break_if_enough()
            });
        let result = read(&scratch.ids);
        scratch.shrink();
        idle().push(scratch);
        result
    }
}

impl WordWriter<'_> {
    /// Normalizes `text` cluster by cluster and writes it; plain characters go on in runs.
    fn write_segment(&mut self, text: &str) -> Flow {
        // Plain characters not yet written start at `run`; the last of them starts at `last`.
        let (mut at, mut run, mut last) = (0, 0, 0);
        let first_cluster = |start: usize| text[start..].graphemes(true).next().map_or(0, str::len);
        let map = &self.model.map;
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let glyph = map.glyph_of(c);
            if glyph.is_plain() {
                last = at;
                at += c.len_utf8();
                if at - run > RUN {
                    self.write_plain(&text[run..last])?;
                    run = last;
                }
                continue;
            }
            let start = if glyph.joins() && run < at { last } else { at };
            self.write_plain(&text[run..start])?;
            let is_joined = chars.clone().next().is_some_and(|c| map.glyph_of(c).joins());
            let is_alone = start == at && !glyph.is_open() && !is_joined;
            let end = if is_alone { at + c.len_utf8() } else { start + first_cluster(start) };
            let mut write_alone = |c| match map.replacement_of_char(c) {
                Some(replacement) => self.write_mixed(replacement),
                None => self.write_char(c),
            };
            if is_alone {
                write_alone(c)?;
            } else if let Some(replacement) = map.replacement_of_cluster(&text[start..end]) {
                self.write_mixed(replacement)?;
            } else {
                text[start..end].chars().try_for_each(write_alone)?;
            }
            (at, run, last) = (end, end, end);
            chars = text[end..].chars();
        }
        self.write_plain(&text[run..])?;
        self.end_segment()
    }
}
