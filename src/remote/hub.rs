//! Data sets of a Hugging Face hub: revisions, files, and where their bytes are.
//!
//! A revision is made a commit once; with it in the URL, the content cannot change.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use object_store::path::Path as Key;
use object_store::{ClientOptions, GetOptions, HeaderMap, HeaderValue, ObjectStore};
use serde::Deserialize;

use super::client::{client, hub_settings, runtime, wait};
use super::explain::{explain, store_error};
use super::key::for_client;
use super::list::Listed;
use super::location::{Location, Scheme};
use super::object::Version;
use crate::error::{Error, Result};
use crate::hub::{HubSettings, RepoType, Repository};

/// Revision of a URL without one.
const DEFAULT_REVISION: &str = "main";

/// Tries of a page of a listing.
const TRIES: u32 = 5;

/// Where the files of a repository are.
pub(crate) enum Dataset {
    /// The same place at a commit.
    Online(Location),
    /// Without a network: the folder of the cache.
    Cached(PathBuf),
}

/// Repository and revision of a place, the default where it names none.
fn repository(location: &Location) -> (&str, &str) {
    let path = location.root.trim_start_matches("hf://datasets/");
    path.split_once('@').unwrap_or((path, DEFAULT_REVISION))
}

fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `location` with the commit that its revision stands for now.
///
/// # Errors
/// [`Error::Hub`] when the hub does not know it or does not answer.
pub(crate) fn dataset(location: &Location) -> Result<Dataset> {
    let (id, revision) = repository(location);
    let revision = revision.replace("%2F", "/");
    let settings = hub_settings();
    if is_commit(&revision) && !settings.offline {
        return Ok(Dataset::Online(location.clone()));
    }
    let snapshot = Repository::new(RepoType::Dataset, id, Some(&revision), settings)?.snapshot()?;
    if settings.offline {
        return Ok(Dataset::Cached(snapshot.folder));
    }
    let root = format!("hf://datasets/{id}@{}", snapshot.commit);
    Ok(Dataset::Online(Location { scheme: Scheme::Hub, root, key: location.key.clone() }))
}

/// Key of a file of a hub below its endpoint.
///
/// # Errors
/// [`Error::Hub`] without a network.
pub(super) fn resolved(location: &Location) -> Result<Key> {
    let (id, revision) = repository(location);
    if hub_settings().offline {
        let reason = "is not read without a network (--offline, HF_HUB_OFFLINE); plan the run \
                      without one, and it reads the cache";
        return Err(Error::Hub { repo: location.url(), reason: reason.into() });
    }
    let path = format!("datasets/{id}/resolve/{revision}/{}", location.key);
    for_client(&path).map_err(|reason| {
        Error::config(location.url(), format!("cannot be asked for: the path {reason}"))
    })
}

/// Size and version of a file; the version is the commit.
pub(super) fn stat(location: &Location) -> Result<Version> {
    let (store, key, url) = (client(location)?.store, resolved(location)?, location.url());
    // Where the bytes are kept may be signed for reading only, so it is read.
    let options = GetOptions::new().with_range(Some(0..1));
    let answer =
        wait(async { store.get_opts(&key, options).await.map_err(|error| explain(&url, &error)) })?;
    Ok(Version { bytes: answer.meta.size, tag: Some(commit(location)) })
}

fn commit(location: &Location) -> String {
    repository(location).1.to_owned()
}

/// Lets the client of a hub show the token.
pub(super) fn options(options: ClientOptions, hub: &HubSettings) -> ClientOptions {
    let value = hub.token.as_ref().map(|token| HeaderValue::from_str(&format!("Bearer {token}")));
    // A token that cannot be sent is none.
    let Some(Ok(mut value)) = value else { return options };
    value.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert("authorization", value);
    options.with_default_headers(headers)
}

/// An entry of a listing.
#[derive(Deserialize)]
struct Entry {
    r#type: String,
    path: String,
    #[serde(default)]
    size: u64,
}

/// All files below `location`, a folder at a commit; none where there is no such folder.
///
/// # Errors
/// [`Error::Store`].
pub(super) fn list(location: &Location) -> Result<Vec<Listed>> {
    let (id, revision) = repository(location);
    let hub = hub_settings();
    let folder: Vec<String> = location.key.trim_matches('/').split('/').map(encoded).collect();
    let folder = folder.join("/");
    let mut next = Some(format!(
        "{}/api/datasets/{id}/tree/{revision}/{folder}?recursive=true&expand=false",
        hub.endpoint
    ));
    let mut found = Vec::new();
    runtime()?;
    let web = reqwest::Client::builder().build();
    let web = web.map_err(|error| store_error(&hub.endpoint, &error.to_string()))?;
    while let Some(url) = next {
        let Some((entries, link)) = wait(page(&web, &url, hub))? else { break };
        for entry in entries.into_iter().filter(|entry| entry.r#type == "file") {
            let version = Version { bytes: entry.size, tag: Some(commit(location)) };
            found.push(Listed { key: entry.path, version });
        }
        next = link.and_then(|link| next_page(&link)).filter(|next| *next != url);
    }
    Ok(found)
}

/// One page of a listing and its `Link` header; `None` where there is nothing.
async fn page(
    web: &reqwest::Client,
    url: &str,
    hub: &HubSettings,
) -> Result<Option<(Vec<Entry>, Option<String>)>> {
    let mut reason = String::new();
    for attempt in 0..TRIES {
        if attempt > 0 {
            tokio::time::sleep(Duration::from_millis(250 << attempt)).await;
        }
        let mut request = web.get(url);
        if let Some(token) = &hub.token {
            request = request.bearer_auth(token);
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => {
                reason = chain(&error);
                continue;
            }
        };
        let status = answer.status();
        if status.is_server_error() || status.as_u16() == 429 {
            reason = format!("the hub answers {status}");
            continue;
        }
        match status.as_u16() {
            404 => return Ok(None),
            200 => {}
            401 | 403 => {
                let hint = "check HF_TOKEN, and that its account has accepted the terms";
                return Err(store_error(url, &format!("the hub answers {status}; {hint}")));
            }
            _ => return Err(store_error(url, &format!("the hub answers {status}"))),
        }
        let link = answer.headers().get("link").and_then(|link| link.to_str().ok());
        let link = link.map(ToOwned::to_owned);
        match answer.bytes().await {
            Ok(body) => {
                let entries = serde_json::from_slice(&body)
                    .map_err(|error| store_error(url, &format!("is no listing: {error}")))?;
                return Ok(Some((entries, link)));
            }
            Err(error) => reason = chain(&error),
        }
    }
    Err(store_error(url, &reason))
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// The URL that a `Link` header calls the next one.
fn next_page(link: &str) -> Option<String> {
    link.split(',').find_map(|part| {
        let (url, parameters) = part.trim().strip_prefix('<')?.split_once('>')?;
        parameters.contains("rel=\"next\"").then(|| url.to_owned())
    })
}

/// A component of a path as a URL has it.
fn encoded(part: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~=".contains(&byte);
    part.bytes().fold(String::new(), |mut text, byte| {
        if plain(byte) {
            text.push(char::from(byte));
        } else {
            // A string takes whatever is written.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_the_one_called_so() {
        let link = "<https://h/a?x=1>; rel=\"first\", <https://h/a?cursor=b%3D>; rel=\"next\"";
        assert_eq!(next_page(link).as_deref(), Some("https://h/a?cursor=b%3D"));
        assert_eq!(next_page("<https://h/a>; rel=\"prev\""), None);
    }

    #[test]
    fn a_path_is_put_into_a_url() {
        assert_eq!(encoded("a b+c%é.parquet"), "a%20b%2Bc%25%C3%A9.parquet");
    }

    #[test]
    fn a_place_without_a_revision_is_of_the_main_one() -> Result<()> {
        let of = |url| Location::parse(url);
        assert_eq!(repository(&of("hf://datasets/o/n/a")?), ("o/n", "main"));
        assert_eq!(repository(&of("hf://datasets/o/n@v1/a")?), ("o/n", "v1"));
        Ok(())
    }
}
