//! Files of web servers.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use predicates::str::contains;
use tiny_http::{Request, Response, Server};

use super::bucket::{header, part_of, range_of};
use super::{RESULTS, assert_same, planned, run, with_s3};
use crate::util::{TestResult, Workspace, decoded, polysift};

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// A server of the files below a folder.
pub(super) struct Web {
    server: Arc<Server>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What a server asks of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    Nothing,
    /// A query that ends so.
    Query(&'static str),
    /// The header `Authorization` with this value.
    Header(&'static str),
}

impl Web {
    pub(super) fn serve(folder: PathBuf, with_ranges: bool, demand: Demand) -> Result<Self> {
        let server = Arc::new(Server::http("127.0.0.1:0").map_err(|e| anyhow!(e))?);
        let listener = Arc::clone(&server);
        let thread = std::thread::spawn(move || {
            for request in listener.incoming_requests() {
                // A client that hung up is seen at its own end.
                let _ = answer(request, &folder, with_ranges, demand);
            }
        });
        Ok(Self { server, thread: Some(thread) })
    }

    pub(super) fn url(&self, path: &str) -> String {
        self.server.server_addr().to_ip().map_or_else(String::new, |a| format!("http://{a}/{path}"))
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(
    request: Request,
    folder: &std::path::Path,
    with_ranges: bool,
    demand: Demand,
) -> Result<()> {
    let has = |value: &str| {
        let header = request.headers().iter().find(|h| h.field.equiv("Authorization"));
        header.is_some_and(|header| header.value.as_str() == value)
    };
    let is_granted = match demand {
        Demand::Nothing => true,
        Demand::Query(end) => request.url().ends_with(end),
        Demand::Header(value) => has(value),
    };
    if !is_granted {
        return Ok(request.respond(Response::empty(403))?);
    }
    let path = request.url().split_once('?').map_or(request.url(), |(path, _)| path);
    // As it was asked for: `%2F` is no slash.
    let path = decoded(&path.trim_start_matches('/').replace("%2F", "_2F_"));
    let Ok(bytes) = std::fs::read(folder.join(path)) else {
        return Ok(request.respond(Response::empty(404))?);
    };
    // A server that does not know what it has.
    let name = if request.url().contains("untold") { "X-None" } else { "ETag" };
    let etag = header(name, format!("\"{}\"", blake3::hash(&bytes).to_hex()))?;
    let Some(range) = range_of(&request).filter(|_| with_ranges) else {
        return Ok(request.respond(Response::from_data(bytes).with_header(etag))?);
    };
    Ok(request.respond(part_of(&bytes, &range)?.with_header(etag))?)
}

#[test]
fn files_are_read_by_their_urls() -> TestResult {
    let work = Workspace::new()?;
    let lines = std::fs::read(work.path("corpus/fra_Latn/a.jsonl"))?;
    work.write("corpus/fra_Latn/b c.jsonl.gz", gzip(&lines)?)?;
    work.write("corpus/a_2F_b?.jsonl", &lines)?;
    let web = Web::serve(work.path("corpus"), true, Demand::Nothing)?;
    let files = ["corpus/fra_Latn/a.jsonl", "corpus/fra_Latn/b c.jsonl.gz"];
    let urls = [web.url("fra_Latn/a.jsonl"), web.url("fra_Latn/b%20c.jsonl.gz?key=secret")];
    let language =
        ["--language", "fra_Latn", "--set", "heads.quality.train=['samples/fra_Latn.jsonl']"];
    run(&work, files[0], "local").arg(files[1]).args(language).assert().success();
    run(&work, &urls[0], "remote").arg(&urls[1]).args(language).assert().success();
    let names = |run: &str| -> Result<Vec<String>, Box<dyn std::error::Error>> {
        Ok(planned(&work, run)?.into_iter().map(|shard| shard.0).collect())
    };
    assert_eq!(names("local")?, ["a", "b c"]);
    assert_eq!(names("remote")?.len(), 2);
    assert_same(&work, "local", "remote", &RESULTS[3..4])?;
    // The URL is asked for as it was given.
    let odd = web.url("a%2Fb%3F.jsonl");
    run(&work, &odd, "odd").args(language).assert().success();
    assert_eq!(planned(&work, "odd")?[0].1, odd);
    // Settings for a URL name the URL.
    let versioned = web.url("fra_Latn/a.jsonl?version=2");
    let mut init = polysift();
    init.current_dir(work.dir.path()).args(["init", &versioned, "--out", "web.toml"]);
    init.assert().success();
    let written: toml::Table = std::fs::read_to_string(work.path("web.toml"))?.parse()?;
    assert_eq!(written["input"]["files"], toml::Value::from(vec![versioned]));
    // A change may be one of the size alone.
    work.write("corpus/fra_Latn/untold.jsonl", &lines)?;
    let mut untold = run(&work, &web.url("fra_Latn/untold.jsonl"), "none");
    untold.args(language).arg("--dry-run").assert().success().stderr(contains("neither an ETag"));
    Ok(())
}

#[test]
fn a_server_that_cannot_serve_is_told_from_a_file_that_is_not_there() -> TestResult {
    let work = Workspace::new()?;
    let web = Web::serve(work.path("corpus"), false, Demand::Nothing)?;
    let fails = |input: &str, code: i32, message: &str| {
        let mut command = run(&work, input, "none");
        command.args(["--language", "fra_Latn"]).assert().code(code).stderr(contains(message));
    };
    fails(&web.url("fra_Latn/none.jsonl"), 66, "no such object");
    fails(&web.url("fra_Latn/*.jsonl"), 2, "name each file by its URL");
    fails(&web.url("fra_Latn/a.jsonl"), 69, "does not answer requests for ranges");
    // There are no ranges of nothing.
    work.write("corpus/fra_Latn/empty.jsonl", "")?;
    assert_eq!(polysift::remote::stat(&web.url("fra_Latn/empty.jsonl"))?.bytes, 0);
    Ok(())
}

#[test]
fn ports_that_there_are_not_are_wrong_settings() -> TestResult {
    let work = Workspace::new()?;
    let refused = |input: &str, variable: &str, url: &str| {
        let mut command = run(&work, input, "none");
        with_s3(&mut command, ([127, 0, 0, 1], 9).into()).env("HF_HOME", work.path("home"));
        command.env(variable, url).assert().code(2).stderr(contains("invalid port number"));
    };
    for url in ["http://h:99999/a.jsonl", "https://[::1]:65536/a.jsonl", "s3://b:99999/a.jsonl"] {
        refused(url, "HF_ENDPOINT", "http://127.0.0.1:9");
    }
    refused("s3://bucket/a.jsonl", "AWS_ENDPOINT_URL", "http://h:99999");
    refused("hf://datasets/someone/texts/a.jsonl", "HF_ENDPOINT", "http://h:99999");
    let pinned = format!("hf://datasets/someone/texts@{}/a.jsonl", "0".repeat(40));
    refused(&pinned, "HF_ENDPOINT", "http://h:99999");
    let mut model = run(&work, "corpus/{lang}/*", "none");
    model.args(["--model", "someone/model"]).env("HF_HOME", work.path("home"));
    let model = model.env("HF_ENDPOINT", "http://h:99999").assert();
    model.code(2).stderr(contains("invalid port number"));
    Ok(())
}
