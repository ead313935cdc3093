//! The scores of heads that read stored embeddings.

use std::collections::BTreeMap;
use std::path::Path;

use super::ScoredPart;
use crate::error::{Error, Result};
use crate::head::{DocumentScore, Scratch};
use crate::parts::{EmbeddingBlock, EmbeddingScan};
use crate::stage::heads::{Heads, Loaded};

/// Scores the part of embeddings `path`, each document by the head of its language, some documents
/// at a time.
pub(super) fn score_part(heads: &Heads, name: &str, path: &Path) -> Result<ScoredPart> {
    let mut scan = EmbeddingScan::open(path)?;
    let documents = scan.documents()?;
    let languages = documents.languages(path)?;
    let (mut logits, mut scores) = (Vec::new(), Vec::new());
    let (mut block, mut scratch) = (EmbeddingBlock::default(), Scratch::default());
    let limit = heads.block_documents(name);
    while logits.len() < languages.len() {
        scan.next(limit, &mut block)?;
        let start = logits.len();
        let num_documents = block.chunk_offsets.len() - 1;
        let languages = languages.get(start..start + num_documents).filter(|l| !l.is_empty());
        let languages = languages
            .ok_or_else(|| Error::corrupt(path, "does not have as many embeddings as documents"))?;
        let width = scan.hidden_size();
        let scored = score_block(heads, name, width, languages, &block, &mut scratch)?;
        logits.extend(scored.iter().map(|score| score.map(|score| score.logit)));
        scores.extend(scored.iter().map(|score| score.map(|score| score.score)));
    }
    Ok(ScoredPart { path: path.to_owned(), documents, logits, scores })
}

/// Scores the documents of `block`, which are in `languages`.
fn score_block(
    heads: &Heads,
    name: &str,
    width: usize,
    languages: &[&str],
    block: &EmbeddingBlock,
    scratch: &mut Scratch,
) -> Result<Vec<Option<DocumentScore>>> {
    let checked = |language: &str| {
        let Some(Loaded { path, head }) = heads.loaded(name, language) else { return Ok(None) };
        let Some(head) = head.as_embedding() else { return Ok(None) };
        if width > 0 {
            head.check_hidden_size(path, width)?;
        }
        Ok::<_, Error>(Some(head))
    };
    if languages.iter().all(|language| *language == languages[0]) {
        return match checked(languages[0])? {
            Some(head) => head.score_here(&block.values, &block.chunk_offsets, scratch),
            None => Ok(vec![None; languages.len()]),
        };
    }
    let mut by_language: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (row, language) in languages.iter().enumerate() {
        by_language.entry(language).or_default().push(row);
    }
    let mut scores = vec![None; languages.len()];
    for (language, rows) in by_language {
        let Some(head) = checked(language)? else { continue };
        let (mut values, mut offsets) = (Vec::new(), vec![0]);
        for &row in &rows {
            let chunks = block.chunk_offsets[row]..block.chunk_offsets[row + 1];
            values.extend_from_slice(&block.values[chunks.start * width..chunks.end * width]);
            offsets.push(values.len() / width.max(1));
        }
        for (row, score) in rows.into_iter().zip(head.score_here(&values, &offsets, scratch)?) {
            scores[row] = score;
        }
    }
    Ok(scores)
}
