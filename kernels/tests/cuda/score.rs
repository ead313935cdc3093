//! Heads on a GPU against f64.

use polysift_kernels::cuda::{CudaError, RowScorer, Stream, linear_relu, max_similarity};

use crate::common::{F32, Random, TestResult, check, download, poisoned, stream};

/// Values of a layer in f64, with the error that K additions in f32 and the error of the inputs make.
fn layer(x: &[(f64, f64)], w: &[f32], b: &[f32], relu: bool) -> Vec<(f64, f64)> {
    let inputs = x.len();
    w.chunks(inputs)
        .zip(b)
        .map(|(w, &b)| {
            let terms =
                || x.iter().zip(w).map(|(&(x, e), &w)| (x * f64::from(w), e * f64::from(w)));
            let value = terms().map(|(v, _)| v).sum::<f64>() + f64::from(b);
            let size = terms().map(|(v, _)| v.abs()).sum::<f64>() + f64::from(b).abs();
            let inherited = terms().map(|(_, e)| e.abs()).sum::<f64>();
            let error = inherited + (inputs as f64 + 2.0) * F32 * size;
            (if relu { value.max(0.0) } else { value }, error)
        })
        .collect()
}

fn exact(row: &[f32]) -> Vec<(f64, f64)> {
    row.iter().map(|&x| (f64::from(x), 0.0)).collect()
}

#[test]
fn a_layer_with_relu_is_right_at_the_edges_of_its_tiles() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for (rows, inputs, outputs) in
        [(1, 1, 1), (63, 16, 64), (64, 17, 65), (65, 33, 63), (130, 8, 3)]
    {
        let random = &mut Random(rows as u64);
        let x = random.values(rows * inputs, 1.0);
        let (w, b) = (random.values(outputs * inputs, 1.0), random.values(outputs, 1.0));
        let mut y = poisoned(&stream, (rows + 1) * outputs)?;
        let upload = |values: &[f32]| stream.to_device(values, "a test");
        linear_relu(&stream, &upload(&x)?, (&upload(&w)?, &upload(&b)?), &mut y, rows)?;
        let y = download(&stream, &y)?;
        let expected = x.chunks(inputs).flat_map(|row| layer(&exact(row), &w, &b, true));
        let what = format!("{rows} x {inputs} to {outputs}");
        check(&what, y.iter().map(|&y| f64::from(y)), expected)?;
        assert!(y[rows * outputs..].iter().all(|y| y.is_nan()));
    }
    Ok(())
}

#[test]
fn the_largest_similarity_is_right_at_the_edges_of_its_tiles() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for (rows, references, width) in
        [(1, 1, 1), (63, 64, 16), (65, 130, 17), (64, 63, 40), (3, 400, 5)]
    {
        let random = &mut Random(rows as u64);
        // Some similarities are above 1, which rounding could make of those of unit norm.
        let x = random.values(rows * width, 0.1);
        let known = random.values(references * width, 1.0);
        let mut out = poisoned(&stream, rows + 1)?;
        let upload = |values: &[f32]| stream.to_device(values, "a test");
        max_similarity(&stream, &upload(&x)?, &upload(&known)?, &mut out, (rows, width))?;
        let out = download(&stream, &out)?;
        let expected = x.chunks(width).map(|row| {
            let all = layer(&exact(row), &known, &vec![0.0; references], false);
            all.into_iter().fold((f64::NEG_INFINITY, 0.0), |(value, error), (v, e)| {
                (value.max(v).min(1.0), e.max(error))
            })
        });
        check(&format!("{rows}, {references}"), out.iter().map(|&x| f64::from(x)), expected)?;
        assert!(out[rows].is_nan());
        // In several parts: the same bits.
        let mut parts = poisoned(&stream, 5 * rows)?;
        max_similarity(&stream, &upload(&x)?, &upload(&known)?, &mut parts, (rows, width))?;
        assert_eq!(download(&stream, &parts)?[..rows], out[..rows]);
    }
    Ok(())
}

/// Rows to score, more than one pass takes; some are of no use.
fn rows(width: usize) -> Vec<f32> {
    let mut rows = Random(8).values(4_099 * width, 1.0);
    rows[3 * width] = f32::NAN;
    rows[4_097 * width + 1] = f32::INFINITY;
    rows[5 * width..6 * width].fill(0.0);
    rows
}

#[test]
fn a_head_of_layers_scores_any_number_of_rows() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let (width, inner, outputs) = (24, 10, 2);
    let random = &mut Random(2);
    let (w1, b1) = (random.values(inner * width, 0.3), random.values(inner, 1.0));
    let (w2, b2) = (random.values(inner * inner, 0.3), random.values(inner, 1.0));
    let (w3, b3) = (random.values(outputs * inner, 0.3), random.values(outputs, 1.0));
    let layers: [(&[f32], &[f32]); 3] = [(&w1, &b1), (&w2, &b2), (&w3, &b3)];
    for layers in [&layers[..], &[(&w1, &b1)]] {
        let mut scorer = RowScorer::mlp(stream.device(), layers)?;
        let rows = rows(width);
        let actual = scorer.outputs(&rows)?;
        let expected = rows.chunks(width).flat_map(|row| {
            let mut values = exact(row);
            for (i, (w, b)) in layers.iter().enumerate() {
                values = layer(&values, w, b, i + 1 < layers.len());
            }
            if row.iter().any(|x| !x.is_finite()) {
                values.fill((f64::NAN, 0.0));
            }
            values
        });
        check("mlp", actual.iter().copied(), expected)?;
        // A row's score does not depend on the others of the call.
        let alone = scorer.outputs(&rows[4_098 * width..])?;
        assert_eq!(alone, actual[actual.len() - alone.len()..]);
        assert!(scorer.outputs(&[])?.is_empty());
        assert!(matches!(scorer.outputs(&rows[1..]), Err(CudaError::Shape { .. })));
    }
    Ok(())
}

#[test]
fn a_cosine_head_scores_directions_and_nothing_that_has_none() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let width = 24;
    let rows = rows(width);
    let direction = |row: &[f32]| {
        let norm = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        row.iter().map(|&x| (f64::from(x) / norm) as f32).collect::<Vec<_>>()
    };
    // The last row is one of the references, at another length: its score is 1.
    let mut references = Random(3).values(70 * width, 1.0);
    references[69 * width..].copy_from_slice(&rows[4_098 * width..]);
    let references: Vec<f32> = references.chunks(width).flat_map(direction).collect();
    let actual = RowScorer::cosine(stream.device(), &references, width)?.outputs(&rows)?;
    let expected = rows.chunks(width).map(|row| {
        let norm = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        let row: Vec<(f64, f64)> =
            row.iter().map(|&x| (f64::from(x) / norm, F32 * f64::from(x).abs() / norm)).collect();
        let all = layer(&row, &references, &[0.0; 70], false);
        let none = (f64::NEG_INFINITY, 0.0);
        let best = all.into_iter().fold(none, |(a, b), (v, e)| (a.max(v), e.max(b)));
        if norm > 0.0 && norm.is_finite() { best } else { (f64::NAN, 0.0) }
    });
    check("cosine", actual.iter().copied(), expected)?;
    assert!(actual.iter().all(|&x| x.is_nan() || x <= 1.0));
    Ok(())
}

#[test]
fn a_head_goes_from_thread_to_thread() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut scorer = RowScorer::mlp(stream.device(), &[(&[2.0, 3.0], &[1.0])])?;
    let outputs = std::thread::scope(|scope| {
        scope.spawn(move || scorer.outputs(&[1.0, 1.0, 0.5, 0.0])).join()
    });
    assert_eq!(outputs.map_err(|_| "panicked")??, [6.0, 2.0]);
    Ok(())
}

#[test]
fn heads_that_do_not_fit_together_are_refused() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let refused = |layers: &[(&[f32], &[f32])], stream: &Stream| {
        matches!(RowScorer::mlp(stream.device(), layers), Err(CudaError::Shape { .. }))
    };
    assert!(refused(&[], &stream));
    assert!(refused(&[(&[1.0; 6], &[])], &stream));
    assert!(refused(&[(&[1.0; 7], &[1.0; 2])], &stream));
    assert!(refused(&[(&[1.0; 6], &[1.0; 2]), (&[1.0; 3], &[1.0])], &stream));
    let none = RowScorer::cosine(stream.device(), &[], 4);
    assert!(matches!(none, Err(CudaError::Shape { .. })));
    Ok(())
}
