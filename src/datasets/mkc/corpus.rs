//! Negatives: a uniform sample of the whole corpus of a language.

use std::collections::HashSet;

use rayon::prelude::*;

use super::{CORPUS, MkcLanguage};
use crate::write::{DatasetSample, sample_key};
use crate::{DatasetRules, SourceCard, SourceFile};
use polysift_base::error::{Error, Result};
use polysift_base::sample::{BottomKSample, Ranks, key_of};
use polysift_config::{InputConfig, Mode};
use polysift_data::input::{DocumentReader, InputFile};

const PUBLISHED_FILES: usize = 3;
const BATCH_ROWS: usize = 256;

impl MkcLanguage<'_> {
    /// Draws `count` documents, or all if there are fewer; each distinct text has the same
    /// probability, and texts with a key in `positives` are left out. Memory is bounded by `count`
    /// documents. Published mode draws from three files and does not merge duplicate texts.
    pub(super) fn draw_negatives(
        &self,
        count: usize,
        positives: &HashSet<u128>,
    ) -> Result<(Vec<DatasetSample>, SourceCard)> {
        let ranks = self.ranks("negatives");
        let mut files: Vec<&InputFile> = self.files.iter().collect();
        if self.request.rules.mode == Mode::Published {
            if files.len() < PUBLISHED_FILES {
                let number = files.len();
                let reason = format!(
                    "the mode `published` draws from {PUBLISHED_FILES} files; there are {number}"
                );
                return Err(Error::config("--corpus", reason));
            }
            files.sort_by_key(|file| ranks.rank_of(key_of("file", &[&file.name])));
            files.truncate(PUBLISHED_FILES);
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let sampler = BottomKSample::new(count);
        let read = |file: &&InputFile| self.offer_documents(file, &ranks, positives, &sampler);
        let cards: Vec<Result<SourceCard>> = files.par_iter().map(read).collect();
        let mut card = SourceCard::default();
        for of_file in cards {
            let SourceCard { files, rows, dropped, .. } = of_file?;
            card.files.extend(files);
            card.rows += rows;
            for (reason, rows) in dropped {
                card.drop_rows(&reason, rows);
            }
        }
        let samples = sampler.into_items();
        let usable = card.rows - card.count_dropped(&["blank", "equal to a positive"]);
        card.drop_rows("not drawn", usable - samples.len() as u64);
        Ok((samples, card))
    }

    /// Offers the documents of a file to `sampler`; the card gets the file, its rows, and the rows
    /// that were not offered, by reason.
    fn offer_documents(
        &self,
        file: &InputFile,
        ranks: &Ranks,
        positives: &HashSet<u128>,
        sampler: &BottomKSample<DatasetSample>,
    ) -> Result<SourceCard> {
        let DatasetRules { mode, max_rejects, .. } = self.request.rules;
        let (text, id) = (self.request.text_column.clone(), self.request.id_column.clone());
        let input = InputConfig { text, id, max_rejects, ..InputConfig::default() };
        let mut reader = DocumentReader::open(file, &input)?;
        let mut card = SourceCard::default();
        while let Some(batch) = reader.next_batch(BATCH_ROWS)? {
            self.stop.check()?;
            for i in 0..batch.len() {
                card.rows += 1;
                let text = match mode {
                    Mode::Default => batch.text(i),
                    // Published mode also takes blank texts.
                    Mode::Published => batch.stored_text(i),
                };
                let Some(text) = text else {
                    card.drop_rows("blank", 1);
                    continue;
                };
                let key = sample_key(mode, text, &file.name, batch.rows()[i]);
                if positives.contains(&key) {
                    card.drop_rows("equal to a positive", 1);
                    continue;
                }
                let sample = || DatasetSample {
                    id: batch.get(i).id.to_owned(),
                    text: text.to_owned(),
                    source: CORPUS.to_owned(),
                    positive: false,
                    key,
                    group: key,
                    is_translated: false,
                };
                sampler.offer(ranks.rank_of(key), sample);
            }
        }
        card.drop_rows("malformed", reader.rejects().len() as u64);
        let (blake3, fingerprint) = (None, Some(file.fingerprint()?));
        let (name, bytes, rows) = (file.name.clone(), file.bytes, card.rows);
        card.files.push(SourceFile { name, bytes, blake3, fingerprint, rows });
        Ok(card)
    }
}
