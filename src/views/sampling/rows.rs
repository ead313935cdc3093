//! Drawn documents with their texts as rows to annotate, and the documents of earlier rounds.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::draws::Draws;
use super::frame::StoredDocuments;
use super::mixture::Strategy;
use polysift_base::error::{Error, Result};
use polysift_config::{InputConfig, LanguageSource};
use polysift_corpus::embedded::place_of;
use polysift_corpus::rows::RowScores;
use polysift_corpus::texts::Texts;
use polysift_data::input::{DocumentInfo, DocumentReader, InputFile, UNDETERMINED_LANGUAGE};
use polysift_runs::run::Shard;

/// Rows of an earlier round that are read together.
const READ_ROWS: usize = 1024;

/// BLAKE3 of a text.
type TextDigest = [u8; 32];

fn digest(text: &str) -> TextDigest {
    *blake3::hash(text.as_bytes()).as_bytes()
}

/// Ids and texts of earlier rounds.
#[derive(Debug, Default)]
pub(super) struct EarlierRounds {
    pub(super) ids: BTreeSet<String>,
    texts: HashSet<TextDigest>,
}

impl EarlierRounds {
    /// Reads `files`, with the column names of `config`.
    pub(super) fn read(files: &[InputFile], config: &InputConfig) -> Result<Self> {
        // Rows need not have the language and embedding columns of the corpus.
        let language = LanguageSource::Fixed(UNDETERMINED_LANGUAGE.into());
        let config = InputConfig { language, embeddings: None, ..config.clone() };
        let mut earlier = Self::default();
        for file in files {
            let mut reader = DocumentReader::open(file, &config)?;
            while let Some(batch) = reader.next_batch(READ_ROWS)? {
                earlier.ids.extend((0..batch.len()).map(|i| batch.id(i).to_owned()));
                earlier.texts.extend(batch.texts().map(|(_, text)| digest(text)));
            }
        }
        Ok(earlier)
    }

    /// Returns a digest of the ids; empty without ids.
    pub(super) fn history(&self) -> Vec<u8> {
        let mut hasher = blake3::Hasher::new();
        for id in &self.ids {
            hasher.update(&(id.len() as u64).to_le_bytes()).update(id.as_bytes());
        }
        if self.ids.is_empty() { Vec::new() } else { hasher.finalize().as_bytes().to_vec() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DrawnDocument {
    /// Place of the document in the corpus.
    pub(super) ordinal: u64,
    pub(super) probability: f64,
    /// The strategy that contributes most to the probability.
    pub(super) strategy: Strategy,
}

/// A text to annotate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AnnotationRow<'a> {
    /// Names of the id and text columns.
    pub(super) columns: [&'a str; 2],
    pub id: String,
    pub(super) text: String,
    pub language: &'a str,
    pub(super) file: &'a Path,
    /// Row in the file, counted from 0.
    pub row: u64,
    /// Scores by head; `None` if absent or not finite.
    pub(super) scores: Vec<(&'a str, Option<f32>)>,
    pub(super) strategy: Strategy,
    /// Number of documents that all drawn ones with this text represent in estimates of totals.
    pub(super) weight: f64,
    /// Number of drawn documents with this text.
    pub(super) copies: u64,
}

impl Serialize for AnnotationRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Scores<'a>(&'a [(&'a str, Option<f32>)]);
        impl Serialize for Scores<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().copied())
            }
        }
        let [id, text] = self.columns;
        let mut row = serializer.serialize_map(None)?;
        row.serialize_entry(id, &self.id)?;
        row.serialize_entry(text, &self.text)?;
        row.serialize_entry("label", &())?;
        row.serialize_entry("language", self.language)?;
        row.serialize_entry("file", self.file)?;
        row.serialize_entry("row", &self.row)?;
        row.serialize_entry("scores", &Scores(&self.scores))?;
        row.serialize_entry("strategy", &self.strategy)?;
        row.serialize_entry("copies", &self.copies)?;
        row.serialize_entry("inclusion_probability", &(1.0 / self.weight))?;
        row.serialize_entry("weight", &self.weight)?;
        row.end()
    }
}

/// Rows of a language, and the number of drawn documents with a text of an earlier round.
pub(super) struct LanguageRows<'a> {
    /// Rows in random order, so that the first ones are also a sample.
    pub(super) rows: Vec<AnnotationRow<'a>>,
    pub(super) known_texts: u64,
}

impl<'a> LanguageRows<'a> {
    /// Reads the texts of `drawn`, documents of `language`.
    ///
    /// Of equal texts, the first in the corpus becomes a row with the total weight of all, so that
    /// estimates of totals do not change. Texts of earlier rounds are left out, which does not
    /// change the probabilities of the others.
    pub(super) fn read(
        stored: &'a StoredDocuments<'_>,
        language: &'a str,
        mut drawn: Vec<DrawnDocument>,
        earlier: &EarlierRounds,
        order: Draws,
    ) -> Result<Self> {
        drawn.sort_unstable_by_key(|document| document.ordinal);
        let mut found = Self { rows: Vec::with_capacity(drawn.len()), known_texts: 0 };
        let (mut places, mut ranks) = (HashMap::new(), Vec::new());
        for of_shard in drawn.chunk_by(|a, b| place_of(a.ordinal).0 == place_of(b.ordinal).0) {
            let shard = &stored.embedded.plan.shards[place_of(of_shard[0].ordinal).0 as usize];
            found.read_shard(stored, language, (shard, of_shard), |row, ordinal, rows| {
                let digest = digest(&row.text);
                if earlier.texts.contains(&digest) {
                    return true;
                }
                let place = *places.entry(digest).or_insert(rows.len());
                if let Some(first) = rows.get_mut(place) {
                    first.weight += row.weight;
                    first.copies += 1;
                } else {
                    ranks.push((order.of(ordinal), ordinal));
                    rows.push(row);
                }
                false
            })?;
        }
        let mut ranked: Vec<_> = ranks.into_iter().zip(found.rows).collect();
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        found.rows = ranked.into_iter().map(|(_, row)| row).collect();
        Ok(found)
    }

    /// Passes a shard's documents, with their ordinals, to `take`, which returns whether an earlier
    /// round has the text.
    fn read_shard(
        &mut self,
        stored: &'a StoredDocuments<'_>,
        language: &'a str,
        (shard, drawn): (&'a Shard, &[DrawnDocument]),
        mut take: impl FnMut(AnnotationRow<'a>, u64, &mut Vec<AnnotationRow<'a>>) -> bool,
    ) -> Result<()> {
        let context = stored.rows.context;
        let input = &context.config.input;
        let mut texts = Texts::open(context, shard)?;
        let mut drawn = drawn.iter().peekable();
        let place = drawn.peek().map_or(0, |document| place_of(document.ordinal).0);
        let (mut rows, mut memory) = (stored.rows.shard(place, shard)?, RowScores::default());
        while drawn.peek().is_some() {
            let Some(part) = rows.next_part()? else { break };
            while let Some(document) = drawn.peek() {
                let wanted = place_of(document.ordinal).1;
                let Ok(at) = part.documents.rows().binary_search(&wanted) else { break };
                let found = rows.row(&part, at, &mut memory);
                let DocumentInfo { row, id, num_bytes, .. } = found.info;
                let lost = || Error::corrupt(&shard.file, format!("row {row} has no text"));
                let score = |head| found.number(head).map(|n| n.1).filter(|s| s.is_finite());
                let heads = stored.rows.heads.iter().take(part.scores.len()).enumerate();
                let row = AnnotationRow {
                    columns: [&input.id, &input.text],
                    id: id.to_owned(),
                    text: texts.text(row, num_bytes)?.ok_or_else(lost)?,
                    language,
                    file: &shard.file,
                    row,
                    scores: heads.map(|(head, name)| (*name, score(head))).collect(),
                    strategy: document.strategy,
                    weight: 1.0 / document.probability,
                    copies: 1,
                };
                self.known_texts += u64::from(take(row, document.ordinal, &mut self.rows));
                drawn.next();
            }
        }
        Ok(())
    }
}
