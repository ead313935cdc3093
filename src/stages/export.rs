//! Exports the selected documents with all their columns and new ones; files mirror the inputs.
//!
//! Each shard is read again beside its parts, which decide the output file of each row: the file of
//! exported rows, or with `export.keep_removed` the file of its reason of removal.

mod card;
mod json_columns;
mod pii;
mod provenance;
mod spec;
mod template;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray, StringViewArray,
};
use arrow_schema::DataType;
use arrow_select::filter::filter_record_batch;
use serde_json::{Value, json};

pub use card::card_facts;
use card::write_card;
use json_columns::{LanguageColumns, infer_columns};
use pii::{PiiCounts, RedactedRow, ShardRedactor};
use polysift_base::error::{Error, Result};
use polysift_base::io::{is_url, remove};
use polysift_config::{EmbeddingDtype, FilterAction, KEPT, PiiAudit, Rate, RunConfig};
use polysift_corpus::rows::{Fate, PartRows, RunRows, ShardRows};
use polysift_corpus::select::stored_selections;
use polysift_corpus::verdicts::{REPORTS, check_filtered, filter_settings, has_reports};
use polysift_corpus::{Context, Embedded, ScoreFiles, StageWork};
use polysift_data::export::{
    EMBEDDINGS, ExportColumns, ExportSpec, ExportWriter, ExportedFile, PROVENANCE, WriterOptions,
};
use polysift_data::input::{DocumentInfo, Format, RowReader};
use polysift_data::parts::{
    EmbeddingRows, FoundRow, ScoreRows, embeddings_array, is_finite_in, read_embeddings, write_pii,
};
use polysift_remote as remote;
use polysift_runs::run::{Plan, Shard, ShardMarker, Stage};
use polysift_selection::Selection;
use provenance::ExportProvenance;
use spec::{exists, place_of, put, retention_heads, spec, taken, workplace_of};
pub use template::render_card;

/// Name of the object at an export's place that records which run owns the files there.
const OWNER: &str = "polysift.json";
/// Maximum number of files checked by [`check_export`]; the files of a corpus are alike.
const MAX_CHECKED_FILES: usize = 100;

/// What all shards have in common.
struct ExportJob<'a> {
    rows: RunRows<'a>,
    spec: ExportSpec,
    /// Heads with a retention column, in the order of the columns.
    retention_heads: BTreeSet<String>,
    selections: BTreeMap<String, Selection>,
    provenance: ExportProvenance,
    columns: LanguageColumns,
}

/// Checks the template of the card, if there will be one, and that the input columns leave the
/// names of the new columns free, as far as footers show.
pub(crate) fn check_export(config: &RunConfig, shards: &[Shard]) -> Result<()> {
    if config.export.card {
        render_card(&config.card, None)?;
    }
    let spec = spec(config);
    // The embed stage reports damaged files, with their shards.
    let files = shards.iter().filter_map(|shard| shard.input().ok());
    let parquet = files.filter(|file| file.format == Format::Parquet);
    for file in parquet.take(MAX_CHECKED_FILES) {
        if let Ok(reader) = RowReader::open(&file, &config.input) {
            ExportColumns::new(&reader.schema, &spec, &file.path)?;
        }
    }
    Ok(())
}

/// Returns [`Error::Config`] if `export.to` is in `root`, or an export would be over an input file.
pub(crate) fn check_place(config: &RunConfig, root: &Path, shards: &[Shard]) -> Result<()> {
    let canonical = |path: &Path| {
        let is_url = is_url(&path.to_string_lossy());
        let found = path.canonicalize().or_else(|_| std::path::absolute(path));
        found.ok().filter(|_| !is_url).unwrap_or_else(|| path.to_owned())
    };
    let refused = |reason: String| Err(Error::config("export.to", reason));
    let (place, root) = (canonical(&config.export.place(root)), canonical(root));
    if config.export.to.is_some() && place.starts_with(&root) {
        let reason =
            "is in the run directory; without this setting, it is the folder `export` there";
        return refused(reason.to_owned());
    }
    for folder in ["export", "removed"].map(|name| canonical(&place.join(name))) {
        let over = shards.iter().find(|shard| canonical(&shard.file).starts_with(&folder));
        if let Some(Shard { file, .. }) = over {
            let (folder, file) = (folder.display(), file.display());
            return refused(format!(
                "would write to {folder}, where the input file {file} is; name another place"
            ));
        }
    }
    Ok(())
}

/// Returns the settings to freeze: the exported files depend on them.
fn to_freeze(context: Context<'_>, selections: &BTreeMap<String, Selection>) -> Result<Value> {
    let config = context.config;
    let columns: BTreeMap<&String, String> =
        config.heads.iter().map(|(name, head)| (name, head.column(name))).collect();
    let mut settings =
        json!({"export": config.export, "columns": columns, "selections": selections});
    if !config.filters.is_empty() {
        settings["filters"] = filter_settings(context.run)?;
    }
    if let Some(pii) = &config.pii {
        settings["pii"] = json!(pii);
    }
    if let Some(column) = config.input.language.new_column() {
        settings["language_column"] = json!(column);
    }
    Ok(settings)
}

/// Exports every shard that is not exported yet.
pub fn export(context: Context<'_>) -> Result<()> {
    let Context { config, run, .. } = context;
    let embedded = Embedded::scored(run, config.heads.keys())?;
    check_filtered(context, &embedded)?;
    check_place(config, run.root(), &embedded.plan.shards)?;
    let selections = stored_selections(run, embedded.languages())?;
    context.freeze(Stage::Export, &to_freeze(context, &selections)?)?;
    let work = StageWork::of_shards(context, Stage::Export, &embedded.plan)?;
    if work.is_over() {
        return finish(context, &work, &embedded.plan);
    }
    if let Some(to) = &config.export.to {
        claim_place(context, to)?;
    }
    let rows = RunRows::open(context, Some(ScoreFiles::selected(context)?), embedded.languages())?;
    let (spec, retention_heads) = (spec(config), retention_heads(config));
    let provenance = ExportProvenance::of(context)?;
    let columns = infer_columns(context, &embedded.plan)?;
    let job = ExportJob { rows, spec, retention_heads, selections, provenance, columns };
    let rows = |place: usize| Some(embedded.summaries[place].rows);
    work.for_all(context, "documents", rows, |context, place| {
        ShardExport::run(context, &job, place as u64, &embedded.plan.shards[place])
    })?;
    finish(context, &work, &embedded.plan)
}

/// If all shards of `plan` are exported, sums up PII counts, commits to a hub, writes the card.
fn finish(context: Context<'_>, work: &StageWork, plan: &Plan) -> Result<()> {
    let Context { config, run, .. } = context;
    if !run.try_finish(Stage::Export, &work.items.keys)?
        || !has_reports(config)
        || run.is_done(Stage::Export, REPORTS)?
    {
        return Ok(());
    }
    let mut marker = ShardMarker::default();
    if config.pii.is_some() {
        let mut counts = PiiCounts::new();
        for shard in &plan.shards {
            let path = run.pii_counts_file(shard);
            let lost = || Error::missing(&path, "is gone; export again (`--redo export`)");
            let found = run.read_output(Stage::Export, &shard.name, &path)?;
            pii::add(&mut counts, found.ok_or_else(lost)?);
        }
        let report = json!({"settings": config.pii, "languages": counts});
        marker.files.push(run.write_json(&run.pii_report_file(), &report)?);
    }
    if config.export.is_to_hub() {
        let mut files = Vec::new();
        for shard in &plan.shards {
            files.extend(run.done(Stage::Export, &shard.name)?.files);
        }
        let sent = files.iter().filter(|file| is_url(&file.path));
        let sent: Vec<_> = sent.map(|file| (file.path.as_str(), &file.stamp)).collect();
        remote::publish(&place_of(context).to_string_lossy(), &sent)?;
        remove(&workplace_of(context))?;
    }
    if config.export.card {
        marker.files.push(write_card(context)?);
    }
    run.mark_shard(Stage::Export, REPORTS, &marker)
}

/// Warns if the store of `to` does not answer, long before there is anything to export. This is no
/// error, because an account that may only write learns nothing from the check.
pub(crate) fn warn_of_place(to: &str) {
    let found = remote::stat(&format!("{}/{OWNER}", to.trim_end_matches('/')));
    if let Some(error) = found.err().filter(|error| !matches!(error, Error::Missing { .. })) {
        tracing::warn!(to, error = %error.report(), "the export destination cannot be checked");
    }
}

/// Claims the place `to` for the results of this run. A run with equal settings may write there
/// too, since its files are equal; `--redo` takes the place over. Returns [`Error::Mismatch`] if
/// another run or other files were first; [`Error::Service`], [`Error::Io`].
fn claim_place(context: Context<'_>, to: &str) -> Result<()> {
    let path = place_of(context).join(OWNER);
    let mut hasher = blake3::Hasher::new();
    for stage in Stage::ALL {
        let settings = context.run.frozen_settings(stage)?.unwrap_or_default();
        hasher.update(settings.to_string().as_bytes());
    }
    let own = json!({"settings": hasher.finalize().to_hex().to_string()});
    let content = format!("{own}\n");
    let refused = |difference| {
        let hint = "choose another place, or give `--redo export` to replace what is there".into();
        Err(Error::Mismatch { path: to.into(), difference, hint })
    };
    if context.redo.is_none() && !exists(&path) {
        // A record that is there now is from another process of this run, and so are the files.
        if let Some(taken) = taken(context)?.filter(|_| !exists(&path)) {
            return refused(format!("  {taken} that this run did not make"));
        }
    }
    let Some(found) = put(&path, &content, context.redo.is_some())? else { return Ok(()) };
    let found: Value = serde_json::from_slice(&found).unwrap_or_default();
    if found == own {
        return Ok(());
    }
    refused(format!("  {OWNER}: is {found}, of this run {own}"))
}

/// The rows of a batch that go into one file.
struct Group {
    mask: Vec<bool>,
    /// One per row if texts are replaced, else empty.
    rows: Vec<RedactedRow>,
    /// Embeddings of the rows, without the documents.
    embeddings: EmbeddingRows,
    /// By new column: the columns of numbers, and the columns of texts.
    numbers: Vec<Vec<Option<f64>>>,
    texts: Vec<Vec<Option<String>>>,
}

impl Group {
    /// Returns the new columns of `spec`; `pii_counts` are for the last one.
    fn new_columns(self, spec: &ExportSpec, pii_counts: Vec<i32>) -> Result<Vec<ArrayRef>> {
        let EmbeddingRows { chunk_offsets, values, hidden_size, .. } = &self.embeddings;
        let embeddings = spec
            .embeddings
            .map(|dtype| embeddings_array(chunk_offsets, values, *hidden_size, dtype));
        let numbers =
            self.numbers.into_iter().map(|of| Arc::new(Float64Array::from(of)) as ArrayRef);
        let texts = self.texts.into_iter().map(|of| Arc::new(StringArray::from(of)) as ArrayRef);
        let counts: ArrayRef = Arc::new(Int32Array::from(pii_counts));
        let counts = columns_of(spec, &DataType::Int32).map(|_| Arc::clone(&counts));
        embeddings.into_iter().chain(numbers.chain(texts).chain(counts).map(Ok)).collect()
    }
}

/// Returns the names of the new columns of a type.
fn columns_of<'a>(spec: &'a ExportSpec, kind: &'a DataType) -> impl Iterator<Item = &'a String> {
    spec.new_columns.iter().filter(move |(_, of)| of == kind).map(|(name, _)| name)
}

struct ShardExport<'a> {
    job: &'a ExportJob<'a>,
    shard: &'a Shard,
    /// Rows of the shard by language.
    languages: BTreeMap<String, u64>,
    rows: ShardRows<'a>,
    /// Replaces PII, if the settings say so for this shard.
    redactor: Option<ShardRedactor>,
    columns: ExportColumns,
    /// Writers by [`KEPT`] or the reason of removal.
    writers: BTreeMap<String, ExportWriter>,
    marker: ShardMarker,
    part: PartRows,
    embeddings: Option<EmbeddingRows>,
    /// Next row in `part`.
    next: usize,
}

impl<'a> ShardExport<'a> {
    /// Exports `shard`, at index `place` of the plan, and returns its marker.
    fn run(
        context: Context<'_>,
        job: &'a ExportJob<'a>,
        place: u64,
        shard: &'a Shard,
    ) -> Result<ShardMarker> {
        let (file, input) = (shard.input()?, &context.config.input);
        let columns = job.columns.get(&shard.language).filter(|_| shard.num_rows.is_none());
        let mut reader = match columns {
            Some(columns) => RowReader::open_json(&file, input, columns.clone())?,
            None => RowReader::open(&file, input)?,
        };
        let embedded = context.run.done(Stage::Embed, &shard.name)?;
        let pii = context.config.pii.as_ref().map(|config| ShardRedactor::new(config, shard));
        let redactor = pii.transpose()?.flatten();
        let mut export = Self {
            job,
            shard,
            languages: embedded.counts,
            rows: job.rows.shard(place, shard)?,
            redactor,
            columns: ExportColumns::new(&reader.schema, &job.spec, &shard.file)?,
            writers: BTreeMap::new(),
            marker: ShardMarker::default(),
            part: PartRows::default(),
            embeddings: None,
            next: 0,
        };
        // A shard without kept documents still has its file.
        export.writer(KEPT)?;
        while let Some(block) = reader.next_batch()? {
            context.stop.check()?;
            for (name, mut group) in export.group_rows(&block.rows)? {
                let rows = group.mask.iter().filter(|selected| **selected).count() as u64;
                *export.marker.counts.entry(name.clone()).or_default() += rows;
                export.marker.rows += rows;
                if name == KEPT || context.config.export.keep_removed {
                    let selected =
                        filter_record_batch(&block.batch, &std::mem::take(&mut group.mask).into())
                            .map_err(|e| Error::decode(&shard.file, "rows", e))?;
                    let (texts, pii_counts) = export.redact(&selected, &group.rows)?;
                    export.check_embeddings(&group.embeddings.values)?;
                    let new = group.new_columns(&job.spec, pii_counts)?;
                    let rows = export.columns.assemble(&selected, &new, texts.as_ref())?;
                    export.writer(&name)?.write(&rows)?;
                }
            }
            context.progress.advance(block.rows.len() as u64, 0);
        }
        export.finish(context)
    }

    /// Checks that no finite embedding becomes infinite in the type of the export.
    fn check_embeddings(&self, values: &[f32]) -> Result<()> {
        let dtype = self.job.spec.embeddings.unwrap_or_default();
        if dtype == EmbeddingDtype::F32
            || values.iter().all(|value| !value.is_finite() || is_finite_in(*value, dtype))
        {
            return Ok(());
        }
        let reason =
            "holds values that this type makes infinite; set `export.embeddings = \"f32\"`";
        Err(Error::schema(&self.shard.file, EMBEDDINGS, reason))
    }

    /// Groups `rows` of the shard by output file.
    fn group_rows(&mut self, rows: &[u64]) -> Result<BTreeMap<String, Group>> {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        let spec = &self.job.spec;
        for (at, &row) in rows.iter().enumerate() {
            self.seek(row)?;
            let (name, rates) = self.decide()?;
            let (document, is_kept) = (self.part.documents.get(self.next), name == KEPT);
            let DocumentInfo { id, language, num_bytes, .. } = document;
            if is_kept {
                let amount = self.marker.exported.entry(language.to_owned()).or_default();
                amount.add(document.into());
            }
            let group = groups.entry(name).or_insert_with(|| Group {
                mask: vec![false; rows.len()],
                rows: Vec::new(),
                embeddings: EmbeddingRows { chunk_offsets: vec![0], ..EmbeddingRows::default() },
                numbers: columns_of(spec, &DataType::Float64).map(|_| Vec::new()).collect(),
                texts: columns_of(spec, &DataType::Utf8).map(|_| Vec::new()).collect(),
            });
            group.mask[at] = true;
            if spec.replaces_texts {
                let (id, language) = (id.to_owned(), language.to_owned());
                group.rows.push(RedactedRow { row, id, language, num_bytes, is_kept });
            }
            let EmbeddingRows { chunk_offsets, values, hidden_size, .. } = &mut group.embeddings;
            if let Some(embeddings) = &self.embeddings {
                values.extend_from_slice(embeddings.chunks(self.next));
                *hidden_size = embeddings.hidden_size.max(*hidden_size);
            }
            chunk_offsets.push(values.len() / (*hidden_size).max(1));
            let score = |part: &ScoreRows| part.scores[self.next].map(|found| found.score.into());
            let scores = self.part.scores.iter().map(score);
            for (column, value) in group.numbers.iter_mut().zip(scores.chain(rates)) {
                column.push(value);
            }
            let language_column = self.job.rows.context.config.input.language.new_column();
            let columns = columns_of(spec, &DataType::Utf8).zip(&mut group.texts);
            for (name, column) in columns {
                let value = if language_column == Some(name) {
                    Some(language)
                } else {
                    let mut found = self.rows.verdicts.of_row(row).iter();
                    found.find(|found| found.filter == *name).map(FoundRow::why)
                };
                column.push(value.map(str::to_owned));
            }
            self.next += 1;
        }
        Ok(groups)
    }

    /// Returns the `texts` of `rows` after cutting: the pieces left by the last filter that cuts a
    /// text, with an empty line between them. `None` if no text is cut.
    fn cut_texts(&self, texts: &StringViewArray, rows: &[RedactedRow]) -> Option<StringViewArray> {
        let found = rows.iter().map(|row| self.rows.verdicts.of_row(row.row).iter());
        let cuts: Vec<Option<&FoundRow>> =
            found.map(|mut found| found.rfind(|found| found.action == FilterAction::Cut)).collect();
        cuts.iter().any(Option::is_some).then(|| {
            let text = |(at, cut): (usize, Option<&FoundRow>)| {
                let text = texts.is_valid(at).then(|| texts.value(at))?;
                let Some(cut) = cut else { return Some(text.to_owned()) };
                let pieces = cut.pieces.iter().filter_map(|piece| text.get(piece.clone()));
                Some(pieces.collect::<Vec<_>>().join("\n\n"))
            };
            cuts.iter().copied().enumerate().map(text).collect()
        })
    }

    /// Returns the texts of `selected` if some are cut or redacted, and their numbers of PII spans.
    fn redact(
        &mut self,
        selected: &RecordBatch,
        rows: &[RedactedRow],
    ) -> Result<(Option<ArrayRef>, Vec<i32>)> {
        let mut pii_counts = vec![0; rows.len()];
        if !self.job.spec.replaces_texts {
            return Ok((None, pii_counts));
        }
        let texts = self.columns.texts(selected);
        let read = texts.map_err(|e| Error::decode(&self.shard.file, "texts", e))?;
        let is_lost = |(at, row): &(usize, &RedactedRow)| row.num_bytes > 0 && read.is_null(*at);
        let mut lost = rows.iter().enumerate().filter(is_lost);
        if let Some((_, first)) = lost.next() {
            let reason = format!(
                "its text is not in a column `{}` of its own, and cannot be replaced elsewhere or \
                 inside JSON that is exported as text; give all rows their texts in one column, the \
                 same in all files of a language",
                self.job.spec.text
            );
            let (path, count) = (self.shard.file.clone(), 1 + lost.count() as u64);
            return Err(Error::Row { path, row: first.row + 1, reason, count });
        }
        let (mut texts, mut replaced): (_, Option<ArrayRef>) = (read.clone(), None);
        if let Some(cut) = self.cut_texts(&texts, rows) {
            texts = cut;
            replaced = Some(Arc::new(texts.clone()));
        }
        if let Some(redactor) = &mut self.redactor {
            let (redacted, counts) = redactor.redact(&texts, rows);
            replaced = redacted.or(replaced);
            pii_counts = counts;
        }
        let Some(texts) = &replaced else { return Ok((None, pii_counts)) };
        let lengths = read.lengths().zip(texts.as_string_view().lengths());
        for (row, (read, exported)) in rows.iter().zip(lengths).filter(|(row, _)| row.is_kept) {
            if let Some(amount) = self.marker.exported.get_mut(&row.language) {
                amount.bytes = (amount.bytes + u64::from(exported)).saturating_sub(read.into());
            }
        }
        Ok((replaced, pii_counts))
    }

    /// Moves to `row`; rows come in ascending order.
    fn seek(&mut self, row: u64) -> Result<()> {
        loop {
            match self.part.documents.rows().get(self.next).copied() {
                Some(next) if next == row => return Ok(()),
                Some(next) if next < row => {
                    let path = self.job.rows.context.run.path("embeddings").join(&self.shard.name);
                    let reason = format!("row {next} is not in the input file any more");
                    return Err(Error::corrupt(&path, reason));
                }
                None if self.read_next_part()? => {}
                _ => {
                    let reason = format!("row {row} was never embedded");
                    return Err(Error::corrupt(&self.shard.file, reason));
                }
            }
        }
    }

    /// Reads the next part and returns whether there was one.
    fn read_next_part(&mut self) -> Result<bool> {
        let Some(part) = self.rows.next_part()? else { return Ok(false) };
        if self.job.spec.embeddings.is_some() {
            let path = self.job.rows.context.run.embeddings_part(self.shard, part.index);
            let embeddings = read_embeddings(&path)?;
            if embeddings.documents.rows() != part.documents.rows() {
                let reason = "embeddings and scores do not hold the same rows";
                return Err(Error::corrupt(&path, reason));
            }
            self.embeddings = Some(embeddings);
        }
        (self.part, self.next) = (part, 0);
        Ok(true)
    }

    /// Returns [`KEPT`] or why the next row is removed, and its smallest rate by retention column.
    fn decide(&self) -> Result<(String, Vec<Option<f64>>)> {
        let heads = &self.job.retention_heads;
        let mut memory = Vec::new();
        let row = self.rows.row(&self.part, self.next, &mut memory);
        let selection = self.job.selections.get(row.info.language).ok_or_else(|| {
            let reason = format!("no thresholds for the language {}", row.info.language);
            Error::corrupt(&self.job.rows.context.run.path("selection"), reason)
        })?;
        let fate = self.rows.fate(&row, selection);
        let name = fate.to_string();
        let Fate::Kept(retentions) = fate else { return Ok((name, vec![None; heads.len()])) };
        let named: BTreeMap<&str, Rate> = selection.retention_heads().zip(retentions).collect();
        let rate_of = |head: &String| named.get(head.as_str()).map(|rate| rate.as_f64());
        Ok((name, heads.iter().map(rate_of).collect()))
    }

    /// Returns the writer of the rows `name`, and opens it for the first of them.
    fn writer(&mut self, name: &str) -> Result<&mut ExportWriter> {
        let entry = match self.writers.entry(name.to_owned()) {
            Entry::Occupied(entry) => return Ok(entry.into_mut()),
            Entry::Vacant(entry) => entry,
        };
        let reason = (name != KEPT).then_some(name);
        let folder = reason.map_or_else(|| "export".to_owned(), |name| format!("removed/{name}"));
        let base = workplace_of(self.job.rows.context).join(folder).join(&self.shard.name);
        let provenance = self.job.provenance.of_file(&self.languages, reason);
        let export = &self.job.rows.context.config.export;
        let bytes = |mb: usize| (mb as u64).saturating_mul(1_000_000);
        let (zstd, row_group_bytes) = (export.zstd, bytes(export.row_group_mb));
        let max_file_bytes = export.max_file_mb.map(bytes);
        let metadata = vec![(PROVENANCE.to_owned(), provenance.to_string())];
        let options = WriterOptions { zstd, row_group_bytes, max_file_bytes, metadata };
        Ok(entry.insert(ExportWriter::create(&base, &self.columns.schema, &options)?))
    }

    /// Finishes the files, sends them to a hub, and writes what the redactor found.
    fn finish(mut self, context: Context<'_>) -> Result<ShardMarker> {
        let run = context.run;
        for writer in self.writers.into_values() {
            context.check_held()?;
            for ExportedFile { mut path, rows, mut stamp } in writer.finish()? {
                if context.config.export.is_to_hub() {
                    let below = path.strip_prefix(workplace_of(context)).unwrap_or(&path);
                    let url = place_of(context).join(below);
                    let sent = remote::upload_file(&path, stamp.bytes, &url.to_string_lossy())?;
                    stamp.etag = Some(sent);
                    remove(&path)?;
                    path = url;
                }
                self.marker.files.push(run.file(&path, rows, stamp));
            }
        }
        let Some(config) = &context.config.pii else { return Ok(self.marker) };
        let (mut found, counts) = self.redactor.map(|r| (r.found, r.counts)).unwrap_or_default();
        if config.audit != PiiAudit::None {
            let path = run.path(format!("audit/pii/{}.parquet", self.shard.name));
            found.sort();
            let has_values = config.audit == PiiAudit::Values;
            let zstd = context.config.export.zstd;
            let stamp = write_pii(&path, &found, has_values, zstd)?;
            self.marker.files.push(run.file(&path, found.len() as u64, stamp));
        }
        self.marker.files.push(run.write_json(&run.pii_counts_file(self.shard), &counts)?);
        Ok(self.marker)
    }
}
