//! Evaluates heads on labelled texts, which are embedded and scored as a corpus is.

use std::collections::{BTreeMap, BTreeSet};

use super::agreement::{HeadLogits, compare_pairs};
use super::report::{DataFile, EncoderUsed, HeadUsed, Judged, Report};
use super::rules::{DecisionRule, Ranked, gives_grades};
use super::selections::{EstimatedRun, ScoredTexts, weigh_texts};
use super::texts::{BLOCK_TEXTS, TextScorer};
use polysift_base::error::{Error, Result};
use polysift_base::metrics::WeightedText;
use polysift_base::progress::{Progress, Stop};
use polysift_config::{HeadConfig, Keep, Rate, RunConfig};
use polysift_corpus::Context;
use polysift_corpus::heads::{Heads, Loaded};
use polysift_data::input::{InputFile, LabelledText, SampleColumns, read_samples};
use polysift_encoder::HubSettings;
use polysift_heads::head::{AnyHead, DocumentScore};
use polysift_runs::run::{RunDir, Stage, Worker};
use polysift_selection::{RankKey, Selection};

/// Default name of the column that says where a text is from.
pub const SOURCE: &str = "source";

/// Maximum number of grade thresholds that are chosen by default.
const MAX_CUTS: usize = 20;

/// What to evaluate, and on which texts.
#[derive(Clone)]
pub struct Setup<'a> {
    /// Settings of the encoder and of the input.
    pub config: &'a RunConfig,
    /// The heads by name; heads without a path were trained in `run`.
    pub heads: &'a BTreeMap<String, HeadConfig>,
    /// The run that provides trained heads and thresholds.
    pub run: Option<&'a RunDir>,
    /// Files with labelled texts.
    pub files: &'a [InputFile],
    /// Columns of the files.
    pub columns: SampleColumns<'a>,
    /// Grades above which a text is positive, in turn; by default halfway between whole grades.
    pub cuts: &'a [f64],
    /// Whether to embed as many chunks as the heads' chunk rules need, overriding `config`.
    pub chunks_of_heads: bool,
    /// Rules to judge decisions by, besides 0.5 and the rules of the run.
    pub rules: &'a [DecisionRule],
    /// Rates at which to estimate a selection, for texts that were drawn from the run.
    pub rates: &'a [Rate],
    /// Top-k% rate for the agreement of heads.
    pub top: Rate,
    /// How models are downloaded.
    pub hub: &'a HubSettings,
    /// Stop request.
    pub stop: &'a Stop,
    /// Shows how many texts are scored.
    pub progress: &'a dyn Progress,
}

/// Scores labelled texts with all heads and measures how well the heads do.
///
/// If a head needs embeddings, texts are embedded and rounded as a corpus is; fastText heads score
/// the text itself. A run provides the precision and the thresholds. A head that a language lacks
/// is skipped there and the report says so. [`Error::Missing`] without a text or if a head's file
/// is absent; [`Error::Model`] for a head of another encoder or width.
pub fn evaluate(setup: &Setup<'_>) -> Result<Report> {
    let (samples, skipped) = read_samples(setup.files, &setup.config.input, &setup.columns)?;
    if samples.is_empty() {
        let paths: Vec<String> = setup.files.iter().map(|f| f.path.display().to_string()).collect();
        let reason = "holds no labelled text".to_owned();
        return Err(Error::Missing { path: paths.join(", "), reason });
    }
    let named = setup.columns.source.filter(|column| *column != SOURCE);
    if let Some(column) = named.filter(|_| samples.iter().all(|sample| sample.source.is_none())) {
        return Err(Error::config("--source-column", format!("no text has a `{column}`")));
    }
    let drawn = weigh_texts(&samples, setup.columns.weight.is_some())?;
    let languages: BTreeSet<String> = samples.iter().map(|s| s.language.clone()).collect();
    let cuts = choose_cuts(setup, &samples)?;
    let heads = Heads::find(setup.heads, setup.run, languages, setup.config.seed)?;
    let &Setup { config, run, chunks_of_heads, hub, stop, progress, .. } = setup;
    let scorer = TextScorer::open(&heads, config, run, chunks_of_heads, (hub, stop))?;
    let data = setup.files.iter().map(|file| {
        let (path, language) = (file.path.display().to_string(), file.language.clone());
        Ok(DataFile { path, language, fingerprint: file.fingerprint()? })
    });
    let mut report = Report {
        data: data.collect::<Result<_>>()?,
        texts: samples.len(),
        skipped,
        encoder: scorer.model.as_ref().map(|model| EncoderUsed {
            model: config.encoder.model.clone(),
            digest: model.recipe.model_digest.clone(),
            device: model.encoder.info().device.clone(),
            precision: model.placement.precision.to_string(),
        }),
        ..Report::default()
    };
    let worker = setup.run.map(Worker::observer);
    let mut estimated = None;
    if let (Some(run), Some(worker), Some(drawn)) = (setup.run, &worker, &drawn) {
        let context = Context::observing(config, run, hub, stop, progress, worker);
        match EstimatedRun::open(context, setup.heads, &samples)? {
            Ok(run) => estimated = Some((run, drawn.as_slice())),
            Err(reason) => report.notes.push(format!("the selection is not estimated: {reason}")),
        }
    }
    setup.progress.begin("evaluate", Some(samples.len() as u64), "texts");
    for language in heads.languages() {
        let is_own = |at: &usize| samples[*at].language == *language;
        let places: Vec<usize> = (0..samples.len()).filter(is_own).collect();
        let samples = places.iter().map(|at| &samples[*at]).collect();
        let drawn = estimated.as_ref().map(|(run, drawn)| {
            (run, places.iter().map(|at| drawn[*at]).collect::<Vec<WeightedText>>())
        });
        LanguageTexts { setup, scorer: &scorer, cuts: &cuts, language, samples, drawn }
            .add_results(&mut report)?;
    }
    setup.progress.end();
    for name in setup.heads.keys() {
        add_notes_and_means(name, heads.languages(), &mut report);
    }
    report.heads.sort_by(|a, b| a.head.cmp(&b.head));
    let Report { measures, decisions, grades, selections, .. } = &mut report;
    for table in [measures, decisions, grades, selections] {
        table.sort_by(|a, b| a.group.head.cmp(&b.group.head));
    }
    Ok(report)
}

/// Returns the grade thresholds; by default none if all labels are classes, else those halfway
/// between whole grades with labels on both sides; it is an error if these are none or too many.
fn choose_cuts(setup: &Setup<'_>, samples: &[LabelledText]) -> Result<Vec<f64>> {
    let is_class = |sample: &LabelledText| [0.0, 1.0].contains(&sample.label);
    if let Some(cut) = setup.cuts.iter().find(|cut| !cut.is_finite()) {
        return Err(Error::config("--cut", format!("`{cut}` is not a number")));
    }
    if !setup.cuts.is_empty() || samples.iter().all(is_class) {
        return Ok(setup.cuts.to_vec());
    }
    let grades = || samples.iter().map(|sample| f64::from(sample.label));
    let lowest = grades().fold(f64::INFINITY, f64::min);
    let highest = grades().fold(f64::NEG_INFINITY, f64::max);
    let first = lowest.floor() + 0.5;
    let count = (highest - first).ceil().max(0.0);
    let mut cuts: Vec<f64> = Vec::new();
    if count <= MAX_CUTS as f64 {
        let halfway = (0..count as u32).map(|k| first + f64::from(k));
        cuts.extend(halfway.filter(|cut| lowest <= *cut));
    }
    if cuts.is_empty() {
        let reason = format!(
            "is missing: the labels are grades from {lowest} to {highest}, say above which a text is positive"
        );
        return Err(Error::config("--cut", reason));
    }
    Ok(cuts)
}

/// Adds the notes on the head `name` and, if it serves several languages, its means over them.
fn add_notes_and_means(name: &str, languages: &BTreeSet<String>, report: &mut Report) {
    let used: Vec<&HeadUsed> = report.heads.iter().filter(|used| used.head == name).collect();
    let nan: usize = used.iter().map(|used| used.nan).sum();
    let gives_probabilities = used.iter().all(|used| used.spec.output.is_probability());
    let is_served = |language: &&str| used.iter().any(|used| used.language == *language);
    let languages = languages.iter().map(String::as_str);
    let without: Vec<&str> = languages.filter(|language| !is_served(language)).collect();
    let trained = used.iter().filter(|used| used.trained_on_this_data);
    let trained: Vec<&str> = trained.map(|used| used.language.as_str()).collect();
    let (notes, has_several) = (&mut report.notes, used.len() > 1);
    if !gives_probabilities {
        notes.push(format!("the scores of `{name}` are not probabilities: they have no log loss"));
    }
    if !without.is_empty() {
        notes.push(format!("there is no `{name}` for {}", without.join(", ")));
    }
    if nan > 0 {
        notes.push(format!("{nan} text(s) are left out: their score of `{name}` is NaN"));
    }
    if !trained.is_empty() {
        let files = format!("texts of these files ({})", trained.join(", "));
        let warning = "the figures do not hold for unseen text";
        notes.push(format!("`{name}` was trained on {files}: {warning}"));
    }
    if has_several {
        report.add_means(name);
    }
}

struct LanguageTexts<'a> {
    setup: &'a Setup<'a>,
    scorer: &'a TextScorer<'a>,
    cuts: &'a [f64],
    language: &'a str,
    samples: Vec<&'a LabelledText>,
    /// The run that the texts were drawn from, and how each text was drawn.
    drawn: Option<(&'a EstimatedRun<'a>, Vec<WeightedText>)>,
}

impl<'a> LanguageTexts<'a> {
    /// Adds the results of every head and the agreement of the heads.
    fn add_results(&self, report: &mut Report) -> Result<()> {
        let &Self { setup, scorer: &TextScorer { heads, .. }, language, .. } = self;
        let read = |run: &RunDir| {
            run.read_output(Stage::Threshold, language, &run.selection_file(language))
        };
        let selection: Option<Selection> = setup.run.map_or(Ok(None), read)?;
        let all_scores = self.score_texts()?;
        let estimated = match &self.drawn {
            Some((run, drawn)) => {
                let ids: Vec<&str> = self.samples.iter().map(|sample| sample.id.as_str()).collect();
                let of_text = |row: usize| all_scores.values().map(|scores| scores[row]).collect();
                let scores = (0..ids.len()).map(of_text).collect();
                let dropped = run.find_dropped(language, &ids)?;
                Some((run, drawn, ScoredTexts { ids, scores, dropped }))
            }
            None => None,
        };
        for (&name, scores) in &all_scores {
            let Some(Loaded { head, path }) = heads.loaded(name, language) else { continue };
            let mut judged = self.judge_texts(name, head, scores, selection.as_ref());
            if let Some((run, drawn, texts)) = &estimated {
                let labels = self.samples.iter().map(|sample| sample.label);
                judged.drawn = labels.zip(drawn.iter().copied()).collect();
                let rules = (selection.as_ref(), setup.rates);
                judged.selected = run.call_selected(language, (name, head.spec()), rules, texts)?;
            }
            judged.tabulate((name, language), self.cuts, report);
            let provenance = head.card().provenance.as_ref();
            let digests = provenance.map_or(&[][..], |provenance| &provenance.data_digests);
            let is_own = |file: &&DataFile| file.language.as_ref().is_none_or(|of| of == language);
            let mut files = report.data.iter().filter(is_own);
            report.heads.push(HeadUsed {
                head: name.to_owned(),
                language: language.to_owned(),
                file: path.display().to_string(),
                digest: head.digest().to_owned(),
                spec: head.spec().clone(),
                trained_on_this_data: files.any(|file| digests.contains(&file.fingerprint)),
                nan: judged.nan,
                unscored: judged.unscored,
            });
        }
        let logits = |(&name, scores): (&&'a str, &Vec<Option<DocumentScore>>)| -> HeadLogits<'a> {
            let keep = heads.get(name, language).map_or(Keep::Above, |head| head.spec().keep);
            (name, keep, scores.iter().map(|score| score.map_or(f32::NAN, |s| s.logit)).collect())
        };
        let columns: Vec<HeadLogits<'a>> = all_scores.iter().map(logits).collect();
        let rows = 0..self.samples.len();
        let ties: Vec<RankKey> = rows.map(|row| self.rank_key(row, 0.0, Keep::Above)).collect();
        report.agreement.extend(compare_pairs(language, &columns, &ties, setup.top));
        Ok(())
    }

    /// Embeds and scores the texts in blocks; returns, by head, a score for each text in order.
    fn score_texts(&self) -> Result<BTreeMap<&'a str, Vec<Option<DocumentScore>>>> {
        let &Self { setup, scorer, language, .. } = self;
        let mut scores: BTreeMap<&str, Vec<Option<DocumentScore>>> = BTreeMap::new();
        for samples in self.samples.chunks(BLOCK_TEXTS) {
            setup.stop.check()?;
            let texts: Vec<Option<&str>> = samples.iter().map(|s| Some(s.text.as_str())).collect();
            let mut tokens = 0;
            let on_batch = &mut |_, batch_tokens: usize| tokens += batch_tokens as u64;
            let embedded = scorer.embed(&texts, on_batch)?;
            for name in setup.heads.keys() {
                let scored = if let Some(head) = scorer.heads.of_rows(name) {
                    let mut columns = setup.columns.scores.iter();
                    let column = columns.position(|name| head.column() == Some(name));
                    let value = |sample: &LabelledText| sample.scores[column?];
                    samples.iter().map(|s| head.score(&s.id, value(s))).collect()
                } else {
                    let languages = vec![language; texts.len()];
                    scorer.heads.score_embedded(name, &languages, &texts, &embedded)?
                };
                scores.entry(name).or_default().extend(scored);
            }
            setup.progress.advance(texts.len() as u64, tokens);
        }
        Ok(scores)
    }

    /// Returns the sort key of the text `row` in an order by `logit`, in which the id breaks ties.
    fn rank_key(&self, row: usize, logit: f32, keep: Keep) -> RankKey {
        RankKey::of_logit(logit, keep).with_id(&self.samples[row].id, row as u64)
    }

    /// Collects the texts with a score, counts those without or with NaN, and applies the rules.
    fn judge_texts(
        &self,
        name: &str,
        head: &AnyHead,
        scores: &[Option<DocumentScore>],
        selection: Option<&Selection>,
    ) -> Judged<'a> {
        let is_probability = head.spec().output.is_probability();
        let gives_grades = gives_grades(head.spec());
        let mut judged = Judged { is_probability, gives_grades, ..Judged::default() };
        let mut keys = Vec::new();
        for (row, (sample, score)) in self.samples.iter().zip(scores).enumerate() {
            match *score {
                None => judged.unscored += 1,
                Some(score) if score.is_nan() => judged.nan += 1,
                Some(score) => {
                    keys.push(self.rank_key(row, score.logit, head.spec().keep));
                    judged.scores.push(score);
                    judged.labels.push(sample.label);
                    judged.sources.push(sample.source.as_deref());
                }
            }
        }
        let ranked = Ranked { head: name, spec: head.spec(), scores: &judged.scores, keys: &keys };
        judged.calls = ranked.apply_rules(self.setup.rules, self.cuts, selection);
        judged
    }
}
