//! Draws texts of the corpus at random, before anything of it is encoded.

use std::collections::BTreeMap;

use rayon::prelude::*;

use polysift_base::error::Result;
use polysift_base::sample::{BottomKSample, hash_seed, ordinal_rank};
use polysift_corpus::embedded::{ordinal, place_of};
use polysift_corpus::{Context, Texts};
use polysift_data::input::DocumentReader;
use polysift_runs::run::Shard;

const READ_ROWS: usize = 1024;

/// A draw takes 1/`SPARE` more rows than it should return, to replace rows without text.
const SPARE: usize = 4;

/// Calls `visit` with the rows of `shard`, or with its documents if their number is unknown.
fn for_each_row(context: Context<'_>, shard: &Shard, mut visit: impl FnMut(u64)) -> Result<()> {
    if let Some(rows) = shard.num_rows {
        (shard.first_row()..shard.first_row() + rows).for_each(visit);
        return Ok(());
    }
    let mut reader = DocumentReader::open(&shard.input()?, &context.config.input)?;
    while let Some(batch) = reader.next_batch(READ_ROWS)? {
        context.stop.check()?;
        batch.rows().iter().copied().for_each(&mut visit);
    }
    Ok(())
}

/// Counts the rows of `shards`; if a plan does not tell them, reads the file for its documents.
pub(crate) fn count_rows(context: Context<'_>, shards: &[(u64, &Shard)]) -> Result<u64> {
    let count = |&(_, shard): &(u64, &Shard)| {
        let mut rows = 0;
        for_each_row(context, shard, |_| rows += 1)?;
        Ok(rows)
    };
    shards.par_iter().map(count).sum()
}

/// Draws a uniform sample of the documents with text of `shards`, given with their places in the
/// plan, by the seed of the run and `purpose`. Returns ordinals and texts in random order, at least
/// `size` unless too many rows have no text, and whether all rows were drawn.
pub(crate) fn draw_texts(
    context: Context<'_>,
    purpose: &str,
    shards: &[(u64, &Shard)],
    size: usize,
) -> Result<(Vec<(u64, String)>, bool)> {
    let seed = hash_seed(&[purpose], context.config.seed);
    let num_rows = size.saturating_add(size / SPARE);
    let sample = BottomKSample::new(num_rows);
    shards.par_iter().try_for_each(|&(place, shard)| {
        for_each_row(context, shard, |row| {
            let ordinal = ordinal(place, row);
            sample.offer(ordinal_rank(seed, ordinal), || ordinal);
        })
    })?;
    let drawn = sample.into_items();
    let is_all = drawn.len() < num_rows;
    let of_shard = |&(place, shard): &(u64, &Shard)| {
        let mut own: Vec<u64> =
            drawn.iter().copied().filter(|ordinal| place_of(*ordinal).0 == place).collect();
        own.sort_unstable();
        if own.is_empty() {
            return Ok(Vec::new());
        }
        let mut texts = Texts::open(context, shard)?;
        let mut text = |ordinal: u64| {
            context.stop.check()?;
            Ok(texts.any_text(place_of(ordinal).1)?.map(|text| (ordinal, text)))
        };
        own.into_iter().filter_map(|ordinal| text(ordinal).transpose()).collect()
    };
    let read: Vec<Vec<(u64, String)>> = shards.par_iter().map(of_shard).collect::<Result<_>>()?;
    let mut texts: BTreeMap<u64, String> = read.into_iter().flatten().collect();
    let found = drawn.into_iter().filter_map(|ordinal| texts.remove_entry(&ordinal));
    Ok((found.collect(), is_all))
}
