//! Embeddings of labelled samples, kept in the run directory: heads, seeds and rounds share them.
//!
//! ```text
//! samples/<digest of what an embedding depends on>/<digest of the texts>.parquet
//! ```
//!
//! A file holds embeddings with the BLAKE3 digests of the texts, in hex and ascending, as ids. It
//! is a cache, not an output: it has no marker, `verify` ignores it, new files are written beside
//! old ones, and a damaged or missing file costs time but changes no result.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::json;

use polysift_base::error::{Error, Result};
use polysift_base::io::list;
use polysift_config::Chunks;
use polysift_corpus::{Context, FrozenEncoder};
use polysift_data::input::DocumentInfo;
use polysift_data::parts::{EmbeddingScan, EmbeddingWriter, round_to};
use polysift_encoder::{EmbeddedTexts, Model};

const PARQUET: &str = "parquet";
/// Number of hexadecimal digits of a digest in a file name.
const NAME_DIGITS: usize = 16;

/// Index of the first text with each digest.
type Places<'a> = BTreeMap<&'a str, usize>;

/// Returns embeddings of the first chunk of each of `texts`, rounded like the corpus. Stored ones
/// are read; other texts are encoded, equal ones once, and stored. `on_share` receives the share of
/// the texts that is done. [`Error::Io`] if a file cannot be written.
pub(crate) fn embed_samples(
    context: Context<'_>,
    model: &Model,
    texts: &[&str],
    on_share: &mut dyn FnMut(f64),
) -> Result<EmbeddedTexts> {
    let Context { config, run, stop, progress, .. } = context;
    let (parts, width) = (&config.parts, model.encoder.info().embedding_size);
    let depends_on = json!([FrozenEncoder::of(config, Some(model)), parts.embeddings]).to_string();
    let folder = run.path("samples").join(digest_name(depends_on.as_bytes()));
    let digests: Vec<String> =
        texts.par_iter().map(|text| blake3::hash(text.as_bytes()).to_hex().to_string()).collect();
    // Reversed, so that the first of equal texts wins.
    let places: Places<'_> =
        digests.iter().enumerate().rev().map(|(i, digest)| (digest.as_str(), i)).collect();
    let mut values = vec![0.0; texts.len() * width];
    let mut missing = places.clone();
    let mut stored: Vec<PathBuf> = list(&folder)?.into_iter().map(|entry| entry.path()).collect();
    stored.retain(|path| path.extension().is_some_and(|extension| extension == PARQUET));
    stored.sort();
    for path in stored {
        if missing.is_empty() {
            break;
        }
        reuse(&path, &mut missing, width, &mut values).unwrap_or_else(|error| {
            let error = error.report();
            tracing::warn!(error, "stored embeddings of samples are damaged and not used");
        });
    }
    let missing: Vec<(&str, usize)> = missing.into_iter().collect();
    tracing::info!(samples = texts.len(), encoded = missing.len(), "embeddings of samples");
    let mut done = places.len() - missing.len();
    let mut on_batch = |chunks: usize, tokens: usize| {
        progress.advance(0, tokens as u64);
        done += chunks;
        on_share(done as f64 / places.len() as f64);
    };
    for block in missing.chunks(parts.rows) {
        let block_texts: Vec<&str> = block.iter().map(|&(_, at)| texts[at]).collect();
        let embedded =
            model.embed_texts(&block_texts, Chunks::First, &config.encoder, stop, &mut on_batch);
        let mut rows = embedded?.values;
        round_to(&mut rows, parts.embeddings);
        let all: String = block.iter().map(|(digest, _)| *digest).collect();
        let path = folder.join(digest_name(all.as_bytes())).with_extension(PARQUET);
        let mut writer = EmbeddingWriter::create(&path, parts.embeddings, parts.zstd)?;
        for ((row, embedding), &(id, at)) in (0..).zip(rows.chunks_exact(width)).zip(block) {
            let num_bytes = texts[at].len() as u64;
            let info = DocumentInfo { row, id, language: "", num_bytes, num_tokens: None };
            writer.push(&info, embedding, width)?;
            values[at * width..][..width].copy_from_slice(embedding);
        }
        writer.finish()?;
    }
    for (i, digest) in digests.iter().enumerate() {
        let first = places[digest.as_str()] * width;
        values.copy_within(first..first + width, i * width);
    }
    Ok(EmbeddedTexts { values, width, chunk_offsets: (0..=texts.len()).collect() })
}

fn digest_name(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..NAME_DIGITS].to_owned()
}

/// Copies the embeddings of `missing` texts from the file `path` into `values` `[_, width]` and
/// removes them from `missing`; a damaged file changes nothing.
fn reuse(path: &Path, missing: &mut Places<'_>, width: usize, values: &mut [f32]) -> Result<()> {
    let mut scan = EmbeddingScan::open(path)?;
    let is_missing = |row: &usize| missing.contains_key(scan.documents.get(*row).id);
    let wanted: Vec<usize> = (0..scan.documents.len()).filter(is_missing).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let (mut offsets, mut rows) = (Vec::new(), Vec::new());
    scan.next(usize::MAX, &mut offsets, &mut rows)?;
    if scan.hidden_size != width || rows.len() != scan.documents.len() * width {
        let reason = format!("does not hold one embedding of {width} values for each text");
        return Err(Error::corrupt(path, reason));
    }
    for row in wanted {
        if let Some(at) = missing.remove(scan.documents.get(row).id) {
            values[at * width..][..width].copy_from_slice(&rows[row * width..][..width]);
        }
    }
    Ok(())
}
