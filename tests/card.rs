//! `polysift card`: its numbers beside those of the run, what it cannot know, templates, the card of the export stage.

use std::error::Error;

use arrow::array::AsArray;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};

use crate::util::{TestResult, Workspace, polysift, read_parquet, text};

/// A workspace of two languages with URLs, and a list of hosts by which documents are removed.
fn workspace() -> Result<Workspace, Box<dyn Error>> {
    let work = Workspace::new()?;
    for (language, documents) in [("deu_Latn", 25), ("fra_Latn", 40)] {
        let rows = (0..documents).map(|i| {
            let url = format!("https://{}.org/{i}", if i % 5 == 0 { "bad" } else { "good" });
            json!({"id": format!("{language}-{i}"), "text": format!("{} a@b.com", text(i)), "url": url})
        });
        work.write_lines(&format!("corpus/{language}/a.jsonl"), rows)?;
    }
    work.write("bad.txt", "bad.org\n")?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    let more = "[filters.hosts]\nkind = 'urls'\nlists = ['bad.txt']\n[pii]\n";
    work.write("run.toml", settings + more)?;
    Ok(work)
}

/// `polysift card out ARGUMENTS` in the workspace.
fn card(work: &Workspace, arguments: &[&str]) -> assert_cmd::Command {
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["card", "out"]).args(arguments);
    command
}

/// What the template is given.
fn facts(work: &Workspace, arguments: &[&str]) -> Result<Value, Box<dyn Error>> {
    let output = card(work, &[&["--json"], arguments].concat()).assert().success();
    Ok(serde_json::from_slice(&output.get_output().stdout)?)
}

#[test]
fn its_numbers_are_those_of_the_run_and_of_the_files() -> TestResult {
    let work = workspace()?;
    card(&work, &[]).assert().code(66);
    work.command("run", "out").args(["--set", "export.card=true"]).assert().success();
    polysift().arg("verify").arg(work.path("out")).assert().success();
    let facts = facts(&work, &[])?;
    let mut total = 0;
    for (at, (language, name, tag)) in
        [("deu_Latn", "German", "de"), ("fra_Latn", "French", "fr")].into_iter().enumerate()
    {
        let file = work.path(&format!("out/export/{language}/a.parquet"));
        let exported = read_parquet(&file)?;
        let rows = exported.num_rows();
        total += rows;
        let texts = exported.column_by_name("text").ok_or("no text")?.as_string::<i32>();
        let bytes: usize = texts.iter().flatten().map(str::len).sum();
        assert_eq!(facts["languages"][at]["bytes"], bytes);
        let found = &facts["languages"][at];
        assert_eq!((&found["code"], &found["name"]), (&json!(language), &json!(name)));
        assert_eq!(found["documents"], rows);
        assert_eq!(found["documents_read"], if at == 0 { 25 } else { 40 });
        let config = &facts["configs"][at];
        assert_eq!(config["path"], format!("{language}/*.parquet"));
        assert_eq!(config["disk_bytes"], file.metadata()?.len());
        assert_eq!((&config["documents"], &config["files"]), (&json!(rows), &json!(1)));
        assert_eq!(facts["language_tags"][at], tag);
        let selection = work.json(&format!("out/selection/{language}.json"))?;
        let outcomes = selection["thresholds"][0]["outcomes"].as_array().ok_or("no outcomes")?;
        let rows = facts["thresholds"].as_array().ok_or("no thresholds")?;
        let rows: Vec<&Value> = rows.iter().filter(|row| row["language"] == language).collect();
        assert_eq!(rows.len(), outcomes.len());
        for (row, outcome) in rows.iter().zip(outcomes) {
            assert_eq!(row["kept"], outcome["kept"]["num_documents"]);
            assert_eq!(row["candidates"], outcome["candidates"]["num_documents"]);
            assert_eq!(row["score"], outcome["threshold_score"]);
        }
    }
    assert_eq!(facts["documents"], total);
    let filter = &facts["filters"][0];
    assert_eq!((&filter["looked_at"], &filter["found"]), (&json!(65), &json!(13)));
    assert_eq!(filter["digests"].as_object().map(serde_json::Map::len), Some(1));
    // Of every exported text one address.
    let emails = |language: &str| facts["pii"]["found"][language]["email"]["occurrences"].as_u64();
    assert_eq!(emails("deu_Latn").zip(emails("fra_Latn")).map(|(a, b)| a + b), Some(total as u64));
    let example = facts["example"]["text"].as_str().ok_or("no example")?;
    assert!(!example.contains("a@b.com"), "{example}");
    // What the export stage wrote is what the command prints.
    let printed = card(&work, &[]).assert().success().get_output().stdout.clone();
    assert_eq!(std::fs::read(work.path("out/export/README.md"))?, printed);
    assert!(String::from_utf8(printed)?.contains("Rates and budgets count documents;"));
    let weighed = ["--set", "selection.weight=bytes", "--set", "selection.mode=published"];
    work.command("run", "weighed").args(weighed).assert().success();
    let said = contains("a sample, as the published code draws it. Rates and budgets count bytes;");
    polysift().current_dir(work.dir.path()).args(["card", "weighed"]).assert().stdout(said);
    Ok(())
}

#[test]
fn what_a_run_cannot_know_is_set_or_left_to_do() -> TestResult {
    let work = workspace()?;
    work.command("run", "out").assert().success();
    assert!(!work.path("out/export/README.md").exists());
    let unknown = ["license", "pretty_name", "source", "repository", "citation"];
    let output = card(&work, &[]).assert().success().get_output().stdout.clone();
    let printed = String::from_utf8(output)?;
    for key in unknown {
        let mark = format!("(card.{key})");
        let mut lines = printed.lines().filter(|line| line.contains(&mark));
        assert!(lines.all(|line| line.contains("TODO")) && printed.contains(&mark), "{key}");
    }
    let sets = unknown.map(|key| match key {
        "repository" => "card.repository=an-owner/a-name".to_owned(),
        key => format!("card.{key}=the \"{key}\": yes"),
    });
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set.as_str()]).collect();
    let known = contains("TODO").not().and(contains(r#"license: "the \"license\": yes""#));
    card(&work, &sets).assert().success().stdout(known);
    // A file's table takes the place of the run's.
    work.write("other.toml", "[card]\nlicense = 'odc-by'\n")?;
    card(&work, &["-c", "other.toml"]).assert().stdout(contains("license: \"odc-by\""));
    card(&work, &["--set", "card.licence=mit"]).assert().code(2).stderr(contains("licence"));
    Ok(())
}

#[test]
fn files_of_several_languages_are_one_configuration() -> TestResult {
    let work = Workspace::new()?;
    let rows = (0..30).map(|i| {
        let language = ["fra_Latn", "xyz_Latn"][i % 2];
        json!({"id": format!("{i}"), "text": text(i), "lang": language})
    });
    work.write_lines("mixed/a.jsonl", rows)?;
    let settings = "[input]\nfiles = ['mixed']\nlanguage = { column = 'lang' }\n\
                    [encoder]\nmodel = 'none'\n[heads.chance]\nkind = 'random'\n\
                    [languages._default]\nretention = { chance = 0.5 }\n";
    work.write("run.toml", settings)?;
    work.command("run", "out").assert().success();
    let facts = facts(&work, &[])?;
    let configs = facts["configs"].as_array().ok_or("no configurations")?;
    assert_eq!(configs.len(), 1);
    assert_eq!(
        (&configs[0]["name"], &configs[0]["path"]),
        (&json!("default"), &json!("*.parquet"))
    );
    assert_eq!(configs[0]["documents"], 16);
    let documents: Vec<&Value> = (0..2).map(|at| &facts["languages"][at]["documents"]).collect();
    assert_eq!(documents, [8, 8]);
    // No code of ISO 639: neither a name nor a tag.
    assert_eq!(
        (&facts["languages"][1]["name"], &facts["language_tags"]),
        (&Value::Null, &json!(["fr"]))
    );
    assert_eq!(facts["encoder"], Value::Null);
    card(&work, &[]).assert().stdout(contains("16 documents in 2 languages, selected from 30"));
    Ok(())
}

/// `datasets` loads no data files without rows, so a hub is not offered any.
#[test]
fn a_language_of_which_nothing_is_kept_is_no_configuration() -> TestResult {
    let work = Workspace::new()?;
    for language in ["fra_Latn", "ita_Latn"] {
        let rows = (0..9).map(|i| json!({"id": format!("{language}-{i}"), "text": text(i)}));
        work.write_lines(&format!("in/{language}/a.jsonl"), rows)?;
    }
    let settings = "[input]\nfiles = ['in/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n\
                    [filters.gone]\nkind = 'ids'\nlists = ['gone.txt']\n";
    work.write("run.toml", settings)?;
    let both = ["fra", "ita"];
    for (gone, configs) in [(&both[1..], json!(["fra_Latn"])), (&both[..], json!([]))] {
        let ids = gone.iter().flat_map(|code| (0..9).map(move |i| format!("{code}_Latn-{i}\n")));
        work.write("gone.txt", ids.collect::<String>())?;
        work.command("run", "out").assert().success();
        let facts = facts(&work, &[])?;
        let found = facts["configs"].as_array().into_iter().flatten();
        assert_eq!(found.map(|config| config["name"].clone()).collect::<Value>(), configs);
        assert_eq!(facts["languages"].as_array().map(Vec::len), Some(2));
        let kept = 2 - gone.len();
        let said = contains(format!(" in {kept} language")).and(contains("\nconfigs:").count(kept));
        card(&work, &[]).assert().success().stdout(said.and(contains("ita_Latn/").not()));
        std::fs::remove_dir_all(work.path("out"))?;
    }
    Ok(())
}

#[test]
fn templates_of_users_take_its_place() -> TestResult {
    let work = workspace()?;
    work.command("run", "out").assert().success();
    work.write("own.md", "{{ 107323203587|size }} {{ 1234567|thousands }} {{ documents_read }}\n")?;
    card(&work, &["--template", "own.md"]).assert().success().stdout("107.3 GB 1,234,567 65\n");
    card(&work, &["--template", "no.md"]).assert().code(66).stderr(contains("no.md"));
    let export = ["--set", "export.card=true", "--set", "card.template=no.md"];
    work.command("run", "late").args(export).assert().code(66).stderr(contains("no.md"));
    assert!(!work.path("late").exists());
    work.write("bad.md", b"a\n\xff\n")?;
    card(&work, &["--template", "bad.md"]).assert().code(2).stderr(contains("UTF-8 in line 2"));
    work.write("bad.md", "a\n{{ documents }\n")?;
    card(&work, &["--template", "bad.md"])
        .assert()
        .code(2)
        .stderr(contains("bad.md").and(contains(":2")));
    let export = ["--set", "export.card=true", "--set", "card.template=bad.md"];
    work.command("run", "late").args(export).assert().code(2).stderr(contains("bad.md"));
    assert!(!work.path("late").exists());
    work.write("bad.md", "{{ documents.none.at_all }}\n")?;
    card(&work, &["--template", "bad.md"]).assert().code(2).stderr(contains("undefined"));
    Ok(())
}

#[test]
fn a_template_has_bounds() -> TestResult {
    let work = workspace()?;
    work.command("run", "out").assert().success();
    let (each, all) =
        ("{% for a in range(9999) %}", "{% for b in range(9999) %}x{% endfor %}{% endfor %}");
    let doubled = "{% set x = x ~ x %}".repeat(40);
    let nested = "{% set x = [x, x] %}".repeat(40);
    for (template, message) in [
        (format!("{each}{all}"), "fuel"),
        (format!("{{% set x = 'ab' %}}{doubled}{{{{ x }}}}"), "fuel"),
        ("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}".to_owned(), "recursion"),
        ("{{ 'x' * 9000000000 }}".to_owned(), "fuel"),
        ("{{ 'x\ny'|indent(2000000000) }}".to_owned(), "fuel"),
        ("{{ languages|tojson(indent=2000000000) }}".to_owned(), "32 MiB"),
        ("{{ languages|tojson(2000000000) }}".to_owned(), "32 MiB"),
        (format!("{{% set x = 1 %}}{nested}{{{{ x|tojson }}}}"), "32 MiB"),
        ("{% for a in range(40) %}{{ 'x' * 1000000 }}{% endfor %}".to_owned(), "32 MiB"),
    ] {
        work.write("own.md", &template)?;
        let refused = card(&work, &["--template", "own.md"]).assert().code(2);
        refused.stderr(contains(message));
    }
    work.write(
        "own.md",
        "{{ card.license|tojson }} {{ '<b>'|tojson }} {{ [1]|tojson(indent=3) }}",
    )?;
    let shown = "null \"\\u003cb\\u003e\" [\n   1\n]";
    card(&work, &["--template", "own.md"]).assert().success().stdout(shown);
    Ok(())
}
