//! The recipes of `docs/recipes` on a small corpus with planted cases: what goes, why, and the same bytes however
//! many processes do it.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use arrow::array::AsArray;
use serde_json::json;

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet, root, text};

type Failure = Box<dyn std::error::Error>;

/// Documents of each language; every fifth is from a host that blocks an agent, every seventh holds an address.
const DOCUMENTS: [(&str, usize); 3] = [("fra_Latn", 60), ("rus_Cyrl", 40), ("fao_Latn", 100)];

/// A corpus in three languages: French with both heads, Russian without one of toxicity, Faroese without any.
fn workspace() -> Result<Workspace, Failure> {
    let work = Workspace::new()?;
    std::fs::remove_dir_all(work.path("corpus"))?;
    work.write_toxicity_samples()?;
    std::fs::copy(work.path("samples/fra_Latn.jsonl"), work.path("samples/rus_Cyrl.jsonl"))?;
    std::fs::remove_file(work.path("samples/deu_Latn.jsonl"))?;
    for (language, documents) in DOCUMENTS {
        let rows = (0..documents).map(|i| {
            let host = if i % 5 == 0 { "closed.org" } else { "open.org" };
            let address = if i % 7 == 0 { " write to a@b.co" } else { "" };
            let text = format!("{}{address}", text(i));
            json!({"id": format!("{language}-{i}"), "text": text, "url": format!("https://{host}/{i}")})
        });
        work.write_lines(&format!("corpus/{language}/a.jsonl"), rows)?;
    }
    let files = [
        json!({"domain": "closed.org", "content": "User-agent: CCBot\nDisallow: /"}),
        json!({"domain": "open.org", "content": "User-agent: *\nDisallow: /private"}),
    ];
    work.write_lines("robots.jsonl", files.into_iter())?;
    let item = json!({"task": "quiz", "question": text(9) + " " + &text(12) + " " + &text(15)});
    work.write_lines("items.jsonl", [item].into_iter())?;
    Ok(work)
}

/// The arguments by which the recipe `name` reads the workspace.
fn arguments(name: &str, run: &str) -> Vec<String> {
    let recipe = root().join("docs/recipes").join(format!("{name}.toml"));
    let mut arguments = vec!["run".into(), "-c".into(), recipe.display().to_string()];
    let mut set = |key: &str, value: &str| {
        arguments.extend(["--set".to_owned(), format!("{key}={value}")]);
    };
    set("input.files", "['corpus/{lang}/*.jsonl']");
    set("encoder.model", "polysift-mini");
    set("encoder.max_tokens", "16");
    set("heads.quality.train", "['samples/{lang}.jsonl']");
    set("heads.quality.training.epochs", "4");
    set("parts.rows", "16");
    set("export.keep_removed", "true");
    if name.starts_with("apertus") {
        set("heads.toxicity.train", "['toxic/{lang}.jsonl']");
        set("heads.toxicity.training.epochs", "4");
        set("filters.consent.sources", "[{robots = 'robots.jsonl'}]");
    } else {
        set("filters.contaminated.index", "benchmarks.idx");
    }
    arguments.extend(["--run", run, "--quiet"].map(str::to_owned));
    arguments
}

/// The exported texts of a language, by id.
fn exported(
    work: &Workspace,
    run: &str,
    language: &str,
) -> Result<BTreeMap<String, String>, Failure> {
    let rows = read_parquet(&work.path(&format!("{run}/export/{language}/a.parquet")))?;
    let texts = |name: &str| -> Result<Vec<String>, Failure> {
        let column = rows.column_by_name(name).ok_or("no such column")?.as_string::<i32>();
        Ok(column.iter().flatten().map(str::to_owned).collect())
    };
    Ok(texts("id")?.into_iter().zip(texts("text")?).collect())
}

#[test]
fn apertus_keeps_what_is_good_open_and_without_addresses() -> TestResult {
    let work = workspace()?;
    for (name, rates) in [("apertus-10", [6, 4, 10]), ("apertus-33", [20, 14, 32])] {
        let mut run = polysift();
        run.current_dir(work.dir.path()).args(arguments(name, name)).assert().success();
        // Rates are of all documents, as the published thresholds were: ceil(0.1 · 60), ceil(0.1 · 40), and
        // ceil(0.095 · 100) by chance; ceil(0.33 · n) and ceil(0.3135 · 100).
        for ((language, _), best) in DOCUMENTS.into_iter().zip(rates) {
            let selection = work.json(&format!("{name}/selection/{language}.json"))?;
            let thresholds = selection["thresholds"].as_array().ok_or("no thresholds")?;
            assert_eq!(thresholds[0]["outcomes"][0]["kept"]["num_documents"], best, "{language}");
            let kept =
                thresholds.last().ok_or("none")?["outcomes"][0]["kept"]["num_documents"].clone();
            // Five per cent of the best go, by toxicity or by chance, but none of Faroese.
            let removed = i32::from(language != "fao_Latn");
            assert_eq!(kept, best - removed, "{language}");
            let texts = exported(&work, name, language)?;
            let by_consent = read_removed(&work, name, "consent", language)?;
            assert_eq!(texts.len() + by_consent, (best - removed) as usize, "{language}");
            assert!(texts.values().all(|text| !text.contains('@')), "{texts:?}");
            let is_open = |id: &String| {
                let number = id.rsplit('-').next().and_then(|n| n.parse::<usize>().ok());
                number.is_some_and(|number| number % 5 > 0)
            };
            assert!(texts.keys().all(is_open), "{texts:?}");
        }
        let consent = work.json(&format!("{name}/filters/consent.json"))?;
        assert_eq!(consent["total"]["found"]["documents"], 40);
        // Protego 0.4 knows CCBot by three names.
        for agent in ["CCBot", "CCBot/2.0", "CCBot/1.0"] {
            assert_eq!(consent["total"]["details"][agent]["documents"], 40, "{agent}");
        }
        let removed: u64 = status_counts(&work, name)?.values().sum();
        assert_eq!(removed, 200, "every document is kept or has a reason");
    }
    Ok(())
}

/// Rows that the filter `reason` took from the selection of a language.
fn read_removed(
    work: &Workspace,
    run: &str,
    reason: &str,
    language: &str,
) -> Result<usize, Failure> {
    let path = work.path(&format!("{run}/removed/{reason}/{language}/a.parquet"));
    if path.exists() { Ok(read_parquet(&path)?.num_rows()) } else { Ok(0) }
}

/// Documents of the export by what became of them.
fn status_counts(work: &Workspace, run: &str) -> Result<BTreeMap<String, u64>, Failure> {
    let mut status = polysift();
    let output = status.current_dir(work.dir.path()).args(["status", run, "--json"]).output()?;
    let status: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let stages = status["stages"].as_array().ok_or("no stages")?;
    let export = stages.iter().find(|stage| stage["stage"] == "export").ok_or("no export")?;
    Ok(serde_json::from_value(export["counts"].clone())?)
}

#[test]
fn processes_that_are_killed_leave_the_bytes_of_one() -> TestResult {
    let work = workspace()?;
    let mut run = polysift();
    run.current_dir(work.dir.path()).args(arguments("apertus-10", "one")).assert().success();
    let spawn = || -> Result<Child, Failure> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_polysift"));
        child.current_dir(work.dir.path()).args(arguments("apertus-10", "killed"));
        child.args(["--threads", "1"]).env("POLYSIFT_DEVICE", "cpu");
        Ok(child.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    };
    for round in 0..4u64 {
        let mut children = (0..3).map(|_| spawn()).collect::<Result<Vec<_>, _>>()?;
        for (i, child) in (0u64..).zip(&mut children) {
            std::thread::sleep(Duration::from_millis(150 + (round * 613 + i * 211) % 700));
            child.kill()?;
            child.wait()?;
        }
    }
    let mut run = polysift();
    run.current_dir(work.dir.path()).args(arguments("apertus-10", "killed")).assert().success();
    assert_eq!(digests(&work.path("killed"))?, digests(&work.path("one"))?);
    Ok(())
}

#[test]
fn fineweb2_hq_keeps_the_best_tenth_with_embeddings_and_notes_contamination() -> TestResult {
    let work = workspace()?;
    std::fs::remove_dir_all(work.path("corpus/fao_Latn"))?;
    let planted = text(9) + " " + &text(12) + " " + &text(15);
    let more = (0..30).map(|i| json!({"id": format!("p-{i}"), "text": format!("{planted} {i}")}));
    work.write_lines("corpus/fra_Latn/b.jsonl", more)?;
    let mut index = polysift();
    index.current_dir(work.dir.path());
    index.args(["dataset", "benchmarks", "--items", "items.jsonl", "--language", "fra_Latn"]);
    index.assert().success();
    let mut run = polysift();
    run.current_dir(work.dir.path()).args(arguments("fineweb2-hq", "hq")).assert().success();
    let counts = status_counts(&work, "hq")?;
    assert_eq!(counts["kept"], 9 + 4);
    let report = work.json("hq/filters/contaminated.json")?;
    assert_eq!(report["languages"]["fra_Latn"]["found"]["documents"], 30);
    let mut flagged = 0;
    for name in ["a", "b"] {
        let rows = read_parquet(&work.path(&format!("hq/export/fra_Latn/{name}.parquet")))?;
        assert!(rows.column_by_name("embeddings").is_some());
        let flags = rows.column_by_name("contaminated").ok_or("no flags")?.as_string::<i32>();
        let ids = rows.column_by_name("id").ok_or("no ids")?.as_string::<i32>();
        for (id, flag) in ids.iter().zip(flags) {
            let is_planted = id.is_some_and(|id| id.starts_with("p-"));
            assert_eq!(flag, is_planted.then_some("quiz"), "{id:?}");
            flagged += usize::from(is_planted);
        }
    }
    assert!(flagged <= 9);
    Ok(())
}
