//! Another set of documents to compare with: those that another run keeps, or that lists name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rayon::prelude::*;
use serde_json::{Value, json};

use super::stored::StoredRun;
use polysift_base::error::Result;
use polysift_base::panics::{lock, unpoisoned};
use polysift_config::RunConfig;
use polysift_corpus::Context;
use polysift_corpus::filter::hash;
use polysift_corpus::rows::Fate;
use polysift_data::input::{for_each_listed, list_files};
use polysift_runs::run::RunDir;

/// Maximum number of unknown ids that the note names.
const NAMED: usize = 10;

fn document_hash(id: &str, language: &str) -> u128 {
    hash(&format!("{language} {id}"))
}

/// The ids of the other set.
pub(super) struct Comparison<'a> {
    context: Context<'a>,
    /// Path of the run directory, or pattern of the lists.
    path: &'a str,
    run: Option<&'a RunConfig>,
    /// [`hash`]es of the ids, ascending.
    ids: Vec<u128>,
    /// Whether this run has a document with the id, kept or not.
    known: Vec<AtomicBool>,
    /// [`document_hash`]es of the documents that the other run keeps, ascending.
    documents: Vec<u128>,
    /// By hash, the number of documents that none kept here is paired with yet.
    unpaired: Vec<AtomicU32>,
    /// Documents that the other run keeps, by language; empty for lists, which have no languages.
    there: BTreeMap<String, u64>,
}

impl<'a> Comparison<'a> {
    /// Reads the ids of the run directory `path` with the settings `run`, or of the lists that the
    /// pattern `path` names (text with one id per line, or tables with a column `id`).
    pub(super) fn read(
        context: Context<'a>,
        path: &'a str,
        run: Option<&'a RunConfig>,
    ) -> Result<Self> {
        let (ids, known, documents, unpaired, there) = Default::default();
        let mut new = Self { context, path, run, ids, known, documents, unpaired, there };
        let found = Mutex::new((Vec::new(), Vec::new(), BTreeMap::new()));
        new.for_each_id(|id, language| {
            let document = run.map(|_| document_hash(id, language));
            let mut found = lock(&found);
            found.0.push(hash(id));
            found.1.extend(document);
            if run.is_some() {
                *found.2.entry(language.to_owned()).or_default() += 1;
            }
        })?;
        (new.ids, new.documents, new.there) = unpoisoned(found.into_inner());
        new.ids.par_sort_unstable();
        new.ids.dedup();
        new.documents.par_sort_unstable();
        let equal = new.documents.chunk_by(|a, b| a == b);
        new.unpaired = equal.map(|equal| AtomicU32::new(equal.len() as u32)).collect();
        new.documents.dedup();
        new.known.resize_with(new.ids.len(), AtomicBool::default);
        Ok(new)
    }

    /// Returns whether the set has the id of a document of this run, and notes that it is known.
    pub(super) fn note_id(&self, id: &str) -> bool {
        let place = self.ids.binary_search(&hash(id));
        place.inspect(|at| self.known[*at].store(true, Ordering::Relaxed)).is_ok()
    }

    /// Returns whether a list has the id of a document kept here, or the other run keeps a document
    /// to pair it with, so that of documents with one id both have as many as the run with fewer.
    pub(super) fn take_pair(&self, id: &str, language: &str) -> bool {
        if self.run.is_none() {
            return self.note_id(id);
        }
        let place = self.documents.binary_search(&document_hash(id, language));
        let one_less = |left: u32| left.checked_sub(1);
        let take =
            |left: &AtomicU32| left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        place.is_ok_and(|at| take(&self.unpaired[at]).is_ok())
    }

    /// Reports by language the documents kept here, in the other set, and in both, and the ids that
    /// no document of this run has; a sentence about these is added to `notes`.
    pub(super) fn report(
        &self,
        mut compared: BTreeMap<String, [u64; 3]>,
        notes: &mut Vec<String>,
    ) -> Result<Value> {
        for language in self.there.keys() {
            compared.entry(language.clone()).or_default();
        }
        let languages: Vec<Value> = (compared.iter())
            .map(|(language, &[here, known, both])| {
                let there = self.there.get(language).copied().unwrap_or_default();
                let there = if self.run.is_some() { there } else { known };
                json!({"language": language, "here": here, "there": there, "both": both})
            })
            .collect();
        let is_unknown = |known: &AtomicBool| !known.load(Ordering::Relaxed);
        let unknown = self.known.iter().filter(|known| is_unknown(known)).count();
        let named = Mutex::new(BTreeSet::new());
        if unknown > 0 {
            self.for_each_id(|id, _| {
                if self.ids.binary_search(&hash(id)).is_ok_and(|at| is_unknown(&self.known[at])) {
                    let mut named = lock(&named);
                    named.insert(id.to_owned());
                    if named.len() > NAMED {
                        named.pop_last();
                    }
                }
            })?;
        }
        let named: Vec<String> = unpoisoned(named.into_inner()).into_iter().collect();
        let name = Path::new(self.path).file_name().map(|name| name.to_string_lossy());
        let with = name.as_deref().unwrap_or(self.path);
        if unknown > 0 {
            let (all, ids) = (self.ids.len(), named.join(", "));
            let more = if unknown > named.len() { ", …" } else { "" };
            notes.push(format!(
                "{unknown} of the {all} ids of {with} belong to no document of this run: {ids}{more}"
            ));
        }
        let unknown = json!({"documents": unknown, "ids": named});
        Ok(json!({"with": with, "languages": languages, "unknown": unknown}))
    }

    /// Calls `visit` for every id, with its language (empty for lists).
    fn for_each_id(&self, visit: impl Fn(&str, &str) + Sync) -> Result<()> {
        let Self { context, path, run, .. } = *self;
        let Some(config) = run else {
            return list_files(&[path.to_owned()], &[])?.iter().try_for_each(|list| {
                for_each_listed(&list.path, "id", None, context.stop, &mut |id| {
                    visit(id, "");
                    Ok(())
                })
            });
        };
        let directory = RunDir::open(Path::new(path))?;
        let run = StoredRun::open(Context { config, run: &directory, ..context })?;
        context.progress.extend(run.embedded.summaries.iter().map(|summary| summary.rows).sum());
        (0..run.embedded.plan.shards.len() as u64).into_par_iter().try_for_each(|place| {
            run.for_each_document(place, |shard, document| {
                let language = document.info.language;
                let thresholds = run.languages.get(language);
                let fate = thresholds.map(|found| shard.fate(document, &found.selection));
                if let Some(Fate::Kept(_)) = fate {
                    visit(document.info.id, language);
                }
                Ok(())
            })
        })
    }
}
