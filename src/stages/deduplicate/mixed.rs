//! Embeddings in shards with several languages, in memory for a group of languages.

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;

use polysift_base::error::Result;
use polysift_corpus::language_groups::LanguageGroups;
use polysift_corpus::{Context, Embedded};
use polysift_data::parts::EmbeddingScan;
use polysift_heads::vectors::{BLOCK_ROWS, unit_mean};

/// Embeddings of a group of languages, by index in the plan and index of the part.
pub(super) struct MixedVectors {
    pub(super) parts: BTreeMap<(u64, usize), MixedPart>,
}

/// Embeddings of a part, by language.
pub(super) struct MixedPart {
    /// Length of one embedding.
    pub(super) width: usize,
    pub(super) languages: BTreeMap<String, Vectors>,
}

/// Embeddings of the documents of a language in a part.
#[derive(Default)]
pub(super) struct Vectors {
    /// Rows of all documents, ascending.
    pub(super) rows: Vec<u64>,
    /// Index in `values` of each document with a usable embedding.
    pub(super) places: Vec<Option<usize>>,
    /// Embeddings of unit norm, `[usable, width]`.
    pub(super) values: Vec<f32>,
}

impl MixedVectors {
    /// Groups the languages of `embedded` so that the embeddings of a group have up to `most_bytes`.
    pub(super) fn groups<'a>(
        context: Context<'a>,
        embedded: &'a Embedded,
        most_bytes: usize,
    ) -> LanguageGroups<'a, Self> {
        let run = context.run;
        let languages: Vec<&str> = embedded.num_documents().into_keys().collect();
        let shards = embedded.mixed_shards_with(&languages);
        let mut shards = shards.into_iter().filter(|(.., num_parts)| *num_parts > 0);
        let scan = shards.next().map(|(_, shard, _)| run.embeddings_part(shard, 0));
        // If the part cannot be read, there are no groups, and it fails where it is needed.
        let scan = scan.and_then(|path| EmbeddingScan::open(&path).ok());
        let bytes = |scan: EmbeddingScan| scan.hidden_size.max(1) * size_of::<f32>();
        let most = scan.map_or(0, |scan| most_bytes / bytes(scan)) as u64;
        LanguageGroups::new(embedded, most, move |group| {
            let shards = embedded.mixed_shards_with(group).into_par_iter();
            let parts = shards.flat_map_iter(|(place, shard, num_parts)| {
                (0..num_parts).map(move |index| (place, shard, index))
            });
            let read = |(place, shard, index)| {
                let path = run.embeddings_part(shard, index);
                Ok(((place, index), MixedPart::read(context, &path, group)?))
            };
            Ok(Self { parts: parts.map(read).collect::<Result<_>>()? })
        })
    }

    /// Returns the bytes of the embeddings.
    pub(super) fn bytes(&self) -> usize {
        let vectors = self.parts.values().flat_map(|part| part.languages.values());
        vectors.map(|vectors| vectors.values.len() * size_of::<f32>()).sum()
    }
}

impl MixedPart {
    /// Reads the embeddings of the languages `group` in the part `path`.
    fn read(context: Context<'_>, path: &Path, group: &[&str]) -> Result<Self> {
        let mut scan = EmbeddingScan::open(path)?;
        let (width, documents) = (scan.hidden_size, scan.documents.clone());
        let mut found: Vec<Vectors> = group.iter().map(|_| Vectors::default()).collect();
        let (mut chunk_offsets, mut values) = (Vec::new(), Vec::new());
        for start in (0..documents.len()).step_by(BLOCK_ROWS) {
            context.stop.check()?;
            scan.next(BLOCK_ROWS, &mut chunk_offsets, &mut values)?;
            for (at, chunks) in (start..).zip(chunk_offsets.windows(2)) {
                let document = documents.get(at);
                let Ok(own) = group.binary_search(&document.language) else { continue };
                let own = &mut found[own];
                let vector = unit_mean(&values[chunks[0] * width..chunks[1] * width], width);
                own.rows.push(document.row);
                own.places.push(vector.as_ref().map(|_| own.values.len() / width));
                own.values.extend(vector.unwrap_or_default());
            }
        }
        let found = group.iter().zip(found).filter(|(_, vectors)| !vectors.rows.is_empty());
        let languages = found.map(|(language, vectors)| ((*language).to_owned(), vectors));
        Ok(Self { width, languages: languages.collect() })
    }
}
