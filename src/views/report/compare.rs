//! Another set of documents to compare with: those that another run keeps, or that lists name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use rayon::prelude::*;
use serde_json::{Value, json};

use super::stored::StoredRun;
use polysift_base::error::Result;
use polysift_base::panics::{lock, unpoisoned};
use polysift_config::RunConfig;
use polysift_corpus::context::Context;
use polysift_corpus::filter::{StringSet, hash};
use polysift_data::input::{for_each_listed, list_files};
use polysift_runs::run::RunDir;

/// Another set of documents.
pub(super) struct Comparison {
    /// Name of the run or of the lists.
    with: String,
    ids: StringSet,
    /// Documents that the other run keeps, by language; `None` for lists, which have no languages.
    there: Option<BTreeMap<String, u64>>,
}

impl Comparison {
    /// Reads the run directory `path` with the settings `other`, or the lists that the pattern
    /// `path` names (text with one id per line, or tables with a column `id`).
    pub(super) fn read(
        context: Context<'_>,
        path: &str,
        other: Option<&RunConfig>,
    ) -> Result<Self> {
        let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
        let with = name.unwrap_or_else(|| path.to_owned());
        let (ids, there) = match other {
            Some(config) => {
                let run = RunDir::open(Path::new(path))?;
                let (ids, there) = kept_ids(Context { config, run: &run, ..context })?;
                (ids, Some(there))
            }
            None => (listed_ids(context, path)?, None),
        };
        Ok(Self { with, ids: StringSet::new(ids), there })
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Reports by language the documents kept here, in the other set, and in both.
    pub(super) fn report(&self, compared: &BTreeMap<String, [u64; 3]>) -> Value {
        let languages: Vec<Value> = (compared.iter())
            .map(|(language, &[here, known, both])| {
                let there = match &self.there {
                    Some(there) => there.get(language).copied().unwrap_or_default(),
                    None => known,
                };
                json!({"language": language, "here": here, "there": there, "both": both})
            })
            .collect();
        json!({"with": self.with, "languages": languages})
    }
}

/// Reads the [`hash`]es of the ids in the lists that `pattern` names.
fn listed_ids(context: Context<'_>, pattern: &str) -> Result<Vec<u128>> {
    let mut ids = Vec::new();
    for list in list_files(&[pattern.to_owned()])? {
        for_each_listed(&list.path, "id", None, context.stop, &mut |id| {
            ids.push(hash(id));
            Ok(())
        })?;
    }
    Ok(ids)
}

/// Returns [`hash`]es of the ids that any selection of the run keeps, and counts by language.
fn kept_ids(context: Context<'_>) -> Result<(Vec<u128>, BTreeMap<String, u64>)> {
    let run = StoredRun::open(context)?;
    let rows = run.embedded.summaries.iter().map(|summary| summary.rows).sum();
    context.progress.extend(rows);
    let found = Mutex::new((Vec::new(), BTreeMap::new()));
    (0..run.embedded.plan.shards.len()).into_par_iter().try_for_each(|place| -> Result<()> {
        let (mut ids, mut there) = (Vec::new(), BTreeMap::<String, u64>::new());
        run.for_each(place, |document| {
            let language = document.info.language;
            let Some(thresholds) = run.languages.get(language) else { return Ok(()) };
            if document.info.num_bytes > 0 && thresholds.kept(&document.scored, |_, _| {}) > 0 {
                ids.push(hash(document.info.id));
                *there.entry(language.to_owned()).or_default() += 1;
            }
            Ok(())
        })?;
        let mut found = lock(&found);
        found.0.append(&mut ids);
        for (language, count) in there {
            *found.1.entry(language).or_default() += count;
        }
        Ok(())
    })?;
    Ok(unpoisoned(found.into_inner()))
}
