//! Agreement of two heads in the order of documents and in the documents they put on top.

use serde::Serialize;

use polysift_base::metrics::{ratio, spearman};
use polysift_config::{Keep, Rate};
use polysift_selection::RankKey;

/// Agreement of two heads on the documents of a language that both scored.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// The language.
    pub language: String,
    /// Name of one head.
    pub a: String,
    /// Name of the other.
    pub b: String,
    /// Number of documents that both heads scored (not NaN).
    pub documents: usize,
    /// Spearman rank correlation of the scores.
    pub spearman: Option<f64>,
    /// Size of each head's top: ceil(rate · documents), highest scores first; ties are broken as in
    /// a selection.
    pub top: usize,
    /// Number of documents in both tops.
    pub shared: usize,
    /// `shared` / `top`.
    pub overlap: Option<f64>,
}

/// Name of a head and its logits on some documents; NaN where there is none.
pub(super) type HeadLogits<'a> = (&'a str, Vec<f32>);

/// Compares all pairs of `columns` of a language. `ties` break ties between documents: each is the
/// document's key without its logit.
pub(super) fn pairs(
    language: &str,
    columns: &[HeadLogits<'_>],
    ties: &[RankKey],
    top_rate: Rate,
) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (i, a) in columns.iter().enumerate() {
        for b in &columns[i + 1..] {
            pairs.push(Pair { language: language.to_owned(), ..pair(a, b, ties, top_rate) });
        }
    }
    pairs
}

fn pair(a: &HeadLogits<'_>, b: &HeadLogits<'_>, ties: &[RankKey], top_rate: Rate) -> Pair {
    let is_scored = |&row: &usize| !a.1[row].is_nan() && !b.1[row].is_nan();
    let rows: Vec<usize> = (0..ties.len()).filter(is_scored).collect();
    let of =
        |column: &HeadLogits<'_>| -> Vec<f32> { rows.iter().map(|&row| column.1[row]).collect() };
    let (logits_a, logits_b) = (of(a), of(b));
    let ties: Vec<RankKey> = rows.iter().map(|&row| ties[row]).collect();
    let top = top_rate.ceil_of(rows.len() as u64) as usize;
    let (top_a, top_b) = (tops(&logits_a, &ties, top), tops(&logits_b, &ties, top));
    let shared = top_a.iter().zip(top_b).filter(|&(&in_a, in_b)| in_a && in_b).count();
    Pair {
        language: String::new(),
        a: a.0.to_owned(),
        b: b.0.to_owned(),
        documents: rows.len(),
        spearman: spearman(&logits_a, &logits_b),
        top,
        shared,
        overlap: ratio(shared, top),
    }
}

/// Returns whether each document is among the `top` with the highest logits.
fn tops(logits: &[f32], ties: &[RankKey], top: usize) -> Vec<bool> {
    let key = |row: usize| RankKey {
        logit: RankKey::of_logit(logits[row], Keep::Above).logit,
        ..ties[row]
    };
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let mut is_top = vec![false; logits.len()];
    if top > 0 && top < order.len() {
        order.select_nth_unstable_by_key(top, |&row| key(row));
    }
    order.iter().take(top).for_each(|&row| is_top[row] = true);
    is_top
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ties(n: usize) -> Vec<RankKey> {
        let key = |i| RankKey::of_logit(0.0, Keep::Above).with_id(&format!("d{i}"), i as u64);
        (0..n).map(key).collect()
    }

    fn rate(text: &str) -> Result<Rate, Box<dyn std::error::Error>> {
        Ok(text.parse::<Rate>()?)
    }

    #[test]
    fn only_documents_with_both_scores_count() -> Result<(), Box<dyn std::error::Error>> {
        let columns = [("a", vec![1.0, 2.0, f32::NAN, 3.0]), ("b", vec![5.0, f32::NAN, 6.0, 7.0])];
        let pairs = pairs("und", &columns, &ties(4), rate("0.5")?);
        assert_eq!(pairs.len(), 1);
        let pair = &pairs[0];
        assert_eq!((pair.documents, pair.spearman, pair.top, pair.shared), (2, Some(1.0), 1, 1));
        Ok(())
    }

    #[test]
    fn reversed_orders_share_no_top() -> Result<(), Box<dyn std::error::Error>> {
        let up: Vec<f32> = (0..40u8).map(f32::from).collect();
        let down: Vec<f32> = up.iter().map(|x| -x).collect();
        let pairs = pairs("und", &[("up", up), ("down", down)], &ties(40), rate("0.1")?);
        assert_eq!((pairs[0].spearman, pairs[0].top, pairs[0].shared), (Some(-1.0), 4, 0));
        Ok(())
    }

    #[test]
    fn heads_that_know_nothing_still_pick_the_same_by_the_tie_rule()
    -> Result<(), Box<dyn std::error::Error>> {
        let pairs =
            pairs("und", &[("a", vec![0.0; 30]), ("b", vec![7.0; 30])], &ties(30), rate("0.1")?);
        assert_eq!((pairs[0].spearman, pairs[0].top, pairs[0].overlap), (None, 3, Some(1.0)));
        Ok(())
    }

    #[test]
    fn no_documents_have_no_agreement() -> Result<(), Box<dyn std::error::Error>> {
        let nan = vec![f32::NAN; 3];
        let pairs = pairs("und", &[("a", nan.clone()), ("b", nan)], &ties(3), rate("0.1")?);
        assert_eq!((pairs[0].documents, pairs[0].spearman, pairs[0].overlap), (0, None, None));
        Ok(())
    }

    proptest! {
        #[test]
        fn tops_are_the_first_of_the_whole_order(
            logits in prop::collection::vec(-3i8..3, 0..50), top in 0usize..60,
        ) {
            let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
            let top = top.min(logits.len());
            let ties = ties(logits.len());
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by_key(|&row| {
                (RankKey::of_logit(logits[row], Keep::Above), ties[row].id_hash, row)
            });
            let mut expected = vec![false; logits.len()];
            order[..top].iter().for_each(|&row| expected[row] = true);
            prop_assert_eq!(tops(&logits, &ties, top), expected);
        }
    }
}
