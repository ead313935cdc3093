//! Filter for documents that hold text of benchmarks.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::document::{Filter, FilteredDocument, Finding, Leaks, Verdict};
use polysift_base::error::{Error, Result};
use polysift_config::{ContaminationRule, DecontaminationConfig, FilterAction};
use polysift_text::decontamination::{Hits, Index, TaskCounts, cut};

/// Reason of this filter's findings.
pub(crate) const CONTAMINATED: &str = "contaminated";
/// Maximum number of n-grams that a report names; the most frequent ones are often templates.
const MAX_NGRAMS: usize = 100;

#[derive(Debug)]
pub(super) struct DecontaminationFilter {
    config: DecontaminationConfig,
    index: Index,
    cuts: bool,
}

impl DecontaminationFilter {
    /// Opens the index; [`Error::Missing`] if there is none.
    pub(super) fn open(config: &DecontaminationConfig, action: FilterAction) -> Result<Self> {
        let path = Path::new(&config.index);
        if !path.is_file() {
            let reason = "there is no such index; `polysift dataset benchmarks` makes one";
            return Err(Error::missing(path, reason));
        }
        let (config, index) = (config.clone(), Index::open(path)?);
        Ok(Self { config, index, cuts: action == FilterAction::Cut })
    }

    /// Applies the rule of the settings to a document with these hits, of these distinct n-grams.
    fn is_contaminated(&self, hits: &Hits, ngrams: &[u32]) -> bool {
        let config = &self.config;
        match config.rule {
            ContaminationRule::Any => true,
            ContaminationRule::Coverage => {
                let coverage = ngrams.len() as f64 / hits.distinct_ngrams as f64;
                // The defaults are those of MixtureVitae's code.
                let (min_hits, min_coverage) = (config.min_hits, config.min_coverage);
                ngrams.len() >= min_hits.unwrap_or(3) && coverage >= min_coverage.unwrap_or(0.001)
            }
            ContaminationRule::Item => {
                let mut items = self.index.items_hit(ngrams).into_iter();
                items.any(|(_, share)| share >= config.min_item.unwrap_or(0.5))
            }
        }
    }
}

impl Filter for DecontaminationFilter {
    fn files(&self) -> Vec<&Path> {
        vec![Path::new(&self.config.index)]
    }

    fn verdict(&self, document: &FilteredDocument<'_>) -> Verdict {
        let Some(text) = document.text else { return Verdict::default() };
        let hits = self.index.scan(text, document.language);
        if hits.is_empty() {
            return Verdict::default();
        }
        let ngrams = hits.ngrams();
        if !self.is_contaminated(&hits, &ngrams) {
            return Verdict { ngrams, ..Verdict::default() };
        }
        let task = |task: usize| self.index.tasks()[task].task.clone();
        let details = self.index.tasks_hit(&ngrams).into_iter().map(task).collect();
        let pieces = self.cuts.then(|| cut(text, &hits)).flatten();
        let finding = Finding { details, pieces, ..Finding::of(CONTAMINATED) };
        Verdict { finding: Some(finding), note: None, ngrams }
    }

    fn leaks(&self, found: &BTreeMap<u32, u64>) -> Option<Leaks> {
        let index = &self.index;
        let hit: Vec<u32> = found.keys().copied().collect();
        let items = index.items_hit(&hit);
        // By task, the items that are hit and the n-grams that are in the corpus.
        let mut leaked = vec![(0, 0); index.tasks().len()];
        for (item, _) in &items {
            leaked[index.item(*item).task].0 += 1;
        }
        for task in hit.into_iter().flat_map(|ngram| index.tasks_hit(&[ngram])) {
            leaked[task].1 += 1;
        }
        let task = |(of, (items_hit, ngrams)): (&TaskCounts, (u64, u64))| {
            json!({
                "task": of.task, "items": of.items,
                // Items too short for an n-gram, which cannot be found.
                "not_covered": of.not_covered,
                "items_hit": items_hit, "ngrams": of.ngrams, "leaked_ngrams": ngrams,
                "leaked_percent": 100.0 * ngrams as f64 / of.ngrams.max(1) as f64,
            })
        };
        let tasks: Vec<Value> = index.tasks().iter().zip(leaked).map(task).collect();
        let mut ngrams: Vec<(&u32, &u64)> = found.iter().collect();
        ngrams.sort_by_key(|(ngram, documents)| (std::cmp::Reverse(**documents), **ngram));
        let text = |(ngram, documents): &(&u32, &u64)| (index.ngram_text(**ngram), **documents);
        let ngrams: Vec<_> = ngrams.iter().take(MAX_NGRAMS).map(text).collect();
        let item = |(item, share): (u32, f64)| {
            let found = index.item(item);
            json!({"task": index.tasks()[found.task].task, "id": found.id, "share": share})
        };
        let items = items.into_iter().map(item).collect();
        Some(Leaks { report: json!({"tasks": tasks, "ngrams": ngrams}), items })
    }
}
