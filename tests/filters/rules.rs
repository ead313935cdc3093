//! Licences, words, repetition: what they find, remove, flag and cut.

use std::collections::{BTreeMap, BTreeSet};

use predicates::str::contains;
use serde_json::{Value, json};

use super::{ids, texts};
use crate::util::{TestResult, Workspace};

/// A workspace without an encoder, with documents of one language and these filters.
fn with_documents(
    documents: impl Iterator<Item = Value>,
    filters: &str,
) -> Result<Workspace, Box<dyn std::error::Error>> {
    let work = Workspace::new()?;
    std::fs::remove_dir_all(work.path("corpus"))?;
    work.write_lines("corpus/eng_Latn/a.jsonl", documents)?;
    let settings = "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n[export]\nkeep_removed = true\n";
    work.write("run.toml", format!("{settings}{filters}"))?;
    Ok(work)
}

#[test]
fn documents_without_evidence_of_a_licence_are_removed() -> TestResult {
    let filler = "A sentence of some words. ".repeat(20);
    let documents = [
        ("python", "https://docs.python.org/3/", "The tutorial.".to_owned()),
        ("gov", "https://www.gov.uk/tax", "Taxes.".to_owned()),
        ("reserved", "https://www.irs.gov/a", format!("{filler} All Rights Reserved.")),
        ("disguised", "https://irs.gov.example.com/", "Taxes.".to_owned()),
        ("head", "https://example.com/", format!("CC-BY 4.0. {filler}")),
        ("middle", "https://example.com/", format!("{filler} cc-by {filler}")),
        ("nc", "https://python.org/", format!("{filler} CC BY-NC 4.0")),
        ("none", "no url", "Nothing is said.".to_owned()),
    ];
    let rows = documents.iter().map(|(id, url, text)| json!({"id": id, "url": url, "text": text}));
    let filters = "[filters.open]\nkind = 'license'\n\
                   [filters.evidence]\nkind = 'license'\naction = 'flag'\n";
    let work = with_documents(rows, filters)?;
    work.command("run", "out").assert().success();
    let kept: BTreeSet<String> = ["python", "gov", "head"].map(str::to_owned).into();
    assert_eq!(ids(&work, "out/export/eng_Latn/a.parquet")?, kept);
    let flags = texts(&work, "out/export/eng_Latn/a.parquet", "evidence")?;
    let flags: Vec<&str> = flags.iter().flatten().map(String::as_str).collect();
    assert_eq!(flags.len(), 3);
    assert!(flags[0].starts_with("host:python.org,PSF-2.0"), "{flags:?}");
    assert!(flags[1].starts_with("suffix:gov"), "{flags:?}");
    assert_eq!(flags[2], "keyword:head:cc-by");
    let report = work.json("out/filters/open.json")?;
    let reasons = report["languages"]["eng_Latn"]["reasons"].as_object().ok_or("no reasons")?;
    let counts: BTreeMap<&str, &Value> =
        reasons.iter().map(|(reason, amount)| (reason.as_str(), &amount["documents"])).collect();
    let expected =
        [("no-evidence", json!(2)), ("restrictive-term", json!(2)), ("unreadable-url", json!(1))];
    assert_eq!(counts, expected.iter().map(|(reason, count)| (*reason, count)).collect());

    // A list of one's own, and no look at the texts.
    work.write("allow.toml", "[[allow]]\nhost = 'example.com'\nlicense = 'CC0-1.0'\n")?;
    let own = std::fs::read_to_string(work.path("run.toml"))?.replace(
        "[filters.evidence]\nkind = 'license'\n",
        "allow = 'allow.toml'\nkeywords = []\nrestrictive = []\n[filters.evidence]\nkind = 'license'\n",
    );
    work.write("run.toml", own)?;
    work.command("run", "own").assert().success();
    let kept: BTreeSet<String> = ["disguised", "head", "middle"].map(str::to_owned).into();
    assert_eq!(ids(&work, "own/export/eng_Latn/a.parquet")?, kept);
    for (list, code, reason) in [
        ("[[allow]]\nhost = 'a.org'\nsuffix = 'gov'\n", 2, "entry 1"),
        ("[[allow]]\nlicense = 'MIT'\n", 2, "entry 1"),
        ("[[allow]]\nhots = 'a.org'\n", 2, "hots"),
    ] {
        work.write("allow.toml", list)?;
        work.command("run", "bad").assert().code(code).stderr(contains(reason));
    }
    work.write("allow.toml", b"[[allow]]\nhost = '\xff'\n")?;
    work.command("run", "bad").assert().code(65).stderr(contains("UTF-8"));
    std::fs::remove_file(work.path("allow.toml"))?;
    work.command("run", "bad").assert().code(66);
    Ok(())
}

#[test]
fn documents_of_listed_words_and_repeated_sentences_are_removed_or_cut() -> TestResult {
    let sentence = |i: usize| format!("This is sentence number {i} of a longer document. ");
    let repeated = |times: usize| sentence(1).repeat(times);
    let code = "QmFzZTY0IGlzIGEgZ3JvdXAgb2YgYmluYXJ5LXRvLXRleHQgZW5jb2Rpbmcgc2NoZW1lcyB0aGF0IHJlcHJlc2VudCBiaW5hcnkgZGF0YSBpbiBhbiBBU0NJSSBzdHJpbmcu";
    let documents = [
        ("four", repeated(4)),
        ("five", repeated(5)),
        ("some", format!("{}{}{}{}", sentence(1), sentence(2), sentence(1), sentence(3))),
        ("base64", format!("An image follows: {code}")),
        ("casino", "Casino casino, online  POKER and little else".to_owned()),
        ("little", "One casino among a number of other words that nobody has on a list".to_owned()),
    ];
    let rows = documents.iter().map(|(id, text)| json!({"id": id, "text": text}));
    let filters = "[filters.repetition]\nkind = 'repetition'\nbase64 = true\naction = 'cut'\n\
                   [filters.words]\nkind = 'words'\nlists = ['words/{lang}.txt']\nmax_share = 0.5\n";
    let work = with_documents(rows, filters)?;
    work.write("words/eng_Latn.txt", "# a comment\ncasino\nOnline Poker\n")?;
    work.write("words/deu_Latn.txt", "one\n")?;
    work.command("run", "out").assert().success();
    let kept: BTreeSet<String> = ["four", "some", "little"].map(str::to_owned).into();
    assert_eq!(ids(&work, "out/export/eng_Latn/a.parquet")?, kept);
    let kept = texts(&work, "out/export/eng_Latn/a.parquet", "text")?;
    let trimmed = |text: &Option<String>| {
        let text = text.clone().unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(trimmed(&kept[0]), sentence(1).trim());
    assert_eq!(trimmed(&kept[1]), [1, 2, 3].map(sentence).concat().trim());
    let removed = ids(&work, "out/removed/words/eng_Latn/a.parquet")?;
    assert_eq!(removed, ["casino".to_owned()].into());
    let report = work.json("out/filters/repetition.json")?;
    let reasons = &report["languages"]["eng_Latn"]["reasons"];
    assert_eq!(reasons["base64"]["documents"], 1);
    work.write("words/eng_Latn.txt", "# nothing\n")?;
    work.command("run", "empty")
        .assert()
        .failure()
        .stderr(contains("there is no entry in the list"));
    for (settings, reason) in [
        ("[filters.a]\nkind = 'words'\n", "lists"),
        (
            "[filters.a]\nkind = 'words'\nlists = ['words/{lang}.txt']\nmax_share = 2.0\n",
            "max_share",
        ),
        ("[filters.a]\nkind = 'words'\nlists = ['words/{lang}.txt']\naction = 'cut'\n", "cut"),
        ("[filters.a]\nkind = 'repetition'\nwindow = 3\n", "window"),
        ("[filters.a]\nkind = 'license'\nkeywords = ['']\n", "keywords"),
    ] {
        let base = "[input]\nfiles = ['corpus/{lang}/*.jsonl']\n[encoder]\nmodel = 'none'\n";
        work.write("run.toml", format!("{base}{settings}"))?;
        work.command("run", "refused").assert().code(2).stderr(contains(reason));
    }
    Ok(())
}
