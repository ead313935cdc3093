//! Filter for documents by their ids, such as opt-out requests or verdicts of other programs.

use std::borrow::Cow;
use std::path::Path;

use super::document::{Filter, FilteredDocument, Finding, Verdict, judge_by_language};
use super::strings::{ListFormat, ListedStrings};
use polysift_base::error::Result;
use polysift_base::progress::Stop;
use polysift_config::{IdsConfig, ListMode};

/// Format of id lists. In tables only rows with a value in the column `blocked_if` count.
pub(super) fn id_list(blocked_if: Option<String>) -> ListFormat {
    ListFormat { column: "id", blocked_if, key: |id| Ok(Cow::Borrowed(id)) }
}

#[derive(Debug)]
pub(super) struct IdFilter {
    lists: ListedStrings,
    mode: ListMode,
}

impl IdFilter {
    pub(super) fn open(config: &IdsConfig) -> Result<Self> {
        let lists = ListedStrings::open(&config.lists, id_list(None))?;
        Ok(Self { lists, mode: config.mode })
    }
}

impl Filter for IdFilter {
    fn files(&self) -> Vec<&Path> {
        self.lists.files().collect()
    }

    fn judge(&self, documents: &[FilteredDocument<'_>], stop: &Stop) -> Result<Vec<Verdict>> {
        let reason = match self.mode {
            ListMode::Exclude => "listed",
            ListMode::Include => "not-listed",
        };
        judge_by_language(documents, |language| {
            let listed = self.lists.of(language, stop)?;
            Ok(move |document: &FilteredDocument<'_>| {
                let is_found = listed.contains(document.id) == (self.mode == ListMode::Exclude);
                let finding = is_found.then(|| Finding::of(reason));
                Verdict { finding, ..Verdict::default() }
            })
        })
    }

    fn num_listed_ids(&self, stop: &Stop) -> Result<Option<u64>> {
        self.lists.count(stop).map(Some)
    }
}
