//! Languages that a classifier identifies: in a run, in `annotate`, and what is refused.

use std::collections::BTreeMap;
use std::error::Error;

use arrow::array::AsArray;
use polysift::config::{InputConfig, LanguageSource};
use polysift::fasttext::{LanguageIdentifier, TextScratch};
use predicates::str::contains;
use serde_json::{Value, json};

use super::file;
use crate::util::{TestResult, Workspace, polysift, read_parquet, root};

/// Codes by label; `sv` stays as it is.
const CODES: [(&str, &str); 3] = [("ar", "arb_Arab"), ("zh", "cmn_Hani"), ("en", "eng_Latn")];

/// The best label and its probability by id, as the fastText library found them.
fn expected() -> Result<BTreeMap<String, (String, f32)>, Box<dyn Error>> {
    Ok(serde_json::from_slice(&std::fs::read(file("languages.json"))?)?)
}

/// A workspace with the texts of the small sample in folders that say nothing of their languages.
fn workspace() -> Result<Workspace, Box<dyn Error>> {
    let work = Workspace::new()?;
    for (at, language) in ["arb_Arab", "cmn_Hani", "eng_Latn", "swe_Latn"].iter().enumerate() {
        let folder = root().join("tests/sample/small/corpus").join(language);
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().replace("000_", &format!("{at}_"));
            std::fs::create_dir_all(work.path("mixed"))?;
            std::fs::copy(entry.path(), work.path(&format!("mixed/{name}")))?;
        }
    }
    std::fs::copy(file("languages.ftz"), work.path("lid.ftz"))?;
    let labels = CODES.map(|(label, code)| format!("{label} = '{code}'")).join(", ");
    let settings = format!(
        "[input]\nfiles = ['mixed/*']\n\
         language = {{ model = 'lid.ftz', labels = {{ {labels} }}, threshold = 0.9, column = 'lid' }}\n\
         [encoder]\nmodel = 'none'\n"
    );
    work.write("run.toml", &settings)?;
    Ok(work)
}

#[test]
fn documents_have_the_languages_that_the_library_finds() -> TestResult {
    let work = workspace()?;
    let run = || work.command("run", "out");
    // The default name of the new column is taken in the sample.
    let mut taken = work.command("run", "taken");
    taken.args(["--set", "input.language={ model = 'lid.ftz' }"]);
    taken.assert().code(65).stderr(contains("input.language.column"));
    let mut missing = work.command("run", "missing");
    missing.args(["--set", "input.language.model=nope.ftz"]);
    missing.assert().code(66).stderr(contains("nope.ftz: the classifier of `input.language`"));
    run().assert().success();
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(work.path("out/export"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "parquet") {
            continue;
        }
        let rows = read_parquet(&path)?;
        let column = |name: &str| rows.column_by_name(name).cloned().ok_or("no such column");
        let (ids, languages) = (column("id")?, column("lid")?);
        let (ids, languages) = (ids.as_string::<i32>(), languages.as_string::<i32>());
        let pairs = ids.iter().flatten().zip(languages.iter().flatten());
        found.extend(pairs.map(|(id, language)| (id.to_owned(), language.to_owned())));
    }
    let codes = BTreeMap::from(CODES);
    let code = |(label, probability): (String, f32)| {
        let label = label.strip_prefix("__label__").unwrap_or_default();
        let code = codes.get(label).copied().unwrap_or(label);
        if probability < 0.9 { "und".to_owned() } else { code.to_owned() }
    };
    let expected: BTreeMap<String, String> =
        expected()?.into_iter().map(|(id, best)| (id, code(best))).collect();
    assert_eq!(found, expected);
    assert_eq!(found.values().filter(|code| *code == "und").count(), 3);
    polysift().arg("verify").arg(work.path("out")).assert().success();

    // The frozen settings name the file by its digest, so that it may move but not change.
    std::fs::rename(work.path("lid.ftz"), work.path("moved.ftz"))?;
    let moved = std::fs::read_to_string(work.path("run.toml"))?.replace("lid.ftz", "moved.ftz");
    work.write("run.toml", &moved)?;
    run().assert().success();
    work.write("run.toml", moved.replace("0.9", "0.5"))?;
    run().assert().code(78).stderr(contains("input.language.threshold"));
    Ok(())
}

#[test]
fn annotate_identifies_the_language_of_each_text() -> TestResult {
    let work = workspace()?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("run.toml", &(settings + "[heads.any]\nkind = 'random'\n"))?;
    let texts = [
        "Alla människor är födda fria.\nOch lika i värde.",
        "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
        " ",
    ];
    let lines: String = texts.iter().map(|text| json!({"text": text}).to_string() + "\n").collect();
    let mut command = polysift();
    command.arg("annotate").arg("-c").arg(work.path("run.toml")).write_stdin(lines);
    let output = command.assert().success().get_output().stdout.clone();
    let languages: Vec<Value> = String::from_utf8(output)?
        .lines()
        .map(|line| Ok(serde_json::from_str::<Value>(line)?["annotation"]["language"].clone()))
        .collect::<serde_json::Result<_>>()?;
    assert_eq!(languages, ["sv", "cmn_Hani", "und"]);
    Ok(())
}

#[test]
fn the_whole_text_counts_and_labels_must_be_codes() -> TestResult {
    let config = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(label, code)| ((*label).to_owned(), (*code).to_owned()));
        let model = file("languages.ftz").display().to_string();
        let language =
            LanguageSource::Model { model, labels: labels.collect(), threshold: 0.0, column: None };
        InputConfig { language, ..InputConfig::default() }
    };
    let identifier = LanguageIdentifier::load(&config(&[]))?.ok_or("no classifier")?;
    let mut scratch = TextScratch::default();
    let text = "1\nAlla människor är födda fria och lika i värde och rättigheter";
    assert_eq!(identifier.identify(text, &mut scratch), "sv");
    let error = LanguageIdentifier::load(&config(&[("xx", "swe_Latn")])).err().ok_or("was read")?;
    assert!(error.to_string().contains("`xx` is not a label"), "{error}");
    for (settings, message) in [
        ("{ model = 'lid.bin', threshold = 1.5 }", "input.language.threshold: is 1.5"),
        ("{ model = 'lid.bin', labels = { sv = 'a b' } }", "`a b` is not"),
        ("{ models = 'lid.bin' }", "{ model = "),
    ] {
        let setting = format!("input.language={settings}");
        let mut command = polysift();
        command.args(["plan", "x.jsonl", "--set", &setting]);
        command.assert().code(2).stderr(contains(message));
    }
    Ok(())
}
