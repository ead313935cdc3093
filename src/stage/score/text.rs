//! The scores of heads that read the texts themselves, from the input once more.

use std::path::Path;

use rayon::prelude::*;

use super::ScoredPart;
use crate::error::Result;
use crate::fasttext::TextScratch;
use crate::head::{AnyHead, DocumentScore, FastTextHead};
use crate::parts::EmbeddingScan;
use crate::stage::context::Context;
use crate::stage::heads::Heads;
use crate::stage::texts::Texts;

/// Documents whose texts are in memory at once, and that are scored in parallel.
const BLOCK_DOCUMENTS: usize = 1024;

/// Scores the documents of the part of embeddings `path`, each by the head `name` of its language;
/// `texts` stands before the first of them.
pub(super) fn score_part(
    context: Context<'_>,
    heads: &Heads,
    name: &str,
    texts: &mut Texts<'_>,
    path: &Path,
) -> Result<ScoredPart> {
    let documents = EmbeddingScan::open(path)?.documents()?;
    let languages = documents.languages(path)?;
    let (rows, num_bytes) =
        (documents.numbers("row", path)?, documents.numbers("num_bytes", path)?);
    let head = |language| heads.get(name, language).and_then(AnyHead::as_text);
    let (mut logits, mut scores) = (Vec::new(), Vec::new());
    for start in (0..rows.len()).step_by(BLOCK_DOCUMENTS) {
        context.stop.check()?;
        let block = start..rows.len().min(start + BLOCK_DOCUMENTS);
        let to_score: Vec<(Option<&FastTextHead>, Option<String>)> = block
            .map(|at| Ok((head(languages[at]), texts.text(rows[at], num_bytes[at])?)))
            .collect::<Result<_>>()?;
        let score = |scratch: &mut TextScratch,
                     (head, text): (Option<&FastTextHead>, Option<String>)| {
            head.zip(text).map(|(head, text)| head.score_one(&text, scratch))
        };
        let scored: Vec<Option<DocumentScore>> =
            to_score.into_par_iter().map_init(TextScratch::default, score).collect();
        logits.extend(scored.iter().map(|score| score.map(|score| score.logit)));
        scores.extend(scored.iter().map(|score| score.map(|score| score.score)));
    }
    Ok(ScoredPart { path: path.to_owned(), documents, logits, scores })
}
