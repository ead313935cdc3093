//! Negatives: a uniform sample of the whole corpus of a language.

use std::collections::HashSet;

use rayon::prelude::*;

use super::key::{Ranks, key_of, place_key, text_key};
use super::{BottomK, Mode, Sample, SourceCard, SourceFile};
use crate::config::InputConfig;
use crate::error::{Error, Result};
use crate::input::{DocumentReader, InputFile};
use crate::progress::Stop;

/// Name of the source of negatives.
pub(super) const CORPUS: &str = "corpus";

/// Files that the reference looks at.
const REFERENCE_FILES: usize = 3;

/// Documents read at once.
const BATCH_ROWS: usize = 256;

/// The corpus of one language and how it is sampled.
#[derive(Clone, Copy)]
pub(super) struct Corpus<'a> {
    pub files: &'a [InputFile],
    pub input: &'a InputConfig,
    pub ranks: &'a Ranks,
    pub mode: Mode,
    pub stop: &'a Stop,
}

/// Rows of a file and why some of them cannot be drawn.
#[derive(Default)]
struct Counts {
    rows: u64,
    blank: u64,
    positive: u64,
    malformed: u64,
}

impl Corpus<'_> {
    /// Draws `wanted` documents, fewer where there are no more, each distinct text with the same
    /// probability; texts whose key is among `positives` are left out. Holds as many documents as
    /// are wanted. The reference draws from three files, texts that are there twice twice.
    pub(super) fn draw(
        &self,
        wanted: usize,
        positives: &HashSet<u128>,
    ) -> Result<(Vec<Sample>, SourceCard)> {
        let files = self.chosen_files()?;
        let sampler = BottomK::new(wanted);
        let read = |file: &&InputFile| self.read(file, positives, &sampler);
        let counts: Vec<Result<Counts>> = files.par_iter().map(read).collect();
        let mut card = SourceCard::default();
        for (file, counts) in files.into_iter().zip(counts) {
            let Counts { rows, blank, positive, malformed } = counts?;
            card.rows += rows;
            card.drop_rows("blank", blank);
            card.drop_rows("malformed", malformed);
            card.drop_rows("equal to a positive", positive);
            card.files.push(SourceFile {
                name: file.name.clone(),
                bytes: file.bytes,
                blake3: None,
                fingerprint: Some(file.fingerprint()?),
                rows,
            });
        }
        let samples = sampler.into_items();
        let usable = card.rows - card.dropped_of(&["blank", "equal to a positive"]);
        card.drop_rows("not drawn", usable - samples.len() as u64);
        Ok((samples, card))
    }

    /// All files, or those of the reference, sorted by name.
    fn chosen_files(&self) -> Result<Vec<&InputFile>> {
        let mut files: Vec<&InputFile> = self.files.iter().collect();
        if self.mode == Mode::Reference {
            if files.len() < REFERENCE_FILES {
                let reason = format!(
                    "the mode `reference` draws from {REFERENCE_FILES} files; there are {}",
                    files.len()
                );
                return Err(Error::config("--corpus", reason));
            }
            files.sort_by_key(|file| self.ranks.of(key_of("file", &[&file.name])));
            files.truncate(REFERENCE_FILES);
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    fn read(
        &self,
        file: &InputFile,
        positives: &HashSet<u128>,
        sampler: &BottomK<Sample>,
    ) -> Result<Counts> {
        let mut reader = DocumentReader::open(file, self.input)?;
        let mut counts = Counts::default();
        while let Some(batch) = reader.next_batch(BATCH_ROWS)? {
            self.stop.check()?;
            for i in 0..batch.len() {
                counts.rows += 1;
                let text = match self.mode {
                    Mode::Sound => batch.text(i),
                    // The reference takes every text that is there.
                    Mode::Reference => batch.stored_text(i),
                };
                let Some(text) = text else {
                    counts.blank += 1;
                    continue;
                };
                let key = match self.mode {
                    Mode::Sound => text_key(text),
                    Mode::Reference => place_key(&file.name, batch.rows[i]),
                };
                if positives.contains(&key) {
                    counts.positive += 1;
                    continue;
                }
                let sample = || Sample {
                    id: batch.id(i).to_owned(),
                    text: text.to_owned(),
                    source: CORPUS.to_owned(),
                    positive: false,
                    key,
                    group: key,
                    is_translated: false,
                };
                sampler.offer(self.ranks.of(key), sample);
            }
        }
        counts.malformed = reader.rejects().len() as u64;
        Ok(counts)
    }
}
