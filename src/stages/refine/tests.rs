//! A corpus scored in f32 and then moved away by noise that a test chooses, so that the result that
//! the stage has to find is known.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::{embed, score, threshold, train};
use polysift_base::progress::{Silent, Stop};
use polysift_config::{
    DeviceChoice, EncoderPrecision, LanguageSource, Mode, REFINE_MIN_SAMPLE, RunConfig,
};
use polysift_corpus::embedded::ordinal;
use polysift_corpus::plan::plan;
use polysift_corpus::refinement::Refinement;
use polysift_corpus::score_files::read_part;
use polysift_corpus::select::select_language;
use polysift_corpus::{Embedded, Heads, ScoreFiles};
use polysift_data::parts::read_scores;
use polysift_encoder::HubSettings;
use polysift_runs::run::{PartFile, Worker};
use polysift_selection::{Decision, ScoredDocument, Selection, ThresholdKind};
use polysift_views::verify;

const LANGUAGE: &str = "fra_Latn";
/// File names of the corpus, and number of documents in each.
const SHARDS: [(&str, usize); 2] = [("a", 250), ("b", 150)];

const SETTINGS: &str = "
    [parts]
    rows = 100
    [heads.quality.training]
    batch_size = 16
    epochs = 12
    weight_decay = 0.01
    [heads.toxicity.training]
    batch_size = 16
    epochs = 12
    weight_decay = 0.01
    [languages._default]
    removal = { toxicity = 0.05 }
    retention = { quality = [0.1, 0.33] }
";

struct Noisy {
    _dir: TempDir,
    run: RunDir,
    config: RunConfig,
    hub: HubSettings,
    stop: Stop,
    worker: Worker,
    /// Scores in f32 by head, ordinals ascending.
    exact: BTreeMap<String, Vec<(u64, f32)>>,
    /// Decisions of the f32 selection, by ordinal.
    expected: BTreeMap<u64, String>,
    /// Thresholds of the f32 selection.
    thresholds: Selection,
}

fn words(i: usize) -> String {
    const WORDS: [&str; 12] = [
        "river", "theorem", "cell", "empire", "energy", "moon", "buy", "cheap", "click", "login",
        "sale", "idiot",
    ];
    let chosen = (0..5 + i % 7).map(|j| WORDS[(i * 31 + j * (7 + i % 5)) % WORDS.len()]);
    format!("{} {i}", chosen.collect::<Vec<_>>().join(" "))
}

fn write_lines(path: &Path, rows: impl Iterator<Item = Value>) -> Result<()> {
    let lines: Vec<String> = rows.map(|row| row.to_string()).collect();
    polysift_base::io::write_atomic(path, lines.join("\n").as_bytes()).map(drop)
}

impl Noisy {
    /// Scores the corpus in f32.
    fn new(settings: &str) -> Result<Self> {
        let dir = tempfile::tempdir().map_err(Error::io("temp".as_ref(), "create"))?;
        for (shard, documents) in SHARDS {
            let text = |i: usize| if i == 7 { String::new() } else { words(i) };
            let language = |i: usize| if i % 4 == 3 { "deu_Latn" } else { LANGUAGE };
            let rows = (0..documents).map(
                |i| json!({"text": text(i), "id": format!("{shard}{i}"), "language": language(i)}),
            );
            write_lines(&dir.path().join(format!("corpus/{shard}.jsonl")), rows)?;
        }
        for (head, sign) in [("quality", 0), ("toxicity", 1)] {
            let label = |i: usize| (i + i / 7) % 2 == sign;
            let rows = (1000..1080).map(|i| json!({"text": words(i), "label": label(i)}));
            write_lines(&dir.path().join(format!("{head}.jsonl")), rows)?;
        }
        let mut config: RunConfig =
            toml::from_str(settings).map_err(|e| Error::config("test", e.to_string()))?;
        let name = |name: &str| dir.path().join(name).display().to_string();
        config.input.files = vec![name("corpus")];
        if !matches!(config.input.language, LanguageSource::Column { .. }) {
            config.input.language = LanguageSource::Fixed(LANGUAGE.into());
        }
        for (head, settings) in &mut config.heads {
            settings.train = vec![name(&format!("{head}.jsonl"))];
        }
        // A small encoder; the quality of its embeddings does not matter here.
        config.encoder.model =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/encoder/head16-prefixed")
                .into();
        config.encoder.device = DeviceChoice::Cpu;
        config.encoder.precision = EncoderPrecision::F32;
        config.selection.refine_risk = 0.0;
        config.check()?;
        let run = RunDir::create(&dir.path().join("run"))?;
        let hub = HubSettings {
            cache: "none".into(),
            token: None,
            endpoint: String::new(),
            offline: true,
        };
        let mut noisy = Self {
            _dir: dir,
            config,
            hub,
            worker: Worker::join(&run, &Stop::default())?,
            run,
            stop: Stop::default(),
            exact: BTreeMap::new(),
            expected: BTreeMap::new(),
            thresholds: Selection {
                mode: Mode::default(),
                skipped: Vec::new(),
                thresholds: Vec::new(),
                cascade: None,
            },
        };
        noisy.score_in_f32()?;
        Ok(noisy)
    }

    fn score_in_f32(&mut self) -> Result<()> {
        let context = self.context();
        embed::embed(context, &plan(&self.config)?, None)?;
        train::train(context)?;
        score::score(context)?;
        let thresholds = self.select(ScoreFiles::Scored)?;
        let expected = self.decisions(&thresholds, ScoreFiles::Scored)?;
        let mut exact = BTreeMap::new();
        self.each_row(ScoreFiles::Scored, &mut |place, heads, at| {
            for (name, part) in self.config.heads.keys().zip(heads) {
                let scores: &mut Vec<_> = exact.entry(name.clone()).or_default();
                scores.extend(
                    part.scores[at]
                        .map(|found| (ordinal(place, part.documents.rows()[at]), found.logit)),
                );
            }
        })?;
        (self.exact, self.expected, self.thresholds) = (exact, expected, thresholds);
        Ok(())
    }

    fn context(&self) -> Context<'_> {
        let Self { config, run, hub, stop, worker, .. } = self;
        Context::observing(config, run, hub, stop, &Silent, worker)
    }

    /// Makes the encoder look as if it had computed in int8; `moved` maps head, ordinal and f32
    /// logit to the stored logit.
    fn move_scores(&mut self, moved: impl Fn(&str, u64, f32) -> f32) -> Result<()> {
        let embedded = Embedded::of(&self.run)?;
        let heads = Heads::load(self.context(), &embedded)?;
        for name in self.config.heads.keys() {
            let head = heads.get(name, LANGUAGE).ok_or_else(|| Error::config(name, "no head"))?;
            for (place, shard) in (0..).zip(&self.run.plan()?.shards) {
                let key = format!("{name}/{}", shard.name);
                let mut marker = self.run.shard_marker(Stage::Score, &key)?.unwrap_or_default();
                for index in 0..marker.files.len() {
                    let path = ScoreFiles::Scored.part(&self.run, name, shard, index);
                    let mut rows = read_scores(&path)?;
                    for (at, row) in rows.documents.rows().iter().enumerate() {
                        let output = head.spec().output;
                        rows.scores[at] = rows.scores[at].map(|found| {
                            let logit = moved(name, ordinal(place, *row), found.logit);
                            DocumentScore::new(logit, output)
                        });
                    }
                    let stamp = write_scores(&path, &rows, None, 1)?;
                    marker.files[index] = PartFile { stamp, ..marker.files[index].clone() };
                }
                self.run.mark_shard(Stage::Score, &key, &marker)?;
            }
        }
        let path = self.run.path("frozen/embed.json");
        let mut frozen: Value = self.run.read_json(&path)?.unwrap_or_default();
        frozen["encoder"]["precision"] = "int8".into();
        self.run.write_json(&path, &frozen)?;
        self.config.encoder.precision = EncoderPrecision::Int8;
        self.config.selection.refine = true;
        Ok(())
    }

    fn select(&self, files: ScoreFiles) -> Result<Selection> {
        let embedded = Embedded::of(&self.run)?;
        let heads = Heads::load(self.context(), &embedded)?;
        select_language(self.context(), &embedded, &heads, LANGUAGE, files, None)
    }

    fn each_row(
        &self,
        files: ScoreFiles,
        visit: &mut dyn FnMut(u64, &[ScoreRows], usize),
    ) -> Result<()> {
        let names: Vec<&str> = self.config.heads.keys().map(String::as_str).collect();
        for (place, shard) in (0..).zip(&self.run.plan()?.shards) {
            for index in 0..self.run.done(Stage::Embed, &shard.name)?.files.len() {
                let heads = read_part(self.context(), files, &names, shard, index)?;
                (0..heads[0].scores.len()).for_each(|at| visit(place, &heads, at));
            }
        }
        Ok(())
    }

    fn decisions(&self, selection: &Selection, files: ScoreFiles) -> Result<BTreeMap<u64, String>> {
        let mut decisions = BTreeMap::new();
        self.each_row(files, &mut |place, heads, at| {
            let scores: Vec<_> = heads.iter().map(|part| part.scores[at]).collect();
            let document = heads[0].documents.get(at);
            if document.language != LANGUAGE {
                return; // other thresholds decide
            }
            let row = ScoredDocument {
                id: document.id,
                ordinal: ordinal(place, document.row),
                scores: &scores,
            };
            let fate = match selection.decide(&row) {
                Decision::Kept { retentions } => format!("kept at {retentions:?}"),
                removed @ Decision::Removed { .. } => removed.to_string(),
            };
            decisions.insert(row.ordinal, fate);
        })?;
        Ok(decisions)
    }

    fn refine(&self) -> Result<Refinement> {
        refine(self.context())?;
        threshold::threshold(self.context())?;
        Refinement::read(&self.run)?.ok_or_else(|| Error::config("report", "is not there"))
    }

    /// Asserts that the selection equals that of f32: every decision and every threshold.
    fn assert_selects_as_f32(&self) -> Result<()> {
        let selection = self.select(ScoreFiles::Refined)?;
        assert_eq!(self.decisions(&selection, ScoreFiles::Refined)?, self.expected);
        for (threshold, expected) in selection.thresholds.iter().zip(&self.thresholds.thresholds) {
            assert_eq!(threshold.outcomes, expected.outcomes);
        }
        Ok(())
    }
}

/// Returns a pseudo-random number in [-1, 1).
fn noise(head: &str, ordinal: u64) -> f32 {
    let hash = xxhash_rust::xxh3::xxh3_64_with_seed(head.as_bytes(), ordinal);
    ((hash >> 32) as i32) as f32 / 2f32.powi(31)
}

#[test]
fn the_selection_is_that_of_f32_though_few_documents_are_scored_again() -> Result<()> {
    let orders = ["", "[selection]\norder = ['quality', 'toxicity']\nweight = 'bytes'"];
    let threshold = "[languages.fra_Latn]\nthreshold = { quality = 0.5 }\nretention = {}";
    for settings in orders.into_iter().chain([threshold]) {
        // Fewer documents are near a score than near a rank.
        let most: f32 = if settings == threshold { 0.04 } else { 0.01 };
        let mut noisy = Noisy::new(&format!("{SETTINGS}\n{settings}"))?;
        noisy.move_scores(|head, ordinal, logit| logit + most * noise(head, ordinal))?;
        let without = noisy.select(ScoreFiles::Scored)?;
        let differ = noisy.decisions(&without, ScoreFiles::Scored)? != noisy.expected;
        assert!(differ, "the noise changes nothing, so there is nothing to find");
        let report = noisy.refine()?;
        noisy.assert_selects_as_f32()?;
        // 400 documents, less one without text in each file; the sample has 64 documents.
        assert_eq!(report.documents, 398);
        assert!((65..300).contains(&report.refined), "{report:?}");
        assert_eq!(report.heads.len(), noisy.config.heads.len());
        for found in &report.heads {
            assert_eq!((&*found.language, found.refined), (LANGUAGE, report.refined));
            let largest = found.largest_difference.unwrap_or_default();
            // The noise is below `most`, and the sum rounds to a multiple of 2^-24 of the logit.
            assert!(
                (0.67 * f64::from(most)..f64::from(most) + 1e-5).contains(&largest)
                    && found.margin == Some(2.0 * largest),
                "{found:?}"
            );
        }
        assert_eq!(verify::verify(noisy.context())?.problems, Vec::<String>::new());
    }
    Ok(())
}

#[test]
fn the_selection_is_that_of_f32_in_files_of_several_languages() -> Result<()> {
    let mut noisy =
        Noisy::new(&format!("[input]\nlanguage = {{ column = 'language' }}\n{SETTINGS}"))?;
    noisy.move_scores(|head, ordinal, logit| logit + 0.01 * noise(head, ordinal))?;
    let without = noisy.select(ScoreFiles::Scored)?;
    assert!(noisy.decisions(&without, ScoreFiles::Scored)? != noisy.expected);
    let report = noisy.refine()?;
    noisy.assert_selects_as_f32()?;
    let languages: Vec<&str> = report.languages.iter().map(|found| &*found.language).collect();
    assert_eq!(languages, ["deu_Latn", LANGUAGE]);
    assert!(report.refined < report.documents, "{report:?}");
    // The thresholds of the last round are of the scores in memory, the others of the files.
    let last = noisy.with_scores(|scores| scores.near_thresholds(9))?;
    assert_eq!(last[LANGUAGE].selection, noisy.select(ScoreFiles::Refined)?);
    assert_ne!(last[LANGUAGE].selection, without);
    assert_eq!(verify::verify(noisy.context())?.problems, Vec::<String>::new());
    Ok(())
}

/// Returns a pseudo-random number that is nearly normal, with variance 1.
fn normal(head: &str, ordinal: u64) -> f32 {
    (0..12).map(|i| noise(head, 12 * ordinal + i)).sum::<f32>() / 2.0
}

#[test]
fn with_a_risk_fewer_documents_are_scored_again() -> Result<()> {
    let mut refined = Vec::new();
    for risk in [0.0, 1e-3] {
        let mut noisy = Noisy::new(SETTINGS)?;
        noisy.config.selection.refine_risk = risk;
        noisy.move_scores(|head, ordinal, logit| logit + 0.003 * normal(head, ordinal))?;
        let differ = noisy.decisions(&noisy.select(ScoreFiles::Scored)?, ScoreFiles::Scored)?;
        let report = noisy.refine()?;
        noisy.assert_selects_as_f32()?;
        let found = &report.languages[0];
        let changed = noisy.expected.iter().filter(|(at, fate)| differ[at] != **fate).count();
        // The thresholds moved too, so that not all documents that differ crossed the last ones.
        assert!(changed > 0 && found.changed > 0, "{report:?}");
        assert!(found.farthest_change.is_some_and(|share| share > 0.0 && share < 1.0), "{found:?}");
        // Of 398 documents, 20 are removed, 40 and 132 kept.
        let allowed = found.expected_wrong.map(|wrong| wrong <= risk * (20.0 + 40.0 + 132.0) / 3.0);
        assert_eq!(allowed, (risk > 0.0).then_some(true), "{found:?}");
        refined.push(report.refined);
    }
    assert!(2 * refined[1] < refined[0], "{refined:?}");
    Ok(())
}

#[test]
fn a_difference_larger_than_those_sampled_widens_the_margin() -> Result<()> {
    let mut noisy = Noisy::new(
        "[heads.quality.training]\nbatch_size = 16\nepochs = 12\nweight_decay = 0.01\n\
         [languages._default]\nretention = { quality = [0.1] }",
    )?;
    let ThresholdKind::Retain(_) = noisy.thresholds.thresholds[0].threshold.kind else {
        return Ok(());
    };
    let threshold = noisy.thresholds.thresholds[0].outcomes[0].threshold_logit.unwrap_or_default();
    let sampled = noisy.sampled()?;
    let mut others: Vec<(u64, f32)> =
        noisy.exact["quality"].iter().copied().filter(|(o, _)| !sampled.contains(o)).collect();
    others.sort_by(|a, b| a.1.total_cmp(&b.1));
    let kept = others.partition_point(|(_, logit)| *logit <= threshold);
    assert!(kept + 2 <= others.len(), "two documents that f32 keeps are not in the sample");
    // Two documents leave and move the threshold by two documents: noise of twice the distance to
    // the third below makes the sample's margin reach it.
    let mut below: Vec<f32> = noisy.exact["quality"].iter().map(|(_, logit)| *logit).collect();
    below.retain(|logit| *logit < threshold);
    below.sort_by(|a, b| b.total_cmp(a));
    let amplitude = 2.0 * (threshold - below[2]);
    // One document that f32 keeps is moved to the threshold, so its difference is seen. The other
    // is moved beyond the margin of the sample, so only a wider margin includes it.
    let (seen, hidden) = (others[others.len() - 1], others[kept]);
    let distance = seen.1 - threshold;
    noisy.move_scores(|_, ordinal, logit| match ordinal {
        o if o == seen.0 => threshold,
        o if o == hidden.0 => threshold - 1.5 * distance,
        _ => logit + amplitude * noise("quality", ordinal),
    })?;
    let report = noisy.refine()?;
    let found = &report.heads[0];
    let hidden_by = f64::from(hidden.1 - (threshold - 1.5 * distance));
    assert!((found.largest_difference.unwrap_or_default() - hidden_by).abs() < 1e-5, "{report:?}");
    noisy.assert_selects_as_f32()
}

impl Noisy {
    /// Returns the ordinals that the first round scores.
    fn sampled(&self) -> Result<Vec<u64>> {
        self.with_scores(|scores| {
            let sample = scores.sample()?;
            let mut ordinals = Vec::new();
            for (place, shard) in scores.shards() {
                let documents =
                    scores.choose_documents(0, (place, shard), &sample, &BTreeMap::new())?.0;
                ordinals.extend(documents.rows().iter().map(|&row| ordinal(place, row)));
            }
            assert_eq!(ordinals.len() as u64, REFINE_MIN_SAMPLE);
            Ok(ordinals)
        })
    }

    fn with_scores<T>(&self, look: impl FnOnce(&RunScores<'_>) -> Result<T>) -> Result<T> {
        let (context, embedded) = (self.context(), Embedded::of(&self.run)?);
        let heads = Heads::load(context, &embedded)?;
        let rows = RunRows::open(context, Some(ScoreFiles::Scored), embedded.languages())?;
        let model = OnceLock::new();
        look(&RunScores { context, embedded: &embedded, heads: &heads, rows, model })
    }
}

#[test]
fn what_the_run_could_not_score_is_scored_in_f32() -> Result<()> {
    let mut noisy = Noisy::new(SETTINGS)?;
    let nan = |ordinal: u64| ordinal.is_multiple_of(9);
    noisy.move_scores(|_, ordinal, logit| if nan(ordinal) { f32::NAN } else { logit })?;
    let report = noisy.refine()?;
    noisy.assert_selects_as_f32()?;
    let found = report.heads.iter().find(|found| found.head == "quality");
    let margin = found.and_then(|found| found.margin);
    // For all other documents f32 gives the logits of the run.
    assert_eq!(margin, Some(0.0));
    Ok(())
}

#[test]
fn an_input_file_that_changed_is_refused() -> Result<()> {
    let mut noisy = Noisy::new(SETTINGS)?;
    noisy.move_scores(|_, _, logit| logit)?;
    let shard = &noisy.run.plan()?.shards[0];
    std::fs::write(&shard.file, "{\"text\": \"\"}\n").map_err(Error::io(&shard.file, "write"))?;
    let error = refine(noisy.context()).map_err(|e| (e.exit_code(), e.to_string()));
    assert!(error.is_err_and(|(code, text)| code == 65 && text.contains("changed since")));
    Ok(())
}

#[test]
fn embeddings_from_the_input_are_not_refined() -> Result<()> {
    let mut noisy = Noisy::new(SETTINGS)?;
    noisy.move_scores(|_, _, logit| logit)?;
    let mut frozen = noisy.run.frozen_settings(Stage::Embed)?.unwrap_or_default();
    frozen["encoder"] = json!({"digest": "embeddings from the input"});
    noisy.run.write_json(&noisy.run.path("frozen/embed.json"), &frozen)?;
    let error = refine(noisy.context()).map_err(|e| (e.exit_code(), e.to_string()));
    assert!(error.is_err_and(|(code, text)| code == 2 && text.contains("selection.refine")));
    Ok(())
}

#[test]
fn lost_scores_of_a_round_are_made_again() -> Result<()> {
    let mut noisy = Noisy::new(SETTINGS)?;
    noisy.move_scores(|head, ordinal, logit| logit + 0.03 * noise(head, ordinal))?;
    noisy.refine()?;
    let shard = &noisy.run.plan()?.shards[1];
    let lost = [
        noisy.run.round_part(0, "quality", shard),
        noisy.run.round_part(1, "toxicity", shard),
        ScoreFiles::Refined.part(&noisy.run, "quality", shard, 1),
    ];
    let stamps = |paths: &[std::path::PathBuf]| -> Result<Vec<_>> {
        paths.iter().map(|path| polysift_base::io::stamp(path)).collect()
    };
    let before = stamps(&lost)?;
    for path in &lost {
        std::fs::remove_file(path).map_err(Error::io(path, "remove"))?;
    }
    let problems = verify::verify(noisy.context())?.problems.join("\n");
    for path in &lost {
        assert!(problems.contains(&noisy.run.relative(path)), "{problems}");
    }
    noisy.refine()?;
    assert_eq!(stamps(&lost)?, before);
    Ok(())
}
