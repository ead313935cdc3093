//! Mixtures: sources with token budgets become one shuffled corpus.
//!
//! ```text
//!  files ──count──▶ tokens by document ──draw──▶ copies of each document ──shuffle──▶ part-00000.parquet, mix.json
//! ```
//!
//! Owns the three phases and the folder of the output. Any number of processes work in it; what is done is kept:
//!
//! ```text
//! OUT/part-00000.parquet, ...   the mixture; each appears whole, and the same whatever happened before
//! OUT/mix.json                  what it is made of, written last
//! OUT/_state/counts/            tokens of the documents, by content of the files: for later mixtures too
//! OUT/_state/plan.json          the settings and inputs that the mixture is made of
//! OUT/_state/shuffle/, parts/   the shuffle on its way, and what of it is done
//! OUT/_state/state/             the processes, and which of them does what
//! ```
//!
//! Names that begin with `_` are not searched for inputs, so that `OUT` is one.

mod columns;
mod copies;
mod count;
mod draw;
mod shuffle;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rayon::current_num_threads;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use draw::LanguageCounts;
pub use shuffle::MixedFile;

use columns::MixSchema;
use copies::CopyRule;
use count::{CountedFile, TokenCounter};
use draw::{Draw, DrawnFile, MixCorpus};
use polysift_base::error::{Error, Result};
use polysift_base::hub::HubSettings;
use polysift_base::io::{confine, create_folder, list, read_json, remove, write_json, write_new};
use polysift_base::progress::{Progress, Stop};
use polysift_config::MixConfig;
use polysift_data::input::{InputFile, UNDETERMINED_LANGUAGE, discover};
use polysift_runs::run::{RunDir, Worker, difference};
use shuffle::{JSON, Shuffle};

/// Most files of an output, each of which has a section in every file of the shuffle.
const MAX_FILES: u64 = 100_000;
/// What says of what a mixture is made, in its folder.
const REPORT: &str = "mix.json";
/// Time after which a file that another process makes is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What is to be mixed.
pub struct MixRequest<'a> {
    /// The settings.
    pub config: &'a MixConfig,
    /// Folder that the paths of the settings start at.
    pub base: &'a Path,
    /// Folder of the output.
    pub out: &'a Path,
    /// Where tokenizers are.
    pub hub: &'a HubSettings,
    /// Asks for a stop.
    pub stop: &'a Stop,
    /// Receives how far it is.
    pub progress: &'a dyn Progress,
    /// Whether a mixture of other settings in the folder is removed first.
    pub redo: bool,
    /// Whether only to count and to draw.
    pub dry_run: bool,
}

/// What a mixture is made of: `mix.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MixReport {
    /// What counts as tokens.
    pub count: String,
    /// Seed of the draw and the shuffle.
    pub seed: u64,
    /// Rows.
    pub rows: u64,
    /// Their tokens.
    pub tokens: u64,
    /// By source, in the order of the settings.
    pub sources: Vec<SourceReport>,
    /// Columns of the rows.
    pub columns: Vec<String>,
    /// Columns that only some inputs have, or that have several types, and that are not written.
    pub left_out: Vec<String>,
    /// The files of the mixture, without those of a dry run.
    pub files: Vec<MixedFile>,
}

/// What was drawn of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// Tokens that were asked for.
    pub budget: u64,
    /// Tokens that were drawn.
    pub tokens: u64,
    /// `tokens` divided by those of an epoch.
    pub epochs: f64,
    /// By language.
    pub languages: BTreeMap<String, LanguageCounts>,
    /// Its files by name.
    pub inputs: BTreeMap<String, MixInput>,
}

/// A file that was drawn from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MixInput {
    /// BLAKE3 digest of its size and both of its ends, or of the version of an object.
    pub fingerprint: String,
    /// Its rows.
    pub rows: u64,
    /// Rows of the mixture that come from it.
    pub drawn: u64,
}

/// Mixes, or goes on where it was stopped; several processes with the same settings share the work.
///
/// # Errors
/// [`Error::Config`] for settings that do not suit the inputs, as a source that would be taken too often;
/// [`Error::Missing`] for files that are not there; [`Error::Mismatch`] if the folder has a mixture of other settings
/// or inputs; [`Error::Busy`] if that is to be removed while another process works there; [`Error::Row`], [`Error::Schema`], [`Error::Decode`] and
/// [`Error::Corrupt`] for bad inputs.
pub fn mix(request: &MixRequest<'_>) -> Result<MixReport> {
    let &MixRequest { config, base, out, .. } = request;
    let rules = config.sources.iter().map(|source| CopyRule::load(source, base));
    let rules: Vec<CopyRule> = rules.collect::<Result<_>>()?;
    let counter = TokenCounter::load(config, base, request.hub)?;
    let found = find_files(config, base)?;
    create_folder(out)?;
    confine(out);
    let state = out.join("_state");
    let worker = Worker::join(&RunDir::create(&state)?, request.stop)?;
    worker.clean_up(request.stop, out)?;
    let files = count(request, &worker, &counter, &rules, found)?;
    let corpus = MixCorpus { config, rules: &rules, files: &files, stop: request.stop };
    let draw = corpus.draw()?;
    let schema = MixSchema::new(&files, config.columns, &config.text)?;
    let num_files = num_files(config, &files, &draw)?;
    let report = |written| report(&corpus, &counter, &draw, &schema, written);
    if request.dry_run {
        return Ok(report(Vec::new()));
    }
    let plan = plan(&corpus, &counter, num_files)?;
    accept(request, &worker, &plan)?;
    let path = out.join(REPORT);
    let done: Option<MixReport> = read_json(&path, JSON)?;
    let done = done.filter(|report| report.files.iter().all(|file| file.is_in(out)));
    let report = if let Some(report) = done {
        report
    } else {
        let shuffle = Shuffle {
            corpus: &corpus,
            draw: &draw,
            worker: &worker,
            schema: &schema,
            progress: request.progress,
            out,
            state: &state,
            num_files,
        };
        let report = report(shuffle.write()?);
        write_json(&path, &report)?;
        report
    };
    remove(&state.join("shuffle"))?;
    Ok(report)
}

/// The files of each source: place of the source, file, fingerprint.
fn find_files(config: &MixConfig, base: &Path) -> Result<Vec<(usize, InputFile, String)>> {
    let mut all = Vec::new();
    for (place, source) in config.sources.iter().enumerate() {
        let found = discover(&source.files, base)?;
        let found = found.into_par_iter().map(|file| {
            let fingerprint = file.fingerprint()?;
            Ok((place, file, fingerprint))
        });
        all.extend(found.collect::<Result<Vec<_>>>()?);
    }
    Ok(all)
}

/// Counts what was not counted before.
fn count(
    request: &MixRequest<'_>,
    worker: &Worker,
    counter: &TokenCounter,
    rules: &[CopyRule],
    found: Vec<(usize, InputFile, String)>,
) -> Result<Vec<DrawnFile>> {
    let folder = &worker.run().path("counts");
    let keyed = found.into_iter().map(|(source, file, fingerprint)| {
        let value = rules[source].column();
        (counter.key(&file, &fingerprint, value), source, file, fingerprint)
    });
    let keyed: Vec<(String, usize, InputFile, String)> = keyed.collect();
    // Sources may have files in common, which are counted once.
    let mut known = BTreeSet::new();
    let distinct: Vec<_> = keyed.iter().filter(|(key, ..)| known.insert(key.as_str())).collect();
    let keys: Vec<String> = distinct.iter().map(|(key, ..)| key.clone()).collect();
    request.progress.begin("count", None, "documents");
    let is_done = |place: usize| Ok(CountedFile::is_in(folder, &keys[place]));
    let counted = worker.share(request.stop, &keys, current_num_threads(), is_done, |place| {
        let (key, source, file, _) = distinct[place];
        let (value, watched) = (rules[*source].column(), (request.stop, request.progress));
        counter.count(file, value, (folder, key), watched)
    });
    request.progress.end();
    counted?;
    let counted = keys.par_iter().map(|key| Ok((key.as_str(), CountedFile::open(folder, key)?)));
    let counted: BTreeMap<&str, CountedFile> = counted.collect::<Result<_>>()?;
    let files = keyed.iter().map(|(key, source, file, fingerprint)| DrawnFile {
        file: file.clone(),
        source: *source,
        language: file.language.clone().unwrap_or_else(|| UNDETERMINED_LANGUAGE.to_owned()),
        fingerprint: fingerprint.clone(),
        counted: counted[key.as_str()].clone(),
    });
    Ok(files.collect())
}

/// Files of the output, so that each has about [`MixConfig::output_bytes`].
fn num_files(config: &MixConfig, files: &[DrawnFile], draw: &Draw) -> Result<u64> {
    let bytes = files.iter().zip(&draw.rows).map(|(file, &rows)| {
        let CountedFile { data_bytes, num_rows, .. } = &file.counted;
        u128::from(*data_bytes) * u128::from(rows) / u128::from((*num_rows).max(1))
    });
    let wanted = bytes.sum::<u128>().div_ceil(config.output_bytes.0.into()).max(1);
    u64::try_from(wanted).ok().filter(|files| *files <= MAX_FILES).ok_or_else(|| {
        let reason =
            format!("would make {wanted} files; {MAX_FILES} are allowed, so let them be larger");
        Error::config("output_bytes", reason)
    })
}

/// What the bytes of a mixture depend on.
fn plan(corpus: &MixCorpus<'_>, counter: &TokenCounter, num_files: u64) -> Result<Value> {
    let invalid = |e: serde_json::Error| Error::config("mix", e.to_string());
    let mut settings = serde_json::to_value(corpus.config).map_err(invalid)?;
    if let Some(settings) = settings.as_object_mut() {
        // What stands here in the place of a path is its content.
        for key in ["tokenizer", "count", "max_epochs", "source"] {
            settings.remove(key);
        }
    }
    let mut sources = BTreeMap::new();
    for (place, (source, rule)) in corpus.config.sources.iter().zip(corpus.rules).enumerate() {
        let mut own = serde_json::to_value(source).map_err(invalid)?;
        let own_files = corpus.files.iter().filter(|file| file.source == place);
        own["files"] =
            own_files.map(|file| (file.file.name.clone(), json!(file.fingerprint))).collect();
        own["copies"] = rule.describe();
        sources.insert(source.name.clone(), own);
    }
    let count = counter.describe();
    Ok(
        json!({"version": 1, "settings": settings, "count": count, "sources": sources, "files": num_files}),
    )
}

/// Keeps `plan`, or checks that it is the one that the folder was begun with.
fn accept(request: &MixRequest<'_>, worker: &Worker, plan: &Value) -> Result<()> {
    let path = worker.run().path("plan.json");
    let mut text = serde_json::to_vec_pretty(plan).map_err(|e| Error::write(&path, Box::new(e)))?;
    text.push(b'\n');
    let mut redo = request.redo;
    loop {
        // A process that writes outputs wrote its plan before.
        let written = written(request.out)?;
        let before: Option<Value> = read_json(&path, JSON)?;
        match &before {
            None if !written.is_empty() => {
                let file = written[0].display();
                let reason = format!("{file} is there, and not of a mixture; name another folder");
                return Err(Error::config("--out", reason));
            }
            None => {
                if write_new(&path, &text)? {
                    return Ok(());
                }
                // Another process was first: its plan counts, once this machine sees it.
                request.stop.check()?;
                std::thread::sleep(LOOK_AGAIN);
            }
            Some(_) if redo => {
                // What says that something is done goes before it, and the plan last.
                let run = worker.run();
                let done = [request.out.join(REPORT), run.path("parts"), run.path("shuffle")];
                let all = || done.iter().chain(&written).chain([&path]);
                worker.exclusive(request.stop, || all().try_for_each(|path| remove(path)))?;
                redo = false;
            }
            Some(before) if before == plan => return Ok(()),
            Some(before) => {
                let hint =
                    "`--redo` removes what was mixed there, and mixes again; counts are kept";
                return Err(Error::Mismatch {
                    path: request.out.to_owned(),
                    difference: difference("mix", before, plan),
                    hint: hint.to_owned(),
                });
            }
        }
    }
}

/// Files in `out` that are called as those of a mixture.
fn written(out: &Path) -> Result<Vec<PathBuf>> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let part = |name: &str| name.strip_prefix("part-")?.strip_suffix(".parquet").map(is_number);
    let mut found = Vec::new();
    for entry in list(out)? {
        let path = entry.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name == REPORT || part(&name) == Some(true) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn report(
    corpus: &MixCorpus<'_>,
    counter: &TokenCounter,
    draw: &Draw,
    schema: &MixSchema,
    written: Vec<MixedFile>,
) -> MixReport {
    let mut sources = Vec::new();
    for (place, source) in corpus.config.sources.iter().enumerate() {
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
    let names = schema.output();
    MixReport {
        count: counter.describe(),
        seed: corpus.config.seed,
        rows: draw.rows.iter().sum(),
        tokens: sources.iter().map(|source| source.tokens).sum(),
        sources,
        columns: names.fields().iter().map(|field| field.name().clone()).collect(),
        left_out: schema.left_out.clone(),
        files: written,
    }
}
