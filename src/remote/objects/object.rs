//! Reads ranges of one version of an object with retries, and creates or replaces small objects.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{
    Error as StoreError, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload,
};

use super::client::{Retries, Transfer, client_for, retry, wait};
use super::explain::{changed_error, explain, store_error};
use super::hub;
use super::publish;
use super::wire::get_options;
use crate::LARGEST_WINDOW;
use crate::location::{Location, ObjectVersion, Scheme};
use polysift_base::error::Result;

impl ObjectVersion {
    /// Returns the size and the ETag, or else the time of change, that a store reports.
    pub fn of(meta: &ObjectMeta) -> Self {
        let time = meta.last_modified;
        let changed = || (time.timestamp() > 0).then(|| time.to_rfc3339());
        let etag = meta.e_tag.as_ref().map(|etag| etag.trim_matches('"').to_owned());
        Self { bytes: meta.size, tag: etag.filter(|etag| !etag.is_empty()).or_else(changed) }
    }
}

/// An object of a store at a planned version.
#[derive(Debug, Clone)]
pub struct Object {
    url: String,
    store: Arc<dyn ObjectStore>,
    key: Key,
    options: GetOptions,
    version: ObjectVersion,
    /// Whether answers name the version; on a hub, another server answers.
    is_checked: bool,
}

/// Returns the size and the version of the object `url`.
pub fn stat(url: &str) -> Result<ObjectVersion> {
    let location = Location::parse(url)?;
    let (store, key) = (client_for(&location)?.store, location.object_key()?);
    let is_on_hub = location.scheme == Scheme::Hub;
    let of = |options: GetOptions| store.get_opts(&key, options);
    let head = || of(get_options(&location).with_head(true));
    let found = async {
        if !is_on_hub && location.scheme != Scheme::Http {
            return head().await;
        }
        // A URL that is signed for reading may not allow a HEAD request.
        match of(get_options(&location).with_range(Some(0..1))).await {
            // An empty file has no first byte: some servers refuse the range, others ignore it.
            Err(StoreError::Generic { .. }) => head().await,
            Err(error @ StoreError::NotSupported { .. }) => {
                head().await.ok().filter(|found| found.meta.size == 0).ok_or(error)
            }
            answer => answer,
        }
    };
    let url = location.url();
    let meta = wait(async { found.await.map_err(|error| explain(&url, &error)) })?.meta;
    Ok(if is_on_hub { hub::commit_version(&location, meta.size) } else { ObjectVersion::of(&meta) })
}

impl Object {
    /// Creates a reader of the object `url`; reads fail if the object is not of `version`.
    pub fn new(url: &Path, version: ObjectVersion) -> Result<Self> {
        let location = Location::parse(&url.to_string_lossy())?;
        let (url, options) = (location.url(), get_options(&location));
        let (store, is_checked) = (client_for(&location)?.store, location.scheme != Scheme::Hub);
        let key = location.object_key()?;
        Ok(Self { url, store, key, options, version, is_checked })
    }

    /// Creates an object of `store`, for tests.
    #[cfg(test)]
    pub fn of(store: Arc<dyn ObjectStore>, key: &str, version: ObjectVersion) -> Self {
        let url = format!("test://{key}");
        let (key, options) = (Key::from(key), GetOptions::default());
        Self { url, store, key, options, version, is_checked: true }
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.version.bytes
    }

    /// Waits for the bytes of `range`, which must lie in the object.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes> {
        wait(self.fetch_range(range))
    }

    /// Starts to fetch the bytes of `range`, which must lie in the object.
    pub(crate) fn start_read(&self, range: Range<u64>) -> Result<Transfer<Bytes>> {
        let object = self.clone();
        Transfer::spawn(async move { object.fetch_range(range).await })
    }

    /// Fetches `range`, going on where an answer broke off.
    async fn fetch_range(&self, range: Range<u64>) -> Result<Bytes> {
        let length = (range.end - range.start) as usize;
        let mut buffer = Vec::with_capacity(length.min(LARGEST_WINDOW as usize));
        let mut retries = Retries::default();
        // The client itself resumes an interrupted answer if its ETag identifies the content.
        while let Some(error) = self.append(&range, &mut buffer).await? {
            if !retries.allow(&error, Duration::ZERO).await {
                return Err(explain(&self.url, &error));
            }
        }
        Ok(buffer.into())
    }

    /// Appends what `buffer` lacks of `range`; returns the error of an interrupted answer.
    async fn append(
        &self,
        range: &Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<object_store::Error>> {
        let requested = range.start + buffer.len() as u64..range.end;
        if requested.is_empty() {
            return Ok(None);
        }
        let options = self.options.clone().with_range(Some(requested.clone()));
        let answer = self.store.get_opts(&self.key, options).await;
        let answer = answer.map_err(|error| explain(&self.url, &error))?;
        let found = ObjectVersion::of(&answer.meta);
        let is_other = self.is_checked && found.tag != self.version.tag;
        if is_other || found.bytes != self.version.bytes {
            return Err(changed_error(&self.url));
        }
        if answer.range != requested {
            let reason = format!("answers with the bytes {:?} for {requested:?}", answer.range);
            return Err(store_error(&self.url, &reason));
        }
        let mut stream = answer.into_stream();
        while let Some(piece) = stream.next().await {
            match piece {
                Ok(piece) if (buffer.len() + piece.len()) as u64 > range.end - range.start => {
                    return Err(store_error(&self.url, "answers with more than was asked for"));
                }
                Ok(piece) => buffer.extend_from_slice(&piece),
                Err(error) => return Ok(Some(error)),
            }
        }
        let missing = range.end - range.start - buffer.len() as u64;
        let source = format!("{missing} bytes are missing at the end").into();
        Ok((missing > 0).then_some(object_store::Error::Generic { store: "", source }))
    }
}

/// Writes the object `url` with `content`. Returns the content of an existing object, which is
/// replaced only if `replaces`. Else one of several processes wins, if the store can decide that.
pub fn put(url: &str, content: &str, replaces: bool) -> Result<Option<Bytes>> {
    let location = Location::parse(url)?;
    if location.scheme == Scheme::Hub {
        return publish::write_file(url, content, replaces);
    }
    let (client, key) = (client_for(&location)?, location.object_key()?);
    let payload = PutPayload::from(content.as_bytes().to_vec());
    if replaces {
        return wait(retry(url, || client.store.put(&key, payload.clone()))).map(|_| None);
    }
    wait(retry(url, || create_or_read(client.store.as_ref(), &key, payload.clone())))
}

/// Creates the object `key`, or returns the content of an existing one. A store that cannot create
/// conditionally is asked first, which is not safe against another process.
async fn create_or_read(
    store: &dyn ObjectStore,
    key: &Key,
    payload: PutPayload,
) -> object_store::Result<Option<Bytes>> {
    let mode = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    match store.put_opts(key, payload.clone(), mode).await {
        Ok(_) => return Ok(None),
        // S3 says so of writes at the same time too, of which this one may have to be repeated.
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. })
            if matches!(store.head(key).await, Err(StoreError::NotFound { .. })) =>
        {
            let source = "another process wrote it at the same time".into();
            return Err(StoreError::Generic { store: "store", source });
        }
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {}
        Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
            match store.head(key).await {
                Err(StoreError::NotFound { .. }) => {
                    return store.put(key, payload).await.map(|_| None);
                }
                found => drop(found?),
            }
        }
        Err(error) => return Err(error),
    }
    let pieces: Vec<Bytes> = store.get(key).await?.into_stream().try_collect().await?;
    Ok(Some(pieces.concat().into()))
}
