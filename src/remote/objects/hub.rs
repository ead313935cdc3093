//! Finds the revisions, files and addresses of data sets on a Hugging Face hub.
//!
//! A revision is resolved to a commit once. With the commit in the URL, the content cannot change.

use std::collections::BTreeSet;

use bytes::Bytes;
use object_store::client::{HttpClient, HttpResponse};
use object_store::path::Path as Key;
use serde::Deserialize;

use super::client::{hub_settings, runtime, wait};
use super::download::{ask, get_request, hub_client, read_body};
use super::explain::{explain, store_error};
use super::key::{client_key, encode};
use super::repository::{DEFAULT_REVISION, RepoType, Repository};
use crate::location::{Dataset, Location, ObjectVersion, Scheme};
use polysift_base::error::{Error, Result};

/// Returns the id of the data set and the revision, by default the main one, as the URL has them.
pub(super) fn id_and_revision(location: &Location) -> (&str, &str) {
    let path = location.root.trim_start_matches("hf://datasets/");
    path.split_once('@').unwrap_or((path, DEFAULT_REVISION))
}

/// Resolves the revision of a `location` on a hub to its current commit, or offline to the folder
/// of its snapshot in the cache. Other locations and commits are returned as they are.
pub fn pin_revision(location: &Location) -> Result<Dataset> {
    let (id, revision) = id_and_revision(location);
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
                let (id, revision) = id_and_revision(self);
                format!("datasets/{id}/resolve/{revision}/{}", self.key)
            }
            Scheme::S3 | Scheme::Gcs | Scheme::Azure => self.key.clone(),
        };
        client_key(&key).map_err(|reason| {
            let reason =
                format!("cannot be requested: the key {reason}; give the object another key");
            Error::config(self.url().escape_debug().to_string(), reason)
        })
    }
}

/// Returns the version of a file of `bytes` bytes: the commit, as of all files in the repository.
pub(super) fn commit_version(location: &Location, bytes: u64) -> ObjectVersion {
    ObjectVersion { bytes, tag: Some(id_and_revision(location).1.to_owned()) }
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
pub(super) fn list_files(location: &Location) -> Result<Vec<HubFile>> {
    let (id, revision) = id_and_revision(location);
    let (endpoint, folder) = (&hub_settings().endpoint, encode(location.key.trim_matches('/')));
    let mut next = Some(format!(
        "{endpoint}/api/datasets/{id}/tree/{revision}/{folder}?recursive=true&expand=false"
    ));
    let client = runtime().and_then(|_| hub_client(hub_settings()))?;
    let mut files = Vec::new();
    let mut pages = BTreeSet::new();
    while let Some(url) = next {
        let page = async {
            get_page(&client, &url).await.map_err(|error| explain(&location.url(), &error))
        };
        let (body, link) = match wait(page) {
            Err(Error::Missing { .. }) if pages.is_empty() => break,
            answer => answer?,
        };
        let entries: Vec<HubFile> = serde_json::from_slice(&body)
            .map_err(|error| store_error(&url, &format!("is no listing: {error}")))?;
        files.extend(entries.into_iter().filter(|entry| entry.r#type == "file"));
        next = next_page(endpoint, &url, &link)?;
        pages.insert(url);
        if next.as_ref().is_some_and(|next| pages.contains(next)) {
            let reason = "the listing has no end: a page is followed by itself or an earlier one";
            return Err(store_error(&location.url(), reason));
        }
    }
    Ok(files)
}

/// Requests `url` and returns the body and the `Link` headers, joined by commas.
async fn get_page(client: &HttpClient, url: &str) -> object_store::Result<(Bytes, String)> {
    let read = async |answer: HttpResponse| {
        let links = answer.headers().get_all("link").iter();
        let links = links.map(|link| String::from_utf8_lossy(link.as_bytes()).into_owned() + ",");
        let links: String = links.collect();
        Ok((read_body(answer).await?, links))
    };
    ask(client, get_request(url, None), read).await
}

/// Returns the address of the page after `url`, if `links` name one. It is at `endpoint`: a mirror
/// may pass on links to the hub behind it, which must not get this token.
fn next_page(endpoint: &str, url: &str, links: &str) -> Result<Option<String>> {
    let Some(target) = next_link(links) else { return Ok(None) };
    let path = target.strip_prefix(endpoint).unwrap_or(target);
    let unusable =
        || store_error(url, &format!("the next page is `{target}`, which is no listing"));
    let at = path.find("/api/datasets/").ok_or_else(unusable)?;
    Ok(Some(format!("{endpoint}{}", &path[at..])))
}

/// Returns the target of the first link with the relation `next` in `Link` headers (RFC 8288).
fn next_link(links: &str) -> Option<&str> {
    links.split('<').find_map(|link| {
        let (target, parameters) = link.split_once('>')?;
        let parameters = parameters.to_ascii_lowercase().replace('"', " ");
        let mut pairs = parameters.split([';', ',']).filter_map(|pair| pair.split_once('='));
        let is_next = |value: &str| value.split_whitespace().any(|relation| relation == "next");
        pairs.any(|(name, value)| name.trim() == "rel" && is_next(value)).then_some(target)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_the_one_called_so() {
        for link in [
            "<https://h/a?x=1>; rel=\"first\", <https://h/a?c=b%3D>; rel=\"next\"",
            "<https://h/a?c=b%3D>; rel=next",
            "<https://h/a?c=b%3D> ;title=\"a, b; rel=prev\" ; Rel = \"last Next\"",
            "<https://h/a,b;c>; rel=prev,<https://h/a?c=b%3D>;REL=NEXT",
        ] {
            assert_eq!(next_link(link), Some("https://h/a?c=b%3D"), "{link}");
        }
        for link in ["", "<https://h/a>; rel=\"prev\"", "<https://h/a>; title=\"rel=next\""] {
            assert_eq!(next_link(link), None, "{link}");
        }
    }

    #[test]
    fn the_next_page_is_asked_for_at_the_same_hub() {
        let page = |endpoint: &str, target: &str| {
            let url = format!("{endpoint}/api/datasets/o/n/tree/main/?recursive=true");
            next_page(endpoint, &url, &format!("<{target}>; rel=next"))
        };
        let mirror = "https://h/artifactory/api/datasets/remote";
        for endpoint in ["https://h", mirror] {
            let next = format!("{endpoint}/api/datasets/o/n/tree/main/?cursor=b%3D");
            for target in ["https://origin/api/datasets/o/n/tree/main/?cursor=b%3D", &next] {
                let found = page(endpoint, target);
                assert!(found.is_ok_and(|found| found.as_ref() == Some(&next)), "{target}");
            }
        }
        let error = page("https://h", "https://h/elsewhere?cursor=b").err();
        assert!(error.is_some_and(|error| error.to_string().contains("https://h/elsewhere")));
    }

    #[test]
    fn a_place_without_a_revision_is_of_the_main_one() -> Result<()> {
        let of = |url| Location::parse(url);
        assert_eq!(id_and_revision(&of("hf://datasets/o/n/a")?), ("o/n", "main"));
        assert_eq!(id_and_revision(&of("hf://datasets/o/n@v1/a")?), ("o/n", "v1"));
        Ok(())
    }
}
