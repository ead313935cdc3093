//! Selection from outside: an in-memory corpus, and the tests that use it.

/// Against numpy: reference mode.
mod reference;
/// The rules one by one.
mod rules;
/// Against a full sort.
mod sort;

use polysift::Result;
use polysift::config::{Keep, Rate};
use polysift::select::{Corpus, Cut, CutKind, Decision, Precision, Row, Selection};

#[derive(Debug, Clone)]
struct Document {
    id: String,
    ordinal: u64,
    weight: u64,
    logits: Vec<Option<f32>>,
    scores: Vec<Option<f32>>,
}

impl Document {
    fn row(&self, with_id: bool) -> Row<'_> {
        let id = if with_id { self.id.as_str() } else { "" };
        Row {
            id,
            ordinal: self.ordinal,
            weight: self.weight,
            logits: &self.logits,
            scores: &self.scores,
        }
    }

    /// Logit of head `head`, unless missing or NaN.
    fn logit(&self, head: usize) -> Option<f32> {
        self.logits[head].filter(|logit| !logit.is_nan())
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
        want_ids: bool,
        visit: &mut dyn FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        self.0[shard].iter().try_for_each(|document| visit(&document.row(want_ids)))
    }
}

fn sigmoid(logit: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(logit)).exp())) as f32
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap_or_else(|e: String| unreachable!("{e}"))
}

fn cut(head: usize, keep: Keep, kind: CutKind) -> Cut {
    let head_name = format!("head{head}");
    Cut { head: Some(head), head_name, keep, kind, precision: Precision::F32 }
}

/// Documents with one head, whose score is the sigmoid of the logit.
fn documents(logits: &[Option<f32>]) -> Vec<Document> {
    (0u64..)
        .zip(logits)
        .map(|(ordinal, logit)| Document {
            id: format!("<urn:uuid:{ordinal:036}>"),
            ordinal,
            weight: 1,
            logits: vec![*logit],
            scores: vec![logit.map(sigmoid)],
        })
        .collect()
}

fn kept_ordinals(selection: &Selection, documents: &[Document]) -> Vec<u64> {
    (documents.iter())
        .filter(|document| matches!(selection.decide(&document.row(true)), Decision::Kept { .. }))
        .map(|document| document.ordinal)
        .collect()
}
