//! Sets of strings for membership tests, the ids or host names of lists; and the filter for
//! documents by their ids, such as opt-out requests or verdicts of other programs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use twox_hash::XxHash3_128;

use super::document::{Filter, FilteredDocument, Finding, Verdict, judge_by_language};
use polysift_base::error::{Error, Result};
use polysift_base::panics::lock;
use polysift_base::progress::Stop;
use polysift_config::{IdsConfig, ListMode};
use polysift_data::input::{
    ColumnKind, ColumnRequest, MatchedFile, for_each_listed, is_table, list_files,
};

/// Says that a list is empty, as a failed download leaves it.
pub(super) const NO_ENTRY: &str = "there is no entry in the list";

/// Bytes of loaded sets above which those that are not in use are dropped.
const MOST_KEPT_BYTES: usize = 1 << 30;

/// A set of strings as ascending xxh3-128 hashes. With 10^9 strings and 10^9 queries the
/// probability of one wrong answer is about 10^-20.
type StringSet = Arc<Vec<u128>>;

/// Makes a set of `hashes` in any order, with repetitions.
fn string_set(mut hashes: Vec<u128>) -> StringSet {
    // Not in parallel: `load` holds its lock meanwhile, and a thread that waits for a parallel sort
    // may begin another shard, which waits for that lock.
    hashes.sort_unstable();
    hashes.dedup();
    hashes.shrink_to_fit();
    Arc::new(hashes)
}

/// Returns the hash (xxh3-128) that stands for `text` in a set.
pub fn hash(text: &str) -> u128 {
    XxHash3_128::oneshot(text.as_bytes())
}

/// The form of the entries of a list.
#[derive(Debug, Clone)]
pub(super) struct ListFormat {
    pub(super) column: &'static str,
    /// Column of tables; only rows with a value in it count ([`for_each_listed`]).
    pub(super) blocked_if: Option<String>,
    /// Returns the string to store for an entry, or the reason why the entry is invalid.
    pub(super) key: for<'a> fn(&'a str) -> Result<Cow<'a, str>, String>,
}

/// Lists of strings, each read when a document of a language that it applies to is looked up.
#[derive(Debug)]
pub(super) struct ListedStrings {
    files: Vec<MatchedFile>,
    format: ListFormat,
    /// Loaded sets by language; `None` is the key of the lists for all languages.
    loaded: Mutex<BTreeMap<Option<String>, StringSet>>,
}

impl ListedStrings {
    /// Finds the lists and checks their columns; entries are read later.
    pub(super) fn open(patterns: &[String], format: ListFormat) -> Result<Self> {
        let columns = [format.column].into_iter().chain(format.blocked_if.as_deref());
        let request = |name| ColumnRequest::new(name, ColumnKind::ScalarOrList, true);
        let files = list_files(patterns, &columns.map(request).collect::<Vec<_>>())?;
        let is_text = |list: &&MatchedFile| !is_table(&list.path.to_string_lossy());
        if let (Some(column), Some(list)) = (&format.blocked_if, files.iter().find(is_text)) {
            return Err(Error::schema(&list.path, column, "a list of lines has none"));
        }
        Ok(Self { files, format, loaded: Mutex::default() })
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|list| &*list.path)
    }

    /// Returns the lists for `language` and for all languages; reads those that are not loaded.
    pub(super) fn for_language(&self, language: &str, stop: &Stop) -> Result<LanguageStrings> {
        let mut sets = vec![self.load(None, stop)?];
        if self.files.iter().any(|list| list.language.as_deref() == Some(language)) {
            sets.push(self.load(Some(language), stop)?);
        }
        Ok(LanguageStrings(sets))
    }

    /// Counts the strings in all lists; a string in lists of several languages counts for each.
    pub(super) fn count(&self, stop: &Stop) -> Result<u64> {
        let languages: BTreeSet<Option<&str>> =
            self.files.iter().map(|list| list.language.as_deref()).collect();
        languages.into_iter().map(|of| Ok(self.load(of, stop)?.len() as u64)).sum()
    }

    /// Returns the set of the lists for this `language` alone (`None`: for all languages), which it
    /// reads unless it has it; other sets may then be dropped.
    fn load(&self, language: Option<&str>, stop: &Stop) -> Result<StringSet> {
        // The lock is held while a list is read, so that no other thread reads the same list.
        let mut loaded = lock(&self.loaded);
        let key = language.map(ToOwned::to_owned);
        if let Some(set) = loaded.get(&key) {
            return Ok(Arc::clone(set));
        }
        let mut hashes = Vec::new();
        for list in self.files.iter().filter(|list| list.language.as_deref() == language) {
            let ListFormat { column, blocked_if, key } = &self.format;
            let num_before = hashes.len();
            let mut add = |text: &str| {
                hashes.push(hash(&key(text)?));
                Ok(())
            };
            for_each_listed(&list.path, column, blocked_if.as_deref(), stop, &mut add)?;
            // With a condition, a list may have rows that are all open.
            if hashes.len() == num_before && blocked_if.is_none() {
                return Err(Error::corrupt(&list.path, NO_ENTRY));
            }
        }
        let set = string_set(hashes);
        let kept: usize = loaded.values().map(|set| size_of_val(set.as_slice())).sum();
        if kept > MOST_KEPT_BYTES {
            loaded.retain(|_, set| Arc::strong_count(set) > 1);
        }
        loaded.insert(key, Arc::clone(&set));
        Ok(set)
    }
}

pub(super) struct LanguageStrings(Vec<StringSet>);

impl LanguageStrings {
    pub(super) fn contains(&self, text: &str) -> bool {
        let hash = hash(text);
        self.0.iter().any(|set| set.binary_search(&hash).is_ok())
    }
}

/// Format of id lists. In tables only rows with a value in the column `blocked_if` count.
pub(super) fn id_list(blocked_if: Option<String>) -> ListFormat {
    ListFormat { column: "id", blocked_if, key: |id| Ok(Cow::Borrowed(id)) }
}

/// Finds documents whose ids lists name, or do not name.
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
            let listed = self.lists.for_language(language, stop)?;
            Ok(move |document: &FilteredDocument<'_>| {
                let is_found = listed.contains(document.id) == (self.mode == ListMode::Exclude);
                Verdict::of(is_found.then(|| Finding::of(reason)))
            })
        })
    }

    fn num_listed_ids(&self, stop: &Stop) -> Result<Option<u64>> {
        self.lists.count(stop).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_holds_what_it_was_made_of(
            listed in proptest::collection::vec("[ab]{0,4}", 0..20),
            asked in proptest::collection::vec("[ab]{0,4}", 0..20),
        ) {
            let set = string_set(listed.iter().map(|text| hash(text)).collect());
            let set = LanguageStrings(vec![set]);
            for text in &asked {
                prop_assert_eq!(set.contains(text), listed.contains(text));
            }
        }
    }

    #[test]
    fn a_list_is_for_its_language_or_for_all() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("all.txt"), "\u{FEFF}a\r\n# b\n\n  c d \ne # why\nf#g\n")?;
        std::fs::write(path("deu_Latn.csv"), "id,x\n7,y\n,z\n")?;
        let format = ListFormat { column: "id", blocked_if: None, key: |id| Ok(Cow::Borrowed(id)) };
        let lists = ListedStrings::open(&[path("all.txt"), path("{lang}.csv")], format.clone())?;
        let holds = |language, text| {
            Ok::<_, Error>(lists.for_language(language, &Stop::default())?.contains(text))
        };
        assert!(holds("fra_Latn", "a")? && holds("deu_Latn", "c d")? && holds("deu_Latn", "7")?);
        assert!(
            holds("fra_Latn", "e")? && holds("fra_Latn", "f#g")?,
            "a comment follows white space"
        );
        assert!(!(holds("fra_Latn", "7")? || holds("deu_Latn", "b")? || holds("deu_Latn", "")?));
        assert_eq!(lists.files().count(), 2);

        // An empty list is refused; a table may have no row that meets the condition.
        std::fs::write(path("all.txt"), "# nothing\n")?;
        std::fs::write(path("all.csv"), "id,x\n7,\n")?;
        for (name, blocked_if, is_refused) in
            [("all.txt", None, true), ("all.csv", None, false), ("all.csv", Some("x"), false)]
        {
            let format = ListFormat { blocked_if: blocked_if.map(Into::into), ..format.clone() };
            let lists = ListedStrings::open(&[path(name)], format)?;
            let refused = lists.for_language("fra_Latn", &Stop::default()).err();
            assert_eq!(refused.is_some(), is_refused, "{name}: {refused:?}");
        }
        // Lines have no column for a condition.
        let format = ListFormat { blocked_if: Some("x".into()), ..format };
        let refused = ListedStrings::open(&[path("all.txt")], format).map_err(|e| e.to_string());
        assert!(
            refused.is_err_and(|e| e.ends_with("all.txt: column `x`: a list of lines has none"))
        );
        Ok(())
    }
}
