//! Filter for documents by the share of their words that lists name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::document::{Filter, FilteredDocument, Finding, Verdict, judge_by_language};
use super::strings::NO_ENTRY;
use polysift_base::error::{Error, Result};
use polysift_base::panics::lock;
use polysift_base::progress::Stop;
use polysift_config::WordsConfig;
use polysift_data::input::{
    ColumnKind, ColumnRequest, ListFile, check_list, for_each_listed, list_files,
};
use polysift_text::rules::{MAX_LISTED_SHARE, WordList};

const WORD: &str = "word";

#[derive(Debug)]
pub(super) struct WordFilter {
    files: Vec<ListFile>,
    max_share: f64,
    /// Loaded lists by language, `None` for languages without a list of their own; the value is
    /// `None` if no list applies.
    loaded: Mutex<BTreeMap<Option<String>, Option<Arc<WordList>>>>,
}

impl WordFilter {
    pub(super) fn open(config: &WordsConfig) -> Result<Self> {
        let files = list_files(&config.lists)?;
        let column = ColumnRequest::new(WORD, ColumnKind::Text, true);
        files.iter().try_for_each(|list| check_list(&list.path, vec![column.clone()]))?;
        let max_share = config.max_share.unwrap_or(MAX_LISTED_SHARE);
        Ok(Self { files, max_share, loaded: Mutex::default() })
    }

    /// Returns the words of all lists that apply to `language`, or `None` if no list does.
    fn of(&self, language: &str, stop: &Stop) -> Result<Option<Arc<WordList>>> {
        // The lock is held while lists are read, so that no other thread reads the same lists.
        let mut loaded = lock(&self.loaded);
        let is_own = |list: &ListFile| list.language.as_deref() == Some(language);
        let key = self.files.iter().any(is_own).then(|| language.to_owned());
        if let Some(list) = loaded.get(&key) {
            return Ok(list.clone());
        }
        let is_for = |list: &&ListFile| list.language.as_deref().is_none_or(|own| own == language);
        let mut words = Vec::new();
        let files: Vec<&ListFile> = self.files.iter().filter(is_for).collect();
        for list in &files {
            let num_before = words.len();
            for_each_listed(&list.path, WORD, None, stop, &mut |word| {
                words.push(word.to_owned());
                Ok(())
            })?;
            if words.len() == num_before {
                return Err(Error::corrupt(&list.path, NO_ENTRY));
            }
        }
        let list = files.first().map(|first| {
            let list = WordList::new(words.iter().map(String::as_str));
            list.map(Arc::new).map_err(|e| Error::corrupt(&first.path, e))
        });
        let list = list.transpose()?;
        loaded.insert(key, list.clone());
        Ok(list)
    }
}

impl Filter for WordFilter {
    fn files(&self) -> Vec<&Path> {
        self.files.iter().map(|list| &*list.path).collect()
    }

    fn judge(&self, documents: &[FilteredDocument<'_>], stop: &Stop) -> Result<Vec<Verdict>> {
        judge_by_language(documents, |language| {
            let list = self.of(language, stop)?;
            Ok(move |document: &FilteredDocument<'_>| {
                let (Some(list), Some(text)) = (&list, document.text) else {
                    return Verdict::default();
                };
                if list.share(text).share() <= self.max_share {
                    return Verdict::default();
                }
                let details = list.find(text).map(str::to_owned).into_iter().collect();
                Verdict::of(Finding { details, ..Finding::of("words") })
            })
        })
    }
}
