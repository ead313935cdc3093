//! The scores of heads that read stored embeddings.

use std::path::Path;

use super::ScoredPart;
use crate::error::{Error, Result};
use crate::head::ScoreScratch;
use crate::parts::{EmbeddingBlock, EmbeddingScan};
use crate::stage::heads::Heads;

/// Scores the part of embeddings `path`, each document by the head of its language, some documents
/// at a time.
pub(super) fn score_part(heads: &Heads, name: &str, path: &Path) -> Result<ScoredPart> {
    let mut scan = EmbeddingScan::open(path)?;
    let documents = scan.documents()?;
    let languages = documents.languages(path)?;
    let (mut logits, mut scores) = (Vec::new(), Vec::new());
    let (mut block, mut scratch) = (EmbeddingBlock::default(), ScoreScratch::default());
    let limit = heads.block_documents(name);
    while logits.len() < languages.len() {
        scan.next(limit, &mut block)?;
        let start = logits.len();
        let num_documents = block.chunk_offsets.len() - 1;
        let languages = languages.get(start..start + num_documents).filter(|l| !l.is_empty());
        let languages = languages
            .ok_or_else(|| Error::corrupt(path, "does not have as many embeddings as documents"))?;
        let (width, chunks) = (scan.hidden_size(), (&block.values[..], &block.chunk_offsets[..]));
        let scored = heads.score_chunks(name, languages, width, chunks, &mut scratch)?;
        logits.extend(scored.iter().map(|score| score.map(|score| score.logit)));
        scores.extend(scored.iter().map(|score| score.map(|score| score.score)));
    }
    Ok(ScoredPart { path: path.to_owned(), documents, logits, scores })
}
