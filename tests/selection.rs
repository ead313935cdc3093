//! Selection from outside: an in-memory corpus, and the tests that use it.

/// Against numpy: published mode.
mod published;
/// The rules one by one.
mod rules;
/// Against a full sort.
mod sort;

use polysift::Result;
use polysift::config::{HeadOutput, Keep, Rate};
use polysift::head::DocumentScore;
use polysift::selection::{
    Corpus, Decision, HeadColumn, ScanRequest, ScoreBatch, ScoredDocument, Selection, Threshold,
    ThresholdKind,
};

#[derive(Debug, Clone)]
struct Document {
    id: String,
    ordinal: u64,
    weight: u64,
    scores: Vec<Option<DocumentScore>>,
}

impl Document {
    fn row(&self) -> ScoredDocument<'_> {
        ScoredDocument { id: &self.id, ordinal: self.ordinal, scores: &self.scores }
    }

    /// Logit of head `head`, unless missing or NaN.
    fn logit(&self, head: usize) -> Option<f32> {
        self.scores[head].map(|found| found.logit).filter(|logit| !logit.is_nan())
    }
}

/// Shards of documents.
struct InMemory(Vec<Vec<Document>>);

impl Corpus for InMemory {
    fn num_shards(&self) -> usize {
        self.0.len()
    }

    fn scan(
        &self,
        shard: usize,
        wanted: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        // Short blocks, so that there are several.
        self.0[shard].chunks(5).try_for_each(|documents| visit_batch(documents, wanted, visit))
    }
}

/// Visits `documents` with what is wanted of them, and nothing else.
fn visit_batch(
    documents: &[Document],
    wanted: &ScanRequest,
    visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
) -> Result<()> {
    let wants_id = |document: &Document| {
        wanted.ids.iter().any(|&(head, logit)| document.logit(head) == Some(logit))
    };
    let documents: Vec<&Document> =
        documents.iter().filter(|document| wanted.others || wants_id(document)).collect();
    let num_heads = documents.first().map_or(0, |document| document.scores.len());
    let columns: Vec<(Vec<f32>, Vec<f32>, Vec<bool>)> = (0..num_heads)
        .map(|head| {
            let values = |value: fn(DocumentScore) -> f32| -> Vec<f32> {
                // 7 stands where there is no score: nobody may look at it.
                documents.iter().map(|document| document.scores[head].map_or(7.0, value)).collect()
            };
            let present = documents.iter().map(|document| document.scores[head].is_some());
            (values(|found| found.logit), values(|found| found.score), present.collect())
        })
        .collect();
    let head = |head: usize| {
        let (logits, scores, present) = &columns[head];
        let all_present = present.iter().all(|&is_present| is_present);
        let present = (!all_present).then_some(present.as_slice());
        let column = HeadColumn { logits, scores, present };
        if wanted.heads.contains(&head) { column } else { HeadColumn::default() }
    };
    let heads: Vec<HeadColumn> = (0..num_heads).map(head).collect();
    let weights: Vec<u64> = documents.iter().map(|document| document.weight).collect();
    let all_one = weights.iter().all(|&weight| weight == 1);
    let weights = (!all_one).then_some(weights.as_slice());
    let (mut ids, mut ordinals) = (Vec::new(), Vec::new());
    if documents.iter().any(|document| wants_id(document)) {
        for document in &documents {
            let (id, ordinal) = (document.id.as_str(), document.ordinal);
            let wanted = if wants_id(document) { (id, ordinal) } else { ("not to be seen", 0) };
            ids.push(wanted.0);
            ordinals.push(wanted.1);
        }
    }
    let (len, heads, ids, ordinals) = (documents.len(), &heads, &ids, &ordinals);
    visit(&ScoreBatch { len, ids, ordinals, weights, heads, ..ScoreBatch::default() })
}

/// Returns the score of a head whose score is the sigmoid of the logit.
fn sigmoid(logit: f32) -> DocumentScore {
    DocumentScore { logit, score: (1.0 / (1.0 + (-f64::from(logit)).exp())) as f32 }
}

/// Returns the score of a head whose score is the logit.
fn raw(logit: f32) -> DocumentScore {
    DocumentScore { logit, score: logit }
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap_or_else(|e: String| unreachable!("{e}"))
}

fn threshold(head: usize, keep: Keep, kind: ThresholdKind) -> Threshold {
    let head_name = format!("head{head}");
    Threshold { head: Some(head), head_name, keep, kind, output: HeadOutput::Sigmoid }
}

/// Documents with one head, whose score is the sigmoid of the logit.
fn documents(logits: &[Option<f32>]) -> Vec<Document> {
    (0u64..)
        .zip(logits)
        .map(|(ordinal, logit)| Document {
            id: format!("<urn:uuid:{ordinal:036}>"),
            ordinal,
            weight: 1,
            scores: vec![logit.map(sigmoid)],
        })
        .collect()
}

fn kept_ordinals(selection: &Selection, documents: &[Document]) -> Vec<u64> {
    (documents.iter())
        .filter(|document| matches!(selection.decide(&document.row()), Decision::Kept { .. }))
        .map(|document| document.ordinal)
        .collect()
}
