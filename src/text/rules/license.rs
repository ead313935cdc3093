//! Judges whether there is evidence that a document may be used.

use aho_corasick::AhoCorasickKind;
use serde::{Deserialize, Serialize};

use super::allow::{AllowList, Licensed};
use super::folding::fold;
use super::terms::{KEYWORDS, LICENSE_MARKS, RESTRICTIVE, Terms};
use crate::robots::locate;

/// Characters searched for keywords at each end of a text (MixtureVitae's code).
pub const DEFAULT_WINDOW: usize = 100;

/// Selects the documents that restrictive terms refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestrictiveOn {
    /// All documents.
    #[default]
    All,
    /// Documents that have a keyword as evidence.
    Keywords,
}

impl RestrictiveOn {
    /// Returns true for the default, which settings files leave out.
    pub fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// Keys of a table `[filters.NAME]` of the kind `license`, which finds documents
/// without evidence of a licence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct LicenseConfig {
    /// Column of the input with the URL of a document. Default: `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// TOML file of allowed hosts, URLs and suffixes. Default: the sources of MixtureVitae.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<String>,
    /// Marks that are evidence if they stand within `window` characters of either end of the text;
    /// case does not count. Default: `cc-by`, `cc-0`, `creative common`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keywords: Option<Vec<String>>,
    /// Number of characters at each end of a text that are searched for keywords. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// Terms that refuse a document wherever they stand in it. Default: terms such as `all rights
    /// reserved` in many languages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restrictive: Option<Vec<String>>,
    /// Which documents the restrictive terms refuse.
    #[serde(skip_serializing_if = "RestrictiveOn::is_all")]
    pub restrictive_on: RestrictiveOn,
}

impl LicenseConfig {
    /// Returns true if texts are read: there are keywords or restrictive terms.
    pub fn needs_text(&self) -> bool {
        let terms = [&self.keywords, &self.restrictive];
        terms.into_iter().any(|terms| terms.as_ref().is_none_or(|terms| !terms.is_empty()))
    }
}

/// Reason why a document may not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `no-evidence` that it may; `restrictive-term` in the text, although there is evidence; or
    /// `unreadable-url`, where there is no keyword and no URL that can be looked up.
    pub reason: &'static str,
    /// The term, if the reason is a term.
    pub term: Option<String>,
}

/// Separates documents that may be used from others.
#[derive(Debug)]
pub struct LicenseRule {
    config: LicenseConfig,
    allow: AllowList,
    keywords: Terms,
    /// Marks of licences that forbid commercial use or changes; they refuse any document.
    marks: Terms,
    restrictive: Terms,
}

impl LicenseRule {
    /// Builds the rule; invalid terms or windows, or neither source nor keyword, give a message.
    pub fn new(allow: AllowList, config: &LicenseConfig) -> Result<Self, String> {
        let owned = |terms: &[&str]| terms.iter().map(|term| (*term).to_owned()).collect();
        let keywords: Vec<String> = config.keywords.clone().unwrap_or_else(|| owned(&KEYWORDS));
        let restrictive = config.restrictive.clone().unwrap_or_else(|| owned(RESTRICTIVE));
        let window = config.window.unwrap_or(DEFAULT_WINDOW);
        if allow.sources.is_empty() && keywords.is_empty() {
            return Err(
                "there is neither a source nor a keyword: no document could pass".to_owned()
            );
        }
        let shortest = keywords.iter().map(|keyword| keyword.trim().chars().count()).min();
        if shortest.is_some_and(|shortest| window < shortest) {
            return Err(format!("`window` is {window}, which no keyword fits in"));
        }
        let dfa = Some(AhoCorasickKind::DFA);
        Ok(Self {
            config: config.clone(),
            allow,
            keywords: Terms::new(keywords, None).map_err(|e| format!("`keywords`: {e}"))?,
            marks: Terms::new(owned(&LICENSE_MARKS), dfa)?,
            restrictive: Terms::new(restrictive, dfa).map_err(|e| format!("`restrictive`: {e}"))?,
        })
    }

    /// Says why a document may be used, or why not; reads `text` only if
    /// [`LicenseConfig::needs_text`].
    pub fn judge(&self, url: Option<&str>, text: Option<&str>) -> Result<Licensed, Refusal> {
        let location = url.and_then(|url| locate(url).ok());
        let source = location.as_ref().and_then(|location| self.allow.find(location));
        let text = text.filter(|_| self.config.needs_text());
        let is_keyword = source.is_none();
        let by_keyword = || {
            let evidence = text.and_then(|text| self.keyword_in(text))?;
            Some(Licensed { license: None, tier: None, evidence })
        };
        let Some(licensed) = source.cloned().or_else(by_keyword) else {
            let has_url = location.is_some() || self.allow.sources.is_empty();
            let reason = if has_url { "no-evidence" } else { "unreadable-url" };
            return Err(Refusal { reason, term: None });
        };
        let Some(text) = text else { return Ok(licensed) };
        let folded = fold(text);
        let is_restricted = is_keyword || self.config.restrictive_on.is_all();
        let restrictive = || self.restrictive.find(&folded).filter(|_| is_restricted);
        match self.marks.find(&folded).or_else(restrictive) {
            Some(term) => Err(Refusal { reason: "restrictive-term", term: Some(term.to_owned()) }),
            None => Ok(licensed),
        }
    }

    /// Returns the evidence if a keyword is within the window at the start or, if not, the end.
    fn keyword_in(&self, text: &str) -> Option<String> {
        let Terms { written, finder } = &self.keywords;
        if written.is_empty() {
            return None;
        }
        let window = self.config.window.unwrap_or(DEFAULT_WINDOW);
        let end = text.char_indices().nth(window).map_or(text.len(), |(at, _)| at);
        let start = text.char_indices().rev().nth(window - 1).map_or(0, |(at, _)| at);
        let windows = [("head", &text[..end]), ("tail", &text[start..])];
        windows.into_iter().find_map(|(place, window)| {
            let found = finder.find(&fold(window))?;
            Some(format!("keyword:{place}:{}", written[found.pattern()]))
        })
    }
}
