//! Finds the revisions, files and addresses of data sets on a Hugging Face hub.
//!
//! A revision is resolved to a commit once. With the commit in the URL, the content cannot change.

use bytes::Bytes;
use object_store::client::HttpClient;
use object_store::path::Path as Key;
use serde::Deserialize;

use super::client::{hub_settings, retried, runtime, wait};
use super::download::{ask, hub_client, request_of, whole};
use super::explain::store_error;
use super::key::{encoded, for_client};
use super::repository::{DEFAULT_REVISION, RepoType, Repository};
use crate::location::{Dataset, Location, ObjectVersion, Scheme};
use polysift_base::error::{Error, Result};

pub(super) fn repository(location: &Location) -> (&str, &str) {
    let path = location.root.trim_start_matches("hf://datasets/");
    path.split_once('@').unwrap_or((path, DEFAULT_REVISION))
}

/// Resolves the revision of `location` to its current commit, if it is on a hub.
pub fn pinned(location: &Location) -> Result<Dataset> {
    let (id, revision) = repository(location);
    let revision = revision.replace("%2F", "/");
    let is_commit = revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit());
    if location.scheme != Scheme::Hub || is_commit && !hub_settings().offline {
        return Ok(Dataset::Online(location.clone()));
    }
    let settings = hub_settings();
    let snapshot = Repository::new(RepoType::Dataset, id, Some(&revision), settings)?.snapshot()?;
    if settings.offline {
        return Ok(Dataset::Cached(snapshot.folder));
    }
    let root = format!("hf://datasets/{id}@{}", snapshot.commit);
    Ok(Dataset::Online(Location { scheme: Scheme::Hub, root, key: location.key.clone() }))
}

impl Location {
    /// Returns the key for the client, on a hub below its endpoint; for a web server it is empty
    /// and the request has the URL. Returns [`Error::Config`] if no request can contain the key.
    pub(super) fn object_key(&self) -> Result<Key> {
        let key = match self.scheme {
            Scheme::Http => String::new(),
            Scheme::Hub if hub_settings().offline => {
                let reason = "is not read without a network (--offline, HF_HUB_OFFLINE); plan the \
                              run without one, and it reads the cache";
                return Err(store_error(&self.url(), reason));
            }
            Scheme::Hub => {
                let (id, revision) = repository(self);
                format!("datasets/{id}/resolve/{revision}/{}", self.key)
            }
            Scheme::S3 | Scheme::Gcs | Scheme::Azure => self.key.clone(),
        };
        for_client(&key).map_err(|reason| {
            let reason =
                format!("cannot be requested: the key {reason}; give the object another key");
            Error::config(self.url().escape_debug().to_string(), reason)
        })
    }
}

/// Returns the version of a file of `bytes` bytes: the commit, as of all files in the repository.
pub(super) fn version(location: &Location, bytes: u64) -> ObjectVersion {
    ObjectVersion { bytes, tag: Some(repository(location).1.to_owned()) }
}

#[derive(Deserialize)]
pub(super) struct HubFile {
    r#type: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) size: u64,
    /// Describes the bytes if they are in the hub's store of large files: `oid` is their SHA-256.
    #[serde(default)]
    pub(super) lfs: serde_json::Value,
}

/// Lists all files below `location`, a folder at a revision; the folder may not exist.
pub(super) fn files(location: &Location) -> Result<Vec<HubFile>> {
    let (id, revision) = repository(location);
    let (endpoint, folder) = (&hub_settings().endpoint, encoded(location.key.trim_matches('/')));
    let mut next = Some(format!(
        "{endpoint}/api/datasets/{id}/tree/{revision}/{folder}?recursive=true&expand=false"
    ));
    let client = runtime().and_then(|_| hub_client(hub_settings()))?;
    let mut files = Vec::new();
    let mut is_first = true;
    while let Some(url) = next {
        let (body, link) = match wait(retried(&location.url(), || get(&client, &url))) {
            Err(Error::Missing { .. }) if is_first => break,
            answer => answer?,
        };
        is_first = false;
        let entries: Vec<HubFile> = serde_json::from_slice(&body)
            .map_err(|error| store_error(&url, &format!("is no listing: {error}")))?;
        files.extend(entries.into_iter().filter(|entry| entry.r#type == "file"));
        // A mirror may pass on links to the hub behind it, which must not get this token.
        let next_path = link.and_then(|link| next_page(&link));
        let next_path = next_path.and_then(|next| Some(next[next.find("/api/")?..].to_owned()));
        next = next_path.map(|path| format!("{endpoint}{path}")).filter(|next| *next != url);
    }
    Ok(files)
}

/// Requests `url` and returns the body and the `Link` header.
async fn get(client: &HttpClient, url: &str) -> object_store::Result<(Bytes, Option<String>)> {
    let answer = ask(client, request_of(url, None), async |answer| Ok(answer)).await?;
    let link = answer.headers().get("link").and_then(|link| link.to_str().ok());
    let link = link.map(ToOwned::to_owned);
    Ok((whole(answer).await?, link))
}

fn next_page(link: &str) -> Option<String> {
    link.split(',').find_map(|part| {
        let (url, parameters) = part.trim().strip_prefix('<')?.split_once('>')?;
        parameters.contains("rel=\"next\"").then(|| url.to_owned())
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
    fn a_place_without_a_revision_is_of_the_main_one() -> Result<()> {
        let of = |url| Location::parse(url);
        assert_eq!(repository(&of("hf://datasets/o/n/a")?), ("o/n", "main"));
        assert_eq!(repository(&of("hf://datasets/o/n@v1/a")?), ("o/n", "v1"));
        Ok(())
    }
}
