//! The global shuffle: hashes of a document's id choose the file of a copy and its place there.
//!
//! ```text
//!  input file ──drawn copies, by output file──▶ _state/shuffle/00007-00000.bin  (in sections)
//!                                                        │ one section of each
//!                                                        ▼
//!                                          sorted by hash ──▶ part-00003.parquet
//! ```
//!
//! Copy `i` of a document has the hash xxh3-64 of `i` as 8 bytes, seeded with the id's hash. One
//! hash, modulo the number of files, is the file, and another is the place in it; equal ones go by
//! file, row and copy. So bytes depend on the draw, not on how processes share work or are stopped.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::interleave::interleave_record_batch;
use arrow_select::take::take_record_batch;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use rayon::current_num_threads;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::columns::MixSchema;
use super::count::{CountedRow, input_config, writer_options};
use super::draw::{Draw, DrawnFile, MixCorpus, MixRequest};
use polysift_base::error::{Error, Result};
use polysift_base::io::{AtomicFile, FileStamp, open, read_json, write_json};
use polysift_base::panics::lock;
use polysift_base::sample::hash_seed;
use polysift_data::export::ExportWriter;
use polysift_data::input::RowReader;
use polysift_runs::run::Worker;

/// Salts of the hashes that choose the file and the place of a copy.
const SALTS: [&str; 2] = ["file", "order"];
/// Number of rows that are assembled together.
const BATCH_ROWS: usize = 1024;
/// Minimum bytes of an input that are collected before they are sorted into sections.
const LEAST_CHUNK_BYTES: u64 = 8 << 20;
/// Uncompressed bytes of a row group of the output.
const ROW_GROUP_BYTES: u64 = 100_000_000;
/// Name in messages for the JSON files of a mixture.
pub(super) const JSON: &str = "JSON of a mixture";
/// Compression of chunks, which are read only once.
const CHUNK_ZSTD_LEVEL: i32 = 1;

/// A file of the mixture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MixedFile {
    /// Name of the file in the output folder.
    pub name: String,
    /// Number of rows.
    pub rows: u64,
    /// Size and digest of the file.
    #[serde(flatten)]
    pub stamp: FileStamp,
}

pub(super) struct Shuffle<'a> {
    pub(super) request: &'a MixRequest<'a>,
    pub(super) corpus: &'a MixCorpus<'a>,
    pub(super) draw: &'a Draw,
    pub(super) worker: &'a Worker,
    pub(super) schema: &'a MixSchema,
    pub(super) num_files: u64,
}

/// Marker of an input that was scattered into chunks, which have a section per output file.
#[derive(Serialize, Deserialize)]
struct Scattered {
    chunks: usize,
}

/// A document that is drawn at least once.
struct Drawn {
    row: u64,
    copies: u64,
    /// Hashes of the id, seeded with each of [`SALTS`].
    hashes: [u64; 2],
}

impl Shuffle<'_> {
    /// Writes what is not written yet; returns all files of the output.
    pub(super) fn write(&self) -> Result<Vec<MixedFile>> {
        if let Some(files) = self.find_all_written()? {
            return Ok(files);
        }
        let (rows, stop) = (self.draw.rows.iter().sum(), self.request.stop);
        let keys = |phase: &str, number: usize| -> Vec<String> {
            (0..number).map(|place| format!("{phase}-{place}")).collect()
        };
        let (inputs, threads) = (keys("scatter", self.corpus.files.len()), current_num_threads());
        self.request.progress.begin("scatter", Some(rows), "rows");
        let is_done = |place: usize| {
            // In this order: another process removes the marker only after everything is written.
            let is_done = read_json::<Scattered>(&self.scatter_marker(place), JSON)?.is_some()
                || self.find_all_written()?.is_some();
            if is_done {
                self.request.progress.advance(self.draw.rows[place], 0);
            }
            Ok(is_done)
        };
        let done = self.worker.share(stop, &inputs, threads, is_done, |place| self.scatter(place));
        self.request.progress.end();
        done?;
        // Chunks are listed once there is a file to gather; they are removed after the last one.
        let chunks = Mutex::new(None);
        let outputs = keys("gather", self.num_files as usize);
        self.request.progress.begin("gather", Some(rows), "rows");
        let is_done = |place| {
            let file = self.find_written(place as u64)?;
            self.request.progress.advance(file.as_ref().map_or(0, |file| file.rows), 0);
            Ok(file.is_some())
        };
        let done = self.worker.share(stop, &outputs, 1, is_done, |place| {
            let mut chunks = lock(&chunks);
            let chunks = match &mut *chunks {
                Some(chunks) => chunks,
                none => none.insert(self.list_chunks()?),
            };
            self.gather(place as u64, chunks)
        });
        self.request.progress.end();
        done?;
        self.find_all_written()?
            .ok_or_else(|| Error::corrupt(self.request.out, "files of the mixture are gone again"))
    }

    /// Returns all files of the output, or `None` until each is written.
    fn find_all_written(&self) -> Result<Option<Vec<MixedFile>>> {
        (0..self.num_files).map(|place| self.find_written(place)).collect()
    }

    /// Returns the output file number `place`, if it is written and still there.
    fn find_written(&self, place: u64) -> Result<Option<MixedFile>> {
        let file: Option<MixedFile> = read_json(&self.part_marker(place), JSON)?;
        Ok(file.filter(|file| file.is_in(self.request.out)))
    }

    /// Returns the path of the description of output file `place`, which marks it as written.
    fn part_marker(&self, place: u64) -> PathBuf {
        self.worker.run().path(format!("parts/{place:05}.json"))
    }

    /// Returns the path of a chunk of the input at `place`.
    fn chunk_file(&self, place: usize, chunk: usize) -> PathBuf {
        self.worker.run().path(format!("shuffle/{place:05}-{chunk:05}.bin"))
    }

    /// Returns the path of the number of chunks of an input, which marks them as complete.
    fn scatter_marker(&self, place: usize) -> PathBuf {
        self.worker.run().path(format!("shuffle/{place:05}.json"))
    }

    /// Sorts the copies of the input at `place` by output file into chunks, and marks it as done.
    fn scatter(&self, place: usize) -> Result<()> {
        let marker = self.scatter_marker(place);
        let DrawnFile { file, source, .. } = &self.corpus.files[place];
        let config = self.request.config;
        let seeds =
            SALTS.map(|salt| hash_seed(&[salt, &config.sources[*source].name], config.seed));
        let mut drawn = Vec::new();
        self.corpus.for_each_document(place, |CountedRow { row, id, .. }, document| {
            let copies = self.draw.copies(&document, place, row);
            if copies > 0 {
                let hashes = seeds.map(|seed| XxHash3_64::oneshot_with_seed(seed, id.as_bytes()));
                drawn.push(Drawn { row, copies, hashes });
            }
        })?;
        let mut sections = Sections::new(self, place);
        let mut left = drawn.iter().peekable();
        if left.peek().is_some() {
            let mut reader = RowReader::open(file, &input_config(config))?;
            while let (Some(batch), true) = (reader.next_batch()?, left.peek().is_some()) {
                self.request.stop.check()?;
                // Up to about a GiB of copies is taken at a time.
                let most = ((1 << 30) / batch.batch.get_array_memory_size().max(1)).max(1) as u64;
                for (at, &row) in batch.rows.iter().enumerate() {
                    let Some(document) = left.next_if(|document| document.row == row) else {
                        continue;
                    };
                    for copy in 0..document.copies {
                        sections.choose(at, document, copy);
                        if sections.chosen.len() == BATCH_ROWS || copy % most == most - 1 {
                            self.request.stop.check()?;
                            sections.take(&batch.batch)?;
                        }
                    }
                }
                sections.take(&batch.batch)?;
            }
            if let Some(lost) = left.next() {
                let reason = format!("row {} was counted, and is gone or too long", lost.row + 1);
                return Err(Error::corrupt(&file.path, reason));
            }
            sections.flush()?;
        }
        write_json(&marker, &Scattered { chunks: sections.num_chunks }).map(drop)
    }

    /// Returns the chunks of all inputs, in order; all inputs are scattered.
    fn list_chunks(&self) -> Result<Vec<PathBuf>> {
        let mut chunks = Vec::new();
        for input in 0..self.corpus.files.len() {
            let marker = self.scatter_marker(input);
            let scattered = read_json::<Scattered>(&marker, JSON)?;
            let scattered = scattered.ok_or_else(|| Error::corrupt(&marker, "is gone"))?;
            chunks.extend((0..scattered.chunks).map(|chunk| self.chunk_file(input, chunk)));
        }
        Ok(chunks)
    }

    /// Writes the file of the output at `place` from its sections in `chunks`.
    fn gather(&self, place: u64, chunks: &[PathBuf]) -> Result<()> {
        let read = |path: &PathBuf| {
            self.request.stop.check()?;
            read_section(path, place, self.num_files)
        };
        let sections: Vec<Vec<RecordBatch>> = chunks.par_iter().map(read).collect::<Result<_>>()?;
        let columns: Vec<usize> = (0..self.schema.fields().count()).collect();
        let name = format!("part-{place:05}");
        let base = self.request.out.join(&name);
        let (mut order, mut batches) = (Vec::new(), Vec::new());
        for batch in sections.into_iter().flatten() {
            let hashes = batch.columns().get(columns.len());
            let Some(hashes) = hashes.and_then(|hashes| hashes.as_primitive_opt::<UInt64Type>())
            else {
                let reason = "the files do not have the columns of copies";
                return Err(Error::corrupt(&self.worker.run().path("shuffle"), reason));
            };
            let places = (0..batch.num_rows()).map(|row| (batches.len(), row));
            order.extend(hashes.values().iter().copied().zip(places));
            batches.push(batch.project(&columns).map_err(|e| Error::write(&base, e))?);
        }
        // Sections hold copies by input, row and copy, so that places order equal hashes.
        order.par_sort_unstable();
        let options = writer_options(ROW_GROUP_BYTES);
        let mut writer = ExportWriter::create(&base, &self.schema.output_schema(), &options)?;
        let all: Vec<&RecordBatch> = batches.iter().collect();
        for rows in order.chunks(BATCH_ROWS) {
            self.request.stop.check()?;
            let places: Vec<(usize, usize)> = rows.iter().map(|(_, place)| *place).collect();
            let rows = interleave_record_batch(&all, &places);
            writer.write(&rows.map_err(|e| Error::write(&base, e))?)?;
        }
        let written = writer.finish()?.into_iter().next();
        let stamp = written.ok_or_else(|| Error::corrupt(&base, "was not written"))?.stamp;
        let file = MixedFile { name: format!("{name}.parquet"), rows: order.len() as u64, stamp };
        self.request.progress.advance(file.rows, 0);
        write_json(&self.part_marker(place), &file).map(drop)
    }
}

impl MixedFile {
    /// Returns true if the file is in `folder` with the size that was written.
    pub(super) fn is_in(&self, folder: &Path) -> bool {
        folder.join(&self.name).metadata().is_ok_and(|file| file.len() == self.stamp.bytes)
    }
}

/// A copy of a row of the current batch.
struct ChosenCopy {
    row: u32,
    copy: i32,
    /// Number of its output file.
    file: u64,
    /// Hash that decides its place in the file.
    order: u64,
}

/// Copies of one input, sorted into sections.
struct Sections<'a> {
    shuffle: &'a Shuffle<'a>,
    place: usize,
    schema: SchemaRef,
    chosen: Vec<ChosenCopy>,
    batches: Vec<RecordBatch>,
    /// For each row of the batches its output file, and its batch and place there.
    rows: Vec<(u64, (usize, usize))>,
    bytes: u64,
    num_chunks: usize,
}

impl<'a> Sections<'a> {
    fn new(shuffle: &'a Shuffle<'a>, place: usize) -> Self {
        let order = Field::new("order", DataType::UInt64, false);
        let fields = shuffle.schema.fields().chain([order]).collect::<Vec<_>>();
        let schema = Arc::new(Schema::new(fields));
        let (chosen, batches, rows) = (Vec::new(), Vec::new(), Vec::new());
        Self { shuffle, place, schema, chosen, batches, rows, bytes: 0, num_chunks: 0 }
    }

    /// Chooses output file and place of copy number `copy` of a document, at `row` of the batch.
    fn choose(&mut self, row: usize, document: &Drawn, copy: u64) {
        let [file, order] =
            document.hashes.map(|hash| XxHash3_64::oneshot_with_seed(hash, &copy.to_le_bytes()));
        let (row, copy, file) = (row as u32, copy as i32, file % self.shuffle.num_files);
        self.chosen.push(ChosenCopy { row, copy, file, order });
    }

    /// Adds the rows of the chosen copies to the sections, which are flushed from a size on.
    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        let chosen = std::mem::take(&mut self.chosen);
        if chosen.is_empty() {
            return Ok(());
        }
        let DrawnFile { file, source, .. } = &self.shuffle.corpus.files[self.place];
        let name = &self.shuffle.request.config.sources[*source].name;
        let rows = UInt32Array::from_iter_values(chosen.iter().map(|chosen| chosen.row));
        let added: [ArrayRef; 3] = [
            Arc::new(StringArray::from_iter_values(chosen.iter().map(|_| name))),
            Arc::new(Int32Array::from_iter_values(chosen.iter().map(|chosen| chosen.copy))),
            Arc::new(UInt64Array::from_iter_values(chosen.iter().map(|chosen| chosen.order))),
        ];
        let taken = take_record_batch(batch, &rows).and_then(|rows| {
            let mut columns = self.shuffle.schema.convert(&rows)?;
            columns.extend(added);
            RecordBatch::try_new(self.schema.clone(), columns)
        });
        let taken = taken.map_err(|e| Error::decode(&file.path, "rows of one type", e))?;
        self.bytes += taken.get_array_memory_size() as u64;
        let (batch, targets) = (self.batches.len(), chosen.iter().map(|chosen| chosen.file));
        self.rows.extend(targets.enumerate().map(|(at, target)| (target, (batch, at))));
        self.batches.push(taken);
        self.shuffle.request.progress.advance(chosen.len() as u64, 0);
        // All threads together hold about as much as one file of the output.
        let threads = current_num_threads().max(1) as u64;
        let most = self.shuffle.request.config.output_bytes.0 / threads;
        if self.bytes >= most.max(LEAST_CHUNK_BYTES) { self.flush() } else { Ok(()) }
    }

    /// Writes a chunk: one Parquet section per output file, then a table of 8 bytes each with the
    /// start of every section and the end of the last.
    fn flush(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.batches);
        let mut rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if batches.is_empty() {
            return Ok(());
        }
        let all: Vec<&RecordBatch> = batches.iter().collect();
        rows.sort_unstable();
        let path = self.shuffle.chunk_file(self.place, self.num_chunks);
        let mut file = AtomicFile::create(&path)?;
        let (mut end, mut table) = (0, vec![0; 8]);
        let mut rest = &rows[..];
        for target in 0..self.shuffle.num_files {
            let (own, after) = rest.split_at(rest.partition_point(|(to, _)| *to == target));
            rest = after;
            let section = self.encode_section(&all, own).map_err(|e| Error::write(&path, e))?;
            file.write_all(&section).map_err(Error::io(&path, "write"))?;
            end += section.len() as u64;
            table.extend(end.to_le_bytes());
        }
        file.write_all(&table).map_err(Error::io(&path, "write"))?;
        file.commit()?;
        self.num_chunks += 1;
        Ok(())
    }

    /// Returns a Parquet file in memory with `rows` of `batches`; no bytes without rows.
    fn encode_section(
        &self,
        batches: &[&RecordBatch],
        rows: &[(u64, (usize, usize))],
    ) -> parquet::errors::Result<Vec<u8>> {
        let mut section = Vec::new();
        if rows.is_empty() {
            return Ok(section);
        }
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(CHUNK_ZSTD_LEVEL)?))
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .build();
        let mut writer = ArrowWriter::try_new(&mut section, self.schema.clone(), Some(properties))?;
        for rows in rows.chunks(BATCH_ROWS) {
            let places: Vec<(usize, usize)> = rows.iter().map(|(_, place)| *place).collect();
            writer.write(&interleave_record_batch(batches, &places)?)?;
        }
        writer.close()?;
        Ok(section)
    }
}

/// Reads the rows of a section of a chunk; none if the section is empty.
fn read_section(path: &Path, section: u64, num_sections: u64) -> Result<Vec<RecordBatch>> {
    let bytes = read_section_bytes(open(path)?, section, num_sections);
    let bytes = bytes.map_err(Error::io(path, "read"))?;
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let damaged = |e| Error::decode(path, "sections of a shuffle", e);
    let reader = ParquetRecordBatchReader::try_new(Bytes::from(bytes), BATCH_ROWS);
    let batches = reader.map_err(|e| damaged(e.into()))?.collect::<Result<Vec<_>, _>>();
    batches.map_err(|e| damaged(polysift_base::error::Source::from(e)))
}

/// Reads a section by the table at the end of a chunk.
fn read_section_bytes(mut file: File, section: u64, num_sections: u64) -> std::io::Result<Vec<u8>> {
    let table = file.metadata()?.len().saturating_sub(8 * (num_sections + 1));
    let mut bounds = [[0; 8]; 2];
    file.seek(SeekFrom::Start(table + 8 * section))?;
    file.read_exact(bounds.as_flattened_mut())?;
    let [start, end] = bounds.map(u64::from_le_bytes);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    // The table is not trusted, so memory grows only with the bytes that are read.
    file.take(end.saturating_sub(start)).read_to_end(&mut bytes)?;
    Ok(bytes)
}
