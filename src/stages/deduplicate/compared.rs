//! The documents of a language that are compared, their clusters and their near duplicates.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rayon::prelude::*;

use super::mixed::{MixedPart, MixedVectors};
use polysift_base::error::{Error, Result};
use polysift_base::panics::{lock, unpoisoned};
use polysift_base::sample::{BottomKSample, hash_seed, ordinal_rank};
use polysift_config::{Keep, NearFilter};
use polysift_corpus::embedded::{ordinal, place_of};
use polysift_corpus::heads::frozen_keep;
use polysift_corpus::left_out::RowSet;
use polysift_corpus::verdicts::row_verdicts;
use polysift_corpus::{Cascade, Context, Embedded, ScoreFiles};
use polysift_data::input::DocumentInfo;
use polysift_data::parts::{DocumentScore, EmbeddingScan, read_scores};
use polysift_heads::vectors::{
    BLOCK_ROWS, PackedRows, SearchScratch, find_duplicates, find_duplicates_on_gpu, k_means,
    unit_mean,
};
use polysift_kernels::cuda::{Device, NearRows};
use polysift_runs::run::{Shard, Stage};

/// Number of documents in a cluster, on average.
const CLUSTER_DOCUMENTS: usize = 20_000;
/// Smallest mean number of documents of a cluster: smaller clusters hold few duplicates together.
const LEAST_PER_CLUSTER: usize = 40;
/// Similarity from which two embeddings are equal but for rounding: the sums of a unit vector's
/// squares are off by some 10^-6.
pub(super) const EQUAL: f32 = 0.999_99;
/// Number of clusterings. Near duplicates on two sides of a border are mostly on one side of the
/// borders of another.
pub(super) const ROUNDS: usize = 2;
/// Number of documents per cluster from which k-means learns.
const SAMPLE_PER_CLUSTER: usize = 256;
/// Default of the embeddings in memory, in 10^6 bytes.
const MEMORY_MB: usize = 4_000;
/// Cluster of a document that is not compared.
const NO_CLUSTER: u32 = u32::MAX;

/// A document with a better one near it; both are indices in a [`ComparedDocuments`].
#[derive(Debug, Clone, Copy)]
pub(super) struct NearDuplicate {
    pub(super) document: usize,
    pub(super) of: usize,
    pub(super) similarity: f32,
}

pub(super) struct Part<'a> {
    pub(super) place: u64,
    pub(super) shard: &'a Shard,
    pub(super) index: usize,
    /// The documents of the part that may be compared.
    pub(super) documents: Range<usize>,
}

/// A document that may be compared.
struct ComparedDocument {
    ordinal: u64,
    /// Logit, negated if low ones are better; -inf without a score.
    worth: f32,
}

/// The documents of a language that may be compared, in the order of the input.
pub(super) struct ComparedDocuments<'a> {
    pub(super) context: Context<'a>,
    pub(super) near: NearFilter<'a>,
    pub(super) parts: Vec<Part<'a>>,
    documents: Vec<ComparedDocument>,
    pub(super) language: &'a str,
    gpu: Option<&'a Device>,
    /// Embeddings in memory, which are not read from files.
    pub(super) mixed: Option<Arc<MixedVectors>>,
}

/// The near duplicates of a language.
#[derive(Default)]
pub(super) struct NearDuplicates {
    /// In the order of the input.
    pub(super) found: Vec<NearDuplicate>,
    /// Whether each document has a usable embedding.
    pub(super) is_compared: Vec<bool>,
    /// Number of documents that were compared, in all rounds.
    pub(super) num_compared: u64,
    pub(super) clusters: usize,
    pub(super) largest_cluster: usize,
}

/// The documents of a corpus in clusters.
struct Clustered {
    width: usize,
    /// Cluster of each document; [`NO_CLUSTER`] without a usable embedding.
    clusters: Vec<u32>,
    /// Documents by cluster, the best first.
    ranked: Vec<usize>,
    /// Place of each document within its cluster in `ranked`.
    ranks: Vec<u32>,
    /// Range in `ranked` of each cluster.
    ranges: Vec<Range<usize>>,
}

impl<'a> ComparedDocuments<'a> {
    /// Reads which documents of `language` are compared, and their scores.
    pub(super) fn open(
        context: Context<'a>,
        near: NearFilter<'a>,
        cascade: &Cascade,
        embedded: &'a Embedded,
        language: &'a str,
        gpu: Option<&'a Device>,
    ) -> Result<Self> {
        let scored = context.run.frozen_settings(Stage::Score)?.unwrap_or_default();
        let keep = frozen_keep(&scored, near.head, language);
        let worth = |score: &Option<DocumentScore>| match score.map(|score| score.logit) {
            Some(logit) if logit.is_nan() => f32::NEG_INFINITY,
            Some(logit) if keep == Some(Keep::Below) => 0.0 - logit,
            Some(logit) => logit + 0.0, // both zeros are one score
            None => f32::NEG_INFINITY,
        };
        let shards = embedded.shards_with(&[language]);
        let read = |&(place, shard, num_parts): &(u64, &'a Shard, usize)| -> Result<Vec<_>> {
            let mut left_out = cascade.left_out_rows(context, place, shard)?;
            left_out.removed = RowSet::removed(&row_verdicts(context, shard)?, |_| true);
            let read_part = |index: usize| {
                context.stop.check()?;
                let part =
                    read_scores(&ScoreFiles::Scored.part(context.run, near.head, shard, index))?;
                let takes_part = |document: &DocumentInfo<'_>| {
                    let has_text = document.num_bytes > 0 && document.language == language;
                    has_text && left_out.counts(document.row)
                };
                let documents = part.documents.iter().zip(&part.scores);
                let documents = documents.filter(|(document, _)| takes_part(document));
                let compared = |(document, score): (DocumentInfo<'_>, _)| ComparedDocument {
                    ordinal: ordinal(place, document.row),
                    worth: worth(score),
                };
                Ok(documents.map(compared).collect::<Vec<_>>())
            };
            (0..num_parts).map(read_part).collect()
        };
        let read: Vec<_> = shards.par_iter().map(read).collect::<Result<_>>()?;
        let (mut parts, mut documents) = (Vec::new(), Vec::new());
        for (&(place, shard, _), of_shard) in shards.iter().zip(read) {
            for (index, found) in of_shard.into_iter().enumerate() {
                let start = documents.len();
                documents.extend(found);
                parts.push(Part { place, shard, index, documents: start..documents.len() });
            }
        }
        Ok(Self { context, near, parts, documents, language, gpu, mixed: None })
    }

    /// Returns the documents of `part` among its `rows`, with their indices in `rows`.
    pub(super) fn documents_among<'r>(
        &'r self,
        part: &Part<'_>,
        rows: &'r [u64],
    ) -> impl Iterator<Item = (usize, usize)> + 'r {
        let mut left = part.documents.clone().peekable();
        rows.iter().enumerate().filter_map(move |(at, row)| {
            let document =
                left.next_if(|next| place_of(self.documents[*next].ordinal).1 == *row)?;
            Some((document, at))
        })
    }

    /// Calls `visit` with the wanted documents that have a usable embedding, and their embeddings
    /// `[n, width]` of unit norm (the mean of several chunks), in blocks and in parallel. Returns
    /// the width, 0 if no document is wanted; [`Error::Corrupt`] if the widths of two files differ.
    fn for_each_vector(
        &self,
        is_wanted: impl Fn(usize) -> bool + Sync,
        visit: impl Fn(&[usize], &[f32]) + Sync,
    ) -> Result<usize> {
        let known_width = AtomicUsize::new(0);
        let check_width = |part: &Part<'_>, width: usize| {
            let known = known_width.fetch_max(width, Ordering::Relaxed);
            if known.min(width) > 0 && known != width {
                let reason = format!("embeddings have {width} values, in another file {known}");
                return Err(Error::corrupt(&part.shard.file, reason));
            }
            Ok(())
        };
        self.parts.par_iter().try_for_each(|part| {
            if !part.documents.clone().any(&is_wanted) {
                return Ok::<(), Error>(());
            }
            let mixed = self.mixed.as_ref().map(|mixed| &mixed.parts);
            if let Some(mixed) = mixed.and_then(|parts| parts.get(&(part.place, part.index))) {
                check_width(part, mixed.width)?;
                let (documents, vectors) = self.vectors_in_memory(part, mixed, &is_wanted);
                visit(&documents, &vectors);
                return Ok(());
            }
            let path = self.context.run.embeddings_part(part.shard, part.index);
            let mut scan = EmbeddingScan::open(&path)?;
            let (width, rows) = (scan.hidden_size, scan.documents.rows().to_vec());
            check_width(part, width)?;
            let mut own = self.documents_among(part, &rows).peekable();
            let (mut chunk_offsets, mut values) = (Vec::new(), Vec::new());
            for start in (0..rows.len()).step_by(BLOCK_ROWS) {
                self.context.stop.check()?;
                scan.next(BLOCK_ROWS, &mut chunk_offsets, &mut values)?;
                let (mut documents, mut vectors) = (Vec::new(), Vec::new());
                while let Some((document, at)) = own.next_if(|(_, at)| *at < start + BLOCK_ROWS) {
                    let chunks = chunk_offsets[at - start]..chunk_offsets[at - start + 1];
                    let chunks = &values[chunks.start * width..chunks.end * width];
                    if is_wanted(document)
                        && let Some(vector) = unit_mean(chunks, width)
                    {
                        documents.push(document);
                        vectors.extend(vector);
                    }
                }
                visit(&documents, &vectors);
            }
            Ok(())
        })?;
        Ok(known_width.into_inner())
    }

    /// Returns the wanted documents of `part` with a usable embedding in `mixed`, and the embeddings.
    fn vectors_in_memory(
        &self,
        part: &Part<'_>,
        mixed: &MixedPart,
        is_wanted: impl Fn(usize) -> bool,
    ) -> (Vec<usize>, Vec<f32>) {
        let (mut documents, mut vectors) = (Vec::new(), Vec::new());
        let Some(found) = mixed.languages.get(self.language) else { return (documents, vectors) };
        for (document, at) in self.documents_among(part, &found.rows) {
            if let Some(place) = found.places[at].filter(|_| is_wanted(document)) {
                documents.push(document);
                vectors.extend(&found.values[place * mixed.width..][..mixed.width]);
            }
        }
        (documents, vectors)
    }

    /// Returns the embeddings of a uniform sample of the wanted documents, in random order, and
    /// their width.
    fn sample(
        &self,
        round: usize,
        size: usize,
        is_wanted: impl Fn(usize) -> bool + Sync,
    ) -> Result<(Vec<f32>, usize)> {
        let purpose = ["deduplicate", &round.to_string(), self.language];
        let seed = hash_seed(&purpose, self.context.config.seed);
        let sample = BottomKSample::new(size);
        let wanted = (0..self.documents.len()).into_par_iter().filter(|at| is_wanted(*at));
        wanted.for_each(|document| {
            let ordinal = self.documents[document].ordinal;
            sample.offer(ordinal_rank(seed, ordinal), || document);
        });
        let drawn: HashMap<usize, usize> = sample.into_items().into_iter().zip(0..).collect();
        let vectors = Mutex::new(vec![Vec::new(); drawn.len()]);
        let is_drawn = |document| drawn.contains_key(&document);
        let width = self.for_each_vector(is_drawn, |documents, rows| {
            let width = (rows.len() / documents.len().max(1)).max(1);
            let mut vectors = lock(&vectors);
            for (document, row) in documents.iter().zip(rows.chunks_exact(width)) {
                vectors[drawn[document]] = row.to_vec();
            }
        })?;
        Ok((unpoisoned(vectors.into_inner()).concat(), width))
    }

    /// Finds the near duplicates in rounds with other clusters, among what the rounds before left.
    pub(super) fn find(&self) -> Result<NearDuplicates> {
        let mut all = NearDuplicates::default();
        let mut is_found = vec![false; self.documents.len()];
        for round in 0..ROUNDS {
            let clustered = self.cluster(round, |document| !is_found[document])?;
            for near in self.find_in_clusters(&clustered)? {
                is_found[near.document] = true;
                all.found.push(near);
            }
            all.num_compared += clustered.ranked.len() as u64;
            if round == 0 {
                let is_compared = clustered.clusters.iter().map(|cluster| *cluster != NO_CLUSTER);
                all.is_compared = is_compared.collect();
                all.clusters = clustered.ranges.len();
                all.largest_cluster = clustered.ranges.iter().map(Range::len).max().unwrap_or(0);
            }
            if clustered.ranges.len() == 1 {
                break;
            }
        }
        all.found.par_sort_unstable_by_key(|near| near.document);
        Ok(all)
    }

    /// Assigns the wanted documents to clusters and ranks them there.
    fn cluster(&self, round: usize, is_wanted: impl Fn(usize) -> bool + Sync) -> Result<Clustered> {
        let by_size = self.documents.len().div_ceil(CLUSTER_DOCUMENTS).max(1);
        let most = (self.documents.len() / LEAST_PER_CLUSTER).max(1);
        let wanted = self.near.embeddings.clusters.unwrap_or(by_size).min(most);
        let size = wanted.saturating_mul(SAMPLE_PER_CLUSTER);
        let (sample, width) = self.sample(round, size, &is_wanted)?;
        let centres = k_means(&sample, width, wanted, self.context.stop)?;
        let num_clusters = (centres.len() / width.max(1)).max(1);
        let centres = PackedRows::new(&centres, width);
        let unknown = || AtomicU32::new(NO_CLUSTER);
        let clusters: Vec<AtomicU32> = self.documents.iter().map(|_| unknown()).collect();
        let width = self.for_each_vector(is_wanted, |documents, rows| {
            let nearest = centres.nearest(rows, &mut SearchScratch::default());
            for (document, (cluster, _)) in documents.iter().zip(nearest) {
                clusters[*document].store(cluster as u32, Ordering::Relaxed);
            }
        })?;
        let clusters: Vec<u32> = clusters.into_iter().map(AtomicU32::into_inner).collect();
        let all = 0..self.documents.len();
        let mut ranked: Vec<usize> = all.filter(|at| clusters[*at] != NO_CLUSTER).collect();
        ranked.par_sort_unstable_by(|&a, &b| {
            let worth = |document: usize| self.documents[document].worth;
            let by_worth = || worth(b).total_cmp(&worth(a));
            clusters[a].cmp(&clusters[b]).then_with(by_worth).then(a.cmp(&b))
        });
        let (mut ranks, mut ranges) = (vec![0; clusters.len()], Vec::new());
        for cluster in 0..num_clusters as u32 {
            let start = ranked.partition_point(|document| clusters[*document] < cluster);
            let end = ranked.partition_point(|document| clusters[*document] <= cluster);
            for (rank, document) in (0..).zip(&ranked[start..end]) {
                ranks[*document] = rank;
            }
            ranges.push(start..end);
        }
        Ok(Clustered { width, clusters, ranked, ranks, ranges })
    }

    /// Returns ranges of clusters that fit in memory together; [`Error::Config`] if one is too
    /// large.
    fn memory_groups(&self, clustered: &Clustered) -> Result<Vec<Range<usize>>> {
        let kept = self.mixed.as_ref().map_or(0, |mixed| mixed.bytes());
        // Half of the memory is for the packed copies of the rows that stay.
        let most = memory_bytes(self.near).saturating_sub(kept) / 2;
        let bytes = |range: &Range<usize>| range.len() * clustered.width * size_of::<f32>();
        let bytes: Vec<usize> = clustered.ranges.iter().map(bytes).collect();
        grouped(&bytes, most).map_err(|cluster| {
            let documents = clustered.ranges[cluster].len();
            let least = (2 * bytes[cluster] + kept).div_ceil(1_000_000);
            let (language, memory_mb) = (self.language, memory_bytes(self.near) / 1_000_000);
            let reason = format!(
                "is {memory_mb}; the embeddings of a cluster of {documents} documents of {language} \
                 need {least}; give as much, or more `clusters`"
            );
            Error::config(format!("filters.{}.memory_mb", self.near.name), reason)
        })
    }

    /// Compares the documents of each cluster; on the CPU without a GPU, or once it has failed.
    fn find_in_clusters(&self, clustered: &Clustered) -> Result<Vec<NearDuplicate>> {
        let Clustered { width, clusters, ranked, ranks, ranges } = clustered;
        // The settings are refused without a similarity.
        let least = EQUAL.min(self.near.embeddings.similarity.unwrap_or(1.0) as f32);
        let mut found = Vec::new();
        if *width == 0 {
            return Ok(found); // no document has an embedding
        }
        // A CPU finds the same duplicates.
        let on_cpu = |cause: &dyn std::fmt::Display| {
            tracing::warn!("near duplicates are compared on the CPU: {cause}");
        };
        let gpu = self.gpu.map(|gpu| NearRows::new(gpu, *width, least));
        let mut gpu = gpu.and_then(|gpu| gpu.inspect_err(|cause| on_cpu(cause)).ok());
        for group in self.memory_groups(clustered)? {
            let memory = |cluster: usize| Mutex::new(vec![0.0; ranges[cluster].len() * width]);
            let rows: Vec<Mutex<Vec<f32>>> = group.clone().map(memory).collect();
            let is_in_group = |document: usize| group.contains(&(clusters[document] as usize));
            self.for_each_vector(is_in_group, |documents, vectors| {
                for (document, vector) in documents.iter().zip(vectors.chunks_exact(*width)) {
                    let cluster = clusters[*document] as usize - group.start;
                    let place = ranks[*document] as usize * width;
                    lock(&rows[cluster])[place..place + width].copy_from_slice(vector);
                }
            })?;
            let of_cluster = |(rows, cluster): (Mutex<Vec<f32>>, usize),
                              gpu: &mut Option<NearRows>| {
                let ranked = &ranked[ranges[cluster].clone()];
                let rows = unpoisoned(rows.into_inner());
                let stop = self.context.stop;
                let by_gpu =
                    gpu.as_mut().map(|gpu| find_duplicates_on_gpu(gpu, &rows, *width, least, stop));
                let found = match by_gpu {
                    Some(Err(Error::Device(cause))) => {
                        on_cpu(&cause);
                        *gpu = None;
                        find_duplicates(&rows, *width, least, stop)
                    }
                    Some(found) => found,
                    None => find_duplicates(&rows, *width, least, stop),
                }?;
                self.context.progress.advance(ranked.len() as u64, 0);
                let near = ranked.iter().zip(found).filter_map(|(&document, duplicate)| {
                    let duplicate = duplicate?;
                    let (of, similarity) = (ranked[duplicate.of], duplicate.similarity);
                    Some(NearDuplicate { document, of, similarity })
                });
                Ok(near.collect())
            };
            let of_group: Result<Vec<Vec<_>>> = if gpu.is_some() {
                rows.into_iter().zip(group).map(|cluster| of_cluster(cluster, &mut gpu)).collect()
            } else {
                let clusters = rows.into_par_iter().zip(group);
                clusters.map(|cluster| of_cluster(cluster, &mut None)).collect()
            };
            found.extend(of_group?.into_iter().flatten());
        }
        Ok(found)
    }
}

/// Returns the bytes that the compared embeddings may take.
pub(super) fn memory_bytes(near: NearFilter<'_>) -> usize {
    near.embeddings.memory_mb.unwrap_or(MEMORY_MB).saturating_mul(1_000_000)
}

/// Splits clusters with the given `bytes` into as few consecutive groups of at most `most` bytes as
/// possible. Returns the first cluster that is larger as an error.
fn grouped(bytes: &[usize], most: usize) -> std::result::Result<Vec<Range<usize>>, usize> {
    let (mut groups, mut start, mut sum) = (Vec::new(), 0, 0);
    for (cluster, &own) in bytes.iter().enumerate() {
        if own > most {
            return Err(cluster);
        }
        if sum + own > most {
            groups.push(start..cluster);
            (start, sum) = (cluster, 0);
        }
        sum += own;
    }
    groups.push(start..bytes.len());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_share_the_memory_in_order() {
        assert_eq!(grouped(&[3, 4, 4, 1, 0, 9], 9), Ok(vec![0..2, 2..5, 5..6]));
        assert_eq!(grouped(&[3, 10, 11], 9), Err(1));
        assert_eq!(grouped(&[9, 1], 9), Ok(vec![0..1, 1..2]));
    }
}
