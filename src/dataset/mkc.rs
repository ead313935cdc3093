//! MKC and MKC+: knowledge-rich positives against a sample of the corpus, for every language.
//!
//! The sources lie below one directory, each in a folder of its own: `mmmlu`, `include`, `oasst2`,
//! `aya_dataset`, `aya_collection`, as a clone of the hub's repositories lays them out or as single
//! files. A folder that is not there is a source that is not used, or one that is downloaded.

mod conversations;
mod reader;
mod rows;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use clap::ValueEnum;
use rayon::prelude::*;
use serde::Serialize;

use super::corpus::{CORPUS, LanguageCorpus};
use super::sample::{DatasetSample, Ranks, text_key};
use super::write::{SplitPlan, THREE_FILES, write};
use super::{DatasetCard, LanguageTable, SourceCard, repair};
use crate::config::{InputConfig, Mode};
use crate::error::{Error, Result};
use crate::hub::HubSettings;
use crate::input::InputFile;
use crate::progress::{Progress, Stop};
use crate::sample::BottomKSample;
pub(super) use reader::described;
use reader::{CURATED, Home, MkcReader, MkcSource, SOURCES, fetch};
use rows::{Questions, load_pairs, load_questions};

/// Most positives of a language, which are as many negatives again.
pub const DEFAULT_MAX_POSITIVES: usize = 80_000;

/// The published code's limit before its split; 80% of it is what is trained on.
pub const PUBLISHED_MAX_POSITIVES: usize = 100_000;

/// Fewest that can be asked for: of fewer none would be held out.
const MIN_POSITIVES: usize = 5;

/// Which dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, ValueEnum)]
pub enum MkcVariant {
    /// Without the Aya Collection.
    #[serde(rename = "mkc")]
    Mkc,
    /// With it.
    #[default]
    #[serde(rename = "mkc+")]
    #[value(name = "mkc+")]
    MkcPlus,
}

/// What to build.
#[derive(Debug)]
pub struct MkcRequest {
    /// Directory of the sources.
    pub sources: Option<PathBuf>,
    /// Hub from which the sources come that are not there; those are left out when `None`.
    pub download: Option<HubSettings>,
    /// Files of the corpus; the language is the one of the pattern that matched, see
    /// [`crate::input::discover`].
    pub corpus: Vec<InputFile>,
    /// Columns of the corpus, and `max_rejects` for it and for the sources.
    pub input: InputConfig,
    /// Directory of the result, a folder per language.
    pub out: PathBuf,
    /// Languages; all of the table that have a corpus when empty.
    pub languages: Vec<String>,
    /// With or without the Aya Collection.
    pub variant: MkcVariant,
    /// Whose rules.
    pub mode: Mode,
    /// Most positives of a language.
    pub max_positives: usize,
    /// Names of the languages in the sources.
    pub table: LanguageTable,
    /// Seed of all choices.
    pub seed: u64,
}

/// Builds the dataset of every language and writes `<out>/<language>/{train_80,valid_10,test_10}.jsonl`
/// and `card.json`.
///
/// Memory: the positives and as many negatives of one language, and 8 bytes (in a hash set) for each row
/// of its Aya Collection.
///
/// # Errors
/// [`Error::Missing`] when there is no source, no row of a language or no corpus for it;
/// [`Error::Config`] for a language that the table does not have and for too few positives; [`Error::Row`] and
/// [`Error::Schema`] for sources that cannot be read; [`Error::Hub`] for those that cannot be
/// downloaded; [`Error::Io`], [`Error::Stopped`].
pub fn build_mkc(
    request: &MkcRequest,
    stop: &Stop,
    progress: &dyn Progress,
) -> Result<Vec<DatasetCard>> {
    let there = |kind: &MkcSource| request.folder(kind).is_some_and(|folder| folder.is_dir());
    if request.max_positives < MIN_POSITIVES {
        let reason = format!(
            "is {}; at least {MIN_POSITIVES} are needed: a tenth each is held out for validation and test",
            request.max_positives
        );
        return Err(Error::config("--max-positives", reason));
    }
    if request.download.is_none() && !SOURCES.iter().any(there) {
        let names: Vec<&str> = SOURCES.iter().map(|kind| kind.name).collect();
        return Err(request.without(format!("has none of the folders {}", names.join(", "))));
    }
    let languages = request.languages()?;
    let homes = request.homes(&languages, stop, progress)?;
    progress.begin("mkc", Some(languages.len() as u64), "languages");
    let build = |(language, files): (String, Vec<InputFile>)| {
        let job = MkcLanguage { request, homes: &homes, language: &language, files: &files, stop };
        let card = job.build()?;
        progress.advance(1, 0);
        Ok(card)
    };
    let cards = languages.into_iter().map(build).collect();
    progress.end();
    cards
}

impl MkcRequest {
    /// The user's folder of a source.
    fn folder(&self, kind: &MkcSource) -> Option<PathBuf> {
        self.sources.as_ref().map(|sources| sources.join(kind.name))
    }

    fn without(&self, reason: String) -> Error {
        let path = self.sources.as_ref().map(|sources| sources.display().to_string());
        Error::Missing { path: path.unwrap_or_else(|| "--download".to_owned()), reason }
    }

    /// Where each source is, downloaded if need be; a source that is not asked for is left out.
    fn homes(
        &self,
        languages: &BTreeMap<String, Vec<InputFile>>,
        stop: &Stop,
        progress: &dyn Progress,
    ) -> Result<BTreeMap<&'static str, Home>> {
        let num_sources = if self.variant == MkcVariant::Mkc { CURATED } else { SOURCES.len() };
        let mut homes = BTreeMap::new();
        for kind in &SOURCES[..num_sources] {
            let folder = self.folder(kind);
            let name = |language: &String| self.table.name(language, kind.name);
            let cells: BTreeSet<&str> =
                languages.keys().filter_map(|language| name(language)).collect();
            let home = match &self.download {
                Some(hub) if !folder.as_ref().is_some_and(|folder| folder.is_dir()) => {
                    if cells.is_empty() {
                        continue;
                    }
                    fetch(kind, &cells, hub, stop, progress)?
                }
                _ => Home { directory: folder.unwrap_or_default(), revision: None },
            };
            homes.insert(kind.name, home);
        }
        Ok(homes)
    }

    /// The languages to build and the files of their corpus.
    fn languages(&self) -> Result<BTreeMap<String, Vec<InputFile>>> {
        let mut by_language: BTreeMap<String, Vec<InputFile>> = BTreeMap::new();
        let mut of_any = Vec::new();
        for file in &self.corpus {
            let list = match &file.language {
                Some(language) => by_language.entry(language.clone()).or_default(),
                None => &mut of_any,
            };
            list.push(file.clone());
        }
        if let ([language], false) = (self.languages.as_slice(), of_any.is_empty()) {
            by_language.entry(language.clone()).or_default().append(&mut of_any);
        }
        if !of_any.is_empty() {
            let reason = "names no language with {lang}; that serves a single one of --languages";
            return Err(Error::config("--corpus", reason));
        }
        if self.languages.is_empty() {
            by_language.retain(|language, _| self.table.has(language));
        }
        let wanted: BTreeSet<String> = if self.languages.is_empty() {
            by_language.keys().cloned().collect()
        } else {
            self.languages.iter().cloned().collect()
        };
        if wanted.is_empty() {
            let reason = "no file of the corpus is of a language of the table";
            return Err(Error::Missing { path: "--corpus".into(), reason: reason.into() });
        }
        let files_of = |language: String| {
            if !self.table.has(&language) {
                let reason =
                    format!("`{language}` is not in the table of languages; add it with --table");
                return Err(Error::config("--languages", reason));
            }
            let files = by_language.remove(&language).ok_or_else(|| Error::Missing {
                path: language.clone(),
                reason: "no file of the corpus is of this language".to_owned(),
            })?;
            Ok((language, files))
        };
        wanted.into_iter().map(files_of).collect()
    }
}

/// One language.
struct MkcLanguage<'a> {
    request: &'a MkcRequest,
    homes: &'a BTreeMap<&'static str, Home>,
    language: &'a str,
    files: &'a [InputFile],
    stop: &'a Stop,
}

impl MkcLanguage<'_> {
    fn build(&self) -> Result<DatasetCard> {
        let MkcRequest { seed, mode, variant, .. } = *self.request;
        let dataset = match variant {
            MkcVariant::Mkc => "mkc",
            MkcVariant::MkcPlus => "mkc+",
        };
        let mut card = DatasetCard::new(dataset, self.language, mode, seed);
        card.max_positives = Some(self.request.max_positives);
        let mut samples = self.curated(&mut card.sources)?;
        if variant == MkcVariant::MkcPlus {
            self.add_collection(&mut samples, &mut card.sources)?;
        }
        if samples.is_empty() {
            let reason = format!("no source has a row of {}", self.language);
            return Err(self.request.without(reason));
        }
        let positives: HashSet<u128> = samples.iter().map(|sample| sample.key).collect();
        let ranks = self.ranks("negatives");
        let corpus = LanguageCorpus {
            files: self.files,
            input: &self.request.input,
            ranks: &ranks,
            mode,
            stop: self.stop,
        };
        let (negatives, corpus) = corpus.draw(samples.len(), &positives)?;
        if negatives.len() < samples.len() {
            let (language, positives, negatives) = (self.language, samples.len(), negatives.len());
            tracing::warn!(language, positives, negatives, "the corpus has too few documents");
        }
        card.sources.insert(CORPUS.to_owned(), corpus);
        samples.extend(negatives);
        let labels = ["positive", "negative"];
        let plan = SplitPlan { seed, labels, files: THREE_FILES, stratified: true };
        write(&self.request.out.join(self.language), &plan, samples, &mut card)?;
        Ok(card)
    }

    fn ranks(&self, purpose: &str) -> Ranks {
        Ranks::new(self.request.seed, &format!("{}/{purpose}", self.language))
    }

    /// A source, if it is there and has the language.
    fn source(&self, kind: &'static MkcSource) -> Result<Option<MkcReader<'_>>> {
        let cell = self.request.table.name(self.language, kind.name);
        let (Some(cell), Some(home)) = (cell, self.homes.get(kind.name)) else {
            return Ok(None);
        };
        let (mode, max_rejects) = (self.request.mode, self.request.input.max_rejects);
        let reader = MkcReader { kind, home, cell, mode, max_rejects, stop: self.stop };
        Ok(reader.is_there()?.then_some(reader))
    }

    /// All positives but those of the Aya Collection, at most as many as are wanted.
    fn curated(&self, cards: &mut BTreeMap<String, SourceCard>) -> Result<Vec<DatasetSample>> {
        let mut samples: Vec<DatasetSample> = Vec::new();
        for kind in &SOURCES[..CURATED] {
            let Some(source) = self.source(kind)? else { continue };
            let name = source.kind.name;
            let (mut card, mut found) = (SourceCard::default(), Vec::new());
            let sink = &mut |sample| found.push(sample);
            match name {
                "mmmlu" => load_questions(&source, Questions::Mmmlu, &mut card, sink)?,
                "include" => load_questions(&source, Questions::Include, &mut card, sink)?,
                "oasst2" => conversations::load(&source, &self.ranks(name), &mut card, sink)?,
                _ => load_pairs(&source, false, &mut card, sink)?,
            }
            // The first of equal texts stays, whatever the order of rows.
            found.sort_unstable();
            samples.append(&mut found);
            cards.insert(name.to_owned(), card);
        }
        drop_repeated(&mut samples, &mut HashSet::new(), cards);
        let most = self.request.max_positives;
        if self.request.mode == Mode::Default && samples.len() > most {
            let ranks = self.ranks("positives");
            samples.sort_by_cached_key(|sample| ranks.of(sample.key));
            for sample in samples.drain(most..) {
                count_drop(cards, &sample, "beyond the most positives");
            }
        }
        Ok(samples)
    }

    /// Fills up with a uniform sample of the Aya Collection, repaired.
    fn add_collection(
        &self,
        samples: &mut Vec<DatasetSample>,
        cards: &mut BTreeMap<String, SourceCard>,
    ) -> Result<()> {
        let wanted = self.request.max_positives.saturating_sub(samples.len());
        let Some(source) = self.source(&SOURCES[CURATED])?.filter(|_| wanted > 0) else {
            return Ok(());
        };
        let name = source.kind.name;
        let mut curated: HashSet<u128> = samples.iter().map(|sample| sample.key).collect();
        let (ranks, sampler) = (self.ranks(name), BottomKSample::new(wanted));
        let (mut card, mut repeated) = (SourceCard::default(), 0);
        // Halves of keys: of ten million rows, two share one with a probability of 3 in a million.
        let mut seen: HashSet<u64> = HashSet::new();
        load_pairs(&source, true, &mut card, &mut |sample| {
            let is_curated = curated.contains(&sample.key);
            repeated += u64::from(is_curated || !seen.insert((sample.key >> 64) as u64));
            if !is_curated {
                // Of equal texts the sampler keeps one, which is the same in any order of rows.
                sampler.offer(ranks.of(sample.key), || sample);
            }
        })?;
        card.drop_rows("repeated", repeated);
        let mut found = sampler.into_items();
        let gave_none: u64 = card.dropped_of(&["null", "blank", "<unk>", "repeated"]);
        card.drop_rows("not drawn", card.rows - gave_none - found.len() as u64);
        if self.request.mode == Mode::Default {
            card.repaired = repair_all(&mut found);
        }
        cards.insert(name.to_owned(), card);
        drop_repeated(&mut found, &mut curated, cards);
        samples.append(&mut found);
        Ok(())
    }
}

/// Keeps the first of the samples of each key that is not `known` yet.
fn drop_repeated(
    samples: &mut Vec<DatasetSample>,
    known: &mut HashSet<u128>,
    cards: &mut BTreeMap<String, SourceCard>,
) {
    samples.retain(|sample| {
        let new = known.insert(sample.key);
        if !new {
            count_drop(cards, sample, "repeated");
        }
        new
    });
}

fn count_drop(cards: &mut BTreeMap<String, SourceCard>, sample: &DatasetSample, reason: &str) {
    if let Some(card) = cards.get_mut(&sample.source) {
        card.drop_rows(reason, 1);
    }
}

/// Repairs texts and says how many were not right.
fn repair_all(samples: &mut [DatasetSample]) -> u64 {
    let repaired = samples.par_iter_mut().map(|sample| {
        let text = match repair(&sample.text) {
            std::borrow::Cow::Borrowed(_) => return 0,
            std::borrow::Cow::Owned(text) => text,
        };
        sample.key = text_key(&text);
        sample.text = text;
        1
    });
    repaired.sum()
}
