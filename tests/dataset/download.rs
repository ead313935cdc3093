//! Sources from a hub, played by a local server.

use std::path::Path;

use assert_cmd::Command;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::Value;

use super::{Fallible, copy, golden};
use crate::hub::{COMMIT, Hub};
use crate::util::{TestResult, polysift};

const REPOSITORIES: [(&str, &str); 5] = [
    ("mmmlu", "openai/MMMLU"),
    ("include", "CohereLabs/include-base-44"),
    ("oasst2", "OpenAssistant/oasst2"),
    ("aya_dataset", "CohereLabs/aya_dataset"),
    ("aya_collection", "CohereLabs/aya_collection_language_split"),
];

/// A source, its repository and the commit.
type Origin = (String, Value, Value);

/// A hub of the sources in `folder`; there is no other repository.
fn hub(folder: &Path) -> Fallible<Hub> {
    let folders = REPOSITORIES.map(|(name, id)| (format!("datasets/{id}"), folder.join(name)));
    Ok(Hub::serve(folders.into_iter().filter(|(_, folder)| folder.is_dir()).collect(), 404)?)
}

fn mkc(work: &Path, endpoint: &str, out: &str) -> Command {
    let mut command = polysift();
    command.env("HF_ENDPOINT", endpoint).env("HF_HUB_CACHE", work.join("cache"));
    command.args(["dataset", "mkc", "--out"]).arg(work.join(out));
    command.arg("--corpus").arg(golden("corpus/{lang}/train/*"));
    command
}

/// The card of a language, and what it says of where sources come from.
fn card(folder: &Path) -> Fallible<(Value, Vec<Origin>)> {
    let mut card: Value = serde_json::from_slice(&std::fs::read(folder.join("card.json"))?)?;
    let sources = card["sources"].as_object_mut().ok_or("no sources")?;
    let mut origins = Vec::new();
    for (name, source) in sources.iter_mut() {
        let source = source.as_object_mut().ok_or("no source")?;
        let [repository, revision] = ["repository", "revision"].map(|key| source.remove(key));
        if let (Some(repository), Some(revision)) = (repository, revision) {
            origins.push((name.clone(), repository, revision));
        }
    }
    Ok((card, origins))
}

/// Whether two results are the same but for the origins in the cards.
fn assert_same(one: &Path, other: &Path) -> TestResult {
    for language in ["deu_Latn", "fra_Latn"] {
        let (one, other) = (one.join(language), other.join(language));
        for file in ["train_80.jsonl", "valid_10.jsonl", "test_10.jsonl"] {
            assert_eq!(std::fs::read(one.join(file))?, std::fs::read(other.join(file))?, "{file}");
        }
        assert_eq!(card(&one)?.0, card(&other)?.0);
    }
    Ok(())
}

#[test]
fn downloaded_sources_give_what_the_same_files_in_folders_give() -> TestResult {
    let work = tempfile::tempdir()?;
    let path = |name: &str| work.path().join(name);
    mkc(work.path(), "", "local").arg("--sources").arg(golden("sources")).assert().success();
    assert!(card(&path("local/deu_Latn"))?.1.is_empty());

    let server = hub(&golden("sources"))?;
    mkc(work.path(), &server.endpoint(), "hub").arg("--download").assert().success();
    assert_same(&path("local"), &path("hub"))?;
    let mut expected = REPOSITORIES.map(|(name, id)| (name.into(), id.into(), COMMIT.into()));
    expected.sort_by_key(|(name, _, _): &Origin| name.clone());
    assert_eq!(card(&path("hub/deu_Latn"))?.1, expected);

    // Nothing that is not read was asked for, and all of it at one commit.
    let resolve = format!("/resolve/{COMMIT}/");
    let files =
        || server.seen().into_iter().map(|seen| seen.url).filter(|url| !url.contains("/api/"));
    assert!(files().all(|url| url.contains(&resolve)));
    assert!(!files().any(|url| url.contains("validation") || url.contains("demographics")));
    let number = files().count();

    // Again: only the lists are asked for; offline: nothing.
    mkc(work.path(), &server.endpoint(), "again").arg("--download").assert().success();
    assert_same(&path("hub"), &path("again"))?;
    assert_eq!(files().count(), number);
    drop(server);
    mkc(work.path(), "http://127.0.0.1:9", "offline")
        .args(["--download", "--offline"])
        .assert()
        .success();
    assert_same(&path("hub"), &path("offline"))?;
    assert_eq!(card(&path("offline/deu_Latn"))?.1, expected);
    Ok(())
}

#[test]
fn only_sources_without_a_folder_and_only_wanted_languages_are_downloaded() -> TestResult {
    let work = tempfile::tempdir()?;
    let sources = work.path().join("sources");
    copy(&golden("sources"), &sources)?;
    std::fs::remove_dir_all(sources.join("include"))?;
    let server = hub(&golden("sources"))?;
    mkc(work.path(), &server.endpoint(), "out")
        .args(["--download", "--languages", "deu_Latn", "--sources"])
        .arg(&sources)
        .assert()
        .success();
    let urls: Vec<String> = server.seen().into_iter().map(|seen| seen.url).collect();
    assert!(urls.iter().all(|url| url.contains("include-base-44") && !url.contains("French")));
    let origins = card(&work.path().join("out/deu_Latn"))?.1;
    assert_eq!(origins.len(), 1, "{origins:?}");

    // MKC has no Aya Collection: its repository is not asked for.
    mkc(work.path(), &server.endpoint(), "out")
        .args(["--download", "--variant", "mkc"])
        .assert()
        .success();
    assert!(!server.seen().iter().any(|seen| seen.url.contains("aya_collection")));
    Ok(())
}

#[test]
fn a_repository_without_files_of_a_language_is_left_out_with_a_warning() -> TestResult {
    let work = tempfile::tempdir()?;
    let sources = work.path().join("sources");
    copy(&golden("sources"), &sources)?;
    std::fs::remove_dir_all(sources.join("include/French"))?;
    let server = hub(&sources)?;
    mkc(work.path(), &server.endpoint(), "out")
        .arg("--download")
        .assert()
        .success()
        .stderr(contains("no such source").and(contains("CohereLabs/include-base-44: French")));
    let (card, _) = card(&work.path().join("out/fra_Latn"))?;
    assert!(card["sources"]["include"].is_null() && card["sources"]["mmmlu"].is_object());
    Ok(())
}

#[test]
fn what_cannot_be_downloaded_is_said_before_anything_is_written() -> TestResult {
    let work = tempfile::tempdir()?;
    let failed = |mut command: Command, code: i32, expected: &[&str]| {
        let mut assert = command.assert().code(code);
        for text in expected {
            assert = assert.stderr(contains(*text));
        }
        assert!(!work.path().join("out").exists());
    };
    let mut offline = mkc(work.path(), "http://127.0.0.1:9", "out");
    offline.arg("--download").env("HF_HUB_OFFLINE", "1");
    let advice = "hf download --repo-type dataset openai/MMMLU";
    failed(offline, 69, &["openai/MMMLU: ", "is not in the cache", advice]);
    let mut nobody = mkc(work.path(), "http://127.0.0.1:9", "out");
    nobody.arg("--download");
    failed(nobody, 69, &["openai/MMMLU: cannot be downloaded from http://127.0.0.1:9", advice]);

    let sources = work.path().join("sources");
    copy(&golden("sources"), &sources)?;
    std::fs::remove_dir_all(sources.join("oasst2"))?;
    let server = hub(&sources)?;
    let mut absent = mkc(work.path(), &server.endpoint(), "out");
    absent.arg("--download");
    failed(absent, 66, &["OpenAssistant/oasst2: the hub has no such dataset"]);
    Ok(())
}

#[test]
fn a_download_that_was_cut_off_is_not_taken_for_the_whole_source() -> TestResult {
    let work = tempfile::tempdir()?;
    let server = hub(&golden("sources"))?;
    let mut command = mkc(work.path(), &server.endpoint(), "first");
    command.args(["--download", "--languages", "deu_Latn"]).assert().success();
    let snapshot = format!(
        "cache/datasets--CohereLabs--aya_collection_language_split/snapshots/{COMMIT}/german"
    );
    std::fs::remove_file(work.path().join(snapshot).join("train-00001-of-00002.parquet"))?;
    mkc(work.path(), "", "out")
        .args(["--download", "--offline", "--languages", "deu_Latn"])
        .assert()
        .code(69)
        .stderr(contains("`german/train-*-of-00002`").and(contains("is not in the cache")));
    Ok(())
}
