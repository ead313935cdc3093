use std::collections::BTreeMap;

use polysift::Result;
use polysift::config::{FixedThreshold, Keep, LanguageThresholds, Mode};
use polysift::head::{DocumentScore, HeadSpec};
use polysift::selection::{
    Corpus, Decision, ScanRequest, ScoreBatch, ThresholdKind, plan_thresholds, select,
};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Document, InMemory, documents, kept_ordinals, rate, raw, sigmoid, threshold, visit_batch,
};

#[test]
fn a_rate_is_met_to_the_document_even_when_all_scores_are_equal() -> Result<()> {
    for (n, text, expected) in [(30, "0.1", 3), (100, "0.07", 7), (31, "0.1", 4), (1, "0.001", 1)] {
        let documents = documents(&vec![Some(4.0); n]);
        let thresholds = [threshold(0, Keep::Above, ThresholdKind::Retain(vec![rate(text)]))];
        let selection = select(&InMemory(vec![documents.clone()]), &thresholds, Mode::Default)?;
        assert_eq!(kept_ordinals(&selection, &documents).len(), expected, "{text} of {n}");
        assert_eq!(selection.thresholds[0].outcomes[0].threshold_logit, Some(4.0));
        assert_eq!(
            selection.thresholds[0].outcomes[0].threshold_score,
            Some(f64::from(sigmoid(4.0).score))
        );
    }
    Ok(())
}

#[test]
fn a_retention_counts_documents_that_an_earlier_threshold_removed() -> Result<()> {
    let mut documents = documents(&(0u8..100).map(|i| Some(f32::from(i))).collect::<Vec<_>>());
    for document in &mut documents {
        document.scores.push(Some(raw(f32::from(document.ordinal % 10 == 0))));
    }
    let thresholds = [
        threshold(1, Keep::Below, ThresholdKind::Remove(rate("0.1"))),
        threshold(0, Keep::Above, ThresholdKind::Retain(vec![rate("0.1"), rate("0.95")])),
    ];
    let corpus = InMemory(vec![documents.clone()]);
    let selection = select(&corpus, &thresholds, Mode::Default)?;
    let kept: Vec<u64> = selection.outcomes().iter().map(|o| o.kept.num_documents).collect();
    assert_eq!(kept, [10, 90], "a tenth of 100, then all survivors");
    assert!((selection.thresholds[1].outcomes[0].realised_rate - 0.1).abs() < f64::EPSILON);
    assert_eq!(
        selection.decide(&documents[99].row()),
        Decision::Kept { retentions: vec![rate("0.1")] }
    );
    assert_eq!(selection.decide(&documents[90].row()).to_string(), "head1");
    Ok(())
}

#[test]
fn documents_without_weight_behind_the_last_one_needed_are_not_taken() -> Result<()> {
    // Whichever document the hash puts last, it has no weight in one of the two.
    for parity in 0..2 {
        let mut documents = documents(&[Some(0.0); 20]);
        for document in &mut documents {
            document.weight = (document.ordinal + parity) % 2;
        }
        documents.sort_by_key(|document| xxh3_64(document.id.as_bytes()));
        let thresholds = [threshold(0, Keep::Above, ThresholdKind::Retain(vec![rate("1")]))];
        let selection = select(&InMemory(vec![documents.clone()]), &thresholds, Mode::Default)?;
        let last = documents.iter().rposition(|document| document.weight == 1);
        let expected: Vec<u64> =
            documents.iter().take(last.map_or(0, |last| last + 1)).map(|d| d.ordinal).collect();
        assert_eq!(kept_ordinals(&selection, &documents), expected);
    }
    Ok(())
}

#[test]
fn rejects_are_counted_and_named() -> Result<()> {
    let documents = documents(&[None, Some(f32::NAN), Some(-1.0), Some(1.0)]);
    let corpus = InMemory(vec![documents.clone()]);
    let thresholds = [threshold(0, Keep::Above, ThresholdKind::Retain(vec![rate("0.5")]))];
    let selection = select(&corpus, &thresholds, Mode::Default)?;
    let report = &selection.thresholds[0];
    assert_eq!((report.scored.num_documents, report.num_unscored, report.num_nan), (2, 1, 1));
    let decisions: Vec<String> =
        documents.iter().map(|document| selection.decide(&document.row()).to_string()).collect();
    assert_eq!(decisions, ["head0_unscored", "head0_nan", "head0", "kept"]);
    Ok(())
}

#[test]
fn a_head_the_language_lacks_skips_removals_and_selects_nobody_by_retention() -> Result<()> {
    let head = HeadSpec::default();
    let documents = documents(&[Some(1.0), Some(2.0)]);
    let corpus = InMemory(vec![documents.clone()]);
    let settings = LanguageThresholds {
        retention: [("quality".to_owned(), vec![rate("1")])].into(),
        removal: [("toxicity".to_owned(), rate("0.05"))].into(),
        threshold: BTreeMap::new(),
        budget: BTreeMap::new(),
    };
    let with = select(
        &corpus,
        &plan_thresholds("a", &settings, &[("quality", Some(&head))], &[])?,
        Mode::Default,
    )?;
    assert_eq!(with.skipped, ["toxicity"]);
    assert_eq!(kept_ordinals(&with, &documents), [0, 1]);
    let without = select(
        &corpus,
        &plan_thresholds("a", &settings, &[("quality", None)], &[])?,
        Mode::Default,
    )?;
    assert_eq!(without.decide(&documents[0].row()).to_string(), "quality_unscored");
    assert_eq!(without.thresholds[0].num_unscored, 2);
    Ok(())
}

#[test]
fn the_histogram_spans_zero_to_one_unless_scores_leave_it() -> Result<()> {
    let thresholds = [threshold(0, Keep::Above, ThresholdKind::Fixed(FixedThreshold::Beyond(0.5)))];
    let mut documents = documents(&[Some(0.0), Some(0.5), Some(1.0)]);
    let histogram = |documents: &[Document]| {
        select(&InMemory(vec![documents.to_vec()]), &thresholds, Mode::Default)
            .map(|selection| selection.thresholds[0].scores.clone())
    };
    let probabilities = histogram(&documents)?;
    assert!(probabilities.as_ref().is_some_and(|h| (h.low, h.high) == (0.0, 1.0)));
    for (document, score) in documents.iter_mut().zip([-2.0, 0.0, 3.0]) {
        document.scores = vec![Some(DocumentScore { score, ..raw(0.0) })];
    }
    let raw = histogram(&documents)?;
    assert!(raw.is_some_and(|h| (h.low, h.high) == (-2.0, 3.0)
        && (h.min, h.max) == (-2.0, 3.0)
        && (h.counts[0], h.counts[20], h.counts[49]) == (1, 1, 1)));
    Ok(())
}

/// A corpus whose second scan sees no documents.
struct Vanishing(std::sync::atomic::AtomicBool, Vec<Document>);

impl Corpus for Vanishing {
    fn num_shards(&self) -> usize {
        1
    }

    fn scan(
        &self,
        _: usize,
        wanted: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.0.swap(true, std::sync::atomic::Ordering::Relaxed) {
            return Ok(());
        }
        visit_batch(&self.1, wanted, visit)
    }
}

#[test]
fn a_corpus_that_changes_between_scans_is_an_error() {
    let corpus = Vanishing(false.into(), documents(&[Some(0.0), Some(1.0)]));
    let thresholds = [threshold(0, Keep::Above, ThresholdKind::Retain(vec![rate("0.5")]))];
    assert!(select(&corpus, &thresholds, Mode::Default).is_err());
}

/// How many shards were scanned.
struct Counted<'a>(std::sync::atomic::AtomicUsize, &'a InMemory);

impl Corpus for Counted<'_> {
    fn num_shards(&self) -> usize {
        self.1.num_shards()
    }

    fn scan(
        &self,
        shard: usize,
        wanted: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.1.scan(shard, wanted, visit)
    }
}

#[test]
fn one_scan_is_enough_where_a_sample_of_the_shards_is_like_the_others() -> Result<()> {
    let thresholds =
        [threshold(0, Keep::Above, ThresholdKind::Retain(vec![rate("0.1"), rate("0.5")]))];
    // Twenty documents a shard, no two logits equal; what is added to those of the sampled shards.
    for (more, num_scanned) in [(0.0, 2 + 128), (100.0, 2 + 2 * 128)] {
        let logit = |i: u16| {
            let is_sampled = (i / 20).is_multiple_of(64);
            f32::from(i % 20) + f32::from(i) * 1e-5 + if is_sampled { more } else { 0.0 }
        };
        let documents = documents(&(0..20 * 128).map(|i| Some(logit(i))).collect::<Vec<_>>());
        let shards = InMemory(documents.chunks(20).map(<[Document]>::to_vec).collect());
        let corpus = Counted(0.into(), &shards);
        let selection = select(&corpus, &thresholds, Mode::Default)?;
        assert_eq!(corpus.0.into_inner(), num_scanned, "{more}");
        let mut best: Vec<&Document> = documents.iter().collect();
        best.sort_by(|a, b| b.logit(0).partial_cmp(&a.logit(0)).unwrap_or(a.id.cmp(&b.id)));
        let mut expected: Vec<u64> = best[..1280].iter().map(|document| document.ordinal).collect();
        expected.sort_unstable();
        assert_eq!(kept_ordinals(&selection, &documents), expected, "{more}");
        let bins = selection.thresholds[0].scores.as_ref().map(|bins| bins.counts.iter().sum());
        assert_eq!(bins, Some(20 * 128), "{more}");
    }
    Ok(())
}
