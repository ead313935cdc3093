//! Export to a data set of a hub: the files are those of a local export, whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::{Value, json};
use tiny_http::{Header, Method, Request, Response, Server};

use super::{Failure, corpus, run};
use crate::util::{TestResult, Workspace, decoded, digests, polysift};

const TO: &str = "hf://datasets/someone/selected/v 1";
const TOKEN: &str = "hf_secret";

/// Entries of a page of a listing.
const PAGE: usize = 2;

/// The state of the hub: its files, the requests that it saw, and the faults that it makes.
#[derive(Default)]
struct State {
    /// The body of the request that created the data set.
    repository: Option<Value>,
    /// Bytes by their SHA-256.
    objects: BTreeMap<String, Vec<u8>>,
    /// Files by their paths: bytes, and the SHA-256 of large ones.
    files: BTreeMap<String, (Vec<u8>, Option<String>)>,
    /// Paths of the files of each commit.
    commits: Vec<Vec<String>>,
    /// How often each object came whole.
    puts: BTreeMap<String, usize>,
    parts: BTreeMap<(String, usize), Vec<u8>>,
    verified: usize,
    urls: Vec<String>,
    /// Requests that no client may send.
    wrong: Vec<String>,
    /// Size of parts, if objects come in parts.
    part_bytes: Option<usize>,
    /// URLs answered with 503 so far, if each is once.
    busy: Option<BTreeSet<String>>,
    /// Uploads, and then commits, after which they are refused.
    uploads_left: Option<usize>,
    commits_left: Option<usize>,
    /// Why objects are refused.
    refusal: Option<&'static str>,
    /// Whether another process makes a first commit of the same files just before.
    races: bool,
    /// Number of commits of other processes that come just before one that says what it follows.
    foreign: usize,
    /// Number of commits that said what they follow, and of all that the branch has.
    claims: usize,
    head: usize,
}

/// A hub that is written to, and the store of its large files.
struct Publisher {
    hub: Arc<Server>,
    store: Arc<Server>,
    state: Arc<Mutex<State>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// A status and a body; of some answers also an ETag or a link.
type Answer = (u16, Vec<u8>, Option<(&'static str, String)>);

fn address(server: &Server) -> String {
    server.server_addr().to_ip().map_or_else(String::new, |a| format!("http://{a}"))
}

fn header(request: &Request, name: &'static str) -> Option<String> {
    let header = request.headers().iter().find(|h| h.field.equiv(name));
    header.map(|h| h.value.as_str().to_owned())
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

impl Publisher {
    fn start(state: State) -> Result<Self, Failure> {
        let start = || Server::http("127.0.0.1:0").map(Arc::new).map_err(|e| e.to_string());
        let (hub, store, state) = (start()?, start()?, Arc::new(Mutex::new(state)));
        let (hub_at, store_at) = (address(&hub), address(&store));
        let mut threads = Vec::new();
        for server in [&hub, &store] {
            let (server, state) = (Arc::clone(server), Arc::clone(&state));
            let (hub_at, store_at) = (hub_at.clone(), store_at.clone());
            threads.push(std::thread::spawn(move || {
                let is_hub = address(&server) == hub_at;
                for mut request in server.incoming_requests() {
                    let mut body = Vec::new();
                    let read = request.as_reader().read_to_end(&mut body);
                    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                    let answer = match read {
                        Err(error) => Err(error.into()),
                        Ok(_) if is_hub => state.hub(&request, &body, &hub_at, &store_at),
                        Ok(_) => state.store(&request, body),
                    };
                    let (status, body, named) = answer.unwrap_or_else(|error: Failure| {
                        state.wrong.push(format!("{}: {error}", request.url()));
                        (400, error.to_string().into_bytes(), None)
                    });
                    drop(state);
                    let mut response = Response::from_data(body).with_status_code(status);
                    let named =
                        named.and_then(|(name, value)| Header::from_bytes(name, value).ok());
                    if let Some(header) = named {
                        response.add_header(header);
                    }
                    // A client that hung up is seen at its own end.
                    let _ = request.respond(response);
                }
            }));
        }
        Ok(Self { hub, store, state, threads })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `command` use the hub.
    fn with<'a>(&self, command: &'a mut assert_cmd::Command) -> &'a mut assert_cmd::Command {
        command.env("HF_ENDPOINT", address(&self.hub)).env("HF_TOKEN", TOKEN)
    }

    /// The digests of the files below `folder` of the data set, by their paths there.
    fn digests(&self, folder: &str) -> BTreeMap<String, String> {
        let state = self.state();
        let files = state.files.iter().filter_map(|(path, (bytes, _))| {
            let name = path.strip_prefix(&format!("{folder}/"))?;
            Some((name.to_owned(), blake3::hash(bytes).to_hex().to_string()))
        });
        files.collect()
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.hub.unblock();
        self.store.unblock();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn json_answer(value: &Value) -> Answer {
    (200, value.to_string().into_bytes(), None)
}

impl State {
    /// Answers the hub's API.
    fn hub(
        &mut self,
        request: &Request,
        body: &[u8],
        own: &str,
        store: &str,
    ) -> Result<Answer, Failure> {
        self.urls.push(request.url().to_owned());
        // The branch `a/b` is the main one.
        let url = decoded(&request.url().replace("/a%2Fb", "/main"));
        if header(request, "Authorization") != Some(format!("Bearer {TOKEN}")) {
            return Ok((401, b"{\"error\":\"Invalid username or password.\"}".to_vec(), None));
        }
        if self.busy.as_mut().is_some_and(|busy| busy.insert(url.clone())) {
            return Ok((503, Vec::new(), None));
        }
        if url == "/api/repos/create" {
            self.repository = Some(serde_json::from_slice(body)?);
            return Ok((200, Vec::new(), None));
        }
        if self.repository.is_none() {
            return Ok((404, b"{\"error\":\"Repository not found\"}".to_vec(), None));
        }
        if url == "/api/datasets/someone/selected" {
            return Ok((200, b"{}".to_vec(), None));
        }
        if url == "/api/datasets/someone/selected/revision/main" {
            return Ok(json_answer(&json!({"sha": format!("{:040}", self.head)})));
        }
        if let Some(path) = url.strip_prefix("/datasets/someone/selected/resolve/main/") {
            let found = self.files.get(path);
            return Ok(
                found.map_or((404, Vec::new(), None), |(bytes, _)| (200, bytes.clone(), None))
            );
        }
        if let Some(rest) = url.strip_prefix("/api/datasets/someone/selected/tree/main/") {
            return self.listing(rest, own, request.url());
        }
        let kind = header(request, "Content-Type").unwrap_or_default();
        if url == "/api/datasets/someone/selected/commit/main" && kind == "application/x-ndjson" {
            return self.commit(std::str::from_utf8(body)?);
        }
        if kind != "application/vnd.git-lfs+json" || *request.method() != Method::Post {
            return Ok((404, b"{\"error\":\"Not here\"}".to_vec(), None));
        }
        let body: Value = serde_json::from_slice(body)?;
        if url == "/datasets/someone/selected.git/info/lfs/objects/batch" {
            return self.batch(&body, own, store);
        }
        let oid = body["oid"].as_str().ok_or("no oid")?.to_owned();
        if url == "/verify" {
            let size = self.objects.get(&oid).ok_or("verified before it is there")?.len();
            self.verified += 1;
            return if body["size"] == size {
                Ok(json_answer(&json!({})))
            } else {
                Err("size".into())
            };
        }
        // The parts are completed.
        let mut bytes = Vec::new();
        for (at, part) in body["parts"].as_array().ok_or("no parts")?.iter().enumerate() {
            let kept = self.parts.remove(&(oid.clone(), at + 1)).ok_or("a part is missing")?;
            if part["partNumber"] != at + 1 || part["etag"] != format!("\"{}\"", sha256(&kept)) {
                return Err(format!("part {part}").into());
            }
            bytes.extend(kept);
        }
        self.keep(oid, bytes)
    }

    fn batch(&mut self, body: &Value, own: &str, store: &str) -> Result<Answer, Failure> {
        let object = &body["objects"][0];
        let oid = object["oid"].as_str().ok_or("no oid")?;
        let size = usize::try_from(object["size"].as_u64().ok_or("no size")?)?;
        if body["operation"] != "upload" || body["hash_algo"] != "sha256" {
            return Err(format!("batch {body}").into());
        }
        let signed = |part: usize| format!("{store}/{oid}/{part}?X-Amz-Signature=hidden");
        let mut answer = json!({"oid": oid, "size": size});
        if let Some(message) = self.refusal {
            answer["error"] = json!({"code": 413, "message": message});
        } else if !self.objects.contains_key(oid) {
            let upload = if let Some(part) = self.part_bytes {
                let parts =
                    (1..=size.div_ceil(part)).map(|n| (format!("{n:05}"), json!(signed(n))));
                let mut header: serde_json::Map<String, Value> = parts.collect();
                header.insert("chunk_size".into(), json!(part.to_string()));
                json!({"href": format!("{own}/complete"), "header": header})
            } else {
                json!({"href": signed(0), "header": {"x-of-the-store": "yes"}})
            };
            let verify = json!({"href": format!("{own}/verify")});
            answer["actions"] = json!({"upload": upload, "verify": verify});
        }
        Ok(json_answer(&json!({"transfer": "basic", "objects": [answer]})))
    }

    fn keep(&mut self, oid: String, bytes: Vec<u8>) -> Result<Answer, Failure> {
        if sha256(&bytes) != oid {
            return Err("other bytes than were announced".into());
        }
        *self.puts.entry(oid.clone()).or_default() += 1;
        self.objects.insert(oid, bytes);
        Ok((200, Vec::new(), None))
    }

    /// Answers the store of large files, which must not see the token.
    fn store(&mut self, request: &Request, body: Vec<u8>) -> Result<Answer, Failure> {
        if *request.method() != Method::Put || header(request, "Authorization").is_some() {
            return Err("the store saw the token".into());
        }
        let url = request.url().to_owned();
        if self.busy.as_mut().is_some_and(|busy| busy.insert(url.clone())) {
            return Ok((503, Vec::new(), None));
        }
        if header(request, "Content-Length") != Some(body.len().to_string()) {
            return Err("no length".into());
        }
        match &mut self.uploads_left {
            Some(0) => return Ok((403, b"<Code>SignatureDoesNotMatch</Code>".to_vec(), None)),
            Some(left) => *left -= 1,
            None => {}
        }
        let (path, _) = url.trim_start_matches('/').split_once('?').ok_or("not signed")?;
        let (oid, part) = path.split_once('/').ok_or("no part")?;
        if part == "0" {
            if header(request, "x-of-the-store").as_deref() != Some("yes") {
                return Err("a header is missing".into());
            }
            return self.keep(oid.to_owned(), body);
        }
        let etag = format!("\"{}\"", sha256(&body));
        self.parts.insert((oid.to_owned(), part.parse()?), body);
        Ok((200, Vec::new(), Some(("ETag", etag))))
    }

    fn commit(&mut self, lines: &str) -> Result<Answer, Failure> {
        match &mut self.commits_left {
            Some(0) => return Ok((403, b"{\"error\":\"too many commits\"}".to_vec(), None)),
            Some(left) => *left -= 1,
            None => {}
        }
        let mut paths = Vec::new();
        let moved = || Ok((412, b"{\"error\":\"A commit has happened since\"}".to_vec(), None));
        let races = std::mem::take(&mut self.races);
        for (at, line) in lines.lines().enumerate() {
            let line: Value = serde_json::from_str(line)?;
            let value = &line["value"];
            if at == 0 {
                let is_header = line["key"] == "header" && value["summary"].is_string();
                is_header.then_some(()).ok_or("no header")?;
                let Some(parent) = value.get("parentCommit") else { continue };
                self.claims += 1;
                if self.foreign > 0 {
                    (self.foreign, self.head) = (self.foreign - 1, self.head + 1);
                }
                if *parent != format!("{:040}", self.head) {
                    return moved();
                }
                continue;
            }
            let path = value["path"].as_str().ok_or("no path")?.to_owned();
            let file = if line["key"] == "lfsFile" {
                let oid = value["oid"].as_str().ok_or("no oid")?;
                let bytes = self.objects.get(oid).ok_or("committed before it is there")?.clone();
                if value["size"] != bytes.len() || value["algo"] != "sha256" {
                    return Err(format!("committed {value}").into());
                }
                (bytes, Some(oid.to_owned()))
            } else {
                (STANDARD.decode(value["content"].as_str().ok_or("no content")?)?, None)
            };
            self.files.insert(path.clone(), file);
            paths.push(path);
        }
        self.head += 1;
        if races {
            return moved();
        }
        self.commits.push(paths);
        Ok(json_answer(&json!({"success": true, "commitOid": "0"})))
    }

    fn listing(&self, rest: &str, own: &str, url: &str) -> Result<Answer, Failure> {
        let (folder, query) = rest.split_once('?').ok_or("no query")?;
        let at: usize = query.split_once("&at=").map_or(Ok(0), |(_, at)| at.parse())?;
        let prefix = format!("{folder}/");
        let all: Vec<_> = self.files.iter().filter(|(path, _)| path.starts_with(&prefix)).collect();
        let page: Vec<Value> = all
            .iter()
            .skip(at)
            .take(PAGE)
            .map(|(path, (bytes, oid))| {
                let lfs = oid
                    .as_ref()
                    .map(|oid| json!({"oid": oid, "size": bytes.len(), "pointerSize": 9}));
                let mut entry =
                    json!({"type": "file", "oid": "1", "path": path, "size": bytes.len()});
                if let Some(lfs) = lfs {
                    entry["lfs"] = lfs;
                }
                entry
            })
            .collect();
        if all.is_empty() {
            return Ok((404, Vec::new(), None));
        }
        let url = url.split("&at=").next().unwrap_or_default();
        let next = format!("<{own}{url}&at={}>; rel=\"next\"", at + PAGE);
        let link = (at + PAGE < all.len()).then_some(("Link", next));
        Ok((200, Value::from(page).to_string().into_bytes(), link))
    }
}

/// The run `out` with its export to the hub.
fn publish(work: &Workspace, out: &str, hub: &Publisher) -> assert_cmd::Command {
    let mut command = run(work, "corpus/{lang}/*", out);
    command.args(["--keep-removed", "--set", "export.card=true", "--export-to", TO]);
    hub.with(&mut command);
    command
}

/// Whether the data set holds the files of the run `local`, and the client did nothing wrong.
fn assert_published(work: &Workspace, hub: &Publisher, local: &str) -> TestResult {
    for folder in ["export", "removed"] {
        let expected = digests(&work.path(local).join(folder))?;
        assert_eq!(hub.digests(&format!("v 1/{folder}")), expected, "{folder}");
    }
    let state = hub.state();
    assert!(state.wrong.is_empty(), "{:?}", state.wrong);
    assert!(state.puts.values().all(|times| *times == 1), "{:?}", state.puts);
    Ok(())
}

/// A corpus without two equal files, and its export in the run directory `local`.
fn exported() -> Result<Workspace, Failure> {
    let (work, _) = corpus()?;
    std::fs::remove_file(work.path("corpus/deu_Latn/c.jsonl.zst"))?;
    run(&work, "corpus/{lang}/*", "local").arg("--keep-removed").assert().success();
    Ok(work)
}

#[test]
fn the_files_of_a_data_set_are_those_of_a_local_export() -> TestResult {
    let work = exported()?;
    let hub = Publisher::start(State::default())?;
    let told = contains(format!("selected documents: {TO}/export"));
    publish(&work, "out", &hub).assert().success().stdout(told);
    assert_published(&work, &hub, "local")?;
    let state = hub.state();
    let created = state.repository.clone().ok_or("not created")?;
    assert_eq!(created["organization"], "someone");
    assert_eq!((&created["name"], &created["private"]), (&json!("selected"), &json!(true)));
    // One commit claims the place, one has all files, one the card.
    let sizes: Vec<usize> = state.commits.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, state.puts.len(), 1]);
    assert_eq!(
        (&*state.commits[0][0], &*state.commits[2][0]),
        ("v 1/polysift.json", "v 1/README.md")
    );
    assert_eq!(state.verified, state.puts.len());
    let card = String::from_utf8(state.files["v 1/README.md"].0.clone())?;
    assert!(card.contains("path: \"export/fra_Latn/*.parquet\""), "{card}");
    let requests = state.urls.len();
    drop(state);
    assert!(!work.path("out/export").exists() && !work.path("out/state/export/uploads").exists());
    let marker = work.json("out/state/export/done/fra_Latn/b.json")?;
    let file = &marker["files"][0];
    assert_eq!(file["path"], format!("{TO}/export/fra_Latn/b.parquet"));
    let (_, oid) = hub.state().files["v 1/export/fra_Latn/b.parquet"].clone();
    assert_eq!(file["etag"].as_str(), oid.as_deref());

    // A second call of the command asks the hub for nothing.
    polysift().args(["export", "--run"]).arg(work.path("out")).assert().success();
    assert_eq!(hub.state().urls.len(), requests);

    let verify = || hub.with(polysift().arg("verify").arg(work.path("out"))).assert();
    verify().success();
    let lost = hub.state().files.remove("v 1/export/fra_Latn/b.parquet").ok_or("not there")?;
    verify().code(65).stdout(contains("export/fra_Latn/b.parquet: no such object"));
    hub.state()
        .files
        .insert("v 1/export/fra_Latn/b.parquet".into(), (lost.0, Some("0".repeat(64))));
    verify().code(65).stdout(contains("b.parquet: changed since it was written"));
    Ok(())
}

#[test]
fn files_of_others_are_not_replaced() -> TestResult {
    let work = exported()?;
    for (file, what) in [("README.md", "is a file"), ("removed/low/a.parquet", "holds files")] {
        let theirs = BTreeMap::from([(format!("v 1/{file}"), (b"theirs".to_vec(), None))]);
        let repository = Some(json!({}));
        let hub = Publisher::start(State { files: theirs, repository, ..State::default() })?;
        let refused = format!("{what} that this run did not make");
        publish(&work, "out", &hub).assert().code(78).stderr(contains(refused));
        assert_eq!(hub.state().commits.len(), 0);
    }
    Ok(())
}

#[test]
fn an_export_that_the_hub_interrupts_sends_no_file_twice() -> TestResult {
    let work = exported()?;
    let hub = Publisher::start(State { uploads_left: Some(2), ..State::default() })?;
    let refused = contains("access is refused").and(contains("hidden").not());
    publish(&work, "out", &hub).assert().code(69).stderr(refused);
    assert_eq!(hub.state().puts.len(), 2);
    assert_eq!(hub.digests("v 1/export").len(), 0);
    // Now the uploads go through, and then the commits do not.
    (hub.state().uploads_left, hub.state().commits_left) = (None, Some(0));
    publish(&work, "out", &hub).assert().code(69).stderr(contains("too many commits"));
    let verify = || hub.with(polysift().arg("verify").arg(work.path("out"))).assert();
    verify().code(65).stdout(contains("no such object").and(contains("is not done")));
    hub.state().commits_left = Some(1);
    publish(&work, "out", &hub).assert().code(69); // the card is missing
    hub.state().commits_left = None;
    publish(&work, "out", &hub).assert().success();
    assert_published(&work, &hub, "local")?;
    verify().success();
    assert_eq!(hub.state().commits.len(), 3, "no file is committed twice");
    Ok(())
}

#[test]
fn an_export_to_a_hub_that_is_killed_anywhere_continues() -> TestResult {
    let work = exported()?;
    let hub = Publisher::start(State::default())?;
    publish(&work, "out", &hub).assert().success();
    let kept = std::mem::take(&mut *hub.state());
    hub.state().repository = kept.repository;
    std::fs::remove_dir_all(work.path("out/state/export"))?;
    let mut killed = 0;
    for boundary in (1..).step_by(3) {
        let mut command = publish(&work, "out", &hub);
        command.args(["--threads", "1"]);
        let outcome = command.env("POLYSIFT_KILL_AT", boundary.to_string()).output()?;
        if outcome.status.success() {
            break;
        }
        killed += 1;
    }
    assert!(killed > 5, "{killed}");
    assert_published(&work, &hub, "local")
}

#[test]
fn a_busy_hub_gets_parts_when_it_has_time() -> TestResult {
    let work = exported()?;
    let faults = State { part_bytes: Some(1000), busy: Some(BTreeSet::new()), ..State::default() };
    let hub = Publisher::start(faults)?;
    publish(&work, "out", &hub).assert().success();
    assert_published(&work, &hub, "local")?;
    assert!(hub.state().parts.is_empty());
    Ok(())
}

#[test]
fn a_hub_that_does_not_know_the_token_is_told_apart() -> TestResult {
    let (work, _) = corpus()?;
    let hub = Publisher::start(State::default())?;
    let mut command = publish(&work, "out", &hub);
    command.env("HF_TOKEN", "hf_other").assert().code(69).stderr(
        contains("access is refused: the server answers 401")
            .and(contains("HF_TOKEN in the environment"))
            .and(contains("hf_other").not()),
    );
    // A branch that is not there, and a place that is taken.
    let mut branch = run(&work, "corpus/{lang}/*", "branch");
    hub.with(branch.args(["--export-to", "hf://datasets/someone/selected@none"]))
        .assert()
        .code(66)
        .stderr(contains("there is no such data set or branch"));
    publish(&work, "out", &hub).assert().success();
    let mut other = publish(&work, "other", &hub);
    other.args(["--retention", "quality=0.5"]).assert().code(78).stderr(contains("choose another"));
    for (to, message) in [
        ("hf://datasets/someone/a b", "is no place in a data set"),
        ("hf://datasets/someone/selected//x", "is no place in a data set"),
        ("hf://datasets/someone/selected/../x", "is no place in a data set"),
        ("hf://datasets/someone", "OWNER/NAME is missing"),
        ("hf://models/someone/selected", "unknown kind of URL"),
    ] {
        let mut command = run(&work, "corpus/{lang}/*", "none");
        command.args(["--export-to", to]).assert().code(2).stderr(contains(message));
    }
    let mut offline = publish(&work, "offline", &hub);
    offline.arg("--offline").assert().code(69).stderr(contains("is not written without a network"));
    Ok(())
}

#[test]
fn a_place_that_another_process_claims_meanwhile_is_shared() -> TestResult {
    let work = exported()?;
    let hub = Publisher::start(State { races: true, ..State::default() })?;
    publish(&work, "out", &hub).assert().success();
    assert_eq!(hub.state().claims, 1);
    assert_published(&work, &hub, "local")
}

#[test]
fn a_place_is_claimed_although_others_commit_to_the_data_set() -> TestResult {
    let work = exported()?;
    let hub = Publisher::start(State { foreign: 2, ..State::default() })?;
    publish(&work, "out", &hub).assert().success();
    assert_eq!(hub.state().claims, 3);
    assert_published(&work, &hub, "local")?;
    let hub = Publisher::start(State { foreign: 9, ..State::default() })?;
    let refused = publish(&work, "other", &hub).assert().code(69);
    refused.stderr(contains("A commit has happened since"));
    Ok(())
}

#[test]
fn a_branch_may_have_a_slash_and_a_refusal_has_its_reason() -> TestResult {
    let work = exported()?;
    let hub = Publisher::start(State { refusal: Some("storage is full"), ..State::default() })?;
    let run = || {
        let mut command = run(&work, "corpus/{lang}/*", "out");
        let to = ["--keep-removed", "--export-to", "hf://datasets/someone/selected@a%2Fb/v 1"];
        hub.with(command.args(to)).assert()
    };
    run().code(69).stderr(contains("the hub does not take the file: storage is full"));
    hub.state().refusal = None;
    run().success();
    assert_published(&work, &hub, "local")?;
    hub.with(polysift().arg("verify").arg(work.path("out"))).assert().success();
    let urls = hub.state().urls.clone();
    for part in ["/commit/", "/tree/", "/resolve/"] {
        assert!(urls.iter().any(|url| url.contains(&format!("{part}a%2Fb"))), "{part}");
    }
    Ok(())
}

#[test]
fn a_commit_has_a_thousand_files() -> TestResult {
    let hub = Publisher::start(State { repository: Some(json!({})), ..State::default() })?;
    let settings = polysift::encoder::HubSettings {
        cache: "/nowhere".into(),
        token: Some(TOKEN.into()),
        endpoint: address(&hub.hub),
        offline: false,
    };
    polysift::remote::set_hub(&settings);
    let oid = sha256(b"some");
    hub.state().objects.insert(oid.clone(), b"some".to_vec());
    let mut stamp = polysift::io::FileStamp::of(b"some");
    stamp.etag = Some(oid);
    let urls: Vec<String> = (0..2300).map(|i| format!("{TO}/export/{i:04}.parquet")).collect();
    let files: Vec<_> = urls.iter().map(|url| (url.as_str(), &stamp)).collect();
    polysift::remote::publish(TO, &files[..3])?;
    polysift::remote::publish(TO, &files)?;
    let sizes: Vec<usize> = hub.state().commits.iter().map(Vec::len).collect();
    assert_eq!(sizes, [3, 1000, 1000, 297]);
    Ok(())
}
