//! Documents with evidence that they may be used.

use aho_corasick::AhoCorasick;
use serde::{Deserialize, Serialize};

use super::allow::{AllowEntry, AllowList};
use super::folding::fold;
use super::terms::{LICENSE_MARKS, Terms, default_keywords, default_restrictive_terms};
use crate::robots::locate;

/// Characters at both ends of a text in which keywords are looked for (MixtureVitae's code).
pub const DEFAULT_WINDOW: usize = 100;

/// Whose documents restrictive terms refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestrictiveOn {
    /// All.
    #[default]
    All,
    /// Those whose evidence is a keyword.
    Keywords,
}

/// What a text says of its licence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LicenseOptions {
    /// Evidence where one stands wholly within a window at either end of the text; compared without
    /// case, also within words.
    pub keywords: Vec<String>,
    /// Size of those windows in characters.
    pub window: usize,
    /// Terms that refuse a document wherever they stand. Letters at their ends are ends of words.
    pub restrictive: Vec<String>,
    /// Whose documents they refuse.
    pub restrictive_on: RestrictiveOn,
}

impl Default for LicenseOptions {
    fn default() -> Self {
        Self {
            keywords: default_keywords(),
            window: DEFAULT_WINDOW,
            restrictive: default_restrictive_terms(),
            restrictive_on: RestrictiveOn::default(),
        }
    }
}

impl LicenseOptions {
    /// Whether texts are looked at: there are keywords or restrictive terms.
    pub fn needs_text(&self) -> bool {
        !self.keywords.is_empty() || !self.restrictive.is_empty()
    }
}

/// Why a document may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Licensed {
    /// That of the entry, as SPDX names it.
    pub license: Option<String>,
    /// That of the entry.
    pub tier: Option<String>,
    /// `host:python.org`, `url:open.umn.edu/opentextbooks`, `suffix:gov`, `keyword:head:cc-by` or
    /// `keyword:tail:cc-by`.
    pub evidence: String,
}

/// Why a document may not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing says that it may.
    NoEvidence,
    /// There is evidence, but its text has this term.
    Restrictive(String),
    /// It has no keyword, and no URL that can be looked up.
    UnreadableUrl,
}

impl Refusal {
    /// The word for it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoEvidence => "no-evidence",
            Self::Restrictive(_) => "restrictive-term",
            Self::UnreadableUrl => "unreadable-url",
        }
    }
}

/// Tells documents that may be used from others.
#[derive(Debug)]
pub struct LicenseRule {
    needs_text: bool,
    allow: AllowList,
    keywords: Vec<String>,
    keyword_finder: AhoCorasick,
    window: usize,
    /// Marks of licences that forbid commercial use or changes: they refuse any document.
    marks: Terms,
    restrictive: Terms,
    restrictive_on: RestrictiveOn,
}

impl LicenseRule {
    /// # Errors
    /// An entry that is none, a term without characters, a window of none, and a rule that no
    /// document could pass.
    pub fn new(allow: Vec<AllowEntry>, options: &LicenseOptions) -> Result<Self, String> {
        let allow = AllowList::new(allow)?;
        let LicenseOptions { keywords, window, restrictive, restrictive_on } = options.clone();
        if allow.is_empty() && keywords.is_empty() {
            return Err(
                "there is neither a source nor a keyword: no document could pass".to_owned()
            );
        }
        if window == 0 && !keywords.is_empty() {
            return Err("`window` is 0, which no keyword fits in".to_owned());
        }
        let folded = keywords.iter().map(|keyword| fold(keyword));
        let folded: Vec<String> = folded.map(|keyword| keyword.trim().to_owned()).collect();
        if folded.iter().any(String::is_empty) {
            return Err("`keywords` has one without characters".to_owned());
        }
        Ok(Self {
            needs_text: options.needs_text(),
            allow,
            keywords,
            keyword_finder: AhoCorasick::new(folded).map_err(|e| e.to_string())?,
            window,
            marks: Terms::new(LICENSE_MARKS.map(str::to_owned).to_vec())?,
            restrictive: Terms::new(restrictive).map_err(|e| format!("`restrictive`: {e}"))?,
            restrictive_on,
        })
    }

    /// Whether a document may be used, and why. A text is looked at where [`LicenseOptions::needs_text`] says so.
    ///
    /// # Errors
    /// Why it may not.
    pub fn judge(&self, url: Option<&str>, text: Option<&str>) -> Result<Licensed, Refusal> {
        let location = url.and_then(|url| locate(url).ok());
        let source = location.as_ref().and_then(|location| self.allow.find(location));
        let text = text.filter(|_| self.needs_text);
        let is_keyword = source.is_none();
        let licensed = match source {
            Some((entry, evidence)) => {
                Licensed { license: entry.license.clone(), tier: entry.tier.clone(), evidence }
            }
            None => match text.and_then(|text| self.keyword_in(text)) {
                Some(evidence) => Licensed { license: None, tier: None, evidence },
                None if location.is_none() && !self.allow.is_empty() => {
                    return Err(Refusal::UnreadableUrl);
                }
                None => return Err(Refusal::NoEvidence),
            },
        };
        let Some(text) = text else { return Ok(licensed) };
        let folded = fold(text);
        let is_restricted = is_keyword || self.restrictive_on == RestrictiveOn::All;
        let restrictive = || self.restrictive.find(&folded).filter(|_| is_restricted);
        match self.marks.find(&folded).or_else(restrictive) {
            Some(term) => Err(Refusal::Restrictive(term.to_owned())),
            None => Ok(licensed),
        }
    }

    /// The keyword that is evidence: at the head of a text, else at its tail.
    fn keyword_in(&self, text: &str) -> Option<String> {
        if self.keywords.is_empty() {
            return None;
        }
        let end = text.char_indices().nth(self.window).map_or(text.len(), |(at, _)| at);
        let start = text.char_indices().rev().nth(self.window - 1).map_or(0, |(at, _)| at);
        let windows = [("head", &text[..end]), ("tail", &text[start..])];
        windows.into_iter().find_map(|(place, window)| {
            let found = self.keyword_finder.find(&fold(window))?;
            Some(format!("keyword:{place}:{}", self.keywords[found.pattern().as_usize()]))
        })
    }
}
