//! Replaces PII in exported texts, counts it by language and kind, and notes it in an audit.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StringViewArray};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use polysift_base::error::Result;
use polysift_base::io::is_url;
use polysift_config::{PiiAudit, PiiConfig};
use polysift_data::parts::PiiRow;
use polysift_runs::run::Shard;
use polysift_text::pii::{PiiKind, PiiSpan, Redacted};

/// Amount of PII of one kind in the documents of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct PiiAmount {
    documents: u64,
    occurrences: u64,
    /// Number of occurrences that are placeholders of FineWeb.
    placeholders: u64,
}

/// Amounts by language and kind.
pub(super) type PiiCounts = BTreeMap<String, BTreeMap<PiiKind, PiiAmount>>;

pub(super) fn add(counts: &mut PiiCounts, other: PiiCounts) {
    for (language, kinds) in other {
        let of_language = counts.entry(language).or_default();
        for (kind, PiiAmount { documents, occurrences, placeholders }) in kinds {
            let amount = of_language.entry(kind).or_default();
            amount.documents += documents;
            amount.occurrences += occurrences;
            amount.placeholders += placeholders;
        }
    }
}

/// Replaces PII in the texts of a shard, and collects its counts and the rows of the audit.
pub(super) struct ShardRedactor {
    config: PiiConfig,
    pub(super) counts: PiiCounts,
    pub(super) found: Vec<PiiRow>,
}

/// A row with a text to write.
pub(super) struct RedactedRow {
    pub row: u64,
    pub id: String,
    pub language: String,
    /// Length of the text that was read; 0 without text.
    pub(super) num_bytes: u64,
    /// Whether the row is exported, or only kept with the removed documents.
    pub(super) is_kept: bool,
}

impl ShardRedactor {
    /// Creates the redactor of `config`; `None` if the texts of `shard` stay as they are.
    pub(super) fn new(config: &PiiConfig, shard: &Shard) -> Result<Option<Self>> {
        let exceptions = config.exceptions()?;
        let options =
            glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
        let is_match = |pattern: &glob::Pattern| {
            // Folders above the folder of the settings do not describe the corpus.
            let is_of_file =
                pattern.as_str().starts_with('/') || is_url(&shard.file.to_string_lossy());
            pattern.matches_with(&shard.name, options)
                || is_of_file && pattern.matches_path_with(&shard.file, options)
        };
        if exceptions.iter().any(is_match) {
            return Ok(None);
        }
        let counts = PiiCounts::new();
        Ok(Some(Self { config: config.clone(), counts, found: Vec::new() }))
    }

    /// Returns `texts` with PII replaced (`None` if there is none), and its count in each text.
    pub(super) fn redact(
        &mut self,
        texts: &StringViewArray,
        rows: &[RedactedRow],
    ) -> (Option<ArrayRef>, Vec<i32>) {
        let redacted: Vec<Option<Redacted>> = (0..texts.len())
            .into_par_iter()
            .map(|at| if texts.is_valid(at) { self.config.redact(texts.value(at)) } else { None })
            .collect();
        for (at, (row, redacted)) in rows.iter().zip(&redacted).enumerate() {
            if let Some(redacted) = redacted {
                self.note(row, texts.value(at), &redacted.spans);
            }
        }
        let counts =
            redacted.iter().map(|r| r.as_ref().map_or(0, |r| r.spans.len().cast_signed() as i32));
        let counts = counts.collect();
        let is_changed = redacted.iter().any(Option::is_some);
        let new = |(at, redacted): (usize, &Option<Redacted>)| match redacted {
            Some(redacted) => Some(redacted.text.clone()),
            None => texts.is_valid(at).then(|| texts.value(at).to_owned()),
        };
        let replaced = || redacted.iter().enumerate().map(new).collect::<StringViewArray>();
        (is_changed.then(|| Arc::new(replaced()) as ArrayRef), counts)
    }

    /// Counts the PII of a text and notes it for the audit.
    fn note(&mut self, row: &RedactedRow, text: &str, spans: &[PiiSpan]) {
        if row.is_kept && !spans.is_empty() {
            let mut kinds: BTreeMap<PiiKind, PiiAmount> = BTreeMap::new();
            for span in spans {
                let amount = kinds.entry(span.kind).or_default();
                amount.documents = 1;
                amount.occurrences += 1;
                amount.placeholders += u64::from(span.is_placeholder);
            }
            add(&mut self.counts, [(row.language.clone(), kinds)].into());
        }
        if self.config.audit == PiiAudit::None {
            return;
        }
        let has_values = self.config.audit == PiiAudit::Values;
        self.found.extend(spans.iter().map(|span| PiiRow {
            row: row.row,
            start: span.range.start as u64,
            end: span.range.end as u64,
            id: row.id.clone(),
            kind: span.kind.name(),
            is_placeholder: span.is_placeholder,
            value: has_values.then(|| text[span.range.clone()].to_owned()),
        }));
    }
}
