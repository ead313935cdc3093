//! One shard: input rows joined with what the run knows of them, written to the file of their fate.

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;

use super::Job;
use super::sidecar::{Fate, Sidecars};
use crate::error::{Error, Result};
use crate::export::{ExportWriter, RowExtras, assemble, export_schema};
use crate::input::RowReader;
use crate::run::{PartFile, Shard, ShardMarker};

/// What [`ShardMarker::counts`] calls the exported rows; reasons never have this name.
const KEPT: &str = "kept";

/// The export of a shard in progress.
pub(super) struct ShardExport<'a> {
    job: &'a Job<'a>,
    shard: &'a Shard,
    reader: RowReader,
    sidecars: Sidecars<'a>,
    schema: SchemaRef,
    /// By [`KEPT`] or reason.
    writers: BTreeMap<String, ExportWriter>,
    marker: ShardMarker,
}

/// The rows of a batch that share a fate.
struct Group {
    mask: Vec<bool>,
    extras: RowExtras,
}

impl<'a> ShardExport<'a> {
    pub(super) fn new(job: &'a Job<'a>, place: u64, shard: &'a Shard) -> Result<Self> {
        let reader = RowReader::open(&shard.input()?, &job.context.config.input)?;
        let schema = export_schema(&reader.schema(), &job.spec, &shard.file)?;
        let sidecars = Sidecars::open(job, place, shard)?;
        let mut export = Self {
            job,
            shard,
            reader,
            sidecars,
            schema,
            writers: BTreeMap::new(),
            marker: ShardMarker::default(),
        };
        // A shard of which nothing is kept still has its file.
        export.writer(KEPT)?;
        Ok(export)
    }

    pub(super) fn run(mut self) -> Result<ShardMarker> {
        while let Some(block) = self.reader.next_batch()? {
            self.job.context.stop.check()?;
            for (fate, group) in self.group(&block.rows)? {
                *self.marker.counts.entry(fate.clone()).or_default() +=
                    group.mask.iter().filter(|selected| **selected).count() as u64;
                if fate == KEPT || self.job.context.config.export.keep_removed {
                    let batch = self.assembled(&block.batch, group)?;
                    self.writer(&fate)?.write(&batch)?;
                }
            }
            self.job.context.progress.advance(block.rows.len() as u64, 0);
        }
        self.finish()
    }

    /// Looks every row up and sorts the rows by fate.
    fn group(&mut self, rows: &[u64]) -> Result<BTreeMap<String, Group>> {
        let num_rows = rows.len();
        let (num_scores, num_retentions) =
            (self.job.spec.score_columns.len(), self.job.retention_heads.len());
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for (at, &row) in rows.iter().enumerate() {
            let known = self.sidecars.row(row)?.ok_or_else(|| {
                Error::corrupt(&self.shard.file, format!("row {row} was never embedded"))
            })?;
            self.marker.rows += 1;
            let (fate, retention) = match known.fate {
                Fate::Kept(rates) => (KEPT.to_owned(), rates),
                Fate::Removed(reason) => (reason, vec![None; num_retentions]),
            };
            let group = groups.entry(fate).or_insert_with(|| Group {
                mask: vec![false; num_rows],
                extras: RowExtras {
                    chunk_offsets: vec![0],
                    scores: vec![Vec::new(); num_scores],
                    retention: vec![Vec::new(); num_retentions],
                    ..RowExtras::default()
                },
            });
            group.mask[at] = true;
            let extras = &mut group.extras;
            extras.values.extend_from_slice(known.embeddings.unwrap_or_default());
            extras.hidden_size = extras.hidden_size.max(known.hidden_size);
            extras.chunk_offsets.push(extras.values.len() / extras.hidden_size.max(1));
            extras.scores.iter_mut().zip(known.scores).for_each(|(column, s)| column.push(s));
            extras.retention.iter_mut().zip(retention).for_each(|(column, r)| column.push(r));
        }
        Ok(groups)
    }

    fn assembled(&self, batch: &RecordBatch, group: Group) -> Result<RecordBatch> {
        let mask = BooleanArray::from(group.mask);
        let selected = filter_record_batch(batch, &mask)
            .map_err(|e| Error::decode(&self.shard.file, "rows", e))?;
        assemble(&selected, &group.extras, &self.schema, &self.job.spec)
    }

    /// The writer of a fate, opened at its first row.
    fn writer(&mut self, fate: &str) -> Result<&mut ExportWriter> {
        let entry = match self.writers.entry(fate.to_owned()) {
            std::collections::btree_map::Entry::Occupied(entry) => return Ok(entry.into_mut()),
            std::collections::btree_map::Entry::Vacant(entry) => entry,
        };
        let (folder, reason): (PathBuf, _) = if fate == KEPT {
            ("export".into(), None)
        } else {
            (PathBuf::from("removed").join(fate), Some(fate))
        };
        let base = self.job.root().join(folder).join(&self.shard.name);
        let options = self.job.writer_options(reason);
        Ok(entry.insert(ExportWriter::create(&base, &self.schema, &options)?))
    }

    fn finish(mut self) -> Result<ShardMarker> {
        let run = self.job.context.run;
        for writer in std::mem::take(&mut self.writers).into_values() {
            for file in writer.finish()? {
                self.marker.files.push(PartFile {
                    path: run.relative(&file.path),
                    rows: file.rows,
                    stamp: file.stamp,
                });
            }
        }
        Ok(self.marker)
    }
}
