//! Filter for documents that hold text of benchmarks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::document::{Filter, FilteredDocument, Finding, Leaks, TaskLeak, Verdict};
use polysift_base::error::{Error, Result};
use polysift_config::{DecontaminationConfig, FilterAction};
use polysift_text::decontamination::{Hit, Hits, Index, ItemCoverage, Rule, cut};

/// Reason of this filter's findings.
pub(crate) const CONTAMINATED: &str = "contaminated";
/// Maximum number of n-grams that a report names; the most frequent ones are often templates.
const MAX_NGRAMS: usize = 100;

#[derive(Debug)]
pub(super) struct DecontaminationFilter {
    path: PathBuf,
    index: Index,
    rule: Rule,
    cuts: bool,
}

impl DecontaminationFilter {
    pub(super) fn open(config: &DecontaminationConfig, action: FilterAction) -> Result<Self> {
        let path = PathBuf::from(&config.index);
        if !path.is_file() {
            let reason = "there is no such index; `polysift dataset benchmarks` makes one";
            return Err(Error::missing(&path, reason));
        }
        let (index, rule) = (Index::open(&path)?, config.rule());
        Ok(Self { path, index, rule, cuts: action == FilterAction::Cut })
    }
}

impl Filter for DecontaminationFilter {
    fn files(&self) -> Vec<&Path> {
        vec![&self.path]
    }

    fn verdict(&self, document: &FilteredDocument<'_>) -> Verdict {
        let Some(text) = document.text else { return Verdict::default() };
        let hits = self.index.scan(text, document.language);
        if hits.is_empty() {
            return Verdict::default();
        }
        let ngrams = hits.ngrams();
        if !self.rule.is_contaminated(&self.index, &hits) {
            return Verdict { ngrams, ..Verdict::default() };
        }
        let task = |task: usize| self.index.tasks()[task].task.clone();
        let details = self.index.tasks_hit(&hits).into_iter().map(task).collect();
        let pieces = self.cuts.then(|| cut(text, &hits)).flatten();
        let finding = Finding { details, pieces, ..Finding::of(CONTAMINATED) };
        Verdict { finding: Some(finding), note: None, ngrams }
    }

    fn leaks(&self, found: &BTreeMap<u32, u64>) -> Option<Leaks> {
        let index = &self.index;
        let hits = found.keys().map(|&ngram| Hit { ngram, range: 0..0 }).collect();
        let items = index.items_hit(&Hits { hits, distinct_ngrams: found.len() });
        let mut tasks: Vec<TaskLeak> = (index.tasks().iter())
            .map(|counts| TaskLeak {
                task: counts.task.clone(),
                items: counts.items,
                not_covered: counts.not_covered,
                items_hit: 0,
                ngrams: counts.ngrams,
                leaked_ngrams: 0,
                leaked_percent: 0.0,
            })
            .collect();
        for item in &items {
            tasks[index.item(item.item).task].items_hit += 1;
        }
        for &ngram in found.keys() {
            let of_tasks = index.postings(ngram).map(|posting| index.item(posting.item).task);
            for task in of_tasks.collect::<BTreeSet<usize>>() {
                tasks[task].leaked_ngrams += 1;
            }
        }
        for task in &mut tasks {
            let all = task.ngrams.max(1) as f64;
            task.leaked_percent = 100.0 * task.leaked_ngrams as f64 / all;
        }
        let mut ngrams: Vec<(&u32, &u64)> = found.iter().collect();
        ngrams.sort_by_key(|(ngram, documents)| (std::cmp::Reverse(**documents), **ngram));
        let text =
            |(ngram, documents): (&u32, &u64)| (index.ngram_text(*ngram).to_owned(), *documents);
        let item = |item: &ItemCoverage| {
            let found = index.item(item.item);
            (index.tasks()[found.task].task.clone(), found.id.to_owned(), item.share)
        };
        Some(Leaks {
            tasks,
            ngrams: ngrams.into_iter().take(MAX_NGRAMS).map(text).collect(),
            items: items.iter().map(item).collect(),
        })
    }
}
