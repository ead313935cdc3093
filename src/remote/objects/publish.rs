//! Writes files to data sets of a Hugging Face hub. The bytes of a file go to the hub's store of
//! large files (Git LFS) as soon as it is made; commits name the files when all of them are there.
//!
//! The token goes to the hub alone: the store of large files gets requests that the hub has signed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use object_store::HeaderValue;
use serde_json::{Value, json};

use super::client::{hub_settings, retry, runtime, wait};
use super::download::{ask, get_request, hub_client, read_body, sha256};
use super::explain::{ANSWER, explain, generic_error, store_error};
use super::hub::{id_and_revision, list_files};
use super::key::encode;
use super::wire::{READ_TIMEOUT, bare_client};
use crate::location::{Location, ObjectVersion};
use polysift_base::error::{Error, Result};
use polysift_base::hub::HubSettings;
use polysift_base::io::{FileStamp, boundary};

const COMMIT_FILES: usize = 1000;
/// Number of times that a file is created once more, because other commits came before.
const CLAIM_TRIES: u32 = 3;
/// Maximum microseconds per byte; the system ends a connection that stalls much earlier.
const BYTE_MICROS: u64 = 10;
const LFS: &str = "application/vnd.git-lfs+json";

struct HubPlace(Location);

/// Uploads the file `from` of `size` bytes for `url`, unless the hub has its bytes, and returns its
/// SHA-256. The file appears with [`publish`].
pub fn upload_file(from: &Path, size: u64, url: &str) -> Result<String> {
    let place = HubPlace::parse(url)?;
    let oid = sha256(from).map_err(Error::io(from, "read"))?;
    let object = json!({"oid": oid, "size": size});
    let announced = json!({
        "operation": "upload", "transfers": ["basic", "multipart"], "hash_algo": "sha256",
        "objects": [object],
    });
    let batch = place.address("", ".git/info/lfs/objects/batch");
    let answer = place.send(&batch, Some((LFS, announced.to_string())))?;
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let answer = &answer["objects"][0];
    let (upload, verify) = (&answer["actions"]["upload"], &answer["actions"]["verify"]["href"]);
    if answer["oid"] != oid.as_str() || !answer["error"].is_null() {
        let reason = answer["error"]["message"].as_str().unwrap_or("it does not say why");
        return Err(store_error(url, &format!("the hub does not take the file: {reason}")));
    }
    let Some(href) = upload["href"].as_str() else { return Ok(oid) };
    boundary();
    if let Some(part) = upload["header"].get("chunk_size") {
        let part = as_text(part).parse().unwrap_or(0);
        let parts = place.put_parts(from, &upload["header"], part, size)?;
        let complete = json!({"oid": oid, "parts": parts}).to_string();
        place.send(href, Some((LFS, complete)))?;
    } else {
        place.put(from, href, 0..size, &upload["header"])?;
    }
    boundary();
    if let Some(verify) = verify.as_str() {
        place.send(verify, Some((LFS, object.to_string())))?;
    }
    Ok(oid)
}

/// Commits those of `files`, which [`upload_file`] sent, that the data set of `to` does not have.
pub fn publish(to: &str, files: &[(&str, &FileStamp)]) -> Result<()> {
    let (place, known) = (HubPlace::parse(to)?, list_published(to)?);
    let mut lines = Vec::new();
    for &(url, FileStamp { bytes, etag, .. }) in files {
        if known.get(url).is_none_or(|found| found.tag != *etag) {
            let path = Location::parse(url)?.key;
            let file = json!({"path": path, "algo": "sha256", "oid": etag, "size": bytes});
            lines.push(json!({"key": "lfsFile", "value": file}));
        }
    }
    let mut commits = lines.chunks(COMMIT_FILES);
    commits.try_for_each(|some| place.commit(&format!("Add {} files", some.len()), some, None))
}

/// Returns size and SHA-256 (of large files only) by URL of the files below `to` on a hub.
pub fn list_published(to: &str) -> Result<BTreeMap<String, ObjectVersion>> {
    let HubPlace(location) = HubPlace::parse(to)?;
    let found = list_files(&location)?.into_iter().map(|file| {
        let tag = file.lfs["oid"].as_str().map(ToOwned::to_owned);
        (location.with_key(file.path).url(), ObjectVersion { bytes: file.size, tag })
    });
    Ok(found.collect())
}

/// Creates the small file `url`, and its data set if that does not exist. Returns the content of
/// an existing file, which is replaced only if `replaces`.
pub(super) fn write_file(url: &str, content: &str, replaces: bool) -> Result<Option<Bytes>> {
    let place = HubPlace::parse(url)?;
    place.create_repository()?;
    let (key, content) = (&place.0.key, STANDARD.encode(content));
    let file = json!({"path": key, "content": content, "encoding": "base64"});
    let line = [json!({"key": "file", "value": file})];
    let commit = |after: Option<String>| {
        place.commit(&format!("Write {key}"), &line, after.as_deref()).map(|()| None)
    };
    let address = place.address("", &format!("/resolve/{{}}/{}", encode(key)));
    let find = || place.send(&address, None).map(Some);
    let mut tries = 0..CLAIM_TRIES;
    loop {
        // The hub refuses to commit after another commit, so only one of two processes does it.
        let head = if replaces { None } else { Some(place.head_commit()?) };
        match find() {
            Ok(_) | Err(Error::Missing { .. }) if replaces => return commit(None),
            Err(Error::Missing { .. }) => match commit(head) {
                Err(_) if tries.next().is_some() => {}
                created => return created,
            },
            found => return found,
        }
    }
}

impl HubPlace {
    /// Parses the URL of a place that is written; an error offline.
    fn parse(url: &str) -> Result<Self> {
        if hub_settings().offline {
            let reason = "is not written without a network (--offline, HF_HUB_OFFLINE)";
            return Err(store_error(url, reason));
        }
        Location::parse(url).map(Self)
    }

    /// Returns the data set's address below `api` with the path `rest`, where `{}` is the revision.
    fn address(&self, api: &str, rest: &str) -> String {
        let (id, revision) = id_and_revision(&self.0);
        let rest = rest.replacen("{}", revision, 1);
        format!("{}{api}/datasets/{id}{rest}", hub_settings().endpoint)
    }

    /// Creates the data set, which only its owner can see, unless it exists.
    fn create_repository(&self) -> Result<()> {
        let find = || self.send(&self.address("/api", ""), None).map(drop);
        match find() {
            Err(Error::Missing { .. }) => {}
            found => return found,
        }
        let (owner, name) = id_and_revision(&self.0).0.split_once('/').unwrap_or_default();
        let wanted =
            json!({"type": "dataset", "organization": owner, "name": name, "private": true});
        let create = format!("{}/api/repos/create", hub_settings().endpoint);
        let created = self.send(&create, Some(("application/json", wanted.to_string())));
        created.map(drop).or_else(|error| find().map_err(|_| error)) // another process may be first
    }

    /// Asks for the current commit of the branch.
    fn head_commit(&self) -> Result<String> {
        let answer = self.send(&self.address("/api", "/revision/{}"), None)?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let no_commit = || store_error(&self.0.url(), "the hub does not say which commit is there");
        answer["sha"].as_str().map(ToOwned::to_owned).ok_or_else(no_commit)
    }

    /// Commits `files`, given as the hub's API has them; if `after` is given, only right after it.
    fn commit(&self, summary: &str, files: &[Value], after: Option<&str>) -> Result<()> {
        boundary();
        let mut header = json!({"summary": summary, "description": ""});
        if let Some(after) = after {
            header["parentCommit"] = json!(after);
        }
        let header = json!({"key": "header", "value": header});
        let lines = [&header].into_iter().chain(files).map(|line| format!("{line}\n"));
        let address = self.address("/api", "/commit/{}");
        self.send(&address, Some(("application/x-ndjson", lines.collect()))).map(drop)
    }

    /// Requests `address`, or posts a body of a media type to it; only the hub gets the token.
    fn send(&self, address: &str, body: Option<(&'static str, String)>) -> Result<Bytes> {
        let origin = |url: &str| reqwest::Url::parse(url).ok().map(|url| url.origin());
        let is_hub = origin(address) == origin(&hub_settings().endpoint);
        let token = hub_settings().token.clone().filter(|_| is_hub);
        let settings = HubSettings { token, ..hub_settings().clone() };
        let client = runtime().and_then(|_| hub_client(&settings))?;
        let answer = async {
            let mut request = get_request(address, None)?;
            if let Some((kind, body)) = body {
                *request.method_mut() = reqwest::Method::POST;
                *request.body_mut() = body.into();
                request.headers_mut().insert("content-type", HeaderValue::from_static(kind));
                if kind == LFS {
                    request.headers_mut().insert("accept", HeaderValue::from_static(kind));
                }
            }
            ask(&client, Ok(request), read_body).await
        };
        wait(async { answer.await.map_err(|error| explain(&self.0.url(), &error)) })
    }

    /// Puts parts of `part` bytes to the addresses in `header`, and describes them for the hub.
    fn put_parts(&self, from: &Path, header: &Value, part: u64, size: u64) -> Result<Vec<Value>> {
        let addresses = header.as_object().into_iter().flatten();
        let addresses: BTreeMap<u64, String> =
            addresses.filter_map(|(name, to)| Some((name.parse().ok()?, as_text(to)))).collect();
        if part == 0 || addresses.len() as u64 != size.div_ceil(part) {
            let reason = format!("the hub does not split {size} bytes into parts of {part}");
            return Err(store_error(&self.0.url(), &reason));
        }
        let put = |(at, (number, address)): (u64, (u64, String))| {
            let range = at * part..size.min((at + 1) * part);
            let etag = self.put(from, &address, range, &Value::Null)?;
            Ok(json!({"partNumber": number, "etag": etag}))
        };
        (0..).zip(addresses).map(put).collect()
    }

    /// Puts a range of the file `from` to `address`, without the token, and returns the ETag.
    fn put(
        &self,
        from: &Path,
        address: &str,
        range: Range<u64>,
        headers: &Value,
    ) -> Result<Option<String>> {
        runtime()?;
        let client = bare_client(hub_settings().endpoint.starts_with("http://")).build();
        let url = self.0.url();
        let client = client.map_err(|error| store_error(&url, &error.to_string()))?;
        let length = range.end - range.start;
        let put = || async {
            let mut file = File::open(from).map_err(generic_error)?;
            file.seek(SeekFrom::Start(range.start)).map_err(generic_error)?;
            let mut rest = file.take(length);
            let pieces = std::iter::from_fn(move || {
                let mut piece = Vec::new();
                let read = rest.by_ref().take(1 << 20).read_to_end(&mut piece).map(|_| piece);
                Some(read).filter(|read| !matches!(read, Ok(piece) if piece.is_empty()))
            });
            let pieces = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
            let mut request = client.put(address).header("content-length", length).body(pieces);
            for (name, value) in headers.as_object().into_iter().flatten() {
                request = request.header(name, as_text(value));
            }
            let time = READ_TIMEOUT + Duration::from_micros(length * BYTE_MICROS);
            let answer = request.timeout(time).send().await;
            let answer = answer.map_err(|error| generic_error(error.without_url()))?;
            let (status, etag) = (answer.status(), answer.headers().get("etag").cloned());
            if status.is_success() {
                return Ok(etag.and_then(|etag| etag.to_str().ok().map(ToOwned::to_owned)));
            }
            let body = answer.text().await.unwrap_or_default();
            Err(generic_error(format!("{ANSWER}{status}: {body}")))
        };
        wait(retry(&url, put))
    }
}

/// Returns the text of a header's value, which may be a number.
fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}
