//! The writing thread: writes parts and their markers, in order.

use std::collections::BTreeMap;

use serde_json::json;

use super::queue::{ChunkBatch, PartEnd, Pipeline, Receiver, Step};
use polysift_base::error::{Error, Result};
use polysift_base::io::write_atomic;
use polysift_base::panics::lock;
use polysift_config::EmbeddingDtype;
use polysift_corpus::Context;
use polysift_data::input::Reject;
use polysift_data::parts::{EmbeddingWriter, is_finite_in};
use polysift_runs::run::{Encoded, PartMarker, Shard, ShardMarker, Stage};

/// A part that is being written, with the contents of its marker.
struct OpenPart {
    shard: usize,
    index: usize,
    writer: EmbeddingWriter,
    rows: u64,
    languages: BTreeMap<String, u64>,
    encoded: Encoded,
    /// Number of rows whose embeddings are not finite in the type of the stored values.
    num_nan: u64,
}

impl Pipeline<'_> {
    /// Runs the writing thread. It saves parts that a stop or a failed encoder leaves incomplete.
    pub(super) fn write(&self, from_encode: &Receiver<Step>) -> Result<()> {
        let mut part = None;
        let mut incomplete = None; // the shard that lacks documents
        while let Some(step) = from_encode.recv() {
            let _busy = self.writing.work();
            match step {
                Step::Batch(batch) => {
                    let part = match &mut part {
                        Some(part) => part,
                        none => none.insert(self.begin_part(batch.shard, batch.index)?),
                    };
                    if !part.append(&batch, self.context.config.parts.embeddings)? {
                        incomplete = Some(batch.shard);
                    }
                }
                Step::PartEnd(end) if incomplete == Some(end.shard) => {
                    part.take().map_or(Ok(()), |part| self.save_part(part))?;
                }
                Step::ShardEnd { shard } if incomplete == Some(shard) => {}
                // A stop, or another stream has failed, which reports the error.
                Step::Failed { error: Error::Stopped, .. } => {}
                Step::PartEnd(end) => {
                    let begin = || self.begin_part(end.shard, end.index);
                    self.finish_part(part.take().map_or_else(begin, Ok)?, &end)?;
                }
                Step::ShardEnd { shard } => {
                    lock(&self.failures).attempted += 1;
                    self.claims.check(shard)?;
                    self.mark_shard(&self.shards[shard])?;
                    self.claims.release(shard)?;
                }
                Step::Failed { shard: None, error } => return Err(error),
                Step::Failed { shard: Some(shard), error } => {
                    part = None;
                    let mut failures = lock(&self.failures);
                    failures.attempted += 1;
                    failures.record(&self.shards[shard].name, error)?;
                    drop(failures);
                    self.claims.release(shard)?;
                }
            }
        }
        part.map_or(Ok(()), |part| self.save_part(part))
    }

    /// Opens the file of a part for writing.
    fn begin_part(&self, shard: usize, index: usize) -> Result<OpenPart> {
        let Context { run, config, .. } = self.context;
        let path = run.embeddings_part(&self.shards[shard], index);
        let writer = EmbeddingWriter::create(&path, config.parts.embeddings, config.parts.zstd)?;
        let (languages, encoded) = (BTreeMap::new(), Encoded::default());
        Ok(OpenPart { shard, index, writer, rows: 0, languages, encoded, num_nan: 0 })
    }

    /// Saves the encoded documents of `part` for the process that continues. The file has the
    /// part's name, but no marker of a finished part.
    fn save_part(&self, part: OpenPart) -> Result<()> {
        // Embeddings from the input are read from there again.
        if part.rows == 0 || self.model.is_none() {
            return Ok(());
        }
        let (run, shard) = (self.context.run, &self.shards[part.shard]);
        self.claims.check(part.shard)?;
        let path = run.embeddings_part(shard, part.index);
        let file = run.file(&path, part.rows, part.writer.finish()?);
        run.mark_saved(shard, part.index, &file)?;
        let (shard, index) = (&shard.name, part.index);
        tracing::info!(shard, part = index, documents = file.rows, "saved what is encoded");
        Ok(())
    }

    /// Writes the file of `part`, its rejects and its marker, and warns of lacking embeddings.
    fn finish_part(&self, part: OpenPart, end: &PartEnd) -> Result<()> {
        let run = self.context.run;
        let shard = &self.shards[end.shard];
        self.claims.check(end.shard)?;
        let span = tracing::trace_span!("finish part", shard = %shard.name, index = end.index);
        let _entered = span.enter();
        if !end.rejects.is_empty() {
            let path = format!("rejects/{}/part-{:05}.jsonl", shard.name, end.index);
            let line = |reject: &Reject| {
                let raw = String::from_utf8_lossy(&reject.raw);
                format!("{}\n", json!({"row": reject.row, "reason": reject.reason, "raw": raw}))
            };
            let lines: String = end.rejects.iter().map(line).collect();
            write_atomic(&run.path(path), lines.as_bytes())?;
        }
        if part.num_nan > 0 {
            tracing::warn!(shard = %shard.name, rows = part.num_nan, parts.embeddings = ?self.context.config.parts.embeddings, "embeddings that are not finite in this type; heads of embeddings give such rows no score");
        }
        if part.encoded.without_embedding > 0 {
            tracing::warn!(shard = %shard.name, rows = part.encoded.without_embedding, "texts without an embedding in the input; heads of embeddings give them no score");
        }
        let path = run.embeddings_part(shard, end.index);
        let file = run.file(&path, part.rows, part.writer.finish()?);
        let encoded = Encoded { rejects: end.rejects.len() as u64, ..part.encoded };
        let (next_row, languages) = (end.next_row, part.languages);
        let marker = PartMarker { file, next_row, languages, encoded };
        run.mark_part(shard, end.index, &marker)
    }

    /// Marks `shard` as done, from the markers of its parts.
    fn mark_shard(&self, shard: &Shard) -> Result<()> {
        let run = self.context.run;
        let parts = run.part_markers(shard)?;
        if parts.is_empty() {
            return Err(Error::corrupt(&run.path("state"), format!("no part of {}", shard.name)));
        }
        let (mut marker, mut encoded) = (ShardMarker::default(), Encoded::default());
        for part in parts {
            encoded.add(&part.encoded);
            marker.add(part.file, part.languages);
        }
        marker.encoded = Some(encoded);
        run.mark_shard(Stage::Embed, &shard.name, &marker)?;
        tracing::info!(shard = %shard.name, rows = marker.rows, "embedded");
        Ok(())
    }
}

impl OpenPart {
    /// Appends the encoded documents of `batch`, stored as `dtype`; returns true if all of them
    /// are.
    fn append(&mut self, batch: &ChunkBatch, dtype: EmbeddingDtype) -> Result<bool> {
        let documents = &batch.rows.documents;
        let _span = tracing::trace_span!("write", documents = documents.len()).entered();
        for i in 0..documents.len() {
            if !batch.has_embeddings(i) {
                continue;
            }
            self.rows += 1;
            let values = batch.rows.chunks(i);
            self.num_nan += u64::from(!values.iter().all(|v| is_finite_in(*v, dtype)));
            let document = documents.get(i);
            self.encoded.documents += u64::from(document.num_bytes > 0);
            *self.languages.entry(document.language.to_owned()).or_default() += 1;
            self.writer.push(&document, values, batch.rows.hidden_size)?;
        }
        self.encoded.add(&batch.encoded);
        Ok(batch.is_encoded.iter().all(|is_encoded| *is_encoded))
    }
}
