use std::cmp::Ordering;
use std::collections::BTreeMap;

use polysift::Result;
use polysift::config::{Budget, FixedThreshold, Keep, Mode, Rate};
use polysift::selection::{Decision, Selection, Threshold, ThresholdKind, select};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::{Document, InMemory, rate, raw, sigmoid, threshold};

/// One selection: the rates of its retentions and its documents.
type Branch<'a> = (Vec<Rate>, Vec<&'a Document>);

/// The documents of `within` that have a score, best first.
fn ranked<'a>(within: &[&'a Document], threshold: &Threshold) -> Vec<&'a Document> {
    let head = threshold.head.unwrap_or_default();
    let mut candidates: Vec<&Document> =
        within.iter().copied().filter(|document| document.logit(head).is_some()).collect();
    candidates.sort_by(|a, b| {
        let by_logit = a.logit(head).partial_cmp(&b.logit(head)).unwrap_or(Ordering::Equal);
        let by_logit = if threshold.keep == Keep::Above { by_logit.reverse() } else { by_logit };
        let hash = |document: &Document| xxh3_64(document.id.as_bytes());
        by_logit.then(hash(a).cmp(&hash(b))).then(a.ordinal.cmp(&b.ordinal))
    });
    candidates
}

/// How many of the first documents reach `target` in weight; all if they never do.
fn num_taken<'a>(documents: impl Iterator<Item = &'a &'a Document>, target: u64) -> usize {
    let mut sum = 0;
    documents
        .take_while(|document| {
            let wanted = sum < target;
            sum += document.weight;
            wanted
        })
        .count()
}

fn weight(documents: &[&Document]) -> u64 {
    documents.iter().map(|document| document.weight).sum()
}

/// Every selection after every threshold, by sorting everything.
fn sorted_oracle<'a>(all: &'a [Document], thresholds: &[Threshold]) -> Vec<Vec<Branch<'a>>> {
    let everything: Vec<&Document> = all.iter().collect();
    let mut branches: Vec<Branch> = vec![(Vec::new(), everything.clone())];
    let mut history = Vec::new();
    for threshold in thresholds {
        let head = threshold.head.unwrap_or_default();
        let total = weight(&ranked(&everything, threshold));
        let mut next = Vec::new();
        for (rates, documents) in &branches {
            let mut candidates = ranked(documents, threshold);
            match &threshold.kind {
                ThresholdKind::Retain(listed) => {
                    for rate in listed {
                        let taken = num_taken(candidates.iter(), rate.ceil_of(total));
                        let rates = rates.iter().copied().chain([*rate]).collect();
                        next.push((rates, candidates[..taken].to_vec()));
                    }
                }
                ThresholdKind::Remove(rate) => {
                    let target = rate.ceil_of(weight(&candidates));
                    let removed = num_taken(candidates.iter().rev(), target);
                    candidates.truncate(candidates.len() - removed);
                    next.push((rates.clone(), candidates));
                }
                ThresholdKind::Budget(budget) => {
                    let taken = num_taken(candidates.iter(), budget.0);
                    candidates.truncate(taken);
                    next.push((rates.clone(), candidates));
                }
                ThresholdKind::Fixed(limit) => {
                    candidates.retain(|document| {
                        let score =
                            document.scores[head].map_or(f64::NAN, |found| found.score.into());
                        match *limit {
                            FixedThreshold::AtLeast { at_least } => score >= at_least,
                            FixedThreshold::AtMost { at_most } => score <= at_most,
                            FixedThreshold::Beyond(limit) if threshold.keep == Keep::Above => {
                                score > limit
                            }
                            FixedThreshold::Beyond(limit) => score < limit,
                        }
                    });
                    next.push((rates.clone(), candidates));
                }
            }
        }
        branches = next;
        history.push(branches.clone());
    }
    history
}

/// By ordinal, the smallest rate per retention over the final selections with the document.
fn retentions(branches: &[Branch<'_>]) -> BTreeMap<u64, Vec<Rate>> {
    let mut least: BTreeMap<u64, Vec<Rate>> = BTreeMap::new();
    for (rates, documents) in branches {
        for document in documents {
            let entry = least.entry(document.ordinal).or_insert_with(|| rates.clone());
            for (least, rate) in entry.iter_mut().zip(rates) {
                *least = (*least).min(*rate);
            }
        }
    }
    least
}

fn any_logit() -> impl Strategy<Value = Option<f32>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(f32::NAN)),
        1 => Just(Some(f32::INFINITY)),
        1 => Just(Some(f32::NEG_INFINITY)),
        1 => Just(Some(0.0)),
        1 => Just(Some(-0.0)),
        4 => (-2i8..3).prop_map(|logit| Some(f32::from(logit) / 2.0)),
        4 => (-30f32..30.0).prop_map(Some),
    ]
}

fn any_document() -> impl Strategy<Value = Document> {
    let id = prop_oneof!["[ab]", "[a-z]{12}"];
    let weight = prop_oneof![3 => Just(1), 1 => Just(0), 2 => 0u64..100_000];
    (id, weight, any_logit(), any_logit()).prop_map(|(id, weight, first, second)| Document {
        id,
        ordinal: 0,
        weight,
        scores: vec![first.map(sigmoid), second.map(raw)],
    })
}

/// Documents in plan order; ordinals differ in all of their digits.
fn any_documents(unit_weights: bool) -> impl Strategy<Value = Vec<Document>> {
    prop::collection::vec(any_document(), 0..60).prop_map(move |mut documents| {
        for (ordinal, document) in (0u64..).zip(&mut documents) {
            document.ordinal = ordinal * 0x0003_0001_0002_0005;
            if unit_weights {
                document.weight = 1;
            }
        }
        documents
    })
}

fn any_rate() -> impl Strategy<Value = Rate> {
    (1u32..=1000).prop_map(|permille| rate(&format!("{}.{:03}", permille / 1000, permille % 1000)))
}

fn any_threshold(most_rates: usize) -> impl Strategy<Value = Threshold> {
    let kind = prop_oneof![
        3 => prop::collection::btree_set(any_rate(), 1..=most_rates)
            .prop_map(|rates| ThresholdKind::Retain(rates.into_iter().collect())),
        2 => any_rate().prop_map(ThresholdKind::Remove),
        1 => (-3i8..4).prop_map(|t| ThresholdKind::Fixed(FixedThreshold::Beyond(f64::from(t) / 4.0))),
        2 => prop_oneof![1u64..60, 1u64..1_000_000].prop_map(|b| ThresholdKind::Budget(Budget(b))),
    ];
    let keep = prop_oneof![Just(Keep::Above), Just(Keep::Below)];
    (0usize..2, keep, kind, any::<bool>()).prop_map(|(head, keep, kind, is_inclusive)| {
        let kind = match (kind, keep) {
            (ThresholdKind::Fixed(limit), Keep::Above) if is_inclusive => {
                ThresholdKind::Fixed(FixedThreshold::AtLeast { at_least: limit.score() })
            }
            (ThresholdKind::Fixed(limit), Keep::Below) if is_inclusive => {
                ThresholdKind::Fixed(FixedThreshold::AtMost { at_most: limit.score() })
            }
            (kind, _) => kind,
        };
        threshold(head, keep, kind)
    })
}

/// Of which one may have several rates.
fn any_thresholds() -> impl Strategy<Value = Vec<Threshold>> {
    let others = prop::collection::vec(any_threshold(1), 0..3);
    (others, any_threshold(3), any::<prop::sample::Index>()).prop_map(|(mut all, one, at)| {
        all.insert(at.index(all.len() + 1), one);
        all
    })
}

/// The documents dealt to shards, in the order of `deal`.
fn shards(documents: &[Document], deal: &[(usize, u32)], num_shards: usize) -> InMemory {
    let mut order: Vec<usize> = (0..documents.len()).collect();
    order.sort_by_key(|&i| deal[i].1);
    let mut shards = vec![Vec::new(); num_shards];
    for i in order {
        shards[deal[i].0 % num_shards].push(documents[i].clone());
    }
    InMemory(shards)
}

fn assert_equals_a_sort(
    documents: &[Document],
    thresholds: &[Threshold],
    corpus: &InMemory,
) -> Result<(), TestCaseError> {
    let selection = select(corpus, thresholds, Mode::Default)
        .map_err(|e| TestCaseError::fail(e.to_string()))?;
    let history = sorted_oracle(documents, thresholds);
    for (report, branches) in selection.thresholds.iter().zip(&history) {
        prop_assert_eq!(report.outcomes.len(), branches.len());
        for (outcome, (rates, kept)) in report.outcomes.iter().zip(branches) {
            prop_assert_eq!(&outcome.retentions, rates);
            prop_assert_eq!(outcome.kept.num_documents, kept.len() as u64);
            prop_assert_eq!(outcome.kept.weight, weight(kept));
        }
    }
    let expected = history.last().map(|branches| retentions(branches)).unwrap_or_default();
    for document in documents {
        let decided = match selection.decide(&document.row()) {
            Decision::Kept { retentions } => Some(retentions),
            Decision::Removed { .. } => None,
        };
        prop_assert_eq!(decided.as_ref(), expected.get(&document.ordinal), "{:?}", document);
    }
    Ok(())
}

fn in_pool<T: Send>(
    num_threads: usize,
    work: impl FnOnce() -> T + Send,
) -> Result<T, TestCaseError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(num_threads).build();
    Ok(pool.map_err(|e| TestCaseError::fail(e.to_string()))?.install(work))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn selection_equals_a_full_sort(
        documents in any::<bool>().prop_flat_map(any_documents),
        thresholds in any_thresholds(),
        deal in prop::collection::vec((0usize..8, any::<u32>()), 60),
        // From 64 on the first of them is a sample.
        num_shards in prop_oneof![1usize..6, 64usize..66],
    ) {
        let corpus = shards(&documents, &deal, num_shards);
        assert_equals_a_sort(&documents, &thresholds, &corpus)?;
    }

    #[test]
    fn the_record_has_the_same_bytes_whatever_the_shards_and_threads(
        documents in any_documents(false),
        thresholds in any_thresholds(),
        deal in prop::collection::vec((0usize..8, any::<u32>()), 60),
    ) {
        let one = shards(&documents, &deal.iter().map(|_| (0, 0)).collect::<Vec<_>>(), 1);
        let many = shards(&documents, &deal, 64);
        let json = |corpus: &InMemory| {
            let selection = select(corpus, &thresholds, Mode::Default);
            selection.map(|s| serde_json::to_string(&s)).map_err(|e| TestCaseError::fail(e.to_string()))
        };
        let json = |corpus: &InMemory| {
            json(corpus)?.map_err(|e| TestCaseError::fail(e.to_string()))
        };
        let expected = in_pool(1, || json(&one))??;
        prop_assert_eq!(&in_pool(3, || json(&many))??, &expected);
        let read: Selection =
            serde_json::from_str(&expected).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let again = select(&one, &thresholds, Mode::Default)
            .map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(read, again);
    }
}
