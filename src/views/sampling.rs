//! Draws documents of a run for annotation, with known probabilities.
//!
//! ```text
//!  stored documents, scores ──uniform by hash──▶ frame ──▶ sizes ──systematic──▶ drawn
//!  earlier rounds ──ids──────────────┘                                             │
//!                                                    input ──texts──▶ rows to annotate
//! ```
//!
//! A share of the sample may be drawn near the thresholds of a head; the rest is uniform. The sum
//! of a document's parts of both is its size in the sampling design (`design`), so the probability
//! of drawing it is known exactly. The frame is all documents of the language, or a uniform sample
//! if there are many; the probability beside a row is then the product of both phases, and its
//! reciprocal the weight of two-phase sampling (C.-E. Särndal, B. Swensson, J. Wretman: Model
//! Assisted Survey Sampling, 1992, chapter 9).
//!
//! The run is only read. Memory: about 100 bytes per document of the frames of a group of languages
//! (about four million documents), 250 per document of one of them, and the drawn texts.

mod design;
mod near;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use serde::Serialize;

use near::{NearThreshold, NearThresholds};
use polysift_base::error::{Error, Result};
use polysift_base::io::write_new;
use polysift_base::metrics::effective_size;
use polysift_base::sample::{BottomKSample, hash_of, ordinal_rank};
use polysift_config::{HeadKind, Keep, Rate, RunConfig};
use polysift_corpus::heads::{Heads, in_words};
use polysift_corpus::rows::{RunRows, check_removed};
use polysift_corpus::select::{scored_run, stored_selections};
use polysift_corpus::{Context, Embedded, ScoreFiles};
use polysift_data::input::{LANG, discover};
use polysift_heads::head::DocumentScore;
use polysift_selection::Bound;
use rows::{AnnotationRow, EarlierRounds, check_columns, read_rows};

/// Which documents to draw; the flags of `polysift sample`.
#[derive(Debug, Clone, clap::Args)]
pub struct SampleRequest {
    /// JSON lines file to write, which must not exist yet; {lang} stands for the language code
    #[arg(long, value_name = "FILE")]
    pub out: String,
    /// Number of documents per language
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub count: usize,
    /// Sample only these languages
    #[arg(long, value_name = "CODE")]
    pub language: Vec<String>,
    /// Share of the documents to draw near a threshold, e.g. 0.4; the rest is uniform
    #[arg(long, value_name = "SHARE")]
    pub near: Option<Rate>,
    /// Head whose thresholds `--near` samples around, needed if the run has several
    #[arg(long, value_name = "NAME", requires = "near")]
    pub head: Option<String>,
    /// Rates of the thresholds that `--near` samples around [default: the run's thresholds]
    #[arg(long, value_name = "RATES", value_delimiter = ',', requires = "near")]
    pub rate: Vec<Rate>,
    /// Files of earlier rounds; documents with the same id or text are left out
    #[arg(long, value_name = "FILES", num_args = 1..)]
    pub exclude: Vec<String>,
    /// Random seed [default: the seed of the run]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Maximum documents per language to choose from; a larger language is first sampled uniformly
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub frame: usize,
}

/// The sample of a language.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LanguageSample {
    /// The language.
    pub language: String,
    /// Number of documents that could be drawn: with text and with an id of no earlier round.
    pub documents: u64,
    /// Number of documents with an id of an earlier round.
    pub excluded: u64,
    /// Number of drawn documents.
    pub drawn: usize,
    /// Number of rows to annotate: distinct texts that no earlier round has.
    pub rows: usize,
    /// Number of drawn documents with the text of another row.
    pub copies: u64,
    /// Number of drawn documents with a text of an earlier round.
    pub known_texts: u64,
    /// Rows of equal weight that would be as precise for a mean (L. Kish: Survey Sampling, 1965).
    pub effective_size: f64,
}

/// Draws documents to annotate and writes them as JSON lines. [`Error::Missing`] if the run is not
/// embedded or filtered, or lacks scores or input; [`Error::Config`] for requests that it cannot
/// meet.
pub fn sample(context: Context<'_>, request: &SampleRequest) -> Result<Vec<LanguageSample>> {
    let is_given = !request.exclude.is_empty();
    let exclude = is_given.then(|| discover(&request.exclude, Path::new("."))).transpose()?;
    let head = choose_near_head(context.config, request)?;
    check_columns(&context.config.input)?;
    let (embedded, heads, scores) = open_run(context, request)?;
    check_removed(context, &embedded)?;
    let languages = choose_languages(request, &embedded)?;
    let path_of = |language: &str| PathBuf::from(request.out.replace(LANG, language));
    if let Some(path) = languages.iter().map(|code| path_of(code)).find(|path| path.exists()) {
        return Err(already_exists(&path));
    }
    let earlier = EarlierRounds::read(&exclude.unwrap_or_default(), &context.config.input)?;
    let rows = RunRows::open(context, scores, embedded.languages())?;
    let (mut samples, mut files) = (Vec::new(), BTreeMap::<PathBuf, Vec<u8>>::new());
    let history = (!earlier.ids.is_empty()).then(|| hash_of(&earlier.ids).as_bytes().to_vec());
    let history = history.unwrap_or_default();
    let most = request.frame.max(request.count) as u64;
    for group in embedded.language_groups(&languages, most) {
        let mut frames = BTreeMap::new();
        for language in group {
            let near = head.zip(heads.as_ref());
            let near =
                near.map(|head| choose_thresholds(context, request, language, head)).transpose()?;
            let seed = request.seed.unwrap_or(context.config.seed);
            let seed = |purpose| design::seed_of(seed, &history, purpose, language);
            frames
                .insert(language, Frame::new(request, near, ["frame", "start", "order"].map(seed)));
        }
        read_frames(&embedded, &rows, &frames, &earlier)?;
        for (language, frame) in frames {
            let (sample, rows) =
                draw_language((&embedded, &rows), (language, frame), request.count, &earlier)?;
            let path = path_of(language);
            let content = files.entry(path.clone()).or_default();
            for row in &rows {
                serde_json::to_writer(&mut *content, row).map_err(|e| Error::write(&path, e))?;
                content.push(b'\n');
            }
            samples.push(sample);
        }
    }
    // All languages are drawn before anything is written.
    for (path, content) in files {
        if !write_new(&path, &content)? {
            return Err(already_exists(&path));
        }
    }
    Ok(samples)
}

/// Returns the head for `near`, by default the only one that is not random; `None` without `near`.
fn choose_near_head<'a>(
    config: &'a RunConfig,
    request: &'a SampleRequest,
) -> Result<Option<&'a str>> {
    let wrong = |reason: String| Err(Error::config("--head", reason));
    let known = || config.heads.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let trained = config.heads.iter().filter(|(_, head)| head.kind != HeadKind::Random);
    let trained: Vec<&str> = trained.map(|(name, _)| name.as_str()).collect();
    match (request.head.as_deref(), &trained[..]) {
        (Some(head), _) if !config.heads.contains_key(head) => {
            wrong(format!("there is no head `{head}`; the heads are {}", known()))
        }
        _ if request.near.is_none() => Ok(None),
        (Some(head), _) | (None, &[head]) => Ok(Some(head)),
        _ => wrong(format!("is missing: `near` looks at one head, of {}", known())),
    }
}

/// Opens the run: its heads if `near` needs them, and its scores if there are any.
fn open_run(
    context: Context<'_>,
    request: &SampleRequest,
) -> Result<(Embedded, Option<Heads>, Option<ScoreFiles>)> {
    if request.near.is_some() {
        let (embedded, heads) = scored_run(context)?;
        return Ok((embedded, Some(heads), Some(ScoreFiles::selected(context)?)));
    }
    let names: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
    let scored = || Ok((Embedded::scored(context.run, &names)?, ScoreFiles::selected(context)?));
    match scored() {
        Ok((embedded, files)) => Ok((embedded, None, Some(files).filter(|_| !names.is_empty()))),
        Err(Error::Missing { .. }) => Ok((Embedded::of(context.run)?, None, None)),
        Err(error) => Err(error),
    }
}

/// Returns the languages of the request, by default all; one without documents is an error.
fn choose_languages(request: &SampleRequest, embedded: &Embedded) -> Result<BTreeSet<String>> {
    let known = embedded.languages();
    if request.language.is_empty() {
        return Ok(known);
    }
    if let Some(unknown) = request.language.iter().find(|language| !known.contains(*language)) {
        let reason = format!("there are no documents of `{unknown}`, but of {}", in_words(&known));
        return Err(Error::config("--language", reason));
    }
    Ok(request.language.iter().cloned().collect())
}

/// Returns the thresholds of `near`: from the request, else the run's of `head`; none are an error.
fn choose_thresholds(
    context: Context<'_>,
    request: &SampleRequest,
    language: &str,
    (head, heads): (&str, &Heads),
) -> Result<NearThresholds> {
    let keep = heads.get(head, language).map_or(Keep::Above, |head| head.spec().keep);
    let mut thresholds: Vec<NearThreshold> =
        request.rate.iter().map(|rate| NearThreshold::Share(rate.as_f64())).collect();
    if thresholds.is_empty() {
        thresholds = thresholds_of_run(context, language, (head, keep));
    }
    if thresholds.is_empty() && heads.get(head, language).is_none() {
        let reason =
            format!("is missing: {language} has no head `{head}`; name the languages that have it");
        return Err(Error::config("--language", reason));
    }
    if thresholds.is_empty() {
        let reason = format!(
            "is missing: the run has no threshold of the head `{head}` in {language} that \
             documents could be near to"
        );
        return Err(Error::config("--rate", reason));
    }
    Ok(NearThresholds {
        share: request.near.map_or(0.0, Rate::as_f64),
        head: context.config.heads.keys().position(|name| name == head).unwrap_or_default(),
        keep,
        thresholds,
    })
}

/// Returns the thresholds of a head as they were found, without those that keep all or nothing; if
/// none were sought yet, as they are set.
fn thresholds_of_run(
    context: Context<'_>,
    language: &str,
    (head, keep): (&str, Keep),
) -> Vec<NearThreshold> {
    let stored = stored_selections(context.run, BTreeSet::from([language.to_owned()]));
    if let Some(selection) = stored.ok().and_then(|mut stored| stored.remove(language)) {
        let of_head = selection.thresholds.iter().filter(|of| of.threshold.head_name == head);
        let bounds = of_head.flat_map(|of| &of.outcomes).map(|outcome| outcome.bound);
        let is_near = |bound: &Bound| !matches!(bound, Bound::All | Bound::Nothing);
        return bounds.filter(is_near).map(NearThreshold::Bound).collect();
    }
    let own = context.config.thresholds(language);
    let kept = own.retention.get(head).into_iter().flatten().map(|rate| rate.as_f64());
    let removed = own.removal.get(head).map(|rate| 1.0 - rate.as_f64());
    let shares = kept.chain(removed).map(NearThreshold::Share);
    let fixed = own.threshold.get(head).map(|fixed| Bound::fixed(keep, *fixed));
    shares.chain(fixed.map(NearThreshold::Bound)).collect()
}

/// The documents of a language that can be drawn: with text, not removed before the thresholds, of
/// no earlier round.
struct Frame {
    near: Option<NearThresholds>,
    /// Seeds of the ranks of documents, of the first drawn one, and of the order of rows.
    seeds: [u64; 3],
    /// Ordinals, and scores by the head that `near` looks at.
    documents: BottomKSample<(u64, Option<DocumentScore>)>,
    /// Number of documents, of which `documents` are a sample.
    population: AtomicU64,
    /// Number of documents of an earlier round.
    excluded: AtomicU64,
}

impl Frame {
    fn new(request: &SampleRequest, near: Option<NearThresholds>, seeds: [u64; 3]) -> Self {
        let documents = BottomKSample::new(request.frame.max(request.count));
        Self { near, seeds, documents, population: AtomicU64::new(0), excluded: AtomicU64::new(0) }
    }
}

/// Reads the frames of some languages in one pass over their shards.
fn read_frames(
    embedded: &Embedded,
    stored: &RunRows<'_>,
    frames: &BTreeMap<&str, Frame>,
    earlier: &EarlierRounds,
) -> Result<()> {
    let languages: Vec<&str> = frames.keys().copied().collect();
    embedded.shards_with(&languages).into_par_iter().try_for_each(|(place, shard, _)| {
        stored.shard(place, shard)?.for_each(|row| {
            let document = row.info;
            let is_eligible = document.num_bytes > 0 && !row.is_removed;
            let frame = frames.get(document.language).filter(|_| is_eligible);
            let Some(frame) = frame else { return Ok(()) };
            if earlier.ids.contains(document.id) {
                frame.excluded.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            frame.population.fetch_add(1, Ordering::Relaxed);
            let ordinal = row.scored.ordinal;
            let score = || frame.near.as_ref().and_then(|near| row.score(near.head));
            let rank = ordinal_rank(frame.seeds[0], ordinal);
            frame.documents.offer(rank, || (ordinal, score()));
            Ok(())
        })
    })
}

/// Draws `count` documents of the frame of `language` and reads their texts; the sample is uniform
/// unless the frame has thresholds to be near to.
fn draw_language<'a>(
    (embedded, stored): (&'a Embedded, &'a RunRows<'_>),
    (language, frame): (&str, Frame),
    count: usize,
    earlier: &EarlierRounds,
) -> Result<(LanguageSample, Vec<AnnotationRow<'a>>)> {
    let Frame { near, seeds: [_, start, order], documents, population, excluded } = frame;
    let population = population.into_inner();
    let (ordinals, scores): (Vec<u64>, Vec<_>) = documents.into_items().into_iter().unzip();
    let uniform = || vec![1.0; scores.len()];
    let sizes = near.map_or_else(uniform, |near| near.sizes(&scores));
    let units = design::inclusion_probabilities(&sizes, count);
    // The frame is in random order, so the design is as well.
    let start = (ordinal_rank(start, 0) >> 64) as u64 % design::ONE;
    let of_frame = ordinals.len() as f64 / population.max(1) as f64;
    let drawn = |i: usize| (ordinals[i], units[i] as f64 / design::ONE as f64 * of_frame);
    let drawn: Vec<_> = design::draw_systematic(&units, start).into_iter().map(drawn).collect();
    let num_drawn = drawn.len();
    let (rows, known_texts) = read_rows((&embedded.plan, stored), drawn, earlier, order)?;
    let weights: Vec<f64> = rows.iter().map(|row| row.weight).collect();
    let sample = LanguageSample {
        language: language.to_owned(),
        documents: population,
        excluded: excluded.into_inner(),
        drawn: num_drawn,
        rows: rows.len(),
        copies: rows.iter().map(|row| row.copies - 1).sum(),
        known_texts,
        effective_size: effective_size(&weights),
    };
    Ok((sample, rows))
}

fn already_exists(path: &Path) -> Error {
    let reason = format!("{} exists, maybe with annotations; name another file", path.display());
    Error::config("--out", reason)
}
