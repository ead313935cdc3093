//! Labelled texts through the encoder and the heads, as a corpus goes through them.

use std::collections::{BTreeMap, BTreeSet};

use super::agreement::{HeadLogits, Pair, pairs};
use super::report::{DataFile, EncoderUsed, HeadUsed, Judged, Report};
use super::rules::{DecisionRule, Ranked, gives_probabilities};
use crate::config::{ChunkRule, Chunks, HeadConfig, Keep, Rate, RunConfig};
use crate::encoder::{self, EmbeddedTexts, HubSettings, Model};
use crate::error::{Error, Result};
use crate::head::{AnyHead, DocumentScore};
use crate::input::{InputFile, LabelledText, SampleColumns, read_samples};
use crate::parts::round_to;
use crate::progress::{Progress, Stop};
use crate::run::{RunDir, Stage, Worker};
use crate::selection::{RankKey, Selection};
use crate::stage::context::Context;
use crate::stage::heads::Heads;
use crate::stage::model;

/// Texts embedded and scored at once.
const BLOCK_TEXTS: usize = 1024;

/// What is to be evaluated on what.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Settings of the encoder and of the input.
    pub config: &'a RunConfig,
    /// The heads by name; those without a path were trained in `run`.
    pub heads: &'a BTreeMap<String, HeadConfig>,
    /// The run whose heads and thresholds are meant.
    pub run: Option<&'a RunDir>,
    /// Labelled texts.
    pub files: &'a [InputFile],
    /// Their columns.
    pub columns: SampleColumns<'a>,
    /// Whether as many chunks are embedded as the heads' rules look at, whatever `config` says.
    pub chunks_of_heads: bool,
    /// Rules to judge decisions by, besides 0.5 and those of the run.
    pub rules: &'a [DecisionRule],
    /// Rate of the documents that are the top of a head.
    pub top: Rate,
    /// How models are fetched.
    pub hub: &'a HubSettings,
    /// Asks for a stop.
    pub stop: &'a Stop,
    /// Shows how many texts are scored.
    pub progress: &'a dyn Progress,
}

/// Scores labelled texts with all heads and measures how well they do.
///
/// Texts are embedded and rounded as a corpus is, where a head needs that; fastText heads score the
/// texts themselves. With a run its type and its thresholds are taken. A language without a head of some
/// name is left out there, and the report says so.
///
/// # Errors
/// As [`read_samples`]; [`Error::Missing`] without a text, or without a file of a head;
/// [`Error::Model`] for a head of another encoder or width; [`Error::Stopped`].
pub fn evaluate(setup: &Setup<'_>) -> Result<Report> {
    let read = read_samples(setup.files, &setup.config.input, setup.columns)?;
    let samples = read.samples;
    if samples.is_empty() {
        let paths: Vec<String> = setup.files.iter().map(|f| f.path.display().to_string()).collect();
        let reason = "holds no labelled text".to_owned();
        return Err(Error::Missing { path: paths.join(", "), reason });
    }
    let languages: BTreeSet<String> = samples.iter().map(|s| s.language.clone()).collect();
    let heads = Heads::find(setup.heads, setup.run, languages)?;
    let model = load_model(setup, &heads)?;
    let scores = score(setup, &heads, model.as_ref(), &samples)?;
    let data = setup.files.iter().map(|file| {
        let (path, language) = (file.path.display().to_string(), file.language.clone());
        Ok(DataFile { path, language, fingerprint: file.fingerprint()? })
    });
    let mut report = Report {
        data: data.collect::<Result<_>>()?,
        texts: samples.len(),
        skipped: read.skipped,
        encoder: model.as_ref().map(encoder_used),
        ..Report::default()
    };
    let texts = ScoredTexts { setup, heads: &heads, samples: &samples, scores: &scores };
    for name in setup.heads.keys() {
        texts.tabulate(name, &mut report)?;
    }
    report.agreement = texts.agreement();
    Ok(report)
}

fn encoder_used(model: &Model) -> EncoderUsed {
    let info = model.encoder.info();
    EncoderUsed {
        model: info.model.clone(),
        digest: info.digest.clone(),
        device: info.device.clone(),
        precision: model.placement.precision().to_owned(),
    }
}

/// The encoder of the settings, if a head needs one; with a run in the type that it was begun with.
fn load_model(setup: &Setup<'_>, heads: &Heads) -> Result<Option<Model>> {
    if heads.all().all(|head| head.as_embedding().is_none()) {
        return Ok(None);
    }
    let mut config = setup.config.clone();
    let looks_further = |head: &AnyHead| head.spec().chunk != ChunkRule::First;
    if setup.chunks_of_heads {
        config.encoder.chunks =
            if heads.all().any(looks_further) { Chunks::All } else { Chunks::First };
    }
    let &Setup { hub, stop, progress, .. } = setup;
    let model = match setup.run {
        None => encoder::load(&config.encoder, hub)?,
        Some(run) => {
            let worker = Worker::observer(run);
            let context = Context::observing(&config, run, hub, stop, progress, &worker);
            model::load_model(context, Stage::Score)?
        }
    };
    heads.check_encoder(&model.encoder.info().digest)?;
    Ok(Some(model))
}

/// By head, the score of each sample.
type Scores<'a> = BTreeMap<&'a str, Vec<Option<DocumentScore>>>;

/// Scores `samples`, each by the heads of its language.
fn score<'a>(
    setup: &Setup<'a>,
    heads: &Heads,
    model: Option<&Model>,
    samples: &[LabelledText],
) -> Result<Scores<'a>> {
    let mut scores: Scores<'a> =
        setup.heads.keys().map(|name| (name.as_str(), vec![None; samples.len()])).collect();
    setup.progress.begin("evaluate", Some(samples.len() as u64), "texts");
    let outcome = heads.languages().iter().try_for_each(|language| {
        let rows = rows_of(samples, language);
        rows.chunks(BLOCK_TEXTS)
            .try_for_each(|rows| score_block(setup, heads, model, (samples, rows), &mut scores))
    });
    setup.progress.end();
    outcome.map(|()| scores)
}

/// The samples of `language`.
fn rows_of(samples: &[LabelledText], language: &str) -> Vec<usize> {
    (0..samples.len()).filter(|&row| samples[row].language == language).collect()
}

/// Scores some samples of one language.
fn score_block(
    setup: &Setup<'_>,
    heads: &Heads,
    model: Option<&Model>,
    (samples, rows): (&[LabelledText], &[usize]),
    scores: &mut Scores<'_>,
) -> Result<()> {
    let config = setup.config;
    let language = &samples[rows[0]].language;
    let texts: Vec<&str> = rows.iter().map(|&row| samples[row].text.as_str()).collect();
    let mut tokens = 0;
    let on_batch = &mut |_, batch_tokens: usize| tokens += batch_tokens as u64;
    let (mut embedded, mut width) = (EmbeddedTexts::default(), 0);
    if let Some(model) = model {
        let encoder = &config.encoder;
        embedded = model.embed_texts(&texts, Chunks::All, encoder, setup.stop, on_batch)?;
        round_to(&mut embedded.values, config.parts.embeddings);
        width = model.encoder.info().hidden_size;
    }
    for (name, scores) in scores {
        let Some((head, path)) = heads.get(name, language).zip(heads.path(name, language)) else {
            continue;
        };
        let scored = match head {
            AnyHead::Text(head) => {
                let texts: Vec<Option<&str>> = texts.iter().copied().map(Some).collect();
                head.score(&texts)
            }
            AnyHead::Embedding(head) => {
                head.check_hidden_size(path, width)?;
                head.score(&embedded.values, &embedded.chunk_offsets)?
            }
        };
        for (&row, score) in rows.iter().zip(scored) {
            scores[row] = score;
        }
    }
    setup.progress.advance(rows.len() as u64, tokens);
    Ok(())
}

/// The texts with their scores.
struct ScoredTexts<'a> {
    setup: &'a Setup<'a>,
    heads: &'a Heads,
    samples: &'a [LabelledText],
    scores: &'a Scores<'a>,
}

impl<'a> ScoredTexts<'a> {
    /// Adds what the head `name` does, language by language and, where there are several, on average.
    fn tabulate(&self, name: &str, report: &mut Report) -> Result<()> {
        let Self { setup, heads, .. } = self;
        let (mut without_head, mut trained) = (vec![], vec![]);
        let (before, mut gives_all_probabilities) = (report.heads.len(), true);
        for language in heads.languages() {
            let Some((head, path)) = heads.get(name, language).zip(heads.path(name, language))
            else {
                without_head.push(language.as_str());
                continue;
            };
            let is_probability = gives_probabilities(head.spec().activation);
            gives_all_probabilities &= is_probability;
            let selection = selection(setup, language)?;
            let judged = self.judged(name, head, language, selection.as_ref());
            judged.tabulate((name, language), is_probability, report);
            let trained_on_this_data = was_trained_on(head, &report.data);
            if trained_on_this_data {
                trained.push(language.as_str());
            }
            report.heads.push(HeadUsed {
                head: name.to_owned(),
                language: language.clone(),
                file: path.display().to_string(),
                digest: head.digest().to_owned(),
                spec: head.spec().clone(),
                trained_on_this_data,
                nan: judged.nan,
                unscored: judged.unscored,
            });
        }
        let nan: usize = report.heads[before..].iter().map(|head| head.nan).sum();
        if report.heads.len() > before + 1 {
            report.add_means(name);
        }
        let mut note = |applies: bool, text: String| report.notes.extend(applies.then_some(text));
        note(
            !gives_all_probabilities,
            format!("the scores of `{name}` are not probabilities: they have no log loss"),
        );
        note(
            !without_head.is_empty(),
            format!("there is no `{name}` for {}", without_head.join(", ")),
        );
        note(nan > 0, format!("{nan} text(s) are left out: their score of `{name}` is NaN"));
        note(
            !trained.is_empty(),
            format!(
                "`{name}` was trained on texts of these files ({}): the figures are not those of \
                 unseen text",
                trained.join(", ")
            ),
        );
        Ok(())
    }

    /// The texts of `language` that the head gave a score.
    fn judged(
        &self,
        name: &str,
        head: &AnyHead,
        language: &str,
        selection: Option<&Selection>,
    ) -> Judged<'a> {
        let mut judged = Judged::default();
        let mut keys = Vec::new();
        for row in rows_of(self.samples, language) {
            let (sample, score) = (&self.samples[row], self.scores[name][row]);
            match score {
                None => judged.unscored += 1,
                Some(score) if score.is_nan() => judged.nan += 1,
                Some(score) => {
                    keys.push(
                        RankKey::of_logit(score.logit, head.spec().keep)
                            .with_id(&sample.id, row as u64),
                    );
                    judged.scores.push(score);
                    judged.labels.push(sample.label);
                    judged.sources.push(sample.source.as_deref());
                }
            }
        }
        let ranked = Ranked { head: name, spec: head.spec(), scores: &judged.scores, keys: &keys };
        judged.calls = ranked.calls(self.setup.rules, selection);
        judged
    }

    /// How far the heads agree, language by language.
    fn agreement(&self) -> Vec<Pair> {
        let of_language = |language: &String| {
            let rows = rows_of(self.samples, language);
            let key = |&row: &usize| {
                RankKey::of_logit(0.0, Keep::Above).with_id(&self.samples[row].id, row as u64)
            };
            let ties: Vec<RankKey> = rows.iter().map(key).collect();
            let logit = |score: Option<DocumentScore>| score.map_or(f32::NAN, |score| score.logit);
            let column =
                |(name, scores): (&&'a str, &Vec<Option<DocumentScore>>)| -> HeadLogits<'a> {
                    (*name, rows.iter().map(|&row| logit(scores[row])).collect())
                };
            let columns: Vec<HeadLogits<'_>> = self.scores.iter().map(column).collect();
            pairs(language, &columns, &ties, self.setup.top)
        };
        self.heads.languages().iter().flat_map(of_language).collect()
    }
}

/// The selection of `language` in the run, where it is made.
fn selection(setup: &Setup<'_>, language: &str) -> Result<Option<Selection>> {
    let Some(run) = setup.run else { return Ok(None) };
    run.read_json(&run.selection_file(language))
}

/// Whether the card of `head` names one of `files`.
fn was_trained_on(head: &AnyHead, files: &[DataFile]) -> bool {
    let provenance = head.card().provenance.as_ref();
    let digests = provenance.map_or(&[][..], |provenance| &provenance.data_digests);
    files.iter().any(|file| digests.contains(&file.fingerprint))
}
