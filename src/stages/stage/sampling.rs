//! Documents of a run to annotate, drawn with known probabilities.
//!
//! ```text
//!  stored documents, scores ──uniform by hash──▶ frame ──mixture──▶ sizes ──systematic──▶ drawn documents
//!  earlier rounds ──ids──────────────┘              ▲                                         │
//!  embeddings ──k-means─────────────────────────────┘           input ──texts──▶ rows to annotate
//! ```
//!
//! Each strategy of a mixture spreads its share of the sample over the documents of a frame; what a document
//! gets of all of them is the size that it is drawn by (`design`). So the probability with which it is drawn is
//! known exactly, however the strategies overlap. The frame is all documents of the language, or a uniform sample of
//! them where they are many; then the probability beside a row is the product of both phases, whose reciprocal
//! weighs as in two-phase sampling (C.-E. Särndal, B. Swensson, J. Wretman: Model Assisted Survey Sampling, 1992,
//! chapter 9).
//!
//! Reads the run and changes nothing in it. Memory: about 250 bytes for each document of a frame and 40 for each
//! head, one language at a time, and the texts that were drawn.

mod clusters;
mod design;
mod draws;
mod frame;
mod mixture;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::context::Context;
use super::corpus::{ScoreFiles, scored_run};
use super::embedded::Embedded;
use super::heads::{Heads, in_words};
use draws::Draws;
use frame::{Frame, StoredDocuments};
use mixture::{Cut, Features};
pub use mixture::{Mixture, Strategy};
use polysift_base::error::{Error, Result};
use polysift_base::io::write_new;
use polysift_base::metrics::effective_size;
use polysift_config::{HeadKind, Keep, Rate, RunConfig};
use polysift_data::input::{InputFile, LANG};
use polysift_heads::head::AnyHead;
use rows::{AnnotationRow, DrawnDocument, EarlierRounds, LanguageRows};

/// Documents of a language that a sample is drawn from, at most.
pub const DEFAULT_FRAME: usize = 1_000_000;

/// Which documents are to be drawn.
#[derive(Debug, Clone)]
pub struct SampleRequest<'a> {
    /// Documents of each language.
    pub count: usize,
    /// Codes of the languages; none: all of the run.
    pub languages: &'a [String],
    /// How they are chosen.
    pub mixture: &'a Mixture,
    /// Names of the heads that `disagreement` compares, the first of which `scores` and `near` look at; none: all
    /// of the run.
    pub heads: &'a [String],
    /// Shares of the documents that lie before the cuts of `near`; none: the thresholds of the run.
    pub cuts: &'a [Rate],
    /// Earlier rounds, whose texts are not drawn again.
    pub exclude: &'a [InputFile],
    /// Another one gives another sample.
    pub seed: u64,
    /// Documents of a language that are drawn from, at most; of more, a uniform sample.
    pub frame: usize,
    /// The file to write; `{lang}` in it stands for the code of the language.
    pub out: &'a str,
}

/// What was drawn of a language.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LanguageSample {
    /// The language.
    pub language: String,
    /// Documents that could be drawn: with text, and with another id than those of earlier rounds.
    pub documents: u64,
    /// Documents with an id of an earlier round.
    pub excluded: u64,
    /// Drawn documents.
    pub drawn: usize,
    /// Rows to annotate: distinct texts that no earlier round has.
    pub rows: usize,
    /// Drawn documents whose text is that of another row.
    pub copies: u64,
    /// Drawn documents whose text an earlier round has.
    pub known_texts: u64,
    /// Rows by the strategy that chose them most.
    pub strategies: BTreeMap<Strategy, usize>,
    /// Rows of equal weight that would estimate a mean as precisely (L. Kish: Survey Sampling, 1965).
    pub effective_size: f64,
}

/// Draws documents to annotate and writes them as JSON lines.
///
/// # Errors
/// [`Error::Missing`] where the run is not embedded, or not scored where a strategy looks at scores, and for
/// input files that are gone; [`Error::Config`] for a language or a head that is not there, a strategy that
/// needs another head or a cut, and a file that exists; [`Error::Corrupt`] where the input changed.
pub fn sample(context: Context<'_>, request: &SampleRequest<'_>) -> Result<Vec<LanguageSample>> {
    let names: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
    let places = head_places(context.config, request, &names)?;
    let (embedded, heads, scores) = open(context, request, &names)?;
    let languages = languages(request, &embedded)?;
    let mut files: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    for language in &languages {
        let path = PathBuf::from(request.out.replace(LANG, language));
        if path.exists() {
            return Err(exists(&path));
        }
        files.insert(path, Vec::new());
    }
    let earlier = EarlierRounds::read(request.exclude, &context.config.input)?;
    let stored = StoredDocuments { context, embedded: &embedded, scores, heads: &names };
    let mut samples = Vec::new();
    for language in &languages {
        let keep = |&place: &usize| {
            let head = heads.as_ref().and_then(|heads| heads.get(names[place], language));
            (place, head.map_or(Keep::Above, |head: &AnyHead| head.spec().keep))
        };
        let heads: Vec<(usize, Keep)> = places.iter().map(keep).collect();
        let cuts = cuts(context, request, language, heads.first().map(|(place, _)| names[*place]))?;
        let drawing = Drawing { stored: &stored, request, language, heads, cuts };
        let (sample, rows) = drawing.draw(&earlier)?;
        let path = PathBuf::from(request.out.replace(LANG, language));
        write_rows(&path, &rows, files.entry(path.clone()).or_default())?;
        samples.push(sample);
    }
    // All is drawn before anything is written.
    for (path, content) in files {
        if !write_new(&path, &content)? {
            return Err(exists(&path));
        }
    }
    Ok(samples)
}

/// Places among `names` of the heads that strategies look at.
fn head_places(
    config: &RunConfig,
    request: &SampleRequest<'_>,
    names: &[&str],
) -> Result<Vec<usize>> {
    let known = names.join(", ");
    let place = |head: &String| {
        let unknown = || format!("there is no head `{head}`; the heads are {known}");
        let place = names.iter().position(|name| name == head);
        place.ok_or_else(|| Error::config("--head", unknown()))
    };
    let mut places: Vec<usize> = request.heads.iter().map(place).collect::<Result<_>>()?;
    if places.is_empty() {
        let is_random = |place: &usize| config.heads[names[*place]].kind == HeadKind::Random;
        places = (0..names.len()).filter(|place| !is_random(place)).collect();
    }
    let has = |strategy| request.mixture.has(strategy);
    if has(Strategy::Disagreement) && places.len() < 2 {
        let reason = format!("`disagreement` needs two heads; the heads are {known}");
        return Err(Error::config("--strategy", reason));
    }
    if has(Strategy::Diverse) && !config.has_embeddings() {
        return Err(RunConfig::no_encoder("`diverse` looks at embeddings"));
    }
    let looks_at_one = has(Strategy::Scores) || has(Strategy::Near);
    if looks_at_one && places.len() != 1 && request.heads.is_empty() {
        let reason = format!("is missing: `scores` and `near` look at one head, of {known}");
        return Err(Error::config("--head", reason));
    }
    Ok(places)
}

/// The run, with its heads where strategies need them, and its scores where there are any.
fn open(
    context: Context<'_>,
    request: &SampleRequest<'_>,
    names: &[&str],
) -> Result<(Embedded, Option<Heads>, Option<ScoreFiles>)> {
    if request.mixture.needs_scores() {
        let (embedded, heads) = scored_run(context)?;
        return Ok((embedded, Some(heads), Some(ScoreFiles::selected(context)?)));
    }
    let scored = || Ok((Embedded::scored(context.run, names)?, ScoreFiles::selected(context)?));
    match scored() {
        Ok((embedded, files)) => Ok((embedded, None, Some(files).filter(|_| !names.is_empty()))),
        Err(Error::Missing { .. }) => Ok((Embedded::of(context.run)?, None, None)),
        Err(error) => Err(error),
    }
}

fn languages(request: &SampleRequest<'_>, embedded: &Embedded) -> Result<BTreeSet<String>> {
    let known = embedded.languages();
    if request.languages.is_empty() {
        return Ok(known);
    }
    if let Some(unknown) = request.languages.iter().find(|language| !known.contains(*language)) {
        let reason = format!("there are no documents of `{unknown}`, but of {}", in_words(&known));
        return Err(Error::config("--language", reason));
    }
    Ok(request.languages.iter().cloned().collect())
}

/// The cuts of `near`: those of the request, else where the run's thresholds of `head` lie.
fn cuts(
    context: Context<'_>,
    request: &SampleRequest<'_>,
    language: &str,
    head: Option<&str>,
) -> Result<Vec<Cut>> {
    let Some(head) = head.filter(|_| request.mixture.has(Strategy::Near)) else {
        return Ok(Vec::new());
    };
    let mut cuts: Vec<Cut> = request.cuts.iter().map(|rate| Cut::Share(rate.as_f64())).collect();
    if cuts.is_empty() {
        let thresholds = context.config.thresholds(language);
        let kept = thresholds.retention.get(head).into_iter().flatten();
        cuts.extend(kept.map(|rate| Cut::Share(rate.as_f64())));
        cuts.extend(thresholds.removal.get(head).map(|rate| Cut::Share(1.0 - rate.as_f64())));
        cuts.extend(thresholds.threshold.get(head).map(|fixed| Cut::Score(fixed.score())));
    }
    if cuts.is_empty() {
        let reason = format!(
            "is missing: the run has no threshold of the head `{head}` in {language} that \
             documents could be near to"
        );
        return Err(Error::config("--cut", reason));
    }
    Ok(cuts)
}

/// The drawing of the documents of a language.
struct Drawing<'a> {
    stored: &'a StoredDocuments<'a>,
    request: &'a SampleRequest<'a>,
    language: &'a str,
    heads: Vec<(usize, Keep)>,
    cuts: Vec<Cut>,
}

impl<'a> Drawing<'a> {
    fn draw(&self, earlier: &EarlierRounds) -> Result<(LanguageSample, Vec<AnnotationRow<'a>>)> {
        let &Self { stored, request, language, .. } = self;
        let history = earlier.history();
        let draws = |purpose| Draws::new(request.seed, &history, purpose, language);
        let (ids, limit) = (&earlier.ids, request.frame.max(request.count));
        let frame = Frame::draw(stored, language, ids, limit, draws("frame"))?;
        let features = Features {
            stored,
            language,
            frame: &frame,
            heads: &self.heads,
            cuts: &self.cuts,
            draws: draws("clusters"),
        };
        let sizes = request.mixture.sizes(&features, request.count)?;
        let units: Vec<f64> = sizes.iter().map(|(size, _)| *size).collect();
        let units = design::inclusion_probabilities(&units, request.count);
        // The frame is in random order, so that the design is, too.
        let start = draws("start").of(0) % design::ONE;
        let of_frame = frame.documents.len() as f64 / frame.population.max(1) as f64;
        let drawn = |i: usize| DrawnDocument {
            ordinal: frame.documents[i].ordinal,
            probability: units[i] as f64 / design::ONE as f64 * of_frame,
            strategy: sizes[i].1,
        };
        let drawn: Vec<DrawnDocument> =
            design::systematic(&units, start).into_iter().map(drawn).collect();
        let num_drawn = drawn.len();
        let LanguageRows { rows, known_texts } =
            LanguageRows::read(stored, language, drawn, earlier, draws("order"))?;
        let mut strategies = BTreeMap::new();
        for row in &rows {
            *strategies.entry(row.strategy).or_default() += 1;
        }
        let weights: Vec<f64> = rows.iter().map(|row| row.weight).collect();
        let sample = LanguageSample {
            language: language.to_owned(),
            documents: frame.population,
            excluded: frame.excluded,
            drawn: num_drawn,
            rows: rows.len(),
            copies: rows.iter().map(|row| row.copies - 1).sum(),
            known_texts,
            strategies,
            effective_size: effective_size(&weights),
        };
        Ok((sample, rows))
    }
}

/// Appends `rows` to `content` of the file `path`, a line each.
fn write_rows(path: &Path, rows: &[AnnotationRow<'_>], content: &mut Vec<u8>) -> Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *content, row).map_err(|e| Error::write(path, e))?;
        content.push(b'\n');
    }
    Ok(())
}

fn exists(path: &Path) -> Error {
    let reason = format!("{} exists, maybe with annotations; name another file", path.display());
    Error::config("--out", reason)
}
