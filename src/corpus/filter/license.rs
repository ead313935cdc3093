//! Filter for documents by evidence of a licence.

use std::path::{Path, PathBuf};

use super::document::{Filter, FilteredDocument, Finding, Verdict};
use polysift_base::error::{Error, Result};
use polysift_base::io::{if_there, read};
use polysift_config::{FilterAction, LicenseConfig};
use polysift_text::rules::{
    LicenseRule, Licensed, Refusal, parse_allow_list, published_allow_list,
};

/// Finds documents without evidence of a licence; with `flag`, those with evidence, which it names.
#[derive(Debug)]
pub(super) struct LicenseFilter {
    allow: Option<PathBuf>,
    rule: LicenseRule,
    flags: bool,
}

impl LicenseFilter {
    pub(super) fn open(name: &str, config: &LicenseConfig, action: FilterAction) -> Result<Self> {
        let allow = config.allow.as_ref().map(PathBuf::from);
        let entries = match &allow {
            None => published_allow_list().map_err(|e| Error::config("permissive.toml", e))?,
            Some(path) => {
                let missing = || Error::missing(path, "no such list");
                let bytes = if_there(read(path))?.ok_or_else(missing)?;
                let text = String::from_utf8(bytes)
                    .map_err(|_| Error::corrupt(path, "the list is not UTF-8"))?;
                parse_allow_list(&text).map_err(|e| Error::config(path.display().to_string(), e))?
            }
        };
        let rule = LicenseRule::new(entries, &config.options())
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
            Err(refusal) if !self.flags => {
                let details = match &refusal {
                    Refusal::Restrictive(term) => vec![term.clone()],
                    Refusal::NoEvidence | Refusal::UnreadableUrl => Vec::new(),
                };
                Verdict::of(Finding { details, ..Finding::of(refusal.reason()) })
            }
            Ok(_) | Err(_) => Verdict::default(),
        }
    }
}
