//! Filters for documents by rules on their texts: evidence of a licence, the share of words that
//! lists name, and text that repeats itself or holds encoded data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::document::{Filter, FilteredDocument, Finding, Verdict, judge_by_language};
use super::strings::NO_ENTRY;
use polysift_base::error::{Error, Result};
use polysift_base::io::{if_there, read};
use polysift_base::panics::lock;
use polysift_base::progress::Stop;
use polysift_config::{FilterAction, LicenseConfig, RepetitionConfig, WordsConfig};
use polysift_data::input::{ColumnKind, ColumnRequest, MatchedFile, for_each_listed, list_files};
use polysift_text::rules::{
    AllowList, LicenseRule, Licensed, MAX_LISTED_SHARE, MAX_REPETITION_RATE, Refusal, Repetition,
    WordList, base64_ranges,
};

const WORD: &str = "word";

/// Finds documents without evidence of a licence; with `flag`, those with evidence, which it names.
#[derive(Debug)]
pub(super) struct LicenseFilter {
    allow: Option<PathBuf>,
    rule: LicenseRule,
    flags: bool,
}

impl LicenseFilter {
    /// Reads the list of sources that `config` allows, or else the published one.
    pub(super) fn open(name: &str, config: &LicenseConfig, action: FilterAction) -> Result<Self> {
        let allow = config.allow.as_ref().map(PathBuf::from);
        let sources = match &allow {
            None => AllowList::published().map_err(|e| Error::config("permissive.toml", e))?,
            Some(path) => {
                let missing = || Error::missing(path, "no such list");
                let bytes = if_there(read(path))?.ok_or_else(missing)?;
                let text = String::from_utf8(bytes)
                    .map_err(|_| Error::corrupt(path, "the list is not UTF-8"))?;
                AllowList::parse(&text).map_err(|e| Error::config(path.display().to_string(), e))?
            }
        };
        let rule = LicenseRule::new(sources, config)
            .map_err(|e| Error::config(format!("filters.{name}"), e))?;
        Ok(Self { allow, rule, flags: action == FilterAction::Flag })
    }
}

impl Filter for LicenseFilter {
    fn files(&self) -> Vec<&Path> {
        self.allow.as_deref().into_iter().collect()
    }

    fn verdict(&self, document: &FilteredDocument<'_>) -> Verdict {
        match self.rule.judge(document.url, document.text) {
            Ok(Licensed { license, tier, evidence }) if self.flags => {
                let details = [Some(evidence), license, tier.map(|tier| format!("tier:{tier}"))];
                let details = details.into_iter().flatten().collect();
                Verdict::of(Finding { details, ..Finding::of("licensed") })
            }
            Err(Refusal { reason, term }) if !self.flags => {
                let details = term.into_iter().collect();
                Verdict::of(Finding { details, ..Finding::of(reason) })
            }
            Ok(_) | Err(_) => Verdict::default(),
        }
    }
}

/// Finds documents with too large a share of words that lists of their language name.
#[derive(Debug)]
pub(super) struct WordFilter {
    files: Vec<MatchedFile>,
    max_share: f64,
    /// Lists by language, `None` for languages without one of their own; `None` if no list applies.
    loaded: Mutex<BTreeMap<Option<String>, Option<Arc<WordList>>>>,
}

impl WordFilter {
    pub(super) fn open(config: &WordsConfig) -> Result<Self> {
        let column = ColumnRequest::new(WORD, ColumnKind::Text, true);
        let files = list_files(&config.lists, &[column])?;
        let max_share = config.max_share.unwrap_or(MAX_LISTED_SHARE);
        Ok(Self { files, max_share, loaded: Mutex::default() })
    }

    /// Returns the words of the lists that apply to `language`, read once; `None` without lists.
    fn for_language(&self, language: &str, stop: &Stop) -> Result<Option<Arc<WordList>>> {
        // The lock is held while lists are read, so that no other thread reads the same lists.
        let mut loaded = lock(&self.loaded);
        let is_own = |list: &MatchedFile| list.language.as_deref() == Some(language);
        let key = self.files.iter().any(is_own).then(|| language.to_owned());
        if let Some(list) = loaded.get(&key) {
            return Ok(list.clone());
        }
        let is_for =
            |list: &&MatchedFile| list.language.as_deref().is_none_or(|own| own == language);
        let mut words = Vec::new();
        let files: Vec<&MatchedFile> = self.files.iter().filter(is_for).collect();
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
            let list = self.for_language(language, stop)?;
            Ok(move |document: &FilteredDocument<'_>| {
                let (Some(list), Some(text)) = (&list, document.text) else {
                    return Verdict::default();
                };
                let share = list.share(text);
                if share.share() <= self.max_share {
                    return Verdict::default();
                }
                let details = share.first.map(str::to_owned).into_iter().collect();
                Verdict::of(Finding { details, ..Finding::of("words") })
            })
        })
    }
}

/// Finds documents with too large a share of repeated sentences; with action `cut`, with any.
#[derive(Debug)]
pub(super) struct RepetitionFilter {
    config: RepetitionConfig,
    cuts: bool,
}

impl RepetitionFilter {
    pub(super) fn open(config: &RepetitionConfig, action: FilterAction) -> Self {
        Self { config: config.clone(), cuts: action == FilterAction::Cut }
    }
}

impl Filter for RepetitionFilter {
    fn verdict(&self, document: &FilteredDocument<'_>) -> Verdict {
        let Some(text) = document.text else { return Verdict::default() };
        if self.config.base64 && !base64_ranges(text).is_empty() {
            return Verdict::of(Finding::of("base64"));
        }
        let repetition = Repetition::of(text);
        if repetition.is_over(self.config.max_rate.unwrap_or(MAX_REPETITION_RATE)) {
            return Verdict::of(Finding::of("repetition"));
        }
        if !self.cuts || repetition.repeated == 0 {
            return Verdict::default();
        }
        // An export puts an empty line between pieces, so empty lines are no pieces.
        let mut pieces = repetition.pieces;
        pieces.retain(|piece| !text[piece.clone()].trim().is_empty());
        Verdict::of(Finding { pieces: Some(pieces), ..Finding::of("repetition") })
    }
}
