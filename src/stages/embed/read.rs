//! The reading thread: reads the documents of the shards in batches that end with their part.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::queue::{ChunkBatch, PartEnd, Pipeline, Sender, Step};
use polysift_base::error::{Error, Result};
use polysift_config::{LANGUAGE_CODE, is_language_code};
use polysift_data::input::{DocumentBatch, DocumentInfo, DocumentReader, Reject};
use polysift_data::parts::EmbeddingRows;
use polysift_runs::run::Shard;

const BATCH_ROWS: usize = 1024;

/// Returns the bytes of `shard` that `reader` has read, up to `next_row`.
fn bytes_read(shard: &Shard, reader: &DocumentReader, next_row: u64) -> u64 {
    let of_rows = || {
        let rows = next_row.saturating_sub(shard.first_row()) as f64;
        (shard.bytes as f64 * rows / shard.num_rows.unwrap_or(0).max(1) as f64) as u64
    };
    reader.bytes_read().unwrap_or_else(of_rows).min(shard.bytes)
}

impl Pipeline<'_> {
    /// Counts the documents left to embed in the shards at `places`, if their formats tell that.
    pub(super) fn expected_rows(&self, places: &[usize]) -> Option<u64> {
        let rows = |&place: &usize| {
            let shard = &self.shards[place];
            let last = self.context.run.part_markers(shard).ok()?.pop();
            let done = last.map_or(0, |part| part.next_row.saturating_sub(shard.first_row()));
            Some(shard.num_rows?.saturating_sub(done))
        };
        places.iter().map(rows).sum()
    }

    /// Runs the reading thread: sends the documents of each shard that this process can claim.
    pub(super) fn read(&self, to_tokenize: &Sender<Step>) {
        while !self.is_broken.load(Ordering::Relaxed) {
            let shard = match self.claims.next() {
                Ok(Some(shard)) => shard,
                Ok(None) => return,
                Err(error) => {
                    // If the receiver is gone, the error cannot be reported.
                    let _ = to_tokenize.send_step(Step::Failed { shard: None, error });
                    return;
                }
            };
            if !self.claims.is_own(shard) {
                self.context.progress.extend(self.expected_rows(&[shard]).unwrap_or(0));
                self.context.progress.input(0, self.shards[shard].bytes.cast_signed());
            }
            let last = match self.read_shard(shard, to_tokenize) {
                Ok(()) => Step::ShardEnd { shard },
                Err(error) => Step::Failed { shard: Some(shard), error },
            };
            if to_tokenize.send_step(last).is_err() {
                return;
            }
        }
    }

    /// Sends the rest of the documents of `shard`; [`Error::Stopped`] if another stream fails or
    /// the receiver is gone, or on a stop request.
    fn read_shard(&self, shard: usize, to_tokenize: &Sender<Step>) -> Result<()> {
        let planned = &self.shards[shard];
        let done = self.context.run.part_markers(planned)?;
        let mut reader = DocumentReader::open(&planned.input()?, &self.context.config.input)?;
        let mut first_row = done.last().map_or(planned.first_row(), |part| part.next_row);
        reader.resume(first_row, done.iter().map(|part| part.encoded.rejects).sum());
        let (mut position, mut is_resumed) = (0, !done.is_empty());
        let left_out = Arc::new(self.cascade.left_out_rows(self.context, shard as u64, planned)?);
        let mut rejects_seen = 0;
        for index in done.len().. {
            let saved = self.context.run.saved_part(planned, index)?.map(Arc::new);
            let (mut left, mut last_row) = (self.context.config.parts.rows, None);
            while left > 0
                && let Some(documents) = self.read_batch(&mut reader, planned, left)?
            {
                left -= documents.len();
                last_row = documents.rows().last().copied().or(last_row);
                let next_row = last_row.map_or(first_row, |row| row + 1);
                let read = bytes_read(planned, &reader, next_row).max(position);
                let mut input_bytes = read - std::mem::replace(&mut position, read);
                // The rows before the first batch were done earlier.
                if std::mem::take(&mut is_resumed) {
                    let done = std::mem::take(&mut input_bytes).cast_signed();
                    self.context.progress.input(0, -done);
                }
                let rows = EmbeddingRows { documents, ..EmbeddingRows::default() };
                let (left_out, saved) = (Arc::clone(&left_out), saved.clone());
                let new = ChunkBatch::default();
                let batch = ChunkBatch { shard, index, rows, left_out, saved, input_bytes, ..new };
                if self.is_broken.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                to_tokenize.send_step(Step::Batch(batch.into()))?;
            }
            // Rejects of rows before this part were written with the finished parts.
            let new = reader.rejects()[rejects_seen..].iter().filter(|r| r.row >= first_row);
            let rejects: Vec<Reject> = new.cloned().collect();
            rejects_seen = reader.rejects().len();
            let last_row = last_row.max(rejects.last().map(|r| r.row));
            let next_row = last_row.map_or(first_row, |row| row + 1);
            // Every shard has a first part, so that an empty file has a marker too.
            if last_row.is_some() || index == 0 {
                let end = PartEnd { shard, index, next_row, rejects };
                to_tokenize.send_step(Step::PartEnd(end))?;
            }
            first_row = next_row;
            if left > 0 {
                break;
            }
        }
        // The bytes that were not read leave the total.
        self.context.progress.input(0, -(planned.bytes - position).cast_signed());
        Ok(())
    }

    /// Reads the next documents of `shard`, at most `left`; `None` at the end of the file.
    fn read_batch(
        &self,
        reader: &mut DocumentReader,
        shard: &Shard,
        left: usize,
    ) -> Result<Option<DocumentBatch>> {
        self.context.stop.check()?;
        let _busy = self.reading.work();
        let _span = tracing::trace_span!("read").entered();
        let Some(documents) = reader.next_batch(BATCH_ROWS.min(left))? else { return Ok(None) };
        // Languages become part of file names. If one is wrong, those in the rest are counted too.
        let is_wrong = |document: &DocumentInfo<'_>| !is_language_code(document.language);
        let count = |documents: &DocumentBatch| documents.iter().filter(is_wrong).count() as u64;
        let first = documents.iter().find(is_wrong);
        let Some((row, language)) = first.map(|it| (it.row, it.language.to_owned())) else {
            return Ok(Some(documents));
        };
        let mut wrong = count(&documents);
        while let Ok(Some(documents)) = reader.next_batch(BATCH_ROWS) {
            self.context.stop.check()?;
            wrong += count(&documents);
        }
        Err(Error::Row {
            path: shard.file.clone(),
            row: row + 1,
            reason: format!("language `{}` is not {LANGUAGE_CODE}", language.escape_debug()),
            count: wrong,
        })
    }
}
