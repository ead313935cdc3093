//! Unit tests of heads made in memory; files and PyTorch's numbers are in `tests/heads.rs`.

use proptest::prelude::*;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::head::scorer::{LinearLayer, References};
use crate::vectors::normalised;
use polysift_config::{HeadOutput, Keep};

/// Uniform values in [-1, 1).
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| rng.random::<f32>() * 2.0 - 1.0).collect()
}

fn head(scorer: Scorer, output: HeadOutput, chunk: ChunkRule) -> Result<Head> {
    let spec = HeadSpec { output, chunk, keep: Keep::Above, ..scorer.spec() };
    Head::new(ModelCard { head: "h".to_owned(), spec, ..ModelCard::default() }, scorer)
}

fn mlp(sizes: &[usize]) -> Scorer {
    let layer = |pair: &[usize]| {
        LinearLayer::new(noise(pair[0] * pair[1], pair[0] as u64), noise(pair[1], pair[1] as u64))
    };
    Scorer::mlp(sizes.windows(2).map(layer).collect())
}

/// References of random values; `mean` is subtracted from embeddings before they are compared.
fn references_behind(mean: Option<Vec<f32>>, count: usize, width: usize) -> Scorer {
    let values = noise(count * width, 5);
    let values = values.chunks_exact(width).filter_map(normalised).flatten().collect();
    Scorer::Cosine(References::from_normalised(values, width, mean))
}

fn references(count: usize, width: usize) -> Scorer {
    references_behind(None, count, width)
}

/// Centred references of random values.
fn centred(count: usize, width: usize) -> Scorer {
    references_behind(Some(noise(width, 7)), count, width)
}

/// Bits of the logits of documents of one chunk each.
fn bits(head: &Head, chunks: &[f32]) -> Result<Vec<Option<u32>>> {
    let offsets: Vec<usize> = (0..=chunks.len() / head.hidden_size()).collect();
    let scores = head.score(chunks, &offsets)?;
    Ok(scores.into_iter().map(|score| score.map(|s| s.logit.to_bits())).collect())
}

/// The identity on one value: logits are the chunks themselves.
fn identity(chunk: ChunkRule) -> Result<Head> {
    head(Scorer::mlp(vec![LinearLayer::new(vec![1.0], vec![0.0])]), HeadOutput::Raw, chunk)
}

#[test]
fn chunk_rules_work_on_logits() -> Result<()> {
    let chunks = [1.0, 5.0, -3.0, 7.0];
    for (rule, expected) in [
        (ChunkRule::First, [1.0, 7.0]),
        (ChunkRule::Max, [5.0, 7.0]),
        (ChunkRule::Mean, [1.0, 7.0]),
    ] {
        let scores = identity(rule)?.score(&chunks, &[0, 3, 3, 4])?;
        let logits: Vec<Option<f32>> = scores.iter().map(|s| s.map(|s| s.logit)).collect();
        assert_eq!(logits, [Some(expected[0]), None, Some(expected[1])], "{rule:?}");
    }
    Ok(())
}

#[test]
fn what_is_not_finite_scores_nan_and_harms_no_other_document() -> Result<()> {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for scorer in [mlp(&[3, 4, 1]), references(2, 3), centred(2, 3)] {
            let head = head(scorer, HeadOutput::Raw, ChunkRule::Max)?;
            let chunks = [1.0, 2.0, 3.0, 1.0, bad, 2.0, 0.5, 0.5, 0.5];
            let scores = head.score(&chunks, &[0, 2, 3])?;
            assert!(scores[0].is_some_and(|s| s.logit.is_nan() && s.score.is_nan()), "{bad}");
            assert!(scores[1].is_some_and(|s| s.logit.is_finite() && s.score.is_finite()), "{bad}");
        }
    }
    Ok(())
}

#[test]
fn an_overflow_scores_nan() -> Result<()> {
    let layers = vec![LinearLayer::new(vec![3e38, 3e38], vec![0.0])];
    let head = head(Scorer::mlp(layers), HeadOutput::Sigmoid, ChunkRule::First)?;
    let scores = head.score(&[3e38, 3e38], &[0, 1])?;
    assert!(scores[0].is_some_and(|s| s.score.is_nan()));
    Ok(())
}

#[test]
fn a_zero_vector_has_no_similarity() -> Result<()> {
    let head = head(references(4, 3), HeadOutput::Raw, ChunkRule::First)?;
    assert!(head.score(&[0.0; 3], &[0, 1])?[0].is_some_and(|s| s.score.is_nan()));
    Ok(())
}

#[test]
fn arrays_that_do_not_fit_are_an_error_that_names_the_widths() -> Result<()> {
    let head = head(mlp(&[3, 1]), HeadOutput::Raw, ChunkRule::First)?;
    for (len, offsets) in
        [(4, vec![0, 1]), (3, vec![]), (3, vec![1, 1]), (6, vec![0, 2, 1]), (3, vec![0])]
    {
        let error = head.score(&vec![0.0; len], &offsets);
        assert!(error.is_err_and(|e| e.to_string().contains(", 3]")), "{len} {offsets:?}");
    }
    assert!(head.score(&[], &[0])?.is_empty());
    Ok(())
}

#[test]
fn an_activation_that_does_not_fit_the_outputs_is_refused() {
    for (sizes, output) in [
        ([3, 2], HeadOutput::Sigmoid),
        ([3, 2], HeadOutput::Raw),
        ([3, 2], HeadOutput::Class(2)),
        ([3, 1], HeadOutput::Class(0)),
    ] {
        assert!(head(mlp(&sizes), output, ChunkRule::First).is_err(), "{output}");
    }
    assert!(head(references(1, 3), HeadOutput::Sigmoid, ChunkRule::First).is_err());
}

#[test]
fn published_shapes_do_not_depend_on_the_block() -> Result<()> {
    let chunks = noise(300 * 768, 1);
    let cosine = [references(1000, 768), centred(100, 768)];
    for scorer in [mlp(&[768, 256, 1]), mlp(&[768, 768, 2])].into_iter().chain(cosine) {
        let output = match scorer.spec().layer_sizes[..] {
            [_, _, 2] => HeadOutput::Class(1),
            _ => HeadOutput::Raw,
        };
        let head = head(scorer, output, ChunkRule::First)?;
        let together = bits(&head, &chunks)?;
        for document in [0, 1, 2, 63, 64, 127, 254, 255, 256, 299] {
            let alone = bits(&head, &chunks[document * 768..(document + 1) * 768])?;
            assert_eq!(alone, [together[document]], "document {document}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_score_depends_on_the_document_alone(
        sizes in prop::collection::vec(1..40usize, 1..4),
        kind in 0..3usize,
        rows in 1..600usize,
        cut in 0.0..1.0f64,
        threads in 1..4usize,
        seed in any::<u64>(),
    ) {
        let check = || -> Result<bool> {
            let count = sizes.last().copied().unwrap_or(1);
            let scorer = match kind {
                0 => mlp(&[sizes.as_slice(), &[1]].concat()),
                1 => references(count, sizes[0]),
                _ => centred(count, sizes[0]),
            };
            let head = head(scorer, HeadOutput::Raw, ChunkRule::First)?;
            let width = head.hidden_size();
            let chunks = noise(rows * width, seed);
            let whole = bits(&head, &chunks)?;
            let (first, second) = chunks.split_at((rows as f64 * cut) as usize * width);
            let parts = [bits(&head, first)?, bits(&head, second)?].concat();
            let reversed: Vec<f32> = chunks.chunks(width).rev().flatten().copied().collect();
            let mut reversed = bits(&head, &reversed)?;
            reversed.reverse();
            Ok(whole == parts && whole == reversed)
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let same = pool.map_err(|e| TestCaseError::fail(e.to_string()))?.install(check);
        prop_assert!(same.map_err(|e| TestCaseError::fail(e.to_string()))?);
    }
}
