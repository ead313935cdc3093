//! The MKC and MKC+ datasets of a language: knowledge-rich positives and a sample of the corpus.
//!
//! The sources are in one directory, each in its own folder: `mmmlu`, `include`, `oasst2`,
//! `aya_dataset`, `aya_collection`, as clones of the hub repositories or as single files. A source
//! without a folder is not used, or is downloaded.

mod conversations;
mod corpus;
mod languages;
mod reader;
mod rows;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rayon::prelude::*;

use super::write::{DatasetSample, THREE_FILES, refuse_inputs, write_files};
use super::{DatasetCard, DatasetRules, SourceCard, repair};
use languages::LanguageTable;
use polysift_base::error::{Error, Result};
use polysift_base::hub::HubSettings;
use polysift_base::progress::{Progress, Stop};
use polysift_base::sample::{BottomKSample, Ranks, text_key};
use polysift_config::Mode;
use polysift_data::input::{InputFile, discover};
use reader::{CURATED, MkcReader, MkcSource, SOURCES, SourceFolder, download, source_names};
use rows::{load_pairs, load_questions};

/// Default maximum of positives per language; there are as many negatives.
const DEFAULT_MAX_POSITIVES: usize = 80_000;
/// The published code's limit before its split; it trains on 80% of the samples.
const PUBLISHED_MAX_POSITIVES: usize = 100_000;
/// Name of the source of negatives.
const CORPUS: &str = "corpus";
/// Smallest allowed maximum: with fewer positives none would be held out.
const MIN_POSITIVES: usize = 5;

/// Variant of the dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MkcVariant {
    /// MKC: without the Aya Collection.
    Mkc,
    /// MKC+: with the Aya Collection.
    #[value(name = "mkc+")]
    MkcPlus,
}

/// Command-line arguments for MKC and MKC+.
#[derive(Debug, Args)]
pub struct MkcRequest {
    /// Directory with the folders mmmlu, include, oasst2, aya_dataset and aya_collection
    #[arg(long, value_name = "DIR", required_unless_present = "download")]
    pub sources: Option<PathBuf>,
    /// Download sources that are not in --sources from the Hugging Face hub into its cache
    #[arg(long)]
    pub download: bool,
    /// Use only files that are already downloaded
    #[arg(long, requires = "download")]
    pub offline: bool,
    /// Files, directories or globs of the corpus; {lang} stands for the language code
    #[arg(long, value_name = "PATTERN", required = true, num_args = 1..)]
    pub corpus: Vec<String>,
    /// Output directory; a folder for each language is created in it
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Languages as FineWeb-2 codes [default: all languages of the table that have a corpus]
    #[arg(long, value_name = "CODES", value_delimiter = ',')]
    pub languages: Vec<String>,
    /// With (mkc+) or without (mkc) the Aya Collection
    #[arg(long, value_enum, default_value = "mkc+")]
    pub variant: MkcVariant,
    /// Maximum number of positives per language [default: 80000; in published mode 100000]
    #[arg(long, value_name = "N")]
    pub max_positives: Option<usize>,
    /// TOML file with further rows of the language table, which override the built-in ones
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
    /// Name of the text column in the corpus
    #[arg(long, value_name = "COLUMN", default_value = "text")]
    pub text_column: String,
    /// Name of the id column in the corpus
    #[arg(long, value_name = "COLUMN", default_value = "id")]
    pub id_column: String,
    /// How samples are chosen
    #[command(flatten)]
    pub rules: DatasetRules,
}

/// Builds the dataset of each language and writes `{train_80,valid_10,test_10}.jsonl` and
/// `card.json` to `<out>/<language>`.
///
/// Memory: the positives and as many negatives of one language, and a hash set with about 16
/// bytes for each row of its Aya Collection.
///
/// # Errors
/// [`Error::Missing`] if there is no source, no row of a language or no corpus for it;
/// [`Error::Config`] for a language that is not in the table and for too few positives;
/// [`Error::Row`] and [`Error::Schema`] for sources that cannot be read; [`Error::Service`] for
/// failed downloads; [`Error::Io`], [`Error::Stopped`].
pub fn build_mkc(
    request: &MkcRequest,
    hub: &HubSettings,
    stop: &Stop,
    progress: &dyn Progress,
) -> Result<Vec<DatasetCard>> {
    let max_positives = request.max_positives();
    if max_positives < MIN_POSITIVES {
        let reason = format!(
            "is {max_positives}; at least {MIN_POSITIVES} are needed: a tenth each is held out for validation and test"
        );
        return Err(Error::config("--max-positives", reason));
    }
    if !request.download && !SOURCES.iter().any(|kind| request.source_folder(kind).is_dir()) {
        return Err(request.missing_source(format!("has none of the folders {}", source_names())));
    }
    let table = languages::load_table(request.rules.mode, request.table.as_deref())?;
    let languages = request.find_languages(&table)?;
    let mut folders = BTreeMap::new();
    let num_sources = if request.variant == MkcVariant::Mkc { CURATED } else { SOURCES.len() };
    for kind in &SOURCES[..num_sources] {
        let name = |language: &String| languages::find_name(&table, language, kind.name);
        let cells: BTreeSet<&str> = languages.keys().filter_map(name).collect();
        let directory = request.source_folder(kind);
        if directory.is_dir() || !request.download {
            folders.insert(kind.name, SourceFolder { directory, revision: None });
        } else if !cells.is_empty() {
            folders.insert(kind.name, download(kind, &cells, hub, stop, progress)?);
        }
    }
    progress.begin("mkc", Some(languages.len() as u64), "languages");
    let build = |(language, files): (&String, &Vec<InputFile>)| {
        let card = MkcLanguage { request, table: &table, folders: &folders, language, files, stop };
        let card = card.build()?;
        progress.advance(1, 0);
        Ok(card)
    };
    let cards = languages.iter().map(build).collect();
    progress.end();
    cards
}

impl MkcRequest {
    fn max_positives(&self) -> usize {
        self.max_positives.unwrap_or(match self.rules.mode {
            Mode::Default => DEFAULT_MAX_POSITIVES,
            Mode::Published => PUBLISHED_MAX_POSITIVES,
        })
    }

    /// Returns the folder of a source, or an empty path if all sources are downloaded.
    fn source_folder(&self, kind: &MkcSource) -> PathBuf {
        self.sources.as_ref().map_or_else(PathBuf::new, |sources| sources.join(kind.name))
    }

    /// Returns an error that names the directory of the sources or, without one, `--download`.
    fn missing_source(&self, reason: String) -> Error {
        Error::missing(self.sources.as_deref().unwrap_or(Path::new("--download")), reason)
    }

    /// Returns the languages to build, requested or all in the table, with files of the corpus.
    fn find_languages(&self, table: &LanguageTable) -> Result<BTreeMap<String, Vec<InputFile>>> {
        let mut by_language: BTreeMap<String, Vec<InputFile>> = BTreeMap::new();
        let only = self.languages.first().filter(|_| self.languages.len() == 1);
        for file in discover(&self.corpus, Path::new("."))? {
            let Some(language) = file.language.as_ref().or(only) else {
                let reason =
                    "names no language with {lang}; without it --languages must name exactly one";
                return Err(Error::config("--corpus", reason));
            };
            by_language.entry(language.clone()).or_default().push(file);
        }
        let codes: BTreeSet<String> = match self.languages.as_slice() {
            [] => by_language.keys().filter(|code| table.contains_key(*code)).cloned().collect(),
            named => named.iter().cloned().collect(),
        };
        if codes.is_empty() {
            let reason = "no file of the corpus is of a language of the table";
            return Err(Error::Missing { path: "--corpus".into(), reason: reason.into() });
        }
        let files_of = |language: String| {
            if !table.contains_key(&language) {
                let reason =
                    format!("`{language}` is not in the table of languages; add it with --table");
                return Err(Error::config("--languages", reason));
            }
            let missing = || Error::missing(&language, "no file of the corpus is of this language");
            let files = by_language.remove(&language).ok_or_else(missing)?;
            Ok((language, files))
        };
        codes.into_iter().map(files_of).collect()
    }
}

/// Cards of the sources by name.
type Cards = BTreeMap<String, SourceCard>;

struct MkcLanguage<'a> {
    request: &'a MkcRequest,
    table: &'a LanguageTable,
    folders: &'a BTreeMap<&'static str, SourceFolder>,
    language: &'a str,
    files: &'a [InputFile],
    stop: &'a Stop,
}

impl MkcLanguage<'_> {
    /// Writes the files and the card of the language, and returns the card.
    fn build(&self) -> Result<DatasetCard> {
        let MkcRequest { variant, rules: DatasetRules { seed, mode, .. }, .. } = *self.request;
        refuse_inputs(&self.request.out.join(self.language), self.files)?;
        let dataset = if variant == MkcVariant::Mkc { "mkc" } else { "mkc+" };
        let mut card = DatasetCard::new(dataset, self.language, mode, seed);
        card.max_positives = Some(self.request.max_positives());
        let mut samples = self.load_curated(&mut card.sources)?;
        self.add_collection(&mut samples, &mut card.sources)?;
        if samples.is_empty() {
            let reason = format!("no source has a row of {}", self.language);
            return Err(self.request.missing_source(reason));
        }
        let positives: HashSet<u128> = samples.iter().map(|sample| sample.key).collect();
        let (negatives, corpus) = self.draw_negatives(samples.len(), &positives)?;
        if negatives.len() < samples.len() {
            let (language, positives, negatives) = (self.language, samples.len(), negatives.len());
            tracing::warn!(language, positives, negatives, "the corpus has too few documents");
        }
        card.sources.insert(CORPUS.to_owned(), corpus);
        samples.extend(negatives);
        let labels = ["positive", "negative"];
        let directory = self.request.out.join(self.language);
        write_files(&directory, THREE_FILES, labels, samples, &mut card)?;
        Ok(card)
    }

    /// Returns the random order for a choice in this language; each `purpose` has another.
    fn ranks(&self, purpose: &str) -> Ranks {
        Ranks::new(self.request.rules.seed, &format!("{}/{purpose}", self.language))
    }

    /// Returns the reader of a source, if the source exists and has the language.
    fn open_source(&self, kind: &'static MkcSource) -> Result<Option<MkcReader<'_>>> {
        let cell = languages::find_name(self.table, self.language, kind.name);
        let (Some(cell), Some(folder)) = (cell, self.folders.get(kind.name)) else {
            return Ok(None);
        };
        let rules = self.request.rules;
        let reader = MkcReader { kind, folder, cell, rules, stop: self.stop };
        Ok(reader.exists()?.then_some(reader))
    }

    /// Returns up to the maximum of positives from all sources but the Aya Collection; adds cards.
    fn load_curated(&self, cards: &mut Cards) -> Result<Vec<DatasetSample>> {
        let mut samples: Vec<DatasetSample> = Vec::new();
        for kind in &SOURCES[..CURATED] {
            let Some(source) = self.open_source(kind)? else { continue };
            let name = source.kind.name;
            let mut found = Vec::new();
            let sink = &mut |sample| found.push(sample);
            let card = match name {
                "mmmlu" | "include" => load_questions(&source, sink)?,
                "oasst2" => conversations::load(&source, &self.ranks(name), sink)?,
                _ => load_pairs(&source, false, sink)?,
            };
            // The first of equal texts stays, whatever the order of rows.
            found.sort_unstable();
            samples.append(&mut found);
            cards.insert(name.to_owned(), card);
        }
        drop_repeated(&mut samples, &mut HashSet::new(), cards);
        let most = self.request.max_positives();
        if self.request.rules.mode == Mode::Default && samples.len() > most {
            let ranks = self.ranks("positives");
            samples.sort_by_cached_key(|sample| ranks.rank_of(sample.key));
            for sample in samples.drain(most..) {
                count_drop(cards, &sample, "beyond --max-positives");
            }
        }
        Ok(samples)
    }

    /// Fills up with a repaired uniform sample of the Aya Collection, which MKC has no folder of.
    fn add_collection(&self, samples: &mut Vec<DatasetSample>, cards: &mut Cards) -> Result<()> {
        let room = self.request.max_positives().saturating_sub(samples.len());
        let Some(source) = self.open_source(&SOURCES[CURATED])?.filter(|_| room > 0) else {
            return Ok(());
        };
        let name = source.kind.name;
        let mut curated: HashSet<u128> = samples.iter().map(|sample| sample.key).collect();
        let (ranks, sampler) = (self.ranks(name), BottomKSample::new(room));
        let mut repeated = 0;
        // Half a key suffices: in ten million rows two collide with a probability of 3e-6.
        let mut seen: HashSet<u64> = HashSet::new();
        let mut card = load_pairs(&source, true, &mut |sample| {
            let is_curated = curated.contains(&sample.key);
            repeated += u64::from(is_curated || !seen.insert((sample.key >> 64) as u64));
            if !is_curated {
                // The sampler keeps one of several equal texts, the same one for any order of rows.
                sampler.offer(ranks.rank_of(sample.key), || sample);
            }
        })?;
        card.drop_rows("repeated", repeated);
        let mut found = sampler.into_items();
        let gave_none: u64 = card.count_dropped(&["null", "blank", "<unk>", "repeated"]);
        card.drop_rows("not drawn", card.rows - gave_none - found.len() as u64);
        if self.request.rules.mode == Mode::Default {
            let repaired = found.par_iter_mut().map(|sample| {
                let Cow::Owned(text) = repair(&sample.text) else { return 0 };
                sample.key = text_key(&text);
                sample.text = text;
                1
            });
            card.repaired = NonZeroU64::new(repaired.sum());
        }
        cards.insert(name.to_owned(), card);
        drop_repeated(&mut found, &mut curated, cards);
        samples.append(&mut found);
        Ok(())
    }
}

/// Keeps the first sample of each key that is not in `known`, and adds the key there.
fn drop_repeated(samples: &mut Vec<DatasetSample>, known: &mut HashSet<u128>, cards: &mut Cards) {
    samples.retain(|sample| {
        let new = known.insert(sample.key);
        if !new {
            count_drop(cards, sample, "repeated");
        }
        new
    });
}

/// Counts `sample` as dropped on the card of its source.
fn count_drop(cards: &mut Cards, sample: &DatasetSample, reason: &str) {
    if let Some(card) = cards.get_mut(&sample.source) {
        card.drop_rows(reason, 1);
    }
}
