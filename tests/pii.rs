//! Personal data in exported texts: replaced, counted, noted.

use std::os::unix::fs::symlink;

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, UInt64Type};
use polysift::progress::Stop;
use polysift::run::{RunDir, Worker};
use predicates::prelude::PredicateBooleanExt as _;
use predicates::str::contains;
use serde_json::json;

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet};

const TEXTS: [&str; 6] = [
    "write to a@b.co, or aa@b.co.",
    "nothing here",
    "see 8.8.8.8 and 10.0.0.1",
    "Überweisung an DE89 3704 0044 0532 0130 00, email@example.com",
    "",
    "from 1.1.1.1 to c@d.fr",
];

/// A corpus of [`TEXTS`] in two files, without an encoder; the fourth document is German.
fn workspace(settings: &str) -> Result<Workspace, Box<dyn std::error::Error>> {
    let work = Workspace::new()?;
    for (name, range) in [("web/a", 0..3), ("code/b", 3..6)] {
        let rows = range.map(|i| {
            let language = if i == 3 { "deu_Latn" } else { "eng_Latn" };
            json!({"id": format!("d{i}"), "text": TEXTS[i], "language": language})
        });
        work.write_lines(&format!("{name}.jsonl"), rows)?;
    }
    let input = "[input]\nfiles = ['web/*.jsonl', 'code/*.jsonl']\nlanguage = { column = 'language' }\n\
                 [encoder]\nmodel = 'none'\n";
    work.write("run.toml", format!("{input}{settings}"))?;
    Ok(work)
}

/// Texts and counts of an exported file.
fn exported(
    work: &Workspace,
    path: &str,
) -> Result<Vec<(String, i32)>, Box<dyn std::error::Error>> {
    let rows = read_parquet(&work.path(path))?;
    let texts = rows.column_by_name("text").ok_or("no text")?.as_string::<i32>();
    let counts = rows.column_by_name("pii_count").ok_or("no counts")?.as_primitive::<Int32Type>();
    let texts = texts.iter().map(|text| text.unwrap_or_default().to_owned());
    Ok(texts.zip(counts.values().iter().copied()).collect())
}

#[test]
fn texts_are_exported_without_personal_data_and_counts_add_up() -> TestResult {
    let work = workspace("[pii]\n")?;
    work.command("run", "out").assert().success();
    let own = |rows: &[(&str, i32)]| -> Vec<(String, i32)> {
        rows.iter().map(|(text, count)| ((*text).to_owned(), *count)).collect()
    };
    let expected = own(&[
        ("write to <email-pii>, or <email-pii>.", 2),
        ("nothing here", 0),
        ("see <ip-pii> and 10.0.0.1", 1),
    ]);
    assert_eq!(exported(&work, "out/export/web/a.parquet")?, expected);
    let expected =
        own(&[("Überweisung an <iban-pii>, <email-pii>", 2), ("from <ip-pii> to <email-pii>", 2)]);
    assert_eq!(exported(&work, "out/export/code/b.parquet")?, expected);

    let report = work.json("out/audit/pii.json")?;
    let amount = |documents, occurrences, placeholders| json!({"documents": documents, "occurrences": occurrences, "placeholders": placeholders});
    assert_eq!(
        report["languages"],
        json!({
            "deu_Latn": {"email": amount(1, 1, 1), "iban": amount(1, 1, 0)},
            "eng_Latn": {"email": amount(2, 3, 0), "ip": amount(2, 2, 0)},
        })
    );
    // The audit says where, not what: spans of the original text.
    let audit = read_parquet(&work.path("out/audit/pii/code/b.parquet"))?;
    assert!(audit.column_by_name("value").is_none());
    let numbers = |name: &str| {
        let column = audit.column_by_name(name).ok_or("no such column")?;
        Ok::<_, &str>(column.as_primitive::<UInt64Type>().values().to_vec())
    };
    let spans: Vec<(u64, u64)> = numbers("start")?.into_iter().zip(numbers("end")?).collect();
    let original: Vec<&str> = (numbers("row")?.into_iter().zip(&spans))
        .map(|(row, &(start, end))| &TEXTS[3 + row as usize][start as usize..end as usize])
        .collect();
    assert_eq!(original, ["DE89 3704 0044 0532 0130 00", "email@example.com", "1.1.1.1", "c@d.fr"]);
    let files = digests(&work.path("out"))?;
    work.command("run", "out").assert().success();
    assert_eq!(digests(&work.path("out"))?, files);
    polysift().current_dir(work.dir.path()).args(["verify", "out"]).assert().success();

    // What is exported holds nothing any more.
    work.write(
        "run.toml",
        "[input]\nfiles = ['out/export']\nlanguage = 'und'\n[encoder]\nmodel = 'none'\n",
    )?;
    let again = work.command("run", "again").arg("--pii").assert();
    again.code(65).stderr(contains("pii_count"));
    Ok(())
}

#[test]
fn texts_are_replaced_in_the_column_that_they_were_read_from() -> TestResult {
    let work = workspace("[pii]\n")?;
    let rows = [
        json!({"id": "a", "metadata": {"text": "write to a@b.co.", "note": "not e@f.gr"}}),
        json!({"id": "c", "metadata": {"text": "8.8.8.8"}}),
    ];
    let go = |out: &str| {
        let mut command = work.command("run", out);
        command.args(["mixed.jsonl", "--language", "eng_Latn"]).assert()
    };
    work.write_lines("mixed.jsonl", rows.clone().into_iter())?;
    go("out").success();
    let found = read_parquet(&work.path("out/export/mixed.parquet"))?;
    let column = |name: &str| -> Vec<Option<String>> {
        let column = found.column_by_name(name).map(AsArray::as_string::<i32>);
        column.into_iter().flatten().map(|text| text.map(str::to_owned)).collect()
    };
    let [text, note] = ["text", "note"].map(column);
    let expected = |texts: [Option<&str>; 2]| texts.map(|text| text.map(str::to_owned)).to_vec();
    assert_eq!(text, expected([Some("write to <email-pii>."), Some("<ip-pii>")]));
    assert_eq!(note, expected([Some("not e@f.gr"), None]));

    // The texts of other lines are in another column, or in JSON, where none can be replaced.
    let [beside, odd] = [
        json!({"id": "d", "text": "or to c@d.fr."}),
        json!({"id": "d", "text": "x", "metadata": "none"}),
    ];
    for (out, line) in [("beside", beside), ("odd", odd)] {
        work.write_lines("mixed.jsonl", rows.clone().into_iter().chain([line]))?;
        go(out)
            .code(65)
            .stderr(contains("row 1").and(contains("give all rows their texts in one column")));
    }
    Ok(())
}

#[test]
fn what_removed_documents_hold_is_replaced_and_not_counted() -> TestResult {
    let work = workspace(
        "[pii]\n[export]\nkeep_removed = true\ncard = true\n\
         [filters.gone]\nkind = 'ids'\nlists = ['gone.txt']\n",
    )?;
    work.write("gone.txt", "d0\nd3\n")?;
    work.command("run", "out").assert().success();
    // Of the six texts d2 and d5 are exported with something in them.
    let report = work.json("out/audit/pii.json")?;
    let email = json!({"documents": 1, "occurrences": 1, "placeholders": 0});
    let ip = json!({"documents": 2, "occurrences": 2, "placeholders": 0});
    assert_eq!(report["languages"], json!({"eng_Latn": {"email": email, "ip": ip}}));
    assert_eq!(
        exported(&work, "out/removed/gone/web/a.parquet")?,
        [("write to <email-pii>, or <email-pii>.".to_owned(), 2)]
    );
    let card = std::fs::read_to_string(work.path("out/export/README.md"))?;
    assert!(card.contains("| eng_Latn | email | 1 | 1 |\n| eng_Latn | ip | 2 | 2 |\n"), "{card}");
    assert!(!card.contains("| iban |"), "{card}");
    Ok(())
}

#[test]
fn what_is_meant_and_what_stands_for_it_can_be_set() -> TestResult {
    let work = workspace(
        "[pii]\nkinds = ['email', 'ip']\nip = 'all'\nplaceholders = 'keep'\naudit = 'values'\n\
         except = ['code/*']\nmarkers = { ip = '[IP]' }\n[export]\nlayout = 'nested'\n",
    )?;
    work.command("run", "out").assert().success();
    let texts = |path: &str| -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let rows = read_parquet(&work.path(path))?;
        let texts = rows.column_by_name("text").ok_or("no text")?.as_string::<i32>();
        Ok(texts.iter().flatten().map(str::to_owned).collect())
    };
    let found = texts("out/export/web/a.parquet")?;
    assert_eq!(found[2], "see [IP] and [IP]");
    assert_eq!(texts("out/export/code/b.parquet")?, [TEXTS[3], TEXTS[5]]);

    // A glob of files begins at the folder of the settings file, wherever the program is called.
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("run.toml", settings.replace("'code/*'", "'./code/*.jsonl'"))?;
    let run = ["run", "-c", "../run.toml", "--run", "../again"];
    polysift().current_dir(work.path("web")).args(run).assert().success();
    assert_eq!(texts("again/export/code/b.parquet")?, [TEXTS[3], TEXTS[5]]);
    assert_eq!(texts("again/export/web/a.parquet")?[2], "see [IP] and [IP]");
    work.command("run", "again").assert().success();
    let audit = read_parquet(&work.path("out/audit/pii/web/a.parquet"))?;
    let values = audit.column_by_name("value").ok_or("no values")?.as_string::<i32>();
    let values: Vec<&str> = values.iter().flatten().collect();
    assert_eq!(values, ["a@b.co", "aa@b.co", "8.8.8.8", "10.0.0.1"]);
    Ok(())
}

#[test]
fn the_published_ways_are_there_by_name() -> TestResult {
    for (mode, first) in [
        ("apertus", "write to <email-pii>, or a<email-pii>."),
        ("datatrove", "write to email@example.com, or firstname.lastname@example.org."),
    ] {
        let work = workspace("")?;
        work.command("run", "out").arg(format!("--pii={mode}")).assert().success();
        assert_eq!(exported(&work, "out/export/web/a.parquet")?[0].0, first);
    }
    Ok(())
}

#[test]
fn settings_of_personal_data_that_cannot_be_are_refused() -> TestResult {
    for (settings, wrong) in [
        ("[pii]\nkinds = []\n", "pii.kinds: is empty"),
        ("[pii]\nkinds = ['phone']\n", "unknown variant `phone`"),
        ("[pii]\nexcept = ['a[']\n", "pii.except"),
        (
            "[pii]\nmode = 'apertus'\nip = 'all'\n",
            "pii.ip: has no effect if `pii.mode` is `apertus`",
        ),
        ("[pii]\nmode = 'apertus'\nplaceholders = 'keep'\n", "pii.placeholders: has no effect"),
        ("[pii]\nmode = 'datatrove'\nmarkers = { ip = '?' }\n", "pii.markers: has no effect"),
        ("[pii]\nmarker = 'x'\n", "`marker` is unknown; did you mean `markers`?"),
    ] {
        let work = workspace(settings)?;
        work.command("run", "out").assert().code(2).stderr(contains(wrong));
    }
    let nested = workspace("[pii]\n")?;
    let row = json!({"id": "1", "page": {"body": "a@b.co"}, "language": "und"});
    nested.write_lines("web/a.jsonl", [row.clone()].into_iter())?;
    nested.write_lines("code/b.jsonl", [row].into_iter())?;
    let mut run = nested.command("run", "out");
    run.args(["--text-column", "page.body"]).assert().code(65).stderr(contains("page.body"));
    Ok(())
}

#[test]
fn what_a_killed_process_left_of_the_audit_goes_when_another_takes_its_file_over() -> TestResult {
    let work = workspace("[pii]\naudit = 'spans'\n")?;
    for stage in ["embed", "filter"] {
        work.command(stage, "out").assert().success();
    }
    // Without heads the score stage writes no scores, and is a stage nevertheless.
    work.command("threshold", "out").assert().code(66).stderr(contains("run `polysift score`"));
    for stage in ["score", "threshold"] {
        work.command(stage, "out").assert().success();
    }
    // Another process is at work, so that nobody may tidy up; this one died over the export of a file.
    let run = RunDir::open(&work.path("out"))?;
    let _other = Worker::join(&run, &Stop::default())?;
    for (base, name) in [
        ("audit/pii/web", ".a.parquet.17-0.tmp"),
        ("audit/shards/web", ".a.json.17-1.tmp"),
        ("export/web", ".a.parquet.17-2.tmp"),
        ("state/export/failed/web", ".a.json.17-3.tmp"),
    ] {
        work.write(&format!("out/{base}/{name}"), "half")?;
    }
    std::fs::create_dir_all(work.path("out/state/export/leases/web"))?;
    symlink("gone.1.0", work.path("out/state/export/leases/web/a.0"))?;
    work.command("export", "out").assert().success();
    let left = digests(&work.path("out"))?.into_keys().filter(|name| name.contains(".tmp"));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
    Ok(())
}
