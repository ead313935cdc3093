//! Lists the objects below a location.
//!
//! A page of a listing names the start of the next one, so pages are requested one after another.
//! Folders are listed in parallel if there are more keys than fit on a page.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryStreamExt};
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::{ObjectMeta, ObjectStoreExt};

use super::client::{Bucket, client_for, retry, wait};
use super::explain::store_error;
use super::hub;
use super::key::decode;
use crate::location::{KeyTest, Location, ObjectVersion, Scheme};
use polysift_base::error::{Error, Result};

const REQUESTS: usize = 32;

/// Returns the versions, by key, of the objects that `takes` accepts below the key of `location`
/// (empty, or with a slash at its end). Keys that end with a slash are folders and not listed; only
/// those that `enters` accepts may hold wanted keys. Returns [`Error::Config`] for a web server,
/// which has no listing, and for a wanted key that no request can contain.
pub fn list(
    location: &Location,
    enters: KeyTest<'_>,
    takes: KeyTest<'_>,
) -> Result<BTreeMap<String, ObjectVersion>> {
    let found = match location.scheme {
        Scheme::Http => {
            let reason = "a web server cannot be searched; name each file by its URL";
            return Err(Error::config(location.url(), reason));
        }
        Scheme::Hub => {
            let files = hub::list_files(location)?.into_iter().filter(|file| takes(&file.path));
            files.map(|file| (file.path, hub::commit_version(location, file.size))).collect()
        }
        Scheme::S3 | Scheme::Gcs | Scheme::Azure => {
            let search =
                KeySearch { location, bucket: client_for(location)?.bucket()?, enters, takes };
            wait(async { search.add_versions(search.find_all().await?).await })?
        }
    };
    for key in found.keys() {
        location.with_key(key).object_key()?;
    }
    Ok(found)
}

type KeyedMeta = (String, ObjectMeta);

struct KeySearch<'a> {
    location: &'a Location,
    bucket: Arc<dyn Bucket>,
    enters: KeyTest<'a>,
    takes: KeyTest<'a>,
}

impl KeySearch<'_> {
    /// Finds all wanted objects, in any order, with up to [`REQUESTS`] folders listed at a time.
    async fn find_all(&self) -> Result<Vec<KeyedMeta>> {
        let mut found = Vec::new();
        let mut folders = vec![self.location.key.clone()];
        let mut searches = FuturesUnordered::new();
        loop {
            while searches.len() < REQUESTS
                && let Some(folder) = folders.pop()
            {
                searches.push(self.list_folder(folder));
            }
            let Some(searched) = searches.next().await else { return Ok(found) };
            let (objects, more) = searched?;
            found.extend(objects);
            folders.extend(more);
        }
    }

    /// Returns objects below `folder`, and those of its folders that remain to be listed.
    async fn list_folder(&self, folder: String) -> Result<(Vec<KeyedMeta>, Vec<String>)> {
        let mut page = self.request_page(&folder, false, None).await?;
        if page.page_token.is_some()
            && let Some((objects, folders)) = self.list_level(&folder).await?
        {
            return Ok((self.filter_taken(objects), folders));
        }
        let mut found = self.filter_taken(page.result.objects);
        while page.page_token.is_some() {
            page = self.request_page(&folder, false, page.page_token).await?;
            found.extend(self.filter_taken(page.result.objects));
        }
        Ok((found, Vec::new()))
    }

    /// Lists the objects and folders directly in `folder`. Returns `None` if most of them are
    /// objects, because a listing without folders is as fast then.
    async fn list_level(&self, folder: &str) -> Result<Option<(Vec<ObjectMeta>, Vec<String>)>> {
        let (mut objects, mut folders, mut next) = (Vec::new(), Vec::new(), None);
        loop {
            let page = self.request_page(folder, true, next).await?;
            folders.extend(page.result.common_prefixes.iter().map(|key| decode(key.as_ref())));
            objects.extend(page.result.objects);
            next = page.page_token;
            if next.is_none() {
                folders.retain(|folder| (self.enters)(folder));
                return Ok(Some((objects, folders)));
            }
            if objects.len() > folders.len() {
                return Ok(None);
            }
        }
    }

    /// Requests a page of the keys below `prefix`, or if `by_folder` of the keys and folders
    /// directly in it. A page that is not the last and names no next one is an error.
    async fn request_page(
        &self,
        prefix: &str,
        by_folder: bool,
        page_token: Option<String>,
    ) -> Result<PaginatedListResult> {
        let delimiter = by_folder.then_some(Cow::Borrowed("/"));
        let options = PaginatedListOptions { delimiter, page_token, ..Default::default() };
        let prefix = (!prefix.is_empty()).then_some(prefix);
        let page = || self.bucket.list_paginated(prefix, options.clone());
        let url = self.location.url();
        let page = retry(&url, page).await?;
        let reason = match &page.page_token {
            Some(token) if token.is_empty() => {
                "the listing does not say where it goes on: the store does not know ListObjectsV2"
            }
            Some(_) if page.page_token == options.page_token => {
                "the listing has no end: a page is followed by itself"
            }
            _ => return Ok(page),
        };
        Err(store_error(&url, reason))
    }

    /// Keeps the wanted objects, with their keys as they are in the store.
    fn filter_taken(&self, objects: Vec<ObjectMeta>) -> Vec<KeyedMeta> {
        let keyed = objects.into_iter().map(|meta| (decode(meta.location.as_ref()), meta));
        keyed.filter(|(key, _)| !key.ends_with('/') && (self.takes)(key)).collect()
    }

    /// Adds a version to each found object. Answers to reads always name the content, so a HEAD
    /// request gets the ETag of an object if the listing lacks it.
    async fn add_versions(&self, found: Vec<KeyedMeta>) -> Result<BTreeMap<String, ObjectVersion>> {
        let version = |(key, meta): KeyedMeta| async move {
            let place = self.location.with_key(&key);
            let version = match place.object_key() {
                Ok(path) if meta.e_tag.is_none() => {
                    let head = || self.bucket.head(&path);
                    ObjectVersion::of(&retry(&place.url(), head).await?)
                }
                _ => ObjectVersion::of(&meta),
            };
            Ok((key, version))
        };
        let versions = futures_util::stream::iter(found).map(version);
        versions.buffer_unordered(REQUESTS).try_collect().await
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use object_store::aws::AmazonS3Builder;

    use super::super::wire::Connector;
    use super::*;

    /// Lists a bucket whose server answers every request with `listing`.
    fn listed(listing: &'static str) -> Result<usize> {
        let failed = |reason: String| Error::config("test", reason);
        let server = TcpListener::bind("127.0.0.1:0").map_err(|e| failed(e.to_string()))?;
        let address = server.local_addr().map_err(|e| failed(e.to_string()))?;
        std::thread::spawn(move || {
            for mut client in server.incoming().flatten() {
                let length = listing.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n");
                // A client that hung up is seen at its own end.
                let _ = client.read(&mut [0; 4096]);
                let _ = write!(client, "{head}Connection: close\r\n\r\n{listing}");
            }
        });
        let store = AmazonS3Builder::new().with_bucket_name("b").with_skip_signature(true);
        let store = store.with_endpoint(format!("http://{address}")).with_allow_http(true);
        let store = store.with_http_connector(Connector).build();
        let bucket = Arc::new(store.map_err(|error| failed(error.to_string()))?);
        let location = &Location::parse("s3://b")?;
        let search = KeySearch { location, bucket, enters: &|_| true, takes: &|_| true };
        wait(async { search.find_all().await.map(|found| found.len()) })
    }

    #[test]
    fn a_page_that_is_not_the_last_one_names_the_next_one() -> Result<()> {
        let object = "<Contents><Key>a</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                      <Size>1</Size></Contents>";
        let page = |rest: &str| {
            let listing = format!("<ListBucketResult>{object}{rest}</ListBucketResult>");
            listed(Box::leak(listing.into_boxed_str()))
        };
        assert_eq!(page("<IsTruncated>false</IsTruncated>")?, 1);
        for token in ["", "<NextContinuationToken></NextContinuationToken>"] {
            let error = page(&format!("<IsTruncated>true</IsTruncated>{token}")).err();
            let said = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(said.contains("does not know ListObjectsV2"), "{said}");
        }
        Ok(())
    }
}
