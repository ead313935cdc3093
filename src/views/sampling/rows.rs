//! Drawn documents with their texts as rows to annotate, and the documents of earlier rounds.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use polysift_base::error::{Error, Result};
use polysift_base::language::UNDETERMINED_LANGUAGE;
use polysift_base::sample::ordinal_rank;
use polysift_config::{InputConfig, LanguageSource};
use polysift_corpus::embedded::place_of;
use polysift_corpus::{RunRows, Texts};
use polysift_data::input::{DocumentInfo, DocumentReader, InputFile};
use polysift_runs::run::{Plan, Shard};

const READ_ROWS: usize = 1024;
/// Keys of a row that `sample` names; settings name the keys of the id and the text.
const OWN_KEYS: [&str; 8] =
    ["label", "language", "file", "row", "scores", "copies", "inclusion_probability", "weight"];

/// Documents of earlier rounds, which are not drawn or shown again.
#[derive(Debug, Default)]
pub(super) struct EarlierRounds {
    pub(super) ids: BTreeSet<String>,
    /// Digests of the texts.
    texts: HashSet<blake3::Hash>,
}

impl EarlierRounds {
    /// Reads the ids and texts of `files`, in the columns of the settings `config`.
    pub(super) fn read(files: &[InputFile], config: &InputConfig) -> Result<Self> {
        // Rows need not have the language and embedding columns of the corpus.
        let language = LanguageSource::Fixed(UNDETERMINED_LANGUAGE.into());
        let config = InputConfig { language, embeddings: None, ..config.clone() };
        let mut earlier = Self::default();
        for file in files {
            let mut reader = DocumentReader::open(file, &config)?;
            while let Some(batch) = reader.next_batch(READ_ROWS)? {
                earlier.ids.extend((0..batch.len()).map(|i| batch.get(i).id.to_owned()));
                earlier.texts.extend(batch.texts().map(|(_, text)| blake3::hash(text.as_bytes())));
            }
        }
        Ok(earlier)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AnnotationRow<'a> {
    /// Id and text, under the names of their columns.
    #[serde(flatten)]
    document: Map<String, Value>,
    /// Null, for the annotator to fill in.
    label: (),
    language: String,
    file: &'a Path,
    row: u64,
    /// Scores by head; `None` if absent or not finite.
    scores: BTreeMap<&'a str, Option<f32>>,
    /// Number of drawn documents with this text.
    pub(super) copies: u64,
    /// 1 / `weight`.
    inclusion_probability: f64,
    /// Number of documents that all drawn ones with this text represent in estimates of totals.
    pub(super) weight: f64,
}

/// Refuses columns of ids and texts that have the name of another key of a row.
pub(super) fn check_columns(config: &InputConfig) -> Result<()> {
    for (setting, column) in [("input.id", &config.id), ("input.text", &config.text)] {
        if OWN_KEYS.contains(&column.as_str()) {
            let reason = format!("is `{column}`, which `sample` names a column of its own");
            return Err(Error::config(setting, reason));
        }
    }
    Ok(())
}

/// Reads the texts of `drawn` (ordinals and probabilities of documents of one language) as rows in
/// random order, so that the first ones are also a sample, and counts the documents with a text of
/// an earlier round.
///
/// Of equal texts, the first in the corpus becomes a row with the total weight of all, so that
/// estimates of totals do not change. Leaving out known texts does not change other probabilities.
pub(super) fn read_rows<'a>(
    (plan, stored): (&'a Plan, &'a RunRows<'_>),
    mut drawn: Vec<(u64, f64)>,
    earlier: &EarlierRounds,
    seed: u64,
) -> Result<(Vec<AnnotationRow<'a>>, u64)> {
    drawn.sort_unstable_by_key(|(ordinal, _)| *ordinal);
    let (mut rows, mut places, mut known_texts) = (Vec::new(), HashMap::new(), 0);
    for of_shard in drawn.chunk_by(|a, b| place_of(a.0).0 == place_of(b.0).0) {
        let place = place_of(of_shard[0].0).0;
        let read = read_shard(stored, (place, &plan.shards[place as usize]), of_shard)?;
        for ((ordinal, _), (digest, row)) in of_shard.iter().zip(read) {
            if earlier.texts.contains(&digest) {
                known_texts += 1;
                continue;
            }
            match places.entry(digest) {
                Entry::Occupied(place) => {
                    let (_, first): &mut (_, AnnotationRow<'a>) = &mut rows[*place.get()];
                    first.weight += row.weight;
                    first.inclusion_probability = 1.0 / first.weight;
                    first.copies += 1;
                }
                Entry::Vacant(place) => {
                    place.insert(rows.len());
                    rows.push((ordinal_rank(seed, *ordinal), row));
                }
            }
        }
    }
    rows.sort_unstable_by_key(|(rank, _)| *rank);
    Ok((rows.into_iter().map(|(_, row)| row).collect(), known_texts))
}

/// Reads a row for each of `drawn`, documents of `shard` in ascending order, and its text's digest.
fn read_shard<'a>(
    stored: &'a RunRows<'_>,
    (place, shard): (u64, &'a Shard),
    drawn: &[(u64, f64)],
) -> Result<Vec<(blake3::Hash, AnnotationRow<'a>)>> {
    let (context, input) = (stored.context, &stored.context.config.input);
    let mut texts = Texts::open(context, shard)?;
    let (mut read, mut stored_rows) =
        (Vec::with_capacity(drawn.len()), stored.shard(place, shard)?);
    while read.len() < drawn.len()
        && let Some(part) = stored_rows.next_part()?
    {
        stored_rows.for_each_of(&part, |found| {
            let DocumentInfo { row, id, language, num_bytes, .. } = found.info;
            let is_next = |(ordinal, _): &&(u64, f64)| *ordinal == found.scored.ordinal;
            let next = drawn.get(read.len()).filter(is_next);
            let Some((_, probability)) = next else { return Ok(()) };
            let weight = 1.0 / probability;
            let lost = || Error::corrupt(&shard.file, format!("row {row} has no text"));
            let score = |head| found.score(head).map(|n| n.score).filter(|s| s.is_finite());
            let heads = stored.heads.iter().take(part.scores.len()).enumerate();
            let text = texts.text(row, num_bytes)?.ok_or_else(lost)?;
            let digest = blake3::hash(text.as_bytes());
            let columns = [(input.id.clone(), Value::from(id)), (input.text.clone(), text.into())];
            let row = AnnotationRow {
                document: columns.into_iter().collect(),
                label: (),
                language: language.to_owned(),
                file: &shard.file,
                row,
                scores: heads.map(|(head, name)| (*name, score(head))).collect(),
                copies: 1,
                inclusion_probability: 1.0 / weight,
                weight,
            };
            read.push((digest, row));
            Ok(())
        })?;
    }
    Ok(read)
}
