//! A cascade drops what would not be kept: the same number is kept, nothing kept changes, an audit proves what is lost.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};

use arrow_array::{Array, StringArray};
use polysift::config::{LanguageThresholds, Mode, Rate};
use polysift::head::HeadSpec;
use polysift::selection::{
    Amount, Corpus, HeadColumn, ScanRequest, ScoreBatch, plan_thresholds, select,
};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{Random, TestResult, Workspace, digests, page_cell, read_parquet};

type Failure = Box<dyn std::error::Error>;

/// Documents of the language that is large enough.
const DOCUMENTS: usize = 1000;
/// What a pilot of a fourth of them can prove.
pub(crate) const CASCADE: &str =
    "[cascade]\nrecall = 0.9\nconfidence = 0.8\naudit = 0.2\nfirst_pass = 'prefix:64'\n";
/// Good words and bad ones.
const WORDS: [[&str; 4]; 2] =
    [["theorem", "energy", "river", "empire"], ["buy", "cheap", "sale", "price"]];

/// French documents of three files, some without text, and a few German ones; `cascade.toml` has a cascade, `run.toml`
/// has none.
pub(crate) fn workspace() -> Result<Workspace, Failure> {
    let work = Workspace::new()?;
    let mut random = Random(3);
    let mut documents: Vec<Value> = (0..DOCUMENTS)
        .map(|i| {
            let good = random.below(13);
            let word = |at| WORDS[usize::from(at >= good)][random.below(4)];
            let text: Vec<&str> = (0..12).map(word).collect();
            // Words are repeated, so that a prefix of a text shows what the whole text holds.
            let times = if i % 20 == 1 { 12 } else { 8 };
            let text =
                if i % 50 == 0 { String::new() } else { vec![text.join(" "); times].join(" ") };
            json!({"id": format!("d{i}"), "text": text})
        })
        .collect();
    std::fs::remove_file(work.path("corpus/fra_Latn/a.jsonl"))?;
    for name in ["a", "b", "c"] {
        let rest = documents.split_off(documents.len().min(DOCUMENTS / 3 + 1));
        let rows = std::mem::replace(&mut documents, rest);
        work.write_lines(&format!("corpus/fra_Latn/{name}.jsonl"), rows.into_iter())?;
    }
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    let settings = settings.replace("[0.1, 0.33]", "0.2").replace("rows = 16", "rows = 100");
    work.write("run.toml", &settings)?;
    work.write("cascade.toml", settings + CASCADE)?;
    Ok(work)
}

/// `polysift run` with the cascade.
fn cascade(work: &Workspace, run: &str, args: &[&str]) -> assert_cmd::Command {
    let mut command = crate::util::polysift();
    command.current_dir(work.dir.path()).args(["run", "-c", "cascade.toml", "--run", run]);
    command.args(args);
    command
}

/// Exported ids of French documents with all their other columns, as text.
fn exported(work: &Workspace, run: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut found = BTreeMap::new();
    for name in ["a", "b", "c"] {
        let batch = read_parquet(&work.path(&format!("{run}/export/fra_Latn/{name}.parquet")))?;
        let ids =
            batch.column_by_name("id").and_then(|ids| ids.as_any().downcast_ref::<StringArray>());
        for (at, id) in ids.ok_or("no ids")?.iter().enumerate() {
            let row: Vec<String> =
                batch.columns().iter().map(|column| format!("{:?}", column.slice(at, 1))).collect();
            found.insert(id.unwrap_or_default().to_owned(), row.join(" "));
        }
    }
    Ok(found)
}

#[test]
fn as_many_are_kept_as_without_a_cascade_with_the_same_columns_and_few_others() -> TestResult {
    let work = workspace()?;
    work.command("run", "full").arg("--quiet").assert().success();
    let full = exported(&work, "full")?;
    cascade(&work, "out", &["--keep-removed"]).assert().success();
    let kept = exported(&work, "out")?;
    assert_eq!(kept.len(), full.len());
    let same = kept.iter().filter(|(id, row)| full.get(*id) == Some(row)).count();
    let known = kept.keys().filter(|id| full.contains_key(*id)).count();
    assert_eq!(same, known, "what is encoded has other columns than without a cascade");
    assert!(known * 10 >= full.len() * 9, "{known} of {}", full.len());

    let audit = work.json("out/selection/fra_Latn.json")?["cascade"].clone();
    let dropped = audit["dropped"].as_u64().ok_or("no audit")?;
    assert!(dropped > 50 && audit["audited"].as_u64() > Some(5), "{audit}");
    let with_text = DOCUMENTS - DOCUMENTS.div_ceil(50);
    assert_eq!(audit["documents"], with_text as u64);
    let mut removed = 0;
    for name in ["a", "b", "c"] {
        let path = work.path(&format!("out/removed/cascade/fra_Latn/{name}.parquet"));
        removed += read_parquet(&path)?.num_rows() as u64;
    }
    assert_eq!(removed, dropped);
    let german = work.json("out/cascade/languages/deu_Latn.json")?;
    assert!(german["reason"].as_str().is_some_and(|reason| reason.contains("too few")), "{german}");
    let mut verify = crate::util::polysift();
    verify.current_dir(work.dir.path()).args(["verify", "out"]).assert().success();
    let mut status = crate::util::polysift();
    status.current_dir(work.dir.path()).args(["status", "out"]);
    status.assert().success().stdout(contains(format!("{dropped} dropped")));

    let mut report = crate::util::polysift();
    report.current_dir(work.dir.path()).args(["report", "out", "--out", "page"]).assert().success();
    let report = work.json("page/report.json")?;
    let mut languages = report["languages"].as_array().ok_or("no languages")?.iter();
    let french = languages.find(|found| found["language"] == "fra_Latn").ok_or("no French")?;
    let scores = &french["scores"]["quality"];
    assert_eq!(
        (&scores["dropped"], scores["n"].as_u64()),
        (&json!(dropped), Some(with_text as u64 - dropped))
    );
    assert_eq!(scores["unscored"], DOCUMENTS as u64 - with_text as u64);
    if let Some(shown) = work.page("page", "#quality=0.1") {
        // A tenth of all documents, the dropped ones included.
        assert!(shown.contains(&page_cell("fra_Latn", with_text.div_ceil(10) as u64)));
    }

    // A document that was dropped is not selected, however good its score is when it is evaluated.
    let corpus = ["a", "b", "c"].map(|name| work.path(&format!("corpus/fra_Latn/{name}.jsonl")));
    let mut rows = Vec::new();
    for file in corpus {
        for line in std::fs::read_to_string(file)?.lines() {
            let mut row: Value = serde_json::from_str(line)?;
            row["label"] = json!(rows.len() % 2);
            row["inclusion_probability"] = json!(1.0);
            rows.push(row);
        }
    }
    rows.retain(|row| row["text"] != "");
    work.write_lines("held/fra_Latn.jsonl", rows.into_iter())?;
    let report = crate::util::polysift()
        .current_dir(work.dir.path())
        .args(["evaluate", "--run", "out", "--data", "held/{lang}.jsonl", "--rates", "0.99"])
        .args(["--json", "--quiet"])
        .output()?;
    let report: Value = serde_json::from_slice(&report.stdout)?;
    let selected = |rule: &str| {
        let mut rows = report["selections"].as_array().into_iter().flatten();
        rows.find(|row| row["rule"] == rule).and_then(|row| row["selected"].as_u64())
    };
    assert_eq!(selected("run: selection at 0.2"), Some(kept.len() as u64), "{report}");
    assert_eq!(selected("rate 0.99"), Some(with_text as u64 - dropped), "{report}");
    Ok(())
}

#[test]
fn another_rate_takes_the_cascade_as_it_is() -> TestResult {
    let work = workspace()?;
    cascade(&work, "out", &["--keep-removed"]).assert().success();
    let rate = ["--retention", "quality=0.3"];
    let mut threshold = crate::util::polysift();
    threshold.current_dir(work.dir.path()).args(["threshold", "--run", "out"]).args(rate);
    threshold.args(["--redo", "threshold"]).assert().success();
    cascade(&work, "out", &[&["--keep-removed"], &rate[..]].concat()).assert().success();
    // With another rate, a lost file would be another cascade.
    let language = work.path("out/cascade/languages/fra_Latn.json");
    std::fs::remove_file(&language)?;
    let refused = cascade(&work, "out", &[&["--keep-removed"], &rate[..]].concat()).assert();
    refused.code(65).stderr(contains("polysift run --redo cascade"));
    assert!(!language.exists());
    let other = ["--keep-removed", "--retention", "quality=0.4", "--redo", "cascade"];
    cascade(&work, "out", &other).assert().success();
    let frozen = std::fs::read_to_string(work.path("out/frozen/cascade.json"))?;
    let frozen: String = frozen.split_whitespace().collect();
    assert!(frozen.contains(r#""quality":[0.4]"#) && !frozen.contains("[0.2]"), "{frozen}");
    Ok(())
}

#[test]
fn stage_by_stage_the_threshold_stage_asks_for_a_repair() -> TestResult {
    let work = workspace()?;
    work.command("run", "full").arg("--quiet").assert().success();
    let stage = |stage: &str| {
        let mut command = crate::util::polysift();
        command.current_dir(work.dir.path()).args([stage, "-c", "cascade.toml", "--run", "staged"]);
        command.args(["--set", "cascade.audit=0.02", "--set", "cascade.repair=true"]).assert()
    };
    for name in ["train", "cascade", "embed", "score"] {
        stage(name).success();
    }
    stage("threshold").code(66).stderr(contains("run the stages again, from `embed` on"));
    for name in ["embed", "score", "threshold", "export"] {
        stage(name).success();
    }
    assert_eq!(exported(&work, "staged")?, exported(&work, "full")?);
    Ok(())
}

#[test]
fn a_bad_file_fails_its_language_alone() -> TestResult {
    let work = workspace()?;
    work.write("corpus/deu_Latn/bad.jsonl", "{\"text\": \"a\"}\n{oops\n")?;
    cascade(&work, "out", &[]).assert().code(3).stderr(contains("bad.jsonl: row 2"));
    let failure = work.json("out/state/cascade/failed/languages/deu_Latn.json")?;
    assert_eq!(failure["exit_code"], 65, "{failure}");
    assert!(work.path("out/cascade/languages/fra_Latn.json").exists());
    Ok(())
}

#[test]
fn all_first_passes_are_tried_and_the_cheapest_alone_is_kept() -> TestResult {
    let work = workspace()?;
    // The three share the risk, so that a pilot of a fourth proves less.
    cascade(&work, "out", &["--cascade", "--set", "cascade.recall=0.8"]).assert().success();
    let treated = work.json("out/cascade/languages/fra_Latn.json")?;
    let tried = treated["candidates"].as_array().ok_or("no candidates")?;
    let names: Vec<&str> = tried.iter().filter_map(|tried| tried["first_pass"].as_str()).collect();
    assert_eq!(names, ["bundled", "prefix:64", "prefix:128"]);
    let cost = |tried: &&Value| tried["cost"].as_f64().unwrap_or_default();
    let cheapest = tried.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).ok_or("none")?;
    assert_eq!(treated["first_pass"], cheapest["first_pass"], "{treated}");
    let files = digests(&work.path("out/cascade/heads"))?;
    let folders: BTreeSet<&str> =
        files.keys().filter_map(|path| Some(path.split_once('/')?.0)).collect();
    assert_eq!(
        folders.into_iter().collect::<Vec<_>>(),
        [treated["first_pass"].as_str().ok_or("none")?.replace(':', "-")]
    );
    Ok(())
}

#[test]
fn a_removal_is_made_of_what_the_audited_documents_stand_for() -> TestResult {
    let work = workspace()?;
    work.write_toxicity_samples()?;
    let toxicity = ["--train-on", "toxicity=toxic/{lang}.jsonl", "--removal", "toxicity=0.1"];
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("cascade.toml", settings + CASCADE)?;
    cascade(&work, "out", &toxicity).assert().success();
    let selection = work.json("out/selection/fra_Latn.json")?;
    let removal = &selection["thresholds"][0];
    assert_eq!(removal["threshold"]["head_name"], "toxicity", "{removal}");
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let [there, stood_for] = ["num_documents", "weight"].map(|key| number(&removal["scored"][key]));
    let audited = number(&selection["cascade"]["audited"]);
    assert!(audited > 5.0 && number(&selection["cascade"]["dropped"]) > 50.0, "{selection}");
    assert_eq!(
        stood_for.total_cmp(&(there + 4.0 * audited)),
        Ordering::Equal,
        "each stands for five"
    );
    // As many are kept as of all documents with text.
    let kept = &selection["thresholds"][1]["outcomes"][0]["kept"]["num_documents"];
    assert_eq!(kept.as_u64(), Some((DOCUMENTS as u64 - DOCUMENTS as u64 / 50).div_ceil(5)));
    let mut verify = crate::util::polysift();
    verify.current_dir(work.dir.path()).args(["verify", "out"]).assert().success();
    let mut report = crate::util::polysift();
    report.current_dir(work.dir.path()).args(["report", "out"]).assert().success();
    if let Some(shown) = work.page("out/report", "#toxicity=0.2") {
        assert!(shown.contains("unknown (with a cascade, a removal counts audited documents"));
    }
    Ok(())
}

/// A run with the cascade in the background, of one thread.
fn spawn(work: &Workspace, run: &str) -> Result<Child, Failure> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_polysift"));
    child.current_dir(work.dir.path()).args(["run", "-c", "cascade.toml", "--run", run, "--quiet"]);
    child.args(["--threads", "1", "--device", "cpu"]).stdout(Stdio::null());
    Ok(child.spawn()?)
}

#[test]
fn kills_and_other_processes_change_nothing_in_the_end() -> TestResult {
    let work = workspace()?;
    cascade(&work, "undisturbed", &[]).assert().success();
    assert!(
        work.json("undisturbed/selection/fra_Latn.json")?["cascade"]["dropped"].as_u64() > Some(50)
    );
    let expected = digests(&work.path("undisturbed"))?;
    let mut boundaries = 0;
    // The test tries one boundary in 31.
    for boundary in (1..).step_by(31) {
        let killed =
            cascade(&work, "killed", &[]).env("POLYSIFT_KILL_AT", boundary.to_string()).output()?;
        let is_over = killed.status.success();
        cascade(&work, "killed", &[]).assert().success();
        assert_eq!(digests(&work.path("killed"))?, expected, "killed at boundary {boundary}");
        std::fs::remove_dir_all(work.path("killed"))?;
        if is_over {
            break;
        }
        boundaries = boundary;
    }
    assert!(boundaries > 40, "{boundaries}");
    let mut processes = [spawn(&work, "shared")?, spawn(&work, "shared")?];
    for process in &mut processes {
        assert!(process.wait()?.success());
    }
    assert_eq!(digests(&work.path("shared"))?, expected);
    Ok(())
}

#[test]
fn a_recall_that_is_not_proved_is_said_so_and_repaired_where_that_is_asked_for() -> TestResult {
    let work = workspace()?;
    work.command("run", "full").arg("--quiet").assert().success();
    // Of so small an audit nothing can be concluded.
    let few = ["--set", "cascade.audit=0.02"];
    let mut unproved = cascade(&work, "unproved", &few);
    unproved.assert().success().stderr(contains("--cascade-repair"));
    let recall = |run: &str| -> Result<Value, Failure> {
        Ok(work.json(&format!("{run}/selection/fra_Latn.json"))?["cascade"]["recalls"][0].clone())
    };
    assert_eq!(recall("unproved")?["is_proved"], false);
    let repaired = [&few[..], &["--cascade-repair"]].concat();
    cascade(&work, "repaired", &repaired).assert().success();
    assert_eq!(recall("repaired")?["is_proved"], true);
    assert_eq!(exported(&work, "repaired")?, exported(&work, "full")?);
    // The same of a run that ended without.
    let printed = cascade(&work, "unproved", &repaired).assert().success();
    assert_eq!(exported(&work, "unproved")?, exported(&work, "full")?);
    let mut verify = crate::util::polysift();
    verify.current_dir(work.dir.path()).args(["verify", "unproved"]).assert().success();

    // Everything is encoded, and the pilot and the first pass cost something too. The first pass
    // reads at most 64 tokens of a document, which is less than all of them.
    let audit = &work.json("unproved/selection/fra_Latn.json")?["cascade"];
    let treated = work.json("unproved/cascade/languages/fra_Latn.json")?;
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    let of_pilot = number(&treated["pilot"]) / number(&treated["rows"]);
    let cost = number(&audit["cost"]);
    assert_eq!(audit["dropped"], 0);
    assert!((1.0..2.0).contains(&(cost - of_pilot)), "{audit} {treated}");
    let printed = String::from_utf8(printed.get_output().stdout.clone())?;
    let row: Vec<&str> = printed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.first() == Some(&"fra_Latn") && words.get(1) == Some(&"prefix:64"))
        .ok_or("no row of the cascade")?;
    assert_eq!(row[3..], ["100.0%", &format!("{:.1}%", 100.0 * cost)], "{printed}");

    // A repair that is lost would have later stages take documents for dropped that are not.
    let repair = work.path("unproved/cascade/repairs/fra_Latn.json");
    let marker = work.path("unproved/state/cascade/done/repairs/fra_Latn.json");
    for lost in [&[&repair][..], &[&marker, &repair]] {
        let content: Vec<_> = lost.iter().map(std::fs::read).collect::<Result<_, _>>()?;
        lost.iter().try_for_each(std::fs::remove_file)?;
        let args = ["threshold", "--run", "unproved", "--redo", "threshold"];
        let mut threshold = crate::util::polysift();
        threshold.current_dir(work.dir.path()).args(args);
        // German, which lost nothing, may be done.
        threshold.assert().code(vec![3, 65]).stderr(contains("--redo cascade"));
        for (path, content) in lost.iter().zip(content) {
            std::fs::write(path, content)?;
        }
    }
    Ok(())
}

#[test]
fn documents_whose_first_pass_is_lost_are_no_documents_that_are_kept() -> TestResult {
    let work = workspace()?;
    cascade(&work, "out", &["--quiet"]).assert().success();
    let expected = digests(&work.path("out"))?;
    let command = |command: &str| {
        let mut polysift = crate::util::polysift();
        polysift.current_dir(work.dir.path()).args([command, "-c", "cascade.toml", "--run", "out"]);
        polysift
    };
    let marker = "out/state/cascade/done/scores/fra_Latn/b.json";
    let language = "out/cascade/languages/fra_Latn.json";
    let network = "out/cascade/heads/prefix-64/quality/fra_Latn.safetensors";
    let damaged = |path: &str| -> Result<Vec<u8>, Failure> {
        let mut content = std::fs::read(work.path(path))?;
        let at = content.len() / 2;
        content[at] ^= 1;
        Ok(content)
    };
    for (lost, content, code) in [
        (marker, None, 66),
        (marker, Some(Vec::new()), 3),
        (language, Some(damaged(language)?), 65),
    ] {
        std::fs::remove_file(work.path(lost))?;
        if let Some(content) = content {
            std::fs::write(work.path(lost), content)?;
        }
        let name = if lost == marker { "scores/fra_Latn/b" } else { language };
        let mut threshold = command("threshold");
        threshold.args(["--redo", "threshold"]).assert().code(code).stderr(contains(name));
        if code == 65 {
            std::fs::remove_file(work.path(lost))?;
        }
        let again = command("run").assert().success();
        let told = String::from_utf8(again.get_output().stderr.clone())?;
        assert!(told.contains("done again"), "{lost}: {told}");
        assert_eq!(digests(&work.path("out"))?, expected, "{lost}");
    }
    // The scores are made again by the first pass that made them.
    std::fs::write(work.path(network), damaged(network)?)?;
    std::fs::remove_file(work.path("out/cascade/scores/fra_Latn/b/part-00000.parquet"))?;
    command("cascade").assert().code(65).stderr(contains(network));
    std::fs::remove_file(work.path(network))?;
    command("run").assert().success();
    assert_eq!(digests(&work.path("out"))?, expected);
    Ok(())
}

#[test]
fn where_no_first_pass_helps_all_is_encoded_and_the_run_says_why() -> TestResult {
    let work = workspace()?;
    for name in ["a", "b", "c"] {
        let rows = (0..340).map(|i| json!({"id": format!("{name}{i}"), "text": "all the same"}));
        work.write_lines(&format!("corpus/fra_Latn/{name}.jsonl"), rows)?;
    }
    work.command("run", "full").arg("--quiet").assert().success();
    let mut equal = cascade(&work, "equal", &["--cascade"]);
    equal.assert().success().stderr(contains("all documents are encoded"));
    assert_eq!(exported(&work, "equal")?, exported(&work, "full")?);
    assert!(work.json("equal/selection/fra_Latn.json")?["cascade"].is_null());

    let mut without = work.command("cascade", "full");
    without.assert().code(2).stderr(contains("--cascade"));
    let mut other = cascade(&work, "equal", &["--set", "cascade.recall=0.7"]);
    other.assert().code(78).stderr(contains("cascade.cascade.recall"));
    Ok(())
}

#[test]
fn a_cascade_goes_with_the_plan_and_the_heads_that_it_was_made_for() -> TestResult {
    let work = workspace()?;
    cascade(&work, "out", &["--quiet"]).assert().success();
    let stage = |stage: &str, args: &[&str]| {
        let mut command = crate::util::polysift();
        command.current_dir(work.dir.path()).args([stage, "-c", "cascade.toml", "--run", "out"]);
        command.args(args).assert()
    };
    for command in ["run", "embed"] {
        let refused = stage(command, &["--redo", "embed"]).code(2);
        refused.stderr(contains("polysift run --redo cascade"));
    }
    let refused = stage("embed", &["--set", "parts.rows=64"]).code(78);
    refused.stderr(contains("give `--redo cascade` to `polysift run`"));
    // Heads that are trained anew give the same scores, or the cascade is no longer theirs.
    stage("train", &["--redo", "train"]).success();
    stage("score", &[]).success();
    let epochs = ["--set", "heads.quality.training.epochs=1"];
    stage("train", &[&epochs[..], &["--redo", "train"]].concat()).success();
    let refused = stage("score", &epochs).code(78);
    refused.stderr(contains("another head quality of").and(contains("--redo cascade")));
    cascade(&work, "out", &epochs).args(["--redo", "cascade"]).assert().success();

    stage("plan", &[&epochs[..], &["--redo"]].concat()).success();
    assert!(!work.path("out/cascade").exists() && !work.path("out/embeddings").exists());
    Ok(())
}

/// Logits of 100 documents; of those below 40 every fifth is there and stands for five, the others are dropped.
struct Thinned;

impl Corpus for Thinned {
    fn num_shards(&self) -> usize {
        1
    }

    fn scan(
        &self,
        _shard: usize,
        _request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> polysift::Result<()>,
    ) -> polysift::Result<()> {
        let there: Vec<u64> = (0..100).filter(|i| *i >= 40 || i % 5 == 0).collect();
        let logits: Vec<f32> = there.iter().map(|&i| i as f32).collect();
        let ids: Vec<String> = there.iter().map(u64::to_string).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let stand_for: Vec<u64> = there.iter().map(|&i| if i < 40 { 5 } else { 1 }).collect();
        let dropped = 100 - there.len() as u64;
        visit(&ScoreBatch {
            len: there.len(),
            ids: &ids,
            ordinals: &there,
            weights: None,
            heads: &[HeadColumn { logits: &logits, scores: &logits, present: None }],
            removal_weights: Some(&stand_for),
            dropped: Amount { num_documents: dropped, weight: dropped },
        })
    }
}

#[test]
fn rates_count_the_dropped_and_removals_what_the_audited_stand_for() -> TestResult {
    let rate = |rate: &str| rate.parse::<Rate>();
    let head = HeadSpec::default();
    let heads = [("q", Some(&head))];
    let kept = LanguageThresholds {
        retention: [("q".to_owned(), vec![rate("0.25")?])].into(),
        ..LanguageThresholds::default()
    };
    let found = select(&Thinned, &plan_thresholds("a", &kept, &heads, &[])?, Mode::Default)?;
    let report = &found.thresholds[0];
    assert_eq!((report.scored.num_documents, report.dropped.num_documents), (68, 32));
    let outcome = &report.outcomes[0];
    assert_eq!((outcome.kept.num_documents, outcome.threshold_logit), (25, Some(75.0)));
    assert!((outcome.realised_rate - 0.25).abs() < 1e-12);

    // The worst fifth of 100: the four audited documents 0, 5, 10 and 15 stand for it.
    let removed = LanguageThresholds {
        removal: [("q".to_owned(), rate("0.2")?)].into(),
        ..LanguageThresholds::default()
    };
    let found = select(&Thinned, &plan_thresholds("a", &removed, &heads, &[])?, Mode::Default)?;
    let outcome = &found.thresholds[0].outcomes[0];
    assert_eq!((outcome.kept.num_documents, outcome.threshold_logit), (64, Some(15.0)));
    Ok(())
}
