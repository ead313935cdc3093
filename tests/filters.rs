//! Filters: what they remove and flag, what is left for the thresholds, what is reported.

mod consent;
mod decontamination;
mod rules;

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet};

/// The texts of a column of a Parquet file of the workspace.
fn texts(
    work: &Workspace,
    path: &str,
    column: &str,
) -> Result<Vec<Option<String>>, Box<dyn std::error::Error>> {
    let rows = read_parquet(&work.path(path))?;
    let column = rows.column_by_name(column).ok_or("no such column")?.as_string::<i32>();
    Ok(column.iter().map(|text| text.map(str::to_owned)).collect())
}

fn ids(work: &Workspace, path: &str) -> Result<BTreeSet<String>, Box<dyn std::error::Error>> {
    Ok(texts(work, path, "id")?.into_iter().flatten().collect())
}

/// The documents `numbers` of a language, of which 7 and 8 have no text.
fn named(language: &str, numbers: impl IntoIterator<Item = usize>) -> BTreeSet<String> {
    numbers.into_iter().map(|i| format!("{language}-{i}")).collect()
}

#[test]
fn filters_without_an_encoder_remove_flag_and_report() -> TestResult {
    let work = Workspace::new()?;
    work.write("run.toml", "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n[parts]\nrows = 16\n[encoder]\nmodel = 'none'\n[export]\nkeep_removed = true\n")?;
    work.add_filters()?;
    work.command("run", "out").assert().success();

    // `requests` removes 3 (and 7, which has no text); `known` removes every fourth of the others.
    let kept = (0..40).filter(|i| i % 4 > 0 && ![3, 7, 8].contains(i));
    assert_eq!(ids(&work, "out/export/fra_Latn/a.parquet")?, named("fra_Latn", kept));
    let kept = (0..25).filter(|i| ![7, 8, 12].contains(i));
    assert_eq!(ids(&work, "out/export/deu_Latn/a.parquet")?, named("deu_Latn", kept));
    let removed = "out/removed/requests/fra_Latn/a.parquet";
    assert_eq!(ids(&work, removed)?, named("fra_Latn", [3]));
    let removed = "out/removed/known/fra_Latn/a.parquet";
    let known = named("fra_Latn", (0..40).step_by(4).filter(|i| *i != 8));
    assert_eq!(ids(&work, removed)?, known);
    assert!(!work.path("out/removed/known/deu_Latn").exists());
    // Nobody that is left is among the requests, which is what `noted` flags.
    let noted = texts(&work, "out/export/deu_Latn/a.parquet", "noted")?;
    assert!(noted.iter().all(|flag| flag.as_deref() == Some("not-listed")));

    let report = work.json("out/filters/requests.json")?;
    let amount = |documents: u64, ids: &[usize]| {
        let bytes: usize = ids.iter().map(|&i| crate::util::text(i).len()).sum();
        json!({"documents": documents, "bytes": bytes})
    };
    assert_eq!(report["total"]["found"], amount(3, &[3, 12]));
    assert_eq!(report["total"]["seen"]["documents"], 65);
    assert_eq!(report["languages"]["deu_Latn"]["reasons"], json!({"listed": amount(1, &[12])}));
    let report = work.json("out/filters/known.json")?;
    assert_eq!(report["total"]["seen"]["documents"], 40);
    assert_eq!(report["total"]["found"]["documents"], 10);
    let verdicts = read_parquet(&work.path("out/verdicts/deu_Latn/a.parquet"))?;
    let found = |name: &str| {
        let column = verdicts.column_by_name(name).ok_or("no such column")?.as_string::<i32>();
        Ok::<_, &str>(column.iter().flatten().map(str::to_owned).collect::<Vec<_>>())
    };
    let mut by_filter: BTreeMap<(String, String), usize> = BTreeMap::new();
    for key in found("filter")?.into_iter().zip(found("action")?) {
        *by_filter.entry(key).or_default() += 1;
    }
    let expected = [(("noted", "flag"), 24), (("requests", "remove"), 1)];
    let expected =
        expected.map(|((filter, action), n)| ((filter.to_owned(), action.to_owned()), n));
    assert_eq!(by_filter, expected.into());
    work.command("run", "out").assert().success();
    let mut verify = polysift();
    verify.current_dir(work.dir.path()).args(["verify", "out"]).assert().success();
    Ok(())
}

#[test]
fn rates_are_of_what_filters_leave_unless_they_come_after() -> TestResult {
    let work = Workspace::new()?;
    let chance = "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n[parts]\nrows = 16\n[encoder]\nmodel = 'none'\n\
                  [heads.chance]\nkind = 'random'\n[languages._default]\nretention = { chance = 0.5 }\n";
    let listed: Vec<String> = (0..40).step_by(2).map(|i| format!("fra_Latn-{i}")).collect();
    work.write("even.txt", listed.join("\n"))?;
    let filter = "[filters.even]\nkind = 'ids'\nlists = ['even.txt']\n";
    work.write("run.toml", chance)?;
    work.command("run", "all").assert().success();
    let of_all = ids(&work, "all/export/fra_Latn/a.parquet")?;
    assert_eq!(of_all.len(), 19);
    let is_odd = |id: &String| {
        id.strip_prefix("fra_Latn-").and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n % 2 == 1)
    };

    // 20 odd documents, one without text: ceil(0.5 · 19) of them.
    work.write("run.toml", format!("{chance}{filter}"))?;
    work.command("run", "before").assert().success();
    let before = ids(&work, "before/export/fra_Latn/a.parquet")?;
    assert!(before.len() == 10 && before.iter().all(is_odd), "{before:?}");
    let selection = work.json("before/selection/fra_Latn.json")?;
    assert_eq!(selection["thresholds"][0]["scored"]["num_documents"], 19);

    work.write("run.toml", format!("{chance}{filter}when = 'after'\n"))?;
    work.command("run", "after").assert().success();
    let after = ids(&work, "after/export/fra_Latn/a.parquet")?;
    assert_eq!(after, of_all.iter().filter(|id| is_odd(id)).cloned().collect());

    // Another place of the filter is another selection.
    let mut again = work.command("run", "before");
    again.assert().code(78).stderr(contains("filter.filters.even.when: was (absent), now"));
    Ok(())
}

#[test]
fn lists_that_change_are_refused_until_the_stage_is_done_again() -> TestResult {
    let work = Workspace::new()?;
    work.add_filters()?;
    work.command("run", "out").assert().success();
    let before = digests(&work.path("out"))?;
    work.write("lists/requests.txt", "fra_Latn-4\n")?;
    let changed = work.command("run", "out").assert().code(78);
    changed.stderr(contains("requests.txt: was").and(contains("--redo filter")));
    // A command after it needs no lists.
    work.command("threshold", "out").assert().success();
    work.command("run", "out").args(["--redo", "filter"]).assert().success();
    let after = digests(&work.path("out"))?;
    let kept = |name: &&String| {
        ["embeddings/", "scores/", "heads/", "state/train/", "state/score/"]
            .iter()
            .any(|folder| name.starts_with(folder))
    };
    assert!(before.keys().filter(kept).all(|name| before[name] == after[name]));
    assert_ne!(before["verdicts/fra_Latn/a.parquet"], after["verdicts/fra_Latn/a.parquet"]);
    let selected = |digests: &BTreeMap<String, String>| digests["selection/fra_Latn.json"].clone();
    assert_ne!(selected(&before), selected(&after));
    // What is trained and scored again leaves the verdicts as they are.
    let verdicts = "out/state/filter/done/fra_Latn/a.json";
    let written =
        |path: &str| std::fs::metadata(work.path(path)).and_then(|found| found.modified());
    let before = written(verdicts)?;
    work.command("run", "out").args(["--redo", "train"]).assert().success();
    assert_eq!(written(verdicts)?, before);
    Ok(())
}

#[test]
fn a_stage_that_the_settings_lack_is_redone_with_the_stages_after_it() -> TestResult {
    let work = Workspace::new()?;
    let input = "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n";
    work.write("run.toml", input)?;
    for stage in ["train", "filter", "deduplicate"] {
        work.command("run", "out").assert().success();
        work.command(stage, "out").args(["--redo", stage]).assert().success();
        assert!(!work.path("out/selection").exists(), "{stage}");
    }
    Ok(())
}

#[test]
fn filters_that_cannot_be_are_refused_by_name() -> TestResult {
    let work = Workspace::new()?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("empty.csv", "name\nx\n")?;
    for (filter, code, wrong) in [
        ("[filters.f]\nkind = 'ids'\n", 2, "filters.f.lists: is empty"),
        ("[filters.f]\nkind = 'id'\nlists = ['a']\n", 2, "`id` is unknown; did you mean `ids`?"),
        (
            "[filters.f]\nkind = 'ids'\nlist = ['a']\n",
            2,
            "`list` is unknown; did you mean `lists`?",
        ),
        ("[filters.f]\nlists = ['a']\n", 2, "missing field `kind`"),
        ("[filters.'f/g']\nkind = 'ids'\nlists = ['a']\n", 2, "the names of filters are made of"),
        ("[filters.quality]\nkind = 'ids'\nlists = ['a']\n", 2, "is already a reason"),
        ("[filters.quality_nan]\nkind = 'ids'\nlists = ['a']\n", 2, "is already a reason"),
        ("[filters.no_text]\nkind = 'ids'\nlists = ['a']\n", 2, "is already a reason"),
        (
            "[filters.f]\nkind='ids'\nlists=['a']\naction='flag'\nwhen='after'\n",
            2,
            "filters.f.when",
        ),
        ("[filters.f]\nkind = 'ids'\nlists = ['s3://b/a.txt']\n", 2, "is a URL"),
        ("[filters.f]\nkind = 'ids'\nlists = ['gone.txt']\n", 66, "gone.txt"),
        ("[filters.f]\nkind = 'ids'\nlists = ['empty.csv']\n", 65, "id"),
    ] {
        work.write("run.toml", format!("{settings}{filter}"))?;
        let refused = work.command("run", "out").assert().code(code);
        refused.stderr(contains(wrong));
        // Nothing is embedded for a list that cannot be read.
        assert!(!work.path("out/embeddings").exists(), "{filter}");
    }
    Ok(())
}

#[test]
fn the_filter_stage_needs_the_embed_stage_and_is_needed_by_the_thresholds() -> TestResult {
    let work = Workspace::new()?;
    work.add_filters()?;
    work.command("plan", "out").assert().success();
    work.command("filter", "out").assert().code(66).stderr(contains("run `polysift embed`"));
    for stage in ["embed", "train", "score"] {
        work.command(stage, "out").assert().success();
    }
    work.command("threshold", "out").assert().code(66).stderr(contains("run `polysift filter`"));
    let mut retry = polysift();
    let retry =
        retry.current_dir(work.dir.path()).args(["retry", "out", "--num-tasks", "2", "--json"]);
    let left: Value = serde_json::from_slice(&retry.assert().success().get_output().stdout)?;
    assert_eq!((&left["stage"], &left["items"]), (&json!("filter"), &json!(2)));
    let first =
        work.command("filter", "out").args(["--task", "0", "--num-tasks", "2", "-v"]).assert();
    first.success().stderr(contains("done").and(contains("fra_Latn/a")));
    work.command("filter", "out").args(["--task", "1", "--num-tasks", "2"]).assert().success();
    assert!(work.path("out/filters/requests.json").exists());
    work.command("threshold", "out").assert().success();
    work.command("export", "out").assert().success();
    work.command("run", "whole").assert().success();
    for folder in ["verdicts", "filters", "selection", "export"] {
        let [parts, whole] =
            ["out", "whole"].map(|run| digests(&work.path(&format!("{run}/{folder}"))));
        assert_eq!(parts?, whole?, "{folder}");
    }
    Ok(())
}

/// A request for removal that names no document shows.
#[test]
fn listed_ids_of_no_document_are_counted() -> TestResult {
    let work = Workspace::new()?;
    work.write_lines(
        "data/a.jsonl",
        ["a", "b", "c"].map(|id| json!({"id": id, "text": "text"})).into_iter(),
    )?;
    work.write("ids.txt", "a\nb # asked for on Monday\n'c'\nd\n")?;
    for (mode, kept) in [("exclude", 1), ("include", 2)] {
        let settings = format!(
            "[input]\nfiles = ['data/*.jsonl']\nlanguage = 'und'\n[encoder]\nmodel = 'none'\n[filters.f]\nkind = 'ids'\n\
             lists = ['ids.txt']\nmode = '{mode}'\n"
        );
        work.write("run.toml", settings)?;
        let told = contains("at least 2 of 4 listed ids match no document");
        work.command("run", mode).assert().success().stderr(told);
        let report = work.json(&format!("{mode}/filters/f.json"))?;
        assert_eq!(report["ids"], json!({"listed": 4, "unmatched_at_least": 2}));
        assert_eq!(read_parquet(&work.path(&format!("{mode}/export/a.parquet")))?.num_rows(), kept);
    }
    // A filter of one language cannot know the ids of the others.
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("run.toml", format!("{settings}languages = ['und']\n"))?;
    work.command("run", "language").assert().success();
    assert_eq!(work.json("language/filters/f.json")?["ids"], Value::Null);
    Ok(())
}

/// Programs write nothing and false in several ways, a word may begin with `#`, and a list names no unreadable URL.
#[test]
fn what_a_list_names_is_taken_as_it_is_meant() -> TestResult {
    let work = Workspace::new()?;
    let row =
        |i: usize, url: Value| json!({"id": i.to_string(), "text": "seen #metoo", "url": url});
    let urls = ["https://good.org/x", "", "good.org", "https://evil.org/", ""];
    let urls = urls.map(|url| if url.is_empty() { Value::Null } else { json!(url) });
    work.write_lines("data/a.jsonl", urls.into_iter().enumerate().map(|(i, url)| row(i, url)))?;
    work.write("blocked.csv", "id,b\n0,False\n1,True\n2,NaN\n3,0.0\n4,[None]\n")?;
    work.write("good.txt", "good.org\n")?;
    work.write("words.jsonl", "{\"word\": \"#metoo\"}\n")?;
    let consent =
        "kind = 'robots'\nas_of = '2025'\nsources = [{ ids = 'blocked.csv', blocked_if = 'b' }]";
    let words = "kind = 'words'\nlists = ['words.jsonl']\nmax_share = 0.4";
    for (name, filter, kept) in [
        ("consent", consent, &["0", "2", "3", "4"][..]),
        ("urls", "kind = 'urls'\nmode = 'include'\nlists = ['good.txt']", &["0"]),
        ("words", words, &[]),
    ] {
        let settings = format!(
            "[input]\nfiles = ['data/*.jsonl']\nlanguage = 'und'\n[encoder]\nmodel = 'none'\n[filters.f]\n{filter}\n"
        );
        work.write("run.toml", settings)?;
        work.command("run", name).assert().success();
        let found = ids(&work, &format!("{name}/export/a.parquet"))?;
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), kept, "{name}");
    }
    Ok(())
}
