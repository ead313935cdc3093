//! Mixtures: sources with token budgets become one shuffled corpus.
//!
//! ```text
//!  files ──count──▶ tokens by document ──draw──▶ copies ──shuffle──▶ part-00000.parquet, mix.json
//! ```
//!
//! Any number of processes can work in the output folder, and finished work is kept:
//!
//! ```text
//! OUT/part-00000.parquet, ...   the mixture; each appears whole, and equal after any interruption
//! OUT/mix.json                  what the mixture consists of, written last
//! OUT/_state/counts/            tokens of documents by content of files, also for later mixtures
//! OUT/_state/plan.json          settings and inputs of the mixture
//! OUT/_state/shuffle/, parts/   the shuffle in progress, and its finished files
//! OUT/_state/state/             the processes, and which of them does what
//! ```
//!
//! Names that begin with `_` are not searched for inputs, so that `OUT` can itself be an input.

mod columns;
mod config;
mod copies;
mod count;
mod draw;
mod shuffle;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use rayon::current_num_threads;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use config::{Copies, Epochs, MixColumns, MixConfig, MixSource, TokenCount, ValueCopies};
pub use draw::{LanguageCounts, MixRequest};
pub use shuffle::MixedFile;

use columns::MixSchema;
use copies::CopyRule;
use count::{CountedFile, TokenCounter, columns_file};
use draw::{Draw, DrawnFile, MixCorpus};
use polysift_base::error::{Error, Result};
use polysift_base::io::{
    confine, create_folder, list, read_json, remove, remove_while, write_json, write_new,
};
use polysift_base::language::UNDETERMINED_LANGUAGE;
use polysift_base::progress::STOP_POLL;
use polysift_data::input::{InputFile, MIXTURE, discover};
use polysift_runs::run::{RunDir, Worker, difference};
use shuffle::{JSON, Shuffle};

/// Maximum files of an output. Each has a section in every file of the shuffle.
const MAX_FILES: u64 = 100_000;

/// Contents of a mixture, stored as `mix.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MixReport {
    /// Method of counting tokens.
    pub count: String,
    /// Seed of the draw and the shuffle.
    pub seed: u64,
    /// Number of rows.
    pub rows: u64,
    /// Number of tokens in the rows.
    pub tokens: u64,
    /// Reports by source, in the order of the settings.
    pub sources: Vec<SourceReport>,
    /// Columns of the rows.
    pub columns: Vec<String>,
    /// Columns that are not written because only some inputs have them or their types differ.
    pub left_out: Vec<String>,
    /// Files of the mixture; empty in a dry run.
    pub files: Vec<MixedFile>,
}

/// Documents drawn from a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceReport {
    /// Name of the source.
    pub name: String,
    /// Requested number of tokens.
    pub budget: u64,
    /// Number of drawn tokens.
    pub tokens: u64,
    /// Drawn tokens divided by the tokens of an epoch.
    pub epochs: f64,
    /// Counts by language.
    pub languages: BTreeMap<String, LanguageCounts>,
    /// Files of the source by name.
    pub inputs: BTreeMap<String, MixInput>,
}

/// A file that was drawn from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MixInput {
    /// BLAKE3 digest of the file's size and both of its ends, or of an object's version.
    pub fingerprint: String,
    /// Number of rows of the file.
    pub rows: u64,
    /// Number of rows of the mixture that come from the file.
    pub drawn: u64,
}

/// Makes a mixture, or continues one; processes with the same settings share the work.
///
/// # Errors
/// [`Error::Config`] for settings that do not suit the inputs, such as too many epochs of a source;
/// [`Error::Missing`] for missing files; [`Error::Mismatch`] if the folder has a mixture of other
/// settings or inputs; [`Error::Busy`] if it is to be removed while another process works there;
/// [`Error::Row`], [`Error::Schema`], [`Error::Decode`] and [`Error::Corrupt`] for bad inputs.
pub fn mix(request: &MixRequest<'_>) -> Result<MixReport> {
    let &MixRequest { config, base, out, .. } = request;
    let rules = config.sources.iter().map(|source| CopyRule::load(source, base));
    let rules: Vec<CopyRule> = rules.collect::<Result<_>>()?;
    let counter = TokenCounter::load(config, base, request.hub)?;
    let found = find_files(request)?;
    create_folder(out)?;
    confine(out);
    let state = out.join("_state");
    let worker = Worker::join(&RunDir::create(&state)?, request.stop)?;
    worker.clean_up(request.stop, Some(out))?;
    let files = count_files(request, &worker, &counter, &rules, found)?;
    let corpus = MixCorpus { request, rules: &rules, files: &files };
    let draw = corpus.draw()?;
    let schema = MixSchema::new(&files, config.columns, &config.text)?;
    let rows: u128 = draw.rows.iter().copied().map(u128::from).sum();
    // A file has about `output_bytes`, and at least one row.
    let wanted = draw.bytes.div_ceil(config.output_bytes.0.into()).min(rows).max(1);
    let num_files = u64::try_from(wanted).ok().filter(|files| *files <= MAX_FILES);
    let num_files = num_files.ok_or_else(|| {
        let reason =
            format!("would make {wanted} files; {MAX_FILES} are allowed, so let them be larger");
        Error::config("output_bytes", reason)
    })?;
    let report = new_report(&corpus, counter.describe(), &draw, &schema);
    if request.dry_run {
        return Ok(report);
    }
    let plan = make_plan(&corpus, &counter, num_files)?;
    accept_plan(request, &worker, &plan)?;
    let path = out.join(MIXTURE);
    let done: Option<MixReport> = read_json(&path, JSON)?;
    let done = done.filter(|done| done.files.iter().all(|file| file.is_in(out)));
    let report = if let Some(done) = done {
        done
    } else {
        let (corpus, draw, worker, schema) = (&corpus, &draw, &worker, &schema);
        let shuffle = Shuffle { request, corpus, draw, worker, schema, num_files };
        let report = MixReport { files: shuffle.write()?, ..report };
        write_json(&path, &report)?;
        report
    };
    remove(&state.join("shuffle"))?;
    Ok(report)
}

/// Finds the files of each source, with the source's index and their fingerprints. Sources go by
/// name: the order of the settings changes neither numbers of inputs nor columns.
fn find_files(request: &MixRequest<'_>) -> Result<Vec<(usize, InputFile, String)>> {
    let mut all = Vec::new();
    // What the mixture wrote to OUT is no input, even if OUT is below an input's folder.
    let own = find_outputs(request.out)?.into_iter().filter_map(|path| path.canonicalize().ok());
    let own: BTreeSet<PathBuf> = own.collect();
    let is_input =
        |file: &InputFile| file.path.canonicalize().map_or(true, |path| !own.contains(&path));
    let mut sources: Vec<_> = request.config.sources.iter().enumerate().collect();
    sources.sort_by_key(|(_, source)| &source.name);
    for (place, source) in sources {
        let found = discover(&source.files, request.base)?.into_par_iter();
        let found = found.filter(is_input).map(|file| {
            let fingerprint = file.fingerprint()?;
            Ok((place, file, fingerprint))
        });
        all.extend(found.collect::<Result<Vec<_>>>()?);
    }
    Ok(all)
}

/// Counts the files that have no counts yet, sharing them with other processes; opens all counts.
fn count_files(
    request: &MixRequest<'_>,
    worker: &Worker,
    counter: &TokenCounter,
    rules: &[CopyRule],
    found: Vec<(usize, InputFile, String)>,
) -> Result<Vec<DrawnFile>> {
    let folder = &worker.run().path("counts");
    let key_of = |(source, file, fingerprint): &(usize, InputFile, String)| {
        counter.key(file, fingerprint, rules[*source].column())
    };
    let all_keys: Vec<String> = found.iter().map(key_of).collect();
    // Sources may share files, which are counted once.
    let mut known = BTreeSet::new();
    let distinct = found.iter().zip(&all_keys).filter(|(_, key)| known.insert(*key));
    let (distinct, keys): (Vec<_>, Vec<String>) =
        distinct.map(|(found, key)| (found, key.clone())).unzip();
    request.progress.begin("count", None, "documents");
    let is_done = |place: usize| Ok(columns_file(folder, &keys[place]).exists());
    let counted = worker.share(request.stop, &keys, current_num_threads(), is_done, |place| {
        let (source, file, _) = distinct[place];
        let (value, watched) = (rules[*source].column(), (request.stop, request.progress));
        counter.count(file, value, (folder, &keys[place]), watched)
    });
    request.progress.end();
    counted?;
    let files = found.into_par_iter().zip(&all_keys).map(|((source, file, fingerprint), key)| {
        let language = file.language.clone();
        let language = language.unwrap_or_else(|| UNDETERMINED_LANGUAGE.to_owned());
        let counted = CountedFile::open(folder, key)?;
        Ok(DrawnFile { file, source, language, fingerprint, counted })
    });
    files.collect()
}

/// Returns everything that determines the bytes of a mixture.
fn make_plan(corpus: &MixCorpus<'_>, counter: &TokenCounter, num_files: u64) -> Result<Value> {
    let invalid = |e: serde_json::Error| Error::config("mix", e.to_string());
    let mut settings = serde_json::to_value(corpus.request.config).map_err(invalid)?;
    if let Some(settings) = settings.as_object_mut() {
        settings.retain(|_, value| !value.is_null());
        // The plan has the content of these files instead of their paths.
        for key in ["tokenizer", "count", "max_epochs", "source"] {
            settings.remove(key);
        }
    }
    let mut sources = BTreeMap::new();
    let all = corpus.request.config.sources.iter().zip(corpus.rules);
    for (place, (source, rule)) in all.enumerate() {
        let mut own = serde_json::to_value(source).map_err(invalid)?;
        if let Some(own) = own.as_object_mut() {
            own.retain(|_, value| !value.is_null());
        }
        let own_files = corpus.files.iter().filter(|file| file.source == place);
        own["files"] =
            own_files.map(|file| (file.file.name.clone(), json!(file.fingerprint))).collect();
        own["copies"] = if matches!(rule, CopyRule::One) { json!(1) } else { json!(rule) };
        sources.insert(source.name.clone(), own);
    }
    let count = counter.describe();
    Ok(
        json!({"version": 2, "settings": settings, "count": count, "sources": sources, "files": num_files}),
    )
}

/// Writes `plan`, or checks that the folder was started with it. With `redo` it first removes what
/// was mixed there, if no other process works in the folder.
fn accept_plan(request: &MixRequest<'_>, worker: &Worker, plan: &Value) -> Result<()> {
    let path = worker.run().path("plan.json");
    let text = format!("{plan:#}\n");
    let mut redo = request.redo;
    loop {
        // A process that writes outputs has written its plan before.
        let written = find_outputs(request.out)?;
        let before: Option<Value> = read_json(&path, JSON)?;
        match &before {
            None if !written.is_empty() => {
                let file = written[0].display();
                let reason = format!("{file} is not part of a mixture; name another folder");
                return Err(Error::config("--out", reason));
            }
            None => {
                if write_new(&path, text.as_bytes())? {
                    return Ok(());
                }
                // Another process was first: its plan counts, once this machine sees it.
                request.stop.check()?;
                std::thread::sleep(STOP_POLL);
            }
            Some(_) if redo => {
                // Markers of finished work are removed before it, and the plan last. Another
                // process may write until this one has the folder for itself.
                let run = worker.run();
                let done = [request.out.join(MIXTURE), run.path("parts"), run.path("shuffle")];
                worker.exclusive(request.stop, |held| {
                    let written = find_outputs(request.out)?;
                    let mut all = done.iter().chain(&written).chain([&path]);
                    all.try_for_each(|path| remove_while(path, held))
                })?;
                redo = false;
            }
            Some(before) if before == plan => return Ok(()),
            Some(before) => {
                let (path, difference) = (request.out.to_owned(), difference("mix", before, plan));
                let hint =
                    "`--redo` removes what was mixed there, and mixes again; counts are kept";
                return Err(Error::Mismatch { path, difference, hint: hint.to_owned() });
            }
        }
    }
}

/// Returns the paths in `out` with names of outputs, of any mixture, sorted.
fn find_outputs(out: &Path) -> Result<Vec<PathBuf>> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let part = |name: &str| name.strip_prefix("part-")?.strip_suffix(".parquet").map(is_number);
    let is_output = |entry: &&DirEntry| {
        let name = entry.file_name();
        name == MIXTURE || part(&name.to_string_lossy()) == Some(true)
    };
    let mut found: Vec<PathBuf> = list(out)?.iter().filter(is_output).map(DirEntry::path).collect();
    found.sort();
    Ok(found)
}

/// Returns the report without the files.
fn new_report(corpus: &MixCorpus<'_>, count: String, draw: &Draw, schema: &MixSchema) -> MixReport {
    let mut sources = Vec::new();
    for (place, source) in corpus.request.config.sources.iter().enumerate() {
        let languages = draw.counts.iter().filter(|((source, _), _)| *source == place);
        let languages: BTreeMap<String, LanguageCounts> =
            languages.map(|((_, code), counts)| (code.clone(), counts.clone())).collect();
        let files = corpus.files.iter().zip(&draw.rows).filter(|(file, _)| file.source == place);
        let inputs = files.map(|(file, &drawn)| {
            let (fingerprint, rows) = (file.fingerprint.clone(), file.counted.num_rows);
            (file.file.name.clone(), MixInput { fingerprint, rows, drawn })
        });
        let tokens = languages.values().map(|counts| counts.tokens).sum();
        let of_epoch: u64 = languages.values().map(|counts| counts.epoch_tokens).sum();
        sources.push(SourceReport {
            name: source.name.clone(),
            budget: draw.budgets[place],
            tokens,
            epochs: tokens as f64 / of_epoch.max(1) as f64,
            inputs: inputs.collect(),
            languages,
        });
    }
    MixReport {
        count,
        seed: corpus.request.config.seed,
        rows: draw.rows.iter().sum(),
        tokens: sources.iter().map(|source| source.tokens).sum(),
        sources,
        columns: schema.fields().map(|field| field.name().clone()).collect(),
        left_out: schema.left_out.clone(),
        files: Vec::new(),
    }
}
