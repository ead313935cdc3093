//! Judges whether there is evidence that a document may be used.

use aho_corasick::AhoCorasick;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::allow::{AllowEntry, AllowList};
use super::folding::fold;
use super::terms::{LICENSE_MARKS, Terms, default_keywords, default_restrictive_terms, folded};
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

/// Settings for licence evidence in a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct LicenseOptions {
    /// Keywords that are evidence if one is wholly within a window at either end of the text. They
    /// are compared without case, also within words.
    #[default(default_keywords())]
    pub keywords: Vec<String>,
    /// Size of these windows in characters.
    #[default(DEFAULT_WINDOW)]
    pub window: usize,
    /// Terms that refuse a document wherever they occur. Letters at their ends must end words.
    #[default(default_restrictive_terms())]
    pub restrictive: Vec<String>,
    /// Documents that these terms refuse.
    pub restrictive_on: RestrictiveOn,
}

impl LicenseOptions {
    /// Returns true if texts are read: there are keywords or restrictive terms.
    pub fn needs_text(&self) -> bool {
        !self.keywords.is_empty() || !self.restrictive.is_empty()
    }
}

/// Evidence that a document may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Licensed {
    /// SPDX name of the entry's licence.
    pub license: Option<String>,
    /// Tier of the entry.
    pub tier: Option<String>,
    /// One of `host:python.org`, `url:open.umn.edu/opentextbooks`, `suffix:gov`,
    /// `keyword:head:cc-by` or `keyword:tail:cc-by`.
    pub evidence: String,
}

/// Reason why a document may not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// There is no evidence that it may.
    NoEvidence,
    /// There is evidence, but the text contains this term.
    Restrictive(String),
    /// It has no keyword and no URL that can be looked up.
    UnreadableUrl,
}

impl Refusal {
    /// Returns the word for the reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoEvidence => "no-evidence",
            Self::Restrictive(_) => "restrictive-term",
            Self::UnreadableUrl => "unreadable-url",
        }
    }
}

/// Separates documents that may be used from others.
#[derive(Debug)]
pub struct LicenseRule {
    options: LicenseOptions,
    allow: AllowList,
    keyword_finder: AhoCorasick,
    /// Marks of licences that forbid commercial use or changes; they refuse any document.
    marks: Terms,
    restrictive: Terms,
}

impl LicenseRule {
    /// Builds the rule; invalid entries, terms or windows, or none at all, give an error message.
    pub fn new(allow: Vec<AllowEntry>, options: &LicenseOptions) -> Result<Self, String> {
        let allow = AllowList::new(allow)?;
        let LicenseOptions { keywords, window, restrictive, .. } = options;
        if allow.entries.is_empty() && keywords.is_empty() {
            return Err(
                "there is neither a source nor a keyword: no document could pass".to_owned()
            );
        }
        let shortest = keywords.iter().map(|keyword| keyword.trim().chars().count()).min();
        if shortest.is_some_and(|shortest| *window < shortest) {
            return Err(format!("`window` is {window}, which no keyword fits in"));
        }
        let folded = folded(keywords).ok_or("`keywords` has one without characters")?;
        Ok(Self {
            options: options.clone(),
            allow,
            keyword_finder: AhoCorasick::new(folded).map_err(|e| e.to_string())?,
            marks: Terms::new(LICENSE_MARKS.map(str::to_owned).to_vec())?,
            restrictive: Terms::new(restrictive.clone())
                .map_err(|e| format!("`restrictive`: {e}"))?,
        })
    }

    /// Says why a document may be used, or why not; reads `text` only if
    /// [`LicenseOptions::needs_text`].
    pub fn judge(&self, url: Option<&str>, text: Option<&str>) -> Result<Licensed, Refusal> {
        let location = url.and_then(|url| locate(url).ok());
        let source = location.as_ref().and_then(|location| self.allow.find(location));
        let text = text.filter(|_| self.options.needs_text());
        let is_keyword = source.is_none();
        let licensed = match source {
            Some((entry, evidence)) => {
                Licensed { license: entry.license.clone(), tier: entry.tier.clone(), evidence }
            }
            None => match text.and_then(|text| self.keyword_in(text)) {
                Some(evidence) => Licensed { license: None, tier: None, evidence },
                None if location.is_none() && !self.allow.entries.is_empty() => {
                    return Err(Refusal::UnreadableUrl);
                }
                None => return Err(Refusal::NoEvidence),
            },
        };
        let Some(text) = text else { return Ok(licensed) };
        let folded = fold(text);
        let is_restricted = is_keyword || self.options.restrictive_on == RestrictiveOn::All;
        let restrictive = || self.restrictive.find(&folded).filter(|_| is_restricted);
        match self.marks.find(&folded).or_else(restrictive) {
            Some(term) => Err(Refusal::Restrictive(term.to_owned())),
            None => Ok(licensed),
        }
    }

    fn keyword_in(&self, text: &str) -> Option<String> {
        let LicenseOptions { keywords, window, .. } = &self.options;
        if keywords.is_empty() {
            return None;
        }
        let end = text.char_indices().nth(*window).map_or(text.len(), |(at, _)| at);
        let start = text.char_indices().rev().nth(window - 1).map_or(0, |(at, _)| at);
        let windows = [("head", &text[..end]), ("tail", &text[start..])];
        windows.into_iter().find_map(|(place, window)| {
            let found = self.keyword_finder.find(&fold(window))?;
            Some(format!("keyword:{place}:{}", keywords[found.pattern()]))
        })
    }
}
