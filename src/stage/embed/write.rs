//! The writing thread: parts and their markers, in order.

use std::collections::BTreeMap;

use crossbeam_channel::Receiver;
use serde_json::json;

use super::{Done, PartInput};
use crate::error::{Error, Result};
use crate::run::{PartFile, PartMarker, Shard, ShardMarker, Stage};
use crate::stage::{Context, Failures};
use crate::store::{EmbeddingRows, round_to, write_atomic, write_embeddings};

pub(super) struct Writing<'a> {
    pub(super) context: Context<'a>,
    pub(super) todo: &'a [&'a Shard],
}

impl Writing<'_> {
    pub(super) fn run(&self, from_encode: &Receiver<Done>) -> Result<Failures> {
        let mut failures = Failures::of(self.todo.len());
        for done in from_encode {
            match done {
                Done::Part(part, rows) => self.write_part(&part, rows)?,
                Done::End { shard } => self.mark_done(self.todo[shard])?,
                Done::Failed { shard, error } => failures.record(&self.todo[shard].name, error)?,
            }
        }
        Ok(failures)
    }

    fn write_part(&self, part: &PartInput, mut rows: EmbeddingRows) -> Result<()> {
        let Context { run, config, .. } = self.context;
        let shard = self.todo[part.shard];
        if !part.rejects.is_empty() {
            let mut lines = Vec::new();
            for reject in &part.rejects {
                let raw = String::from_utf8_lossy(&reject.raw);
                let line = json!({"row": reject.row, "reason": reject.reason, "raw": raw});
                lines.extend_from_slice(line.to_string().as_bytes());
                lines.push(b'\n');
            }
            write_atomic(&run.rejects_part(shard, part.index), &lines)?;
        }
        let path = run.embeddings_part(shard, part.index);
        let is_finite = |row: &usize| rows.chunks(*row).iter().all(|value| value.is_finite());
        let num_nan = (0..rows.rows.len()).filter(|row| !is_finite(row)).count();
        if num_nan > 0 {
            tracing::warn!(shard = %shard.name, rows = num_nan, "embeddings that are not finite; such rows are never selected");
        }
        round_to(&mut rows.values, config.store.embeddings);
        let stamp = write_embeddings(&path, &rows, config.store.embeddings, config.store.zstd)?;
        let mut languages = BTreeMap::new();
        for language in &rows.languages {
            *languages.entry(language.clone()).or_default() += 1;
        }
        let chunks = rows.chunk_offsets.last().map_or(0, |&n| n as u64);
        let marker = PartMarker {
            file: PartFile { path: run.relative(&path), rows: rows.rows.len() as u64, stamp },
            next_row: part.next_row,
            languages,
            documents: rows.chunk_offsets.windows(2).filter(|w| w[1] > w[0]).count() as u64,
            chunks,
            tokens: part.tokens,
            rejects: part.rejects.len() as u64,
        };
        run.mark_part(shard, part.index, &marker)
    }

    fn mark_done(&self, shard: &Shard) -> Result<()> {
        let run = self.context.run;
        let parts = run.part_markers(shard)?;
        if parts.is_empty() {
            return Err(Error::verify(&run.path("state"), format!("no part of {}", shard.name)));
        }
        let mut marker = ShardMarker::default();
        for part in parts {
            marker.rows += part.file.rows;
            marker.files.push(part.file);
            for (language, rows) in part.languages {
                *marker.counts.entry(language).or_default() += rows;
            }
        }
        run.mark_shard(Stage::Embed, &shard.name, &marker)?;
        tracing::info!(shard = %shard.name, rows = marker.rows, "embedded");
        Ok(())
    }
}
