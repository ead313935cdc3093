//! `[filters]`: verdicts on documents that need no model.

use serde::{Deserialize, Serialize};

use super::is_language_code;
use polysift_base::error::{Error, Result};
use polysift_text::decontamination::Rule;
use polysift_text::robots::{Agents, DEFAULT_AGENTS, Matching, Suffixes};
use polysift_text::rules::{LicenseOptions, RestrictiveOn};

/// What a filter goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilterKind {
    /// Lists of ids.
    Ids,
    /// Lists of hosts, domains and beginnings of URLs.
    Urls,
    /// What robots.txt files say to agents, with lists of domains and ids that others made of them.
    Robots,
    /// N-grams of benchmark items.
    Decontamination,
    /// Evidence that a document may be used: where it is from, and what its text says.
    License,
    /// The share of words that lists name.
    Words,
    /// Sentences that a document repeats, and encoded data in it.
    Repetition,
}

impl FilterKind {
    /// The keys that a filter of this kind takes besides those of all kinds.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Ids => &["lists", "mode"],
            Self::Urls => &["lists", "mode", "url", "suffixes"],
            Self::Robots => {
                &["url", "as_of", "sources", "agents", "unknown", "matching", "suffixes"]
            }
            Self::Decontamination => &["index", "rule", "min_hits", "min_coverage", "min_item"],
            Self::License => {
                &["url", "allow", "keywords", "window", "restrictive", "restrictive_on"]
            }
            Self::Words => &["lists", "max_share"],
            Self::Repetition => &["max_rate", "base64"],
        }
    }
}

/// Whose documents rates are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum FilterWhen {
    /// What is removed has no part in the thresholds: rates are of the documents that are left.
    #[default]
    Before,
    /// What is removed is taken from the documents that were selected of all.
    After,
}

/// What becomes of a document that a filter finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum FilterAction {
    /// It is not exported.
    #[default]
    Remove,
    /// It stays, and a column called as the filter says why it was found.
    Flag,
    /// What was found is cut out of its text: sentences that it repeats; n-grams of benchmarks with 200 characters on
    /// each side, and pieces of fewer than 200 characters (then it is removed where nothing is left, or more than
    /// 10 places were found: GPT-3's rule).
    Cut,
}

/// When a document is contaminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum ContaminationRule {
    /// It holds an n-gram of the index (FineWeb2-HQ).
    #[default]
    Any,
    /// It holds several, which are some share of its own (MixtureVitae).
    Coverage,
    /// It holds some share of an item.
    Item,
}

/// Which documents a filter of lists finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum ListMode {
    /// Those that are listed.
    #[default]
    Exclude,
    /// Those that are not.
    Include,
}

/// What becomes of documents whose URL cannot be read, or whose host has no robots.txt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// They are not found: who does not want to be read says so.
    #[default]
    Keep,
    /// They are found: only who has said what may be read is read.
    Remove,
}

/// A source of consent: one of `ids`, `domains` and `robots`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct ConsentSource {
    /// Lists of the ids of blocked documents, as those of [`FilterKind::Ids`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<String>,
    /// Of tables of ids: the column that holds something (a name, a list of agents, `true`) where a document is
    /// blocked; without it all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_if: Option<String>,
    /// Lists of blocked hosts and registrable domains, in text or in a column `domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains: Option<String>,
    /// robots.txt files: tables with the columns `domain` and `content` and, where there are any, `protocol` and
    /// `fetched`, or a folder of files called as their hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robots: Option<String>,
}

/// `[filters.<name>]`; the name is the reason of removal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterConfig {
    /// What it goes by.
    pub kind: FilterKind,
    /// Whether its documents count in the thresholds; `after` for decontamination, else `before`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<FilterWhen>,
    /// What becomes of the documents that it finds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub action: FilterAction,
    /// The languages whose documents it looks at; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub languages: Vec<String>,
    /// Files of ids, or of hosts, domains and beginnings of URLs: text with one a line, or Parquet, JSON lines or
    /// CSV with a column `id` or `url`. `{lang}` stands for the language of the documents that a file is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<String>,
    /// Whether what is listed is found, or what is not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: ListMode,
    /// Column of the input with the URL; `url` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// When the sources were fetched; it goes into every report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// What says which documents are blocked; one that does is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<ConsentSource>,
    /// The agents of which each has to be allowed; [`DEFAULT_AGENTS`] by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// What becomes of documents that no source speaks of.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unknown: Unknown,
    /// How robots.txt files are read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub matching: Matching,
    /// Which public suffixes registrable domains stand under.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suffixes: Suffixes,
    /// The index of benchmark items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// When a document is contaminated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rule: ContaminationRule,
    /// Of [`ContaminationRule::Coverage`]: distinct n-grams at least; 3 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_hits: Option<usize>,
    /// Of [`ContaminationRule::Coverage`]: their share of the document's distinct n-grams at least; 0.001 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_coverage: Option<f64>,
    /// Of [`ContaminationRule::Item`]: share of the tokens of one item that have to stand in the document; 0.5 by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_item: Option<f64>,
    /// Sources whose documents may be used: a file of [`parse_allow_list`](polysift_text::rules::parse_allow_list); those of
    /// MixtureVitae by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<String>,
    /// See [`LicenseOptions::keywords`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keywords: Option<Vec<String>>,
    /// See [`LicenseOptions::window`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<usize>,
    /// See [`LicenseOptions::restrictive`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restrictive: Option<Vec<String>>,
    /// See [`LicenseOptions::restrictive_on`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub restrictive_on: RestrictiveOn,
    /// Share of a text's words that may be on the lists; 0.2 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_share: Option<f64>,
    /// Share of a text's sentences that may be repeated; 0.75 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<f64>,
    /// Whether documents with encoded data (base64) are found too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub base64: bool,
}

/// Whether a key has its default, with which it is not written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl FilterConfig {
    /// Keys of filters of every kind.
    const COMMON_KEYS: [&str; 4] = ["kind", "when", "action", "languages"];

    /// Whether what it removes has no part in the thresholds.
    pub fn removes_before(&self) -> bool {
        self.action != FilterAction::Flag && self.when() == FilterWhen::Before
    }

    /// When what it removes is taken away.
    pub fn when(&self) -> FilterWhen {
        self.when.unwrap_or(match self.kind {
            FilterKind::Decontamination => FilterWhen::After,
            _ => FilterWhen::Before,
        })
    }

    /// Whether it looks at texts.
    pub fn needs_text(&self) -> bool {
        match self.kind {
            FilterKind::Ids | FilterKind::Urls | FilterKind::Robots => false,
            FilterKind::License => self.license_options().needs_text(),
            FilterKind::Decontamination | FilterKind::Words | FilterKind::Repetition => true,
        }
    }

    /// What a text says of its licence.
    pub fn license_options(&self) -> LicenseOptions {
        let default = LicenseOptions::default();
        LicenseOptions {
            keywords: self.keywords.clone().unwrap_or(default.keywords),
            window: self.window.unwrap_or(default.window),
            restrictive: self.restrictive.clone().unwrap_or(default.restrictive),
            restrictive_on: self.restrictive_on,
        }
    }

    /// When a document is contaminated.
    ///
    /// # Errors
    /// [`Error::Config`] for a share that is none, and keys of another rule.
    pub fn rule(&self, name: &str) -> Result<Rule> {
        let fail =
            |key: &str, reason: &str| Err(Error::config(format!("filters.{name}.{key}"), reason));
        for (key, share) in [("min_coverage", self.min_coverage), ("min_item", self.min_item)] {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                return fail(key, "is no share; 0 to 1 are allowed");
            }
        }
        let is_coverage = self.rule == ContaminationRule::Coverage;
        if (self.min_hits.is_some() || self.min_coverage.is_some()) && !is_coverage {
            return fail("rule", "is not `coverage`, which `min_hits` and `min_coverage` are for");
        }
        if self.min_item.is_some() && self.rule != ContaminationRule::Item {
            return fail("rule", "is not `item`, which `min_item` is for");
        }
        Ok(match self.rule {
            ContaminationRule::Any => Rule::Any,
            ContaminationRule::Coverage => Rule::Coverage {
                min_hits: self.min_hits.unwrap_or(3),
                min_coverage: self.min_coverage.unwrap_or(0.001),
            },
            ContaminationRule::Item => Rule::Item { min_item: self.min_item.unwrap_or(0.5) },
        })
    }

    /// Whether it looks at documents of `language`.
    pub fn is_for(&self, language: &str) -> bool {
        self.languages.is_empty() || self.languages.iter().any(|known| known == language)
    }

    /// Column of the input that it needs besides those that every document has.
    pub fn url_column(&self) -> Option<&str> {
        let default = match self.kind {
            FilterKind::Urls | FilterKind::Robots | FilterKind::License => Some("url"),
            _ => None,
        };
        self.url.as_deref().or(default)
    }

    /// The agents that the filter `name` asks about.
    ///
    /// # Errors
    /// [`Error::Config`] for a list that cannot be used.
    pub fn agents(&self, name: &str) -> Result<Agents> {
        let agents = match &self.agents {
            Some(listed) => Agents::new(listed, self.matching),
            None => Agents::new(&DEFAULT_AGENTS, self.matching),
        };
        agents.map_err(|e| Error::config(format!("filters.{name}.agents"), e.to_string()))
    }

    /// Checks what the types cannot.
    pub fn check(&self, name: &str) -> Result<()> {
        let fail =
            |key: &str, reason: String| Err(Error::config(format!("filters.{name}{key}"), reason));
        if !is_language_code(name) {
            let reason = "a filter's name is made of ASCII letters, digits, `_` and `-`";
            return fail("", reason.to_owned());
        }
        let written =
            toml::Table::try_from(self).map_err(|e| Error::config(name, e.to_string()))?;
        let known = |key: &&String| {
            let keys = Self::COMMON_KEYS.iter().chain(self.kind.keys());
            keys.into_iter().any(|known| known == key)
        };
        if let Some(key) = written.keys().find(|key| !known(key)) {
            let kind = written["kind"].as_str().unwrap_or_default();
            return fail(&format!(".{key}"), format!("is not for filters of the kind `{kind}`"));
        }
        if self.action == FilterAction::Flag && self.when.is_some() {
            return fail(".when", "says nothing of a filter that only flags".to_owned());
        }
        let can_cut = matches!(self.kind, FilterKind::Decontamination | FilterKind::Repetition);
        if self.action == FilterAction::Cut && !can_cut {
            let reason = "is `cut`, which is for decontamination and repetition";
            return fail(".action", reason.to_owned());
        }
        for (key, share) in [(".max_share", self.max_share), (".max_rate", self.max_rate)] {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                return fail(key, "is no share; 0 to 1 are allowed".to_owned());
            }
        }
        match self.kind {
            FilterKind::Decontamination if self.index.is_none() => {
                fail(".index", "is missing; `polysift dataset benchmarks` makes one".to_owned())
            }
            FilterKind::Decontamination => self.rule(name).map(drop),
            FilterKind::Ids | FilterKind::Urls | FilterKind::Words if self.lists.is_empty() => {
                fail(".lists", "is empty; name at least one file".to_owned())
            }
            FilterKind::Ids
            | FilterKind::Urls
            | FilterKind::Words
            | FilterKind::License
            | FilterKind::Repetition => Ok(()),
            FilterKind::Robots if self.as_of.is_none() => {
                fail(".as_of", "is missing; say when the sources were fetched".to_owned())
            }
            FilterKind::Robots if !self.as_of.as_deref().is_some_and(is_date) => {
                fail(".as_of", "is no date, as in 2025-01 or 2025-01-31".to_owned())
            }
            FilterKind::Robots if self.sources.is_empty() => {
                fail(".sources", "is empty; name at least one source".to_owned())
            }
            FilterKind::Robots => {
                let is_one = |source: &ConsentSource| {
                    let [ids, domains, robots] = [&source.ids, &source.domains, &source.robots]
                        .map(Option::is_some)
                        .map(usize::from);
                    ids + domains + robots == 1 && (ids == 1 || source.blocked_if.is_none())
                };
                if !self.sources.iter().all(is_one) {
                    let reason = "has a source that is not one of `ids` (which may have \
                                  `blocked_if`), `domains` and `robots`";
                    return fail(".sources", reason.to_owned());
                }
                self.agents(name).map(drop)
            }
        }
    }
}

/// Whether a text is a year, a month or a day, as in 2025-01-31.
fn is_date(text: &str) -> bool {
    let of_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    [4, 2, 2].starts_with(&lengths) && text.split('-').all(of_digits)
}
