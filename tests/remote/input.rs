//! Input from a store: the results are those of the same files on a disk.

use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use predicates::str::contains;
use tiny_http::{Response, Server};

use super::server::{Faults, Line, liar};
use super::{RESULTS, S3, assert_same, corpus, planned, run, with_s3, write_parquet};
use crate::util::{TestResult, Workspace, polysift};

#[test]
fn a_run_over_objects_has_the_results_of_a_run_over_files() -> TestResult {
    let (work, s3) = corpus()?;
    run(&work, "corpus/{lang}/*", "local").assert().success();
    let pattern = "s3://bucket/data/v?/{lang}/*";
    with_s3(&mut run(&work, pattern, "remote"), s3.address()).assert().success();
    assert_same(&work, "local", "remote", &RESULTS)?;
    let files: Vec<String> = planned(&work, "remote")?.into_iter().map(|shard| shard.1).collect();
    assert_eq!(files[0], "s3://bucket/data/v1/deu_Latn/a.jsonl");
    assert_eq!(files.len(), 4);
    let mut verify = polysift();
    verify.arg("verify").arg(work.path("remote"));
    with_s3(&mut verify, s3.address()).assert().success();
    Ok(())
}

#[test]
fn places_in_a_store_are_found_as_files_are() -> TestResult {
    let (work, s3) = corpus()?;
    for key in
        ["data/v1/fra_Latn/_hidden.jsonl", "data/v1/.x/d.jsonl", "data/v1/fra_Latn/notes.txt"]
    {
        s3.put(&work.path("corpus/fra_Latn/a.jsonl"), key)?;
    }
    let shards = |inputs: &[&str]| -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let mut command = polysift();
        command.args(["run", "--dry-run"]).args(inputs);
        let output = with_s3(&mut command, s3.address()).assert().success().get_output().clone();
        let text = String::from_utf8(output.stdout)?;
        let shards = text.lines().filter_map(|line| line.strip_prefix("shard "));
        Ok(shards.filter_map(|line| line.split_whitespace().next()).map(Into::into).collect())
    };
    let all = ["deu_Latn/a", "deu_Latn/c", "fra_Latn/a", "fra_Latn/b"];
    assert_eq!(shards(&["s3://bucket/data"])?, all);
    assert_eq!(shards(&["s3://bucket/"])?, all);
    assert_eq!(shards(&["s3://bucket/data/v1/{lang}"])?, all);
    assert_eq!(shards(&["s3://bucket/**/a.jsonl"])?, ["deu_Latn/a", "fra_Latn/a"]);
    assert_eq!(shards(&["s3://bucket/data/v1/fra_Latn/b.parquet"])?, ["b"]);
    assert_eq!(
        shards(&["s3://bucket/data/v?/fra*/[ab].parquet", "s3://bucket/data/v1/fra_Latn"])?,
        ["a", "b"]
    );
    Ok(())
}

#[test]
fn init_writes_urls_that_the_next_command_reads() -> TestResult {
    let (work, s3) = corpus()?;
    let go = |args: &[&str]| {
        let mut command = polysift();
        command.current_dir(work.dir.path()).args(args);
        with_s3(&mut command, s3.address()).assert()
    };
    go(&["init", "s3://bucket/data", "--out", "x.toml"]).success();
    let written: toml::Table = std::fs::read_to_string(work.path("x.toml"))?.parse()?;
    let files = written["input"]["files"].as_array().ok_or("no files")?;
    assert!(files.contains(&"s3://bucket/data/v1/{lang}/*.jsonl".into()), "{files:?}");
    go(&["plan", "-c", "x.toml", "--run", "planned"]).success();
    // A folder is inspected as its files are.
    go(&["inspect", "s3://bucket/data"]).success().stdout(contains("rows:"));
    Ok(())
}

#[test]
fn a_line_that_breaks_changes_nothing() -> TestResult {
    let work = Workspace::new()?;
    let s3 = S3::start()?;
    write_parquet(&work.path("corpus/fra_Latn/long.parquet"), 0..300, 100, 60_000)?;
    s3.put(&work.path("corpus/fra_Latn/long.parquet"), "fra_Latn/long.parquet")?;
    s3.put(&work.path("corpus/deu_Latn/a.jsonl"), "deu_Latn/a.jsonl")?;
    s3.put(&work.path("corpus/fra_Latn/a.jsonl"), "fra_Latn/a.jsonl")?;
    let line = Line::to(s3.address(), Faults { cut_after: 1_500_000, busy_every: 3 })?;
    run(&work, "corpus/{lang}/*", "local").assert().success();
    let mut remote = run(&work, "s3://bucket/{lang}/*", "remote");
    with_s3(&mut remote, line.address()).assert().success();
    let (cut, busy) = line.faults();
    assert!(cut > 4 && busy > 2, "{cut} {busy}");
    assert_same(&work, "local", "remote", &RESULTS)
}

#[test]
fn what_is_not_there_and_who_does_not_answer_have_their_codes() -> TestResult {
    let (work, s3) = corpus()?;
    for (input, code, message) in [
        ("s3://bucket/none/*.parquet", 66, "no such object"),
        ("s3://bucket/none.parquet", 66, "none.parquet"),
        ("s3://nobucket/a.parquet", 66, "there is no bucket `nobucket`"),
        ("s3://bucket/data/v1/fra_Latn/notes.txt", 66, "notes.txt"),
        ("ftp://host/a.parquet", 2, "unknown kind of URL"),
    ] {
        let mut command = run(&work, input, "none");
        with_s3(&mut command, s3.address()).assert().code(code).stderr(contains(message));
    }
    let mut command = run(&work, "s3://bucket/data", "none");
    with_s3(&mut command, s3.address()).env("AWS_SECRET_ACCESS_KEY", "wrong");
    command.assert().code(69).stderr(contains("access is refused"));
    // Nobody listens at port 9.
    let mut command = run(&work, "s3://bucket/data", "none");
    with_s3(&mut command, "127.0.0.1:9".parse()?).env("POLYSIFT_STORE_RETRY_SECS", "1");
    command.assert().code(69).stderr(contains("s3://bucket/data"));
    assert!(!work.path("none").exists());
    Ok(())
}

#[test]
fn sizes_that_a_server_claims_are_not_believed() -> TestResult {
    let work = Workspace::new()?;
    let address = liar()?;
    let input = |input: &str, said: &str| {
        let mut command = run(&work, input, "none");
        with_s3(&mut command, address)
            .env("HF_ENDPOINT", format!("http://{address}"))
            .env("POLYSIFT_STORE_RETRY_SECS", "0")
            .args(["--language", "fra_Latn"])
            .args(["--set", "heads.quality.train=['samples/fra_Latn.jsonl']"]);
        command.assert().code(69).stderr(contains(said));
    };
    input("s3://bucket/data/*.jsonl", "s3://bucket/data");
    input("s3://bucket/refused/*.jsonl", "s3://bucket/refused");
    input("hf://datasets/someone/texts/*.jsonl", "someone/texts");
    for name in ["a.parquet", "a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.jsonl?x=1"] {
        input(&format!("http://{address}/{name}"), "a.");
    }
    Ok(())
}

#[test]
fn an_object_that_changed_since_the_plan_is_refused() -> TestResult {
    let (work, s3) = corpus()?;
    let mut embed = work.command("embed", "out");
    with_s3(embed.arg("s3://bucket/data/v1/{lang}/*"), s3.address()).assert().success();
    // Of the same size, and other content.
    let object = s3.object("data/v1/fra_Latn/a.jsonl");
    let mut bytes = std::fs::read(&object)?;
    let at = bytes.windows(5).position(|five| five == b"river").ok_or("no river")?;
    bytes[at] = b'R';
    std::fs::write(&object, bytes)?;
    let mut verify = polysift();
    verify.arg("verify").arg(work.path("out"));
    with_s3(&mut verify, s3.address())
        .assert()
        .code(65)
        .stdout(contains("fra_Latn/a.jsonl: the file changed since the run was planned"));
    Ok(())
}

#[test]
fn what_is_read_from_files_only_refuses_urls() -> TestResult {
    let work = Workspace::new()?;
    for (arguments, message) in [
        (
            &["embed", "--run", "s3://bucket/run", "corpus"][..],
            "a run directory is on a file system",
        ),
        (&["score", "--run", "x", "--head", "q=s3://b/q.safetensors"], "heads.q.path: is a URL"),
        (&["embed", "--run", "x", "--model", "s3://b/model", "corpus"], "encoder.model: is a URL"),
        (&["embed", "--run", "x", "--export-to", "https://h/x", "corpus"], "is only read"),
        (&["embed", "--run", "x", "--export-to", "ftp://x/y", "corpus"], "export.to"),
    ] {
        let mut command = polysift();
        command.current_dir(work.dir.path()).args(arguments);
        command.assert().code(2).stderr(contains(message));
    }
    Ok(())
}

#[test]
fn samples_are_read_from_a_store_too() -> TestResult {
    let (work, s3) = corpus()?;
    for language in ["fra_Latn", "deu_Latn"] {
        let file = format!("samples/{language}.jsonl");
        s3.put(&work.path(&file), &file)?;
    }
    run(&work, "corpus/{lang}/*", "local").assert().success();
    let mut remote = run(&work, "corpus/{lang}/*", "remote");
    remote.args(["--train-on", "quality=s3://bucket/samples/{lang}.jsonl"]);
    with_s3(&mut remote, s3.address()).assert().success();
    // The heads name their samples by other digests; what they learned is the same.
    assert_same(&work, "local", "remote", &["embeddings", "selection"])
}

#[test]
fn a_stop_does_not_wait_for_a_store_that_does_not_answer() -> TestResult {
    let work = Workspace::new()?;
    for arguments in [
        &["s3://bucket/data", "--model", "none"][..],
        &["s3://bucket/data/a.jsonl", "--model", "none"],
        &["hf://datasets/someone/texts", "--model", "none"],
        &["http://SERVER/a.jsonl", "--model", "none"],
        &["corpus/{lang}/*.jsonl", "--model", "someone/model"],
    ] {
        let server = TcpListener::bind("127.0.0.1:0")?;
        let address = server.local_addr()?;
        let (asked, requests) = channel();
        std::thread::spawn(move || {
            for mut client in server.incoming().flatten() {
                // A request has begun: from now on it waits.
                let _ = client.read_exact(&mut [0]).map(|()| asked.send(client));
            }
        });
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_polysift"));
        with_s3(&mut command, address);
        let mut child = Command::new(env!("CARGO_BIN_EXE_polysift"));
        let values = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        child
            .envs(values)
            .env("HF_ENDPOINT", format!("http://{address}"))
            .env("HF_HOME", work.path("hf"));
        child.current_dir(work.dir.path()).args(["embed", "--run", "out", "--device", "cpu"]);
        child.args(arguments.iter().map(|part| part.replace("SERVER", &address.to_string())));
        let mut child = child.stderr(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let _open = requests.recv_timeout(Duration::from_secs(30))?;
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
        let began = Instant::now();
        while child.try_wait()?.is_none() && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill(); // if it did not end
        assert_eq!(child.wait()?.code(), Some(75), "{arguments:?}");
    }
    Ok(())
}

#[test]
fn a_listing_that_comes_round_to_its_page_is_no_listing() -> TestResult {
    let server = std::sync::Arc::new(Server::http("127.0.0.1:0").map_err(|e| e.to_string())?);
    let address = server.server_addr().to_ip().ok_or("no address")?;
    let answering = std::sync::Arc::clone(&server);
    let thread = std::thread::spawn(move || {
        for request in answering.incoming_requests() {
            let page = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>bucket</Name><Prefix/>\
                        <IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>\
                        </ListBucketResult>";
            let _ = request.respond(Response::from_string(page)); // or it was given up
        }
    });
    let mut command = polysift();
    command.args(["run", "--dry-run", "s3://bucket/data", "--model", "none"]);
    with_s3(&mut command, address).timeout(Duration::from_secs(30));
    command.assert().code(69).stderr(contains("a page is followed by itself"));
    server.unblock();
    let _ = thread.join();
    Ok(())
}
