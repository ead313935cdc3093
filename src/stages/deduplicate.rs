//! The deduplicate stage finds near duplicates: documents whose embedding is close to the embedding
//! of a better document of their language. This is SemDeDup (Abbas et al. 2023), except that a
//! head's score decides which document stays.
//!
//! A language is one unit of work. Its documents are clustered by k-means over a sample and
//! compared with all documents of their cluster; then the documents that are left are clustered
//! anew, for the duplicates across borders. Documents without an embedding take no part, nor do
//! those that another filter removes. Each time, embeddings are read once to assign clusters, and
//! once for each group of clusters that fits in memory. Memory also holds 40 bytes per document,
//! the ids of the documents that have duplicates and, while clusters are learned, 256 embeddings
//! per cluster twice, whatever `memory_mb` is. Embeddings in shards with several languages are read
//! once for as many languages as fit in a quarter of `memory_mb`.

mod compared;
mod mixed;

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::filter_counts::{FilterCounts, ShardVerdicts};
use compared::{
    ComparedDocuments, EQUAL, NearDuplicate, NearDuplicates, Part, ROUNDS, memory_bytes,
};
use mixed::MixedVectors;
use polysift_base::error::{Error, Result};
use polysift_config::{FilterAction, NearFilter};
use polysift_corpus::filter::{Finding, Verdict};
use polysift_corpus::verdicts::{REPORTS, check_row_filtered, deduplicated, duplicate_settings};
use polysift_corpus::{Cascade, Context, Embedded, StageWork};
use polysift_data::input::DocumentBatch;
use polysift_data::parts::read_documents;
use polysift_encoder::open_any_gpu;
use polysift_runs::run::{PartFile, ShardMarker, Stage};

/// Number of examples in a report, by language.
const EXAMPLES: usize = 20;
const REASON: &str = "near";

/// Finds the near duplicates of every language where that is not done yet. [`Error::Missing`]
/// before the score and filter stages; [`Error::Config`] if a cluster does not fit in memory.
pub fn deduplicate(context: Context<'_>) -> Result<()> {
    let Context { config, run, .. } = context;
    let Some(near) = config.near() else {
        // If an earlier call had such a filter, this is refused unless `--redo` discarded its work.
        return run.check_frozen(Stage::Deduplicate, &duplicate_settings(config));
    };
    let embedded = Embedded::scored(run, [near.head])?;
    check_row_filtered(context, &embedded)?;
    context.freeze(Stage::Deduplicate, &duplicate_settings(config))?;
    let languages = deduplicated(config, embedded.languages());
    // Every unit of work uses all threads.
    let work =
        StageWork { at_once: 1, ..StageWork::dealt(context, Stage::Deduplicate, languages)? };
    let cascade = Cascade::of(context, &embedded.plan)?;
    let gpu = open_any_gpu(&config.encoder.device);
    if let Some(gpu) = &gpu {
        tracing::info!("comparing embeddings on cuda:{}", gpu.ordinal());
    }
    // Each document may be compared in every round.
    let counts = embedded.num_documents();
    let num_documents = |item: usize| ROUNDS as u64 * counts[work.items.keys[item].as_str()];
    let units = |item| Some(num_documents(item));
    let vectors = MixedVectors::groups(context, &embedded, memory_bytes(near) / 4);
    work.for_all(context, "documents", units, |context, item| {
        let language = &work.items.keys[item];
        let gpu = gpu.as_ref();
        let mut documents =
            ComparedDocuments::open(context, near, &cascade, &embedded, language, gpu)?;
        documents.mixed = vectors.with(language)?;
        let near = documents.find()?;
        context.progress.advance(num_documents(item) - near.num_compared, 0);
        context.check_held()?;
        documents.write(&near)
    })?;
    let is_done = run.try_finish(Stage::Deduplicate, &work.items.keys)?;
    if is_done && !run.is_done(Stage::Deduplicate, REPORTS)? {
        write_report(context, near, &work.items.keys)?;
    }
    Ok(())
}

/// Adds up the counts of all `languages` and writes the report.
fn write_report(context: Context<'_>, near: NearFilter<'_>, languages: &[String]) -> Result<()> {
    let run = context.run;
    let (mut total, mut reports) = (FilterCounts::default(), BTreeMap::new());
    for language in languages {
        let path = run.duplicates_file(language);
        let lost =
            || Error::missing(&path, "is gone; find duplicates again (`--redo deduplicate`)");
        let report: LanguageReport =
            run.read_output(Stage::Deduplicate, language, &path)?.ok_or_else(lost)?;
        total.add(report.found.clone());
        reports.insert(language, report);
    }
    if total.seen.documents == 0 {
        let reason = "it looked at no document: none in its languages has an embedding";
        tracing::warn!(filter = near.name, "{reason}");
    }
    let report = json!({"settings": near.filter, "total": total, "languages": reports});
    let files = vec![run.write_json(&run.duplicates_report_file(), &report)?];
    let marker = ShardMarker { rows: total.seen.documents, files, ..ShardMarker::default() };
    run.mark_shard(Stage::Deduplicate, REPORTS, &marker)
}

#[derive(Debug, Serialize, Deserialize)]
struct LanguageReport {
    /// Found documents by similarity, cut to two decimal places, in the details.
    #[serde(flatten)]
    found: FilterCounts,
    clusters: usize,
    largest_cluster: usize,
    /// The found documents of the smallest similarity.
    examples: Vec<Example>,
}

/// A near duplicate, and the better document near it, which the second round may have found too.
#[derive(Debug, Serialize, Deserialize)]
struct Example {
    id: String,
    of: String,
    similarity: f32,
}

impl ComparedDocuments<'_> {
    fn read_part(&self, part: &Part<'_>) -> Result<DocumentBatch> {
        self.context.stop.check()?;
        read_documents(&self.context.run.embeddings_part(part.shard, part.index))
    }

    /// Reads the ids of the documents that `found` are duplicates of.
    fn read_ids(&self, found: &[NearDuplicate]) -> Result<HashMap<usize, String>> {
        let mut wanted: Vec<usize> = found.iter().map(|near| near.of).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let of_part = |part: &Part<'_>| -> Result<Vec<(usize, String)>> {
            let first = wanted.partition_point(|document| *document < part.documents.start);
            if wanted.get(first).is_none_or(|next| !part.documents.contains(next)) {
                return Ok(Vec::new());
            }
            let documents = self.read_part(part)?;
            let own = self.documents_among(part, documents.rows());
            let own = own.filter(|(document, _)| wanted.binary_search(document).is_ok());
            Ok(own.map(|(document, at)| (document, documents.get(at).id.to_owned())).collect())
        };
        let ids: Vec<Vec<_>> = self.parts.par_iter().map(of_part).collect::<Result<_>>()?;
        Ok(ids.into_iter().flatten().collect())
    }

    /// Writes the verdicts on every shard, and their counts.
    fn write(&self, near: &NearDuplicates) -> Result<ShardMarker> {
        let (run, ids) = (self.context.run, self.read_ids(&near.found)?);
        let shards: Vec<&[Part<'_>]> = self.parts.chunk_by(|a, b| a.place == b.place).collect();
        let written: Vec<(PartFile, FilterCounts, Vec<Example>)> = shards
            .par_iter()
            .map(|parts| self.write_shard(near, &ids, parts))
            .collect::<Result<_>>()?;
        let (mut marker, mut total, mut examples) =
            (ShardMarker::default(), FilterCounts::default(), Vec::new());
        for (file, found, of_shard) in written {
            marker.files.push(file);
            total.add(found);
            examples.extend(of_shard);
            keep_examples(&mut examples);
        }
        marker.rows = total.seen.documents;
        marker.counts.insert(self.near.name.to_owned(), total.found.documents);
        let NearDuplicates { clusters, largest_cluster, .. } = *near;
        let report = LanguageReport { found: total, clusters, largest_cluster, examples };
        marker.files.push(run.write_json(&run.duplicates_file(self.language), &report)?);
        Ok(marker)
    }

    /// Writes the verdicts on the shard of `parts`; returns counts and examples of what was found.
    fn write_shard(
        &self,
        near: &NearDuplicates,
        ids: &HashMap<usize, String>,
        parts: &[Part<'_>],
    ) -> Result<(PartFile, FilterCounts, Vec<Example>)> {
        let is_flag = self.near.filter.action == FilterAction::Flag;
        let action = if is_flag { FilterAction::Flag } else { FilterAction::Remove };
        let (mut verdicts, mut counts) = (ShardVerdicts::default(), FilterCounts::default());
        let mut examples = Vec::new();
        for part in parts {
            let batch = self.read_part(part)?;
            for (document, at) in self.documents_among(part, batch.rows()) {
                if !near.is_compared[document] {
                    continue;
                }
                let info = batch.get(at);
                let Ok(at) = near.found.binary_search_by_key(&document, |near| near.document)
                else {
                    counts.count(info, &Verdict::default());
                    continue;
                };
                let NearDuplicate { of, similarity, .. } = near.found[at];
                let of = ids.get(&of).cloned().unwrap_or_default();
                let cut = if similarity < EQUAL { f64::from(similarity) } else { 1.0 };
                let hundredth = (cut * 100.0).floor() / 100.0;
                let details = vec![format!("{hundredth:.2}")];
                counts.count(info, &Verdict::of(Finding { details, ..Finding::of(REASON) }));
                let finding = Finding { details: vec![of.clone()], ..Finding::of(REASON) };
                verdicts.push(&info, finding.row(self.near.name, action));
                examples.push(Example { id: info.id.to_owned(), of, similarity });
                if examples.len() == 2 * EXAMPLES {
                    keep_examples(&mut examples);
                }
            }
        }
        let path = self.context.run.duplicate_verdicts_file(self.language, parts[0].shard);
        Ok((verdicts.write(self.context, &path)?, counts, examples))
    }
}

/// Keeps the examples of the smallest similarity; of equal ones the first.
fn keep_examples(examples: &mut Vec<Example>) {
    examples.sort_by(|a, b| a.similarity.total_cmp(&b.similarity));
    examples.truncate(EXAMPLES);
}
