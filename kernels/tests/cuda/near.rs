//! Tests of the search for near rows against f64.

use polysift_kernels::cuda::NearRows;

use crate::common::{F32, Random, TestResult, stream, wide};

const WIDTH: usize = 20;
const LEAST: f32 = 0.9;

/// Rows of unit norm; of every four, two are near the first.
fn rows(n: usize) -> Vec<f32> {
    let (random, mut rows) = (&mut Random(7), Vec::new());
    let mut topic = Vec::new();
    for at in 0..n {
        let own = random.values(WIDTH, 1.0);
        let row: Vec<f32> = match at % 4 {
            1 | 2 => topic.iter().zip(own).map(|(topic, own)| topic + 0.45 * own).collect(),
            _ => own,
        };
        if at % 4 == 0 {
            topic.clone_from(&row);
        }
        let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        rows.extend(row.iter().map(|x| x / norm));
    }
    rows
}

#[test]
fn rows_are_near_from_a_bound_on_that_is_hardly_below_the_similarity() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut near = NearRows::new(stream.device(), WIDTH, LEAST)?;
    let (count, last) = (NearRows::BLOCK_ROWS + 41, 41);
    let rows = rows(count);
    assert!(near.compare(&rows, |_, _, _| {}).is_err(), "more rows than a block has");
    let (whole, rest) = rows.split_at(NearRows::BLOCK_ROWS * WIDTH);
    near.compare(whole, |_, _, _| {})?;
    let row = |at: usize| rows[at * WIDTH..][..WIDTH].iter().map(|x| f64::from(*x));
    let (bound, least) = (f64::from(near.bound()), f64::from(LEAST));
    let (mut compared, mut found) = (Vec::new(), 0);
    near.compare(rest, |first, columns, values| {
        compared.push((first, columns));
        for (at, values) in values.chunks_exact(columns).enumerate() {
            let others = (first..count).zip(wide(values));
            for (other, value) in others {
                let own = row(NearRows::BLOCK_ROWS + at);
                let similarity: f64 = own.zip(row(other)).map(|(a, b)| a * b).sum();
                let is_near = value >= bound;
                // Rounding to f32 can put the similarity on either side.
                if similarity >= least + WIDTH as f64 * F32 {
                    assert!(is_near, "{at} and {other}: {similarity} gives {value}");
                    found += 1;
                }
                assert!(!is_near || similarity > least - 0.000_5, "{at}, {other}: {similarity}");
            }
        }
    })?;
    assert_eq!(compared, [(0, NearRows::BLOCK_ROWS), (NearRows::BLOCK_ROWS, 48)]);
    assert!(found > last, "{found} near rows");
    near.clear();
    let mut visited = Vec::new();
    near.compare(rest, |first, columns, _| visited.push((first, columns)))?;
    assert_eq!(visited, [(0, 48)], "there is no other block");
    Ok(())
}
