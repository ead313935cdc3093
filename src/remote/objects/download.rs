//! Downloads files of a hub's repository into the cache in the layout of huggingface_hub: the
//! content is `blobs/<etag>`, and `snapshots/<commit>/<file>` links to it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody, HttpResponse};
use object_store::{ClientOptions, HeaderValue, Result};
use ring::digest::{Context, SHA256};

use super::client::{Retries, hub_connector};
use super::explain::{ANSWER, generic_error, status, store_error};
use super::wire::{COMMIT, LINKED_ETAG};
use polysift_base::error;
use polysift_base::hub::HubSettings;
use polysift_base::progress::STOP_POLL;

/// Returns a closure for `map_err` that names the file `path` in the cache; its errors are final.
pub(super) fn cache_error(path: &Path) -> impl Fn(std::io::Error) -> object_store::Error {
    let path = path.display().to_string();
    move |error| object_store::Error::NotSupported { source: format!("{path}: {error}").into() }
}

/// Creates a client that sends the token to the hub, but not to servers to which that redirects.
pub(super) fn hub_client(settings: &HubSettings) -> error::Result<HttpClient> {
    let client = hub_connector(settings)?.connect(&ClientOptions::new());
    client.map_err(|error| store_error(&settings.endpoint, &error.to_string()))
}

/// Maximum number of requests to a server that does not answer at all.
const CONNECTIONS: usize = 4;

/// Creates a request that reads `url`, or a byte range of it: `0-0`, `5-`.
pub(super) fn get_request(url: &str, range: Option<&str>) -> Result<HttpRequest> {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.uri_mut() = url.parse().map_err(|_| generic_error("is no URL"))?;
    if let Some(range) = range {
        let range = HeaderValue::from_str(&format!("bytes={range}")).map_err(generic_error)?;
        request.headers_mut().insert("range", range);
    }
    Ok(request)
}

/// Sends a `request` that could be made and reads the answer with `read`; an answer without success
/// is an error. Retries if the server is busy, after the time that it names, and a few times if it
/// does not answer or the answer breaks off.
pub(super) async fn ask<T, F: Future<Output = Result<T>>>(
    client: &HttpClient,
    request: Result<HttpRequest>,
    read: impl Fn(HttpResponse) -> F,
) -> Result<T> {
    let (request, mut retries, mut tries) = (request?, Retries::default(), 0);
    loop {
        tries += 1;
        let (error, after) = match ask_once(client, &request).await {
            Ok(answer) => match read(answer).await {
                Ok(read) => return Ok(read),
                Err(error) => (error, Duration::ZERO),
            },
            Err(failure) => failure,
        };
        let is_silent = status(&error).is_none() && tries == CONNECTIONS;
        if is_silent || !retries.allow(&error, after).await {
            return Err(error);
        }
    }
}

pub(super) async fn read_body(answer: HttpResponse) -> Result<Bytes> {
    answer.into_body().bytes().await.map_err(generic_error)
}

/// Sends `request` once. An error comes with the time to wait before a retry.
async fn ask_once(
    client: &HttpClient,
    request: &HttpRequest,
) -> Result<HttpResponse, (object_store::Error, Duration)> {
    let sent = client.execute(request.clone()).await;
    let answer = sent.map_err(|error| (generic_error(error), Duration::ZERO))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let after = after.and_then(|secs| secs.trim().parse().ok()).map(Duration::from_secs);
    let body = answer.into_body().bytes().await.unwrap_or_default();
    let error = generic_error(format!("{ANSWER}{status}: {}", String::from_utf8_lossy(&body)));
    Err((error, after.unwrap_or_default()))
}

struct FileDescription {
    etag: String,
    /// Whether the ETag is the content's SHA-256, as for large files, which are stored elsewhere.
    is_sha256: bool,
    /// Commit of the revision, or the revision if the hub does not name the commit.
    commit: String,
    bytes: u64,
}

impl FileDescription {
    /// Reads the headers of an answer for `revision`; an error without an ETag or a size.
    fn parse(answer: &HttpResponse, revision: &str) -> Result<Self> {
        let header = |name: &str| answer.headers().get(name)?.to_str().ok();
        let named = |names: &[&str]| {
            let value = names.iter().find_map(|name| header(name));
            let value = value.map(|text| text.trim_start_matches("W/").trim_matches('"'));
            // These values become file names.
            let is_name = |text: &&str| {
                !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            };
            let wrong = || generic_error(format!("the hub gives no {} that can be used", names[0]));
            value.filter(is_name).map(ToOwned::to_owned).ok_or_else(wrong)
        };
        let range = header("content-range").and_then(|range| range.rsplit('/').next());
        let bytes = range.and_then(|bytes| bytes.parse().ok());
        Ok(Self {
            etag: named(&[LINKED_ETAG, "etag"])?,
            is_sha256: header(LINKED_ETAG).is_some(),
            // A mirror may not name the commit.
            commit: named(&[COMMIT]).unwrap_or_else(|_| revision.to_owned()),
            bytes: bytes
                .ok_or_else(|| generic_error("the hub does not answer requests for ranges"))?,
        })
    }
}

/// Downloads `url` as `file` into the cache of the repository in `folder`; returns its path there
/// and the commit. It resumes an earlier download, and of two processes only one downloads.
pub(super) async fn download(
    client: &HttpClient,
    url: &str,
    folder: &Path,
    file: &str,
    revision: &str,
) -> Result<(PathBuf, String)> {
    let answer = ask(client, get_request(url, Some("0-0")), async |answer| Ok(answer)).await?;
    let described = FileDescription::parse(&answer, revision)?;
    let blobs = folder.join("blobs");
    let blob = blobs.join(&described.etag);
    std::fs::create_dir_all(&blobs).map_err(cache_error(&blobs))?;
    let lock = blobs.join(format!("{}.lock", described.etag));
    let lock = File::create(&lock).map_err(cache_error(&lock))?;
    // Without file locks, two processes may both download.
    while matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
        tokio::time::sleep(STOP_POLL).await;
    }
    if !blob.exists() {
        let begun = blobs.join(format!("{}.incomplete", described.etag));
        let (mut retries, mut before) = (Retries::default(), 0);
        loop {
            let outcome = download_rest(client, url, &described, &begun).await;
            let bytes = begun.metadata().map_or(0, |begun| begun.len());
            if bytes > before {
                (retries, before) = (Retries::default(), bytes);
            }
            match outcome {
                Ok(()) => break,
                Err(error) if retries.allow(&error, Duration::ZERO).await => {}
                Err(error) => return Err(error),
            }
        }
        check_sha256(&described, &begun)?;
        std::fs::rename(&begun, &blob).map_err(cache_error(&blob))?;
    }
    let path = folder.join("snapshots").join(&described.commit).join(file);
    std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(cache_error(&path))?;
    let up = "../".repeat(2 + described.commit.matches('/').count() + file.matches('/').count());
    match std::os::unix::fs::symlink(format!("{up}blobs/{}", described.etag), &path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(cache_error(&path)(error)),
        _ => Ok((path, described.commit)),
    }
}

/// Appends the missing rest of the content to the file `begun`; starts it anew if it is too long.
async fn download_rest(
    client: &HttpClient,
    url: &str,
    described: &FileDescription,
    begun: &Path,
) -> Result<()> {
    let mut file =
        OpenOptions::new().create(true).append(true).open(begun).map_err(cache_error(begun))?;
    let mut written = file.metadata().map_err(cache_error(begun))?.len();
    if written > described.bytes {
        file.set_len(0).map_err(cache_error(begun))?;
        written = 0;
    }
    if written < described.bytes {
        let request = get_request(url, Some(&format!("{written}-")))?;
        let asked = ask_once(client, &request).await;
        let answer = asked.map_err(|(error, _)| error)?;
        let range = answer.headers().get("content-range").and_then(|range| range.to_str().ok());
        if range.is_none_or(|range| !range.starts_with(&format!("bytes {written}-"))) {
            return Err(generic_error("another range was answered than was asked for"));
        }
        let mut stream = answer.into_body().bytes_stream();
        while let Some(bytes) = stream.next().await {
            let bytes = bytes.map_err(generic_error)?;
            file.write_all(&bytes).map_err(cache_error(begun))?;
            written += bytes.len() as u64;
        }
    }
    file.sync_all().map_err(cache_error(begun))?;
    if written == described.bytes {
        return Ok(());
    }
    Err(generic_error(format!("{written} of {} bytes came", described.bytes)))
}

/// Checks the SHA-256 of the file `begun`, if it is known, and deletes the file on a mismatch.
fn check_sha256(described: &FileDescription, begun: &Path) -> Result<()> {
    let FileDescription { etag, is_sha256, .. } = described;
    let is_named = etag.len() == 2 * SHA256.output_len();
    let is_named = *is_sha256 && is_named && etag.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_named || sha256(begun).map_err(cache_error(begun))?.eq_ignore_ascii_case(etag) {
        return Ok(());
    }
    let _ = std::fs::remove_file(begun);
    Err(generic_error(format!("its bytes do not have the SHA-256 {etag} that the hub says")))
}

/// Computes the SHA-256 of a file, as 64 lower-case hexadecimal digits.
pub(super) fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut context = Context::new(&SHA256);
    while let read @ 1.. = file.fill_buf()?.len() {
        context.update(file.buffer());
        file.consume(read);
    }
    let digest = context.finish();
    Ok(digest.as_ref().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}")))
}
