//! Data sets of a hub, played by the local server of the tests of models.

use predicates::str::contains;

use super::{RESULTS, assert_same, planned, run, write_parquet};
use crate::hub::{COMMIT, Hub};
use crate::util::{TestResult, Workspace};

const ID: &str = "datasets/someone/some-texts";

#[test]
fn a_data_set_is_read_at_the_commit_of_the_plan() -> TestResult {
    let work = Workspace::new()?;
    for (file, rows) in
        [("fra_Latn/a", 0..50), ("fra_Latn/b ?#%2F&", 50..90), ("deu_Latn/a", 90..130)]
    {
        write_parquet(&work.path(&format!("set/data/{file}.parquet")), rows, 20, 3000)?;
    }
    work.write("set/README.md", "# Texts")?;
    let hub = Hub::serve(vec![(ID.into(), work.path("set"))], 404)?;
    run(&work, "set/data/{lang}/*.parquet", "local").assert().success();
    let pattern = "hf://datasets/someone/some-texts@v1/data/{lang}/*.parquet";
    let online = |run: &mut assert_cmd::Command| {
        run.env("HF_ENDPOINT", hub.endpoint()).env("HF_TOKEN", "secret").assert()
    };
    online(&mut run(&work, pattern, "remote")).success();
    assert_same(&work, "local", "remote", &RESULTS)?;
    let file = format!("hf://datasets/someone/some-texts@{COMMIT}/data/deu_Latn/a.parquet");
    assert_eq!(planned(&work, "remote")?[0].1, file);
    let seen = hub.seen();
    assert!(seen.iter().all(|request| request.token.as_deref() == Some("Bearer secret")));
    assert!(seen.iter().any(|request| request.url.contains("/revision/v1")));
    let reads: Vec<_> = seen.iter().filter(|request| request.url.contains("/resolve/")).collect();
    assert!(reads.iter().all(|request| request.url.contains(&format!("/resolve/{COMMIT}/data/"))));

    // A commit is what it is: nobody asks which one it is.
    let pinned = pattern.replace("v1", COMMIT);
    online(&mut run(&work, &pinned, "pinned")).success();
    assert_same(&work, "local", "pinned", &RESULTS)?;
    assert_eq!(hub.seen().iter().filter(|r| r.url.contains("/revision/")).count(), 1);
    Ok(())
}

#[test]
fn without_a_network_the_cache_is_searched() -> TestResult {
    let work = Workspace::new()?;
    let snapshot = format!("home/hub/datasets--someone--some-texts/snapshots/{COMMIT}/data");
    write_parquet(&work.path(&snapshot).join("fra_Latn/a.parquet"), 0..50, 20, 100)?;
    write_parquet(&work.path("set/fra_Latn/a.parquet"), 0..50, 20, 100)?;
    let refs = "home/hub/datasets--someone--some-texts/refs/main";
    work.write(refs, COMMIT)?;
    run(&work, "set/{lang}/*.parquet", "local").assert().success();
    let pattern = "hf://datasets/someone/some-texts/data/{lang}/*.parquet";
    let mut offline = run(&work, pattern, "offline");
    offline.env("HF_HOME", work.path("home")).arg("--offline").assert().success();
    assert_same(&work, "local", "offline", &RESULTS)?;
    let mut absent = run(&work, &pattern.replace("some-texts", "other"), "absent");
    absent.env("HF_HOME", work.path("home")).env("HF_HUB_OFFLINE", "1");
    absent.assert().code(69).stderr(contains("not in the cache"));
    // A download that ended early.
    let first = work.path(&snapshot).join("fra_Latn/b-00000-of-00002.parquet");
    write_parquet(&first, 50..60, 20, 100)?;
    let go = |pattern: &str, out: &str| {
        let mut command = run(&work, pattern, out);
        command.env("HF_HOME", work.path("home")).arg("--offline").assert()
    };
    go(pattern, "some")
        .code(69)
        .stderr(contains("holds only some of `data/fra_Latn/b-*-of-00002`"));
    go(&pattern.replace('*', "b-00000*"), "one").success();
    Ok(())
}

#[test]
fn a_listing_is_whole_or_an_error() -> TestResult {
    let work = Workspace::new()?;
    for name in ["a", "b", "c"] {
        write_parquet(&work.path(&format!("set/{name}.parquet")), 0..50, 20, 100)?;
    }
    let hub = Hub::serve(vec![(ID.into(), work.path("set"))], 404)?;
    let go = || {
        let mut command = run(&work, "hf://datasets/someone/some-texts/*.parquet", "none");
        command.env("HF_ENDPOINT", hub.endpoint()).env("HF_HOME", work.path("home"));
        command.args(["--dry-run", "--language", "fra_Latn"]).assert()
    };
    let told = go().success().get_output().stdout.clone();
    assert!(String::from_utf8(told)?.contains("150"), "documents of three files");
    work.write("set/one-page", "")?;
    go().failure().stderr(contains("some-texts"));
    std::fs::remove_file(work.path("set/one-page"))?;
    work.write("set/endless", "")?;
    go().code(69).stderr(contains("the listing has no end"));
    Ok(())
}

#[test]
fn a_hub_that_refuses_says_what_can_be_done() -> TestResult {
    let work = Workspace::new()?;
    write_parquet(&work.path("set/a.parquet"), 0..50, 20, 100)?;
    for (status, code, message) in [
        (401, 69, "HF_TOKEN"),
        (403, 69, "accept the dataset's terms"),
        (404, 66, "the hub has no such dataset"),
    ] {
        let hub = Hub::serve(vec![(ID.into(), work.path("set"))], status)?;
        let mut command = run(&work, "hf://datasets/someone/other/*.parquet", "none");
        command.env("HF_ENDPOINT", hub.endpoint()).env("HF_HOME", work.path("home"));
        command.assert().code(code).stderr(contains(message));
        let mut command = run(&work, "hf://datasets/someone/some-texts/none/*.parquet", "none");
        command.env("HF_ENDPOINT", hub.endpoint()).env("HF_HOME", work.path("home"));
        command.assert().code(66).stderr(contains("no such object"));
    }
    Ok(())
}
