//! Exact selection of 10 million documents in memory, against sorting them.
//!
//! The throughput of `exact` is in rows per second of one scan: rows times scans by seconds. A
//! block in which ids are looked at makes them (16 hexadecimal digits), as a file would decode them.

mod splitmix;

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, Throughput};
use polysift::Result;
use polysift::config::{HeadOutput, Keep, Mode, Rate};
use polysift::selection::{
    Corpus, HeadColumn, ScanRequest, ScoreBatch, Threshold, ThresholdKind, select,
};

use self::splitmix::splitmix64;

const NUM_ROWS: u64 = 10_000_000;
const ROWS_PER_SHARD: u64 = 250_000;
const BLOCK_ROWS: usize = 8192;
const RATES: [&str; 3] = ["0.1", "0.2", "0.33"];

/// Logits of one head, near a normal distribution, and how often they were scanned.
struct Logits {
    logits: Vec<f32>,
    num_rows_scanned: AtomicU64,
}

impl Logits {
    fn new() -> Self {
        let logits = (0..NUM_ROWS).map(|ordinal| {
            let bits = splitmix64(ordinal);
            let uniform = |part: u32| f32::from((bits >> (16 * part)) as u16) / 65_536.0 - 0.5;
            (0..4).map(uniform).sum::<f32>() * 3.0
        });
        Self { logits: logits.collect(), num_rows_scanned: AtomicU64::new(0) }
    }
}

impl Corpus for Logits {
    fn num_shards(&self) -> usize {
        NUM_ROWS.div_ceil(ROWS_PER_SHARD) as usize
    }

    fn scan(
        &self,
        shard: usize,
        wanted: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let first = shard as u64 * ROWS_PER_SHARD;
        let rows = first..NUM_ROWS.min(first + ROWS_PER_SHARD);
        self.num_rows_scanned.fetch_add(rows.end - rows.start, Ordering::Relaxed);
        for start in rows.clone().step_by(BLOCK_ROWS) {
            let ordinals: Vec<u64> = (start..rows.end.min(start + BLOCK_ROWS as u64)).collect();
            let values = &self.logits[start as usize..][..ordinals.len()];
            let heads = [HeadColumn { logits: values, scores: values, present: None }];
            let ids: Vec<String> = match wanted.wants_any_id(&heads) {
                true => ordinals.iter().map(|ordinal| format!("{ordinal:016x}")).collect(),
                false if wanted.others => Vec::new(),
                false => continue,
            };
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let (len, ordinals) = (values.len(), ordinals.as_slice());
            let (ids, heads) = (&ids, &heads);
            visit(&ScoreBatch { len, ids, ordinals, heads, ..ScoreBatch::default() })?;
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let corpus = Logits::new();
    let rates = RATES.iter().map(|text| text.parse()).collect::<Result<Vec<Rate>, String>>()?;
    let threshold = Threshold {
        head: Some(0),
        head_name: "quality".into(),
        keep: Keep::Above,
        kind: ThresholdKind::Retain(rates.clone()),
        output: HeadOutput::Sigmoid,
    };
    let select = || select(&corpus, std::slice::from_ref(&threshold), Mode::Default);

    let selection = select()?;
    for (outcome, rate) in selection.outcomes().iter().zip(&rates) {
        assert_eq!(outcome.kept.num_documents, rate.ceil_of(NUM_ROWS), "checked before timed");
    }
    let rows_of_all_scans = corpus.num_rows_scanned.load(Ordering::Relaxed);

    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let mut group = criterion.benchmark_group("cpu/select");
    let scans = rows_of_all_scans / NUM_ROWS;
    group.throughput(Throughput::Elements(rows_of_all_scans));
    group.bench_function(format!("exact/{NUM_ROWS}x3 rates, {scans} scans"), |bencher| {
        bencher.iter(|| black_box(select().is_ok()));
    });
    group.throughput(Throughput::Elements(NUM_ROWS));
    group.bench_function(format!("sort/{NUM_ROWS}"), |bencher| {
        bencher.iter(|| {
            let mut order: Vec<u32> = (0..NUM_ROWS as u32).collect();
            let logit = |i: u32| corpus.logits[i as usize];
            order.sort_unstable_by(|&a, &b| logit(b).total_cmp(&logit(a)).then(a.cmp(&b)));
            black_box(order)
        });
    });
    group.finish();
    criterion.final_summary();
    Ok(())
}
