//! A bucket that holds any key, which a folder cannot, and that sees how it is asked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use tiny_http::{Header, Request, Response, Server};

use crate::util::decoded;

/// Threads of the server: requests that it answers at once.
const THREADS: usize = 40;

/// What the bucket is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nature {
    /// Keys and folders on a page of a listing.
    pub(super) page_keys: usize,
    /// Time that an answer takes.
    pub(super) delay: Duration,
    /// Status of all answers.
    pub(super) refuses: Option<u16>,
}

/// As large stores are, and fast.
pub(super) const PLAIN: Nature = Nature { page_keys: 1000, delay: Duration::ZERO, refuses: None };

/// The server.
pub(super) struct Bucket {
    server: Arc<Server>,
    seen: Arc<Seen>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    urls: Mutex<Vec<String>>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Bucket {
    /// Serves `objects` as the bucket `bucket`.
    pub(super) fn serve(objects: BTreeMap<String, Vec<u8>>, nature: Nature) -> Result<Self> {
        let server = Arc::new(Server::http("127.0.0.1:0").map_err(|e| anyhow!(e))?);
        let (objects, seen) = (Arc::new(objects), Arc::<Seen>::default());
        let serve = |_| {
            let (server, objects, seen) =
                (Arc::clone(&server), Arc::clone(&objects), Arc::clone(&seen));
            std::thread::spawn(move || {
                while let Ok(request) = server.recv() {
                    // Ranges are the files' own; what is counted is the search for them.
                    let is_search = !request.headers().iter().any(|h| h.field.equiv("Range"));
                    let now = seen.now.fetch_add(usize::from(is_search), Ordering::SeqCst) + 1;
                    if is_search {
                        seen.most.fetch_max(now, Ordering::SeqCst);
                    }
                    let url = request.url().to_owned();
                    seen.urls.lock().unwrap_or_else(PoisonError::into_inner).push(url);
                    std::thread::sleep(nature.delay);
                    seen.now.fetch_sub(usize::from(is_search), Ordering::SeqCst);
                    // A client that hung up is seen at its own end.
                    let _ = answer(request, &objects, nature);
                }
            })
        };
        let threads = (0..THREADS).map(serve).collect();
        Ok(Self { server, seen, threads })
    }

    pub(super) fn address(&self) -> Result<SocketAddr> {
        self.server.server_addr().to_ip().ok_or_else(|| anyhow!("no address"))
    }

    /// Paths and queries of all requests.
    pub(super) fn urls(&self) -> Vec<String> {
        self.seen.urls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Most requests for listings and heads that were on their way at once.
    pub(super) fn most_at_once(&self) -> usize {
        self.seen.most.load(Ordering::SeqCst)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        for _ in &self.threads {
            self.server.unblock();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn answer(request: Request, objects: &BTreeMap<String, Vec<u8>>, nature: Nature) -> Result<()> {
    let url = request.url().to_owned();
    let (path, query) = url.split_once('?').unwrap_or((&url, ""));
    let error = |status: u16, code: &str| {
        let body =
            format!("<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>");
        Response::from_string(body).with_status_code(status)
    };
    if let Some(status) = nature.refuses {
        return Ok(request.respond(error(status, "Refused"))?);
    }
    let Some(key) = path.strip_prefix("/bucket").filter(|k| k.is_empty() || k.starts_with('/'))
    else {
        return Ok(request.respond(error(404, "NoSuchBucket"))?);
    };
    if query.contains("list-type=2") {
        let listing = listing(objects, query, nature.page_keys);
        return Ok(request.respond(Response::from_string(listing))?);
    }
    let key = decoded(key.strip_prefix('/').unwrap_or_default());
    let Some(bytes) = objects.get(&key) else {
        return Ok(request.respond(error(404, "NoSuchKey"))?);
    };
    let etag = header("ETag", format!("\"{}\"", etag(bytes)))?;
    let modified = header("Last-Modified", "Sun, 22 Nov 2026 00:00:00 GMT".into())?;
    let Some(range) = range_of(&request) else {
        let whole = Response::from_data(bytes.clone()).with_chunked_threshold(usize::MAX);
        return Ok(request.respond(whole.with_header(etag).with_header(modified))?);
    };
    let response = part_of(bytes, &range)?;
    Ok(request.respond(response.with_header(etag).with_header(modified))?)
}

pub(super) fn header(name: &str, value: String) -> Result<Header> {
    Header::from_bytes(name, value).map_err(|()| anyhow!("bad header"))
}

/// The range that `request` asks for, as in `0-99`.
pub(super) fn range_of(request: &Request) -> Option<String> {
    let range = request.headers().iter().find(|h| h.field.equiv("Range"))?;
    Some(range.value.as_str().trim_start_matches("bytes=").to_owned())
}

/// The answer that holds `range` of `bytes`.
pub(super) fn part_of(bytes: &[u8], range: &str) -> Result<Response<Cursor<Vec<u8>>>> {
    let (start, end) = range.split_once('-').ok_or_else(|| anyhow!("bad range"))?;
    let start: usize = start.parse()?;
    let end = end.parse::<usize>().map_or(bytes.len(), |end| (end + 1).min(bytes.len()));
    let place = header("Content-Range", format!("bytes {start}-{}/{}", end - 1, bytes.len()))?;
    let response = Response::from_data(&bytes[start..end]).with_chunked_threshold(usize::MAX);
    Ok(response.with_status_code(206).with_header(place))
}

fn etag(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

/// A page, as S3 answers `ListObjectsV2`.
fn listing(objects: &BTreeMap<String, Vec<u8>>, query: &str, page_keys: usize) -> String {
    let parameter = |name: &str| {
        let found = query.split('&').find_map(|part| part.strip_prefix(&format!("{name}=")));
        found.map(|value| decoded(&value.replace('+', " "))).unwrap_or_default()
    };
    let (prefix, by_folder) = (parameter("prefix"), !parameter("delimiter").is_empty());
    let after = parameter("continuation-token");
    let (mut xml, mut folders, mut num_keys) = (String::new(), Vec::<String>::new(), 0);
    let mut last = String::new();
    let mut is_cut = false;
    for (key, bytes) in objects.iter().filter(|(key, _)| key.starts_with(&prefix)) {
        let folder = key[prefix.len()..].find('/').filter(|_| by_folder);
        let name = folder.map_or(key.as_str(), |at| &key[..=prefix.len() + at]);
        if !after.is_empty() && name <= after.as_str() || folders.last().is_some_and(|f| f == name)
        {
            continue;
        }
        if num_keys == page_keys {
            is_cut = true;
            break;
        }
        num_keys += 1;
        name.clone_into(&mut last);
        if folder.is_some() {
            folders.push(name.to_owned());
            continue;
        }
        // A string takes whatever is written.
        let _ = write!(
            xml,
            "<Contents><Key>{}</Key><LastModified>2026-11-22T00:00:00.000Z</LastModified>\
             <ETag>&quot;{}&quot;</ETag><Size>{}</Size></Contents>",
            in_xml(key),
            etag(bytes),
            bytes.len()
        );
    }
    for folder in folders {
        let _ =
            write!(xml, "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", in_xml(&folder));
    }
    if is_cut {
        let _ = write!(xml, "<NextContinuationToken>{}</NextContinuationToken>", in_xml(&last));
    }
    let prefix = in_xml(&prefix);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>bucket</Name>\
         <Prefix>{prefix}</Prefix><IsTruncated>{is_cut}</IsTruncated>{xml}</ListBucketResult>"
    )
}

fn in_xml(text: &str) -> String {
    text.chars().fold(String::new(), |mut xml, c| {
        if "&<>\"'".contains(c) || c.is_control() {
            let _ = write!(xml, "&#{};", u32::from(c));
        } else {
            xml.push(c);
        }
        xml
    })
}
