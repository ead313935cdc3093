//! Where the outputs of the stages are in a run directory.

use std::path::PathBuf;

use super::{RunDir, Shard};
use polysift_config::HeadKind;

impl RunDir {
    /// Returns the path of part `index` of the embeddings of `shard`.
    pub fn embeddings_part(&self, shard: &Shard, index: usize) -> PathBuf {
        self.path(format!("embeddings/{}/part-{index:05}.parquet", shard.name))
    }

    /// Returns the file of the documents of `shard` that a refine round scored again with `head`.
    pub fn round_part(&self, round: usize, head: &str, shard: &Shard) -> PathBuf {
        self.path(format!("rounds/{round:02}/{head}/{}/part-00000.parquet", shard.name))
    }

    /// Returns the file of the trained `head` for `language`; a fastText model's card is beside it.
    pub fn head_file(&self, head: &str, kind: HeadKind, language: &str) -> PathBuf {
        let extension = if kind == HeadKind::FastText { "bin" } else { "safetensors" };
        self.path(format!("heads/{head}/{language}.{extension}"))
    }

    /// Returns the file with the filter matches in `shard`.
    pub fn verdicts_file(&self, shard: &Shard) -> PathBuf {
        self.path(format!("verdicts/{}.parquet", shard.name))
    }

    /// Returns the file with the counts of each filter in `shard`.
    pub fn verdict_counts_file(&self, shard: &Shard) -> PathBuf {
        self.path(format!("filters/shards/{}.json", shard.name))
    }

    /// Returns the file with the counts of the filter `name`.
    pub fn filter_report_file(&self, name: &str) -> PathBuf {
        self.path(format!("filters/{name}.json"))
    }

    /// Returns the file with the near duplicates in `shard` among the documents of `language`.
    pub fn duplicate_verdicts_file(&self, language: &str, shard: &Shard) -> PathBuf {
        self.path(format!("duplicates/verdicts/{language}/{}.parquet", shard.name))
    }

    /// Returns the file with the near duplicates of `language`, counted.
    pub fn duplicates_file(&self, language: &str) -> PathBuf {
        self.path(format!("duplicates/languages/{language}.json"))
    }

    /// Returns the file with the near duplicates of all languages, counted.
    pub fn duplicates_report_file(&self) -> PathBuf {
        self.path("duplicates/report.json")
    }

    /// Returns the file with the thresholds of `language`.
    pub fn selection_file(&self, language: &str) -> PathBuf {
        self.path("selection").join(format!("{language}.json"))
    }

    /// Returns the file with the counts of personal data in the exported texts of `shard`.
    pub fn pii_counts_file(&self, shard: &Shard) -> PathBuf {
        self.path(format!("audit/shards/{}.json", shard.name))
    }

    /// Returns the file with counts of the personal data in an export.
    pub fn pii_report_file(&self) -> PathBuf {
        self.path("audit/pii.json")
    }
}
