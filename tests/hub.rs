//! Models from a hub, played by a local server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};
use polysift::config::EncoderConfig;
use polysift::encoder::{HubSettings, load, resolve};
use serde_json::json;
use tiny_http::{Header, Request, Response, Server};

use crate::util::{decoded, root};

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const ID: &str = "someone/a-model";

/// One request as the hub saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) range: Option<String>,
}

/// Another server, and what the hub calls the SHA-256 of a file there.
type Elsewhere = (String, fn(&[u8]) -> String);

/// A hub that serves folders as repositories, and `refused` as the status of all others.
pub(crate) struct Hub {
    server: Arc<Server>,
    seen: Arc<Mutex<Vec<Seen>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Hub {
    /// Serves a golden model as [`ID`].
    fn start(model: &str, refused: u16) -> Result<Self> {
        let directory = root().join("tests/golden/encoder").join(model);
        Self::serve(vec![(ID.into(), directory)], refused)
    }

    /// Serves each folder as the repository of that name, `datasets/` before that of a dataset.
    pub(crate) fn serve(folders: Vec<(String, PathBuf)>, refused: u16) -> Result<Self> {
        Self::redirecting(folders, refused, None, None)
    }

    /// The same, where the first request of every URL is answered with the status `busy`.
    fn busy(model: &str, busy: u16) -> Result<Self> {
        let directory = root().join("tests/golden/encoder").join(model);
        Self::redirecting(vec![(ID.into(), directory)], 404, None, Some(busy))
    }

    /// The same, where files are at another server: there, and by what SHA-256 the hub names them.
    fn redirecting(
        folders: Vec<(String, PathBuf)>,
        refused: u16,
        elsewhere: Option<Elsewhere>,
        busy: Option<u16>,
    ) -> Result<Self> {
        let server = Arc::new(Server::http("127.0.0.1:0").map_err(|e| anyhow!(e))?);
        let seen = Arc::new(Mutex::new(Vec::<Seen>::new()));
        let (listener, log) = (Arc::clone(&server), Arc::clone(&seen));
        let thread = std::thread::spawn(move || {
            for request in listener.incoming_requests() {
                let token = value(&request, "Authorization");
                let (url, range) = (request.url().to_owned(), value(&request, "Range"));
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                let is_first = !log.iter().any(|seen| seen.url == url);
                log.push(Seen { url, token, range });
                drop(log);
                if let (Some(busy), true) = (busy, is_first) {
                    let after = Header::from_bytes("Retry-After", "1");
                    let response = after.map(|after| Response::empty(busy).with_header(after));
                    let _ = response.map(|response| request.respond(response));
                    continue;
                }
                // A client that hung up is seen at its own end.
                let _ = answer(request, &folders, refused, elsewhere.as_ref());
            }
        });
        Ok(Self { server, seen, thread: Some(thread) })
    }

    pub(crate) fn endpoint(&self) -> String {
        self.server.server_addr().to_ip().map_or_else(String::new, |a| format!("http://{a}"))
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn value(request: &Request, name: &'static str) -> Option<String> {
    let header = request.headers().iter().find(|h| h.field.equiv(name));
    header.map(|h| h.value.as_str().to_owned())
}

/// Paths of the files below a folder.
fn files(folder: &Path, prefix: &str, found: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            files(&entry.path(), &format!("{name}/"), found)?;
        } else {
            found.push(name);
        }
    }
    Ok(())
}

fn answer(
    request: Request,
    folders: &[(String, PathBuf)],
    refused: u16,
    elsewhere: Option<&Elsewhere>,
) -> Result<()> {
    let path = request.url().trim_start_matches('/').to_owned();
    let find = |id: &str| folders.iter().find(|(own, _)| own == id).map(|(_, folder)| folder);
    if let Some((id, _revision)) =
        path.strip_prefix("api/").and_then(|p| p.split_once("/revision/"))
    {
        let Some(folder) = find(id) else {
            return Ok(request.respond(Response::empty(refused))?);
        };
        let mut names = Vec::new();
        files(folder, "", &mut names)?;
        let siblings: Vec<_> = names.iter().map(|name| json!({"rfilename": name})).collect();
        let info = json!({"sha": COMMIT, "siblings": siblings});
        return Ok(request.respond(Response::from_string(info.to_string()))?);
    }
    if let Some((id, rest)) = path.strip_prefix("api/").and_then(|p| p.split_once("/tree/")) {
        return match find(id) {
            Some(folder) => listing(request, folder, rest),
            None => Ok(request.respond(Response::empty(refused))?),
        };
    }
    let path = decoded(&path);
    let Some((id, (_revision, file))) =
        path.split_once("/resolve/").and_then(|(id, rest)| Some((id, rest.split_once('/')?)))
    else {
        return Ok(request.respond(Response::empty(400))?);
    };
    let Some(directory) = find(id) else {
        return Ok(request.respond(Response::empty(refused))?);
    };
    let Ok(bytes) = std::fs::read(directory.join(file)) else {
        return Ok(request.respond(Response::empty(404))?);
    };
    if let Some((server, digest)) = elsewhere {
        let mut response = Response::empty(302);
        for (name, value) in [
            ("Location", format!("{server}{}", request.url())),
            ("X-Linked-Etag", format!("\"{}\"", digest(&bytes))),
            ("X-Repo-Commit", COMMIT.into()),
        ] {
            response
                .add_header(Header::from_bytes(name, value).map_err(|()| anyhow!("no header"))?);
        }
        return Ok(request.respond(response)?);
    }
    let range = value(&request, "Range").context("no range")?;
    let (start, end) = range.trim_start_matches("bytes=").split_once('-').context("bad range")?;
    let start: usize = start.parse()?;
    let end = end.parse::<usize>().map_or(bytes.len(), |end| (end + 1).min(bytes.len()));
    let mut response = Response::from_data(&bytes[start..end])
        .with_chunked_threshold(usize::MAX)
        .with_status_code(206);
    for (name, value) in [
        ("ETag", format!("\"{}\"", blake3::hash(&bytes).to_hex())),
        ("X-Repo-Commit", COMMIT.into()),
        ("Content-Range", format!("bytes {start}-{}/{}", end - 1, bytes.len())),
    ] {
        let header = Header::from_bytes(name, value).map_err(|()| anyhow!("bad header"))?;
        response.add_header(header);
    }
    Ok(request.respond(response)?)
}

/// Entries of a page of a listing.
const PAGE: usize = 2;

/// A page of the files below a folder: `REVISION/FOLDER?QUERY`, where `&at=` is the place of a page.
fn listing(request: Request, folder: &Path, rest: &str) -> Result<()> {
    let (path, query) = rest.split_once('?').context("no query")?;
    let below = path.split_once('/').map_or("", |(_, below)| below);
    let mut names = Vec::new();
    files(folder, "", &mut names)?;
    names.retain(|name| below.is_empty() || name.starts_with(&format!("{below}/")));
    names.sort_unstable();
    if names.is_empty() {
        return Ok(request.respond(Response::empty(404))?);
    }
    let at: usize = query.split_once("&at=").map_or(Ok(0), |(_, at)| at.parse())?;
    if at > 0 && folder.join("one-page").exists() {
        return Ok(request.respond(Response::empty(404))?);
    }
    let mut page = vec![json!({"type": "directory", "path": below, "oid": "0"})];
    for name in names.iter().skip(at).take(PAGE) {
        let size = std::fs::metadata(folder.join(name))?.len();
        page.push(json!({"type": "file", "path": name, "size": size, "oid": "1"}));
    }
    let mut response = Response::from_string(serde_json::Value::from(page).to_string());
    if at + PAGE < names.len() {
        let own = request.url().split("&at=").next().unwrap_or_default();
        // As a mirror that passes on the links of the hub behind it.
        let next = if folder.join("endless").exists() { at } else { at + PAGE };
        let link = format!("<http://origin.invalid{own}&at={next}>; Rel=next");
        response.add_header(Header::from_bytes("Link", link).map_err(|()| anyhow!("bad header"))?);
    }
    Ok(request.respond(response)?)
}

fn settings(cache: &Path, endpoint: String, offline: bool) -> HubSettings {
    HubSettings { cache: cache.into(), token: Some("secret".into()), endpoint, offline }
}

fn model(id: &str, revision: Option<&str>) -> EncoderConfig {
    EncoderConfig {
        model: id.into(),
        revision: revision.map(Into::into),
        max_tokens: 64,
        ..EncoderConfig::default()
    }
}

fn refusal(config: &EncoderConfig, hub: &HubSettings) -> Result<String> {
    let error = resolve(config, hub).err().context("accepted")?;
    assert_eq!(error.exit_code(), 69, "{error}");
    Ok(error.to_string())
}

#[test]
fn a_model_is_downloaded_once_and_then_found_without_a_network() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let hub = Hub::start("head16-prefixed", 404)?;
    let online = settings(cache.path(), hub.endpoint(), false);
    let first = load(&model(ID, None), &online)?;
    let requests = hub.seen();
    assert!(requests.iter().all(|r| r.url.starts_with("/someone/a-model/resolve/main/")));
    assert!(requests.iter().all(|r| r.token.as_deref() == Some("Bearer secret")));
    assert_eq!(first.tokenizer.tokenize("a")?.chunks.len(), 1);

    resolve(&model(ID, None), &online)?;
    assert_eq!(hub.seen().len(), requests.len(), "the cache answers");
    drop(hub);
    let offline = settings(cache.path(), "http://127.0.0.1:9".into(), true);
    let again = resolve(&model(ID, None), &offline)?;
    assert_eq!(again.recipe.model_digest, first.recipe.model_digest);
    let at_commit = resolve(&model(ID, Some(COMMIT)), &offline)?;
    let digests = [at_commit, again].map(|files| files.recipe.model_digest);
    assert_eq!(digests[0], digests[1], "a commit is found without a ref");
    Ok(())
}

#[test]
fn a_sharded_model_comes_with_all_its_shards() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let hub = Hub::start("head20-sharded", 404)?;
    let files = resolve(&model(ID, None), &settings(cache.path(), hub.endpoint(), false))?;
    // The index of the three shards has 39 names.
    assert_eq!(files.tensors()?.len(), 39);
    Ok(())
}

#[test]
fn all_files_of_a_model_are_of_one_commit() -> Result<()> {
    let (folder, cache) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let kind = |name: &str| format!("sentence_transformers.models.{name}");
    let modules = json!([
        {"path": "", "type": kind("Transformer")},
        {"path": "1_Pooling", "type": kind("Pooling")},
    ]);
    std::fs::create_dir(folder.path().join("1_Pooling"))?;
    std::fs::write(folder.path().join("modules.json"), modules.to_string())?;
    std::fs::write(folder.path().join("1_Pooling/config.json"), "{\"pooling_mode\": \"cls\"}")?;
    // The cache has an earlier commit of the branch, but for the pooling.
    let repository = cache.path().join("models--someone--a-model");
    let earlier = repository.join("snapshots").join("f".repeat(40));
    std::fs::create_dir_all(&earlier)?;
    std::fs::create_dir_all(repository.join("refs"))?;
    std::fs::write(repository.join("refs/main"), "f".repeat(40))?;
    for file in ["config.json", "model.safetensors", "tokenizer.json", "modules.json"] {
        let golden = root().join("tests/golden/encoder/head16-prefixed").join(file);
        if golden.exists() {
            std::fs::copy(golden, folder.path().join(file))?;
        }
        std::fs::copy(folder.path().join(file), earlier.join(file))?;
    }
    let hub = Hub::serve(vec![(ID.into(), folder.path().into())], 404)?;
    resolve(&model(ID, None), &settings(cache.path(), hub.endpoint(), false))?;
    let latest = repository.join("snapshots").join(COMMIT);
    for file in ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"] {
        assert!(latest.join(file).exists(), "{file}");
    }
    Ok(())
}

#[test]
fn the_pinned_revision_is_the_one_asked_for() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let hub = Hub::start("head16-prefixed", 404)?;
    let hub_settings = settings(cache.path(), hub.endpoint(), false);
    resolve(&model(ID, Some(COMMIT)), &hub_settings)?;
    let expected = format!("/someone/a-model/resolve/{COMMIT}/");
    assert!(!hub.seen().is_empty() && hub.seen().iter().all(|r| r.url.starts_with(&expected)));
    let error = resolve(&model(ID, Some("../x")), &hub_settings).err().context("accepted")?;
    assert_eq!(error.exit_code(), 2);
    Ok(())
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// The bytes of large files are elsewhere: the token is not shown there, and they are what the hub says.
#[test]
fn files_are_fetched_where_the_hub_redirects_to_without_the_token_and_verified() -> Result<()> {
    let store = Hub::start("head16-prefixed", 404)?;
    let folder = root().join("tests/golden/encoder/head16-prefixed");
    let hub_of = |digest: fn(&[u8]) -> String| {
        let elsewhere = Some((store.endpoint(), digest));
        Hub::redirecting(vec![(ID.into(), folder.clone())], 404, elsewhere, None)
    };
    let cache = tempfile::tempdir()?;
    let hub = hub_of(sha256)?;
    // An earlier download was cut off.
    let weights = std::fs::read(folder.join("model.safetensors"))?;
    let blobs = cache.path().join("models--someone--a-model/blobs");
    let begun = blobs.join(format!("{}.incomplete", sha256(&weights)));
    std::fs::create_dir_all(&blobs)?;
    std::fs::write(&begun, &weights[..100])?;

    let online = settings(cache.path(), hub.endpoint(), false);
    let found = resolve(&model(ID, None), &online)?;
    assert!(hub.seen().iter().all(|seen| seen.token.as_deref() == Some("Bearer secret")));
    let seen = store.seen();
    assert!(seen.len() > 2 && seen.iter().all(|seen| seen.token.is_none()), "{seen:?}");
    let is_rest = |seen: &Seen| {
        seen.url.ends_with("model.safetensors") && seen.range.as_deref() == Some("bytes=100-")
    };
    assert!(seen.iter().any(is_rest), "{seen:?}");
    assert_eq!(std::fs::read(blobs.join(sha256(&weights)))?, weights);
    assert!(!begun.exists());
    let offline = settings(cache.path(), "http://127.0.0.1:9".into(), true);
    let again = resolve(&model(ID, None), &offline)?;
    assert_eq!(again.recipe.model_digest, found.recipe.model_digest);

    let cache = tempfile::tempdir()?;
    let lying = hub_of(|_| "0".repeat(64))?;
    let message = refusal(&model(ID, None), &settings(cache.path(), lying.endpoint(), false))?;
    assert!(message.contains("SHA-256"), "{message}");
    let left = std::fs::read_dir(cache.path().join("models--someone--a-model/blobs"))?;
    let left = left.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    assert!(left.iter().all(|path| path.extension().is_some_and(|e| e == "lock")), "{left:?}");
    // A name that would lead out of the cache.
    let leading = hub_of(|_| "../../x".to_owned())?;
    let message = refusal(&model(ID, None), &settings(cache.path(), leading.endpoint(), false))?;
    assert!(message.contains("x-linked-etag"), "{message}");
    Ok(())
}

#[test]
fn a_refusal_says_what_can_be_done() -> Result<()> {
    for (status, expected) in [
        (401, "HF_TOKEN"),
        (403, "accept the model's terms"),
        (404, "has no `config.json` at revision `main` (404)"),
        (501, "answers 501"),
    ] {
        let cache = tempfile::tempdir()?;
        let hub = Hub::start("head16-prefixed", status)?;
        let hub_settings = settings(cache.path(), hub.endpoint(), false);
        let message = refusal(&model("someone/refused", None), &hub_settings)?;
        assert!(
            message.starts_with("someone/refused: ") && message.contains(expected),
            "{message}"
        );
        assert!(!message.contains("secret"));
    }
    Ok(())
}

#[test]
fn without_a_network_the_message_says_how_to_work_offline() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let nobody = settings(cache.path(), "http://127.0.0.1:9".into(), false);
    let message = refusal(&model(ID, None), &nobody)?;
    assert!(message.contains("http://127.0.0.1:9") && message.contains("HF_HUB_OFFLINE=1"));
    let offline = settings(cache.path(), "http://127.0.0.1:9".into(), true);
    let message = refusal(&model(ID, None), &offline)?;
    assert!(message.contains("is not in the cache"), "{message}");
    Ok(())
}

#[test]
fn a_hub_that_is_busy_is_asked_again() -> Result<()> {
    for busy in [429, 503] {
        let cache = tempfile::tempdir()?;
        let hub = Hub::busy("head16-prefixed", busy)?;
        let began = std::time::Instant::now();
        resolve(&model(ID, None), &settings(cache.path(), hub.endpoint(), false))?;
        let files = hub.seen().len() / 2;
        assert!(files > 2, "every file is asked for twice");
        assert!(began.elapsed().as_secs() >= files as u64 / 2, "after the time that the hub names");
    }
    Ok(())
}

#[test]
fn a_model_in_the_cache_loads_where_the_hub_is_out_of_reach() -> Result<()> {
    let cache = tempfile::tempdir()?;
    let hub = Hub::start("head16-prefixed", 404)?;
    let first = resolve(&model(ID, None), &settings(cache.path(), hub.endpoint(), false))?;
    drop(hub);
    // As other tools leave it: they do not note which files there are none of.
    let notes = cache.path().join("models--someone--a-model/.no_exist");
    std::fs::remove_dir_all(notes)?;
    let nobody = settings(cache.path(), "http://127.0.0.1:9".into(), false);
    let again = resolve(&model(ID, None), &nobody)?;
    assert_eq!(again.recipe.model_digest, first.recipe.model_digest);
    Ok(())
}
