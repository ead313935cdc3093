//! Writes objects that appear whole or not at all: in parts, completed at the end.
//!
//! At most [`PARTS_ON_THEIR_WAY`] sent parts and the current one are in memory. Dropping an upload
//! aborts it. Parts of a killed process are invisible; a rule for incomplete uploads, if the bucket
//! has one, deletes them.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::multipart::PartId;
use object_store::path::Path as Key;
use object_store::{Error as StoreError, MultipartId, ObjectMeta, ObjectStoreExt, PutPayload};

use super::client::{Bucket, Transfer, client_for, retry, runtime, wait};
use super::hub::id_and_revision;
use super::key::client_key;
use crate::location::{Location, ObjectVersion, Scheme};
use polysift_base::error::{Error, Result};
use polysift_base::hub::is_repository_id;
use polysift_base::io::{FileStamp, FirstError, NewFile, boundary};

/// Size of a part; S3 allows 10,000 parts, so an object has at most 80 GB.
const PART_BYTES: usize = 8 << 20;
const ABORT_TIME: Duration = Duration::from_secs(1);
const PARTS_ON_THEIR_WAY: usize = 3;

#[derive(Debug)]
struct Upload {
    url: String,
    key: Key,
    bucket: Arc<dyn Bucket>,
    part: Vec<u8>,
    hasher: blake3::Hasher,
    /// The multipart upload, which begins with the first full part.
    id: Option<MultipartId>,
    arrived: Vec<PartId>,
    on_their_way: VecDeque<Transfer<PartId>>,
    failure: FirstError,
}

/// Starts an upload to the URL `path`. `failure` keeps the error of a failed write.
pub fn upload(path: &Path, failure: &FirstError) -> Result<Box<dyn NewFile>> {
    let url = path.to_string_lossy().into_owned();
    let location = Location::parse(&url)?;
    check_writable(&location)?;
    let (bucket, key) = (client_for(&location)?.bucket()?, location.object_key()?);
    boundary();
    let (part, arrived, on_their_way) = (Vec::new(), Vec::new(), VecDeque::new());
    let (hasher, id, failure) = (blake3::Hasher::new(), None, failure.clone());
    Ok(Box::new(Upload { url, key, bucket, part, hasher, id, arrived, on_their_way, failure }))
}

impl NewFile for Upload {
    fn commit(mut self: Box<Self>) -> Result<FileStamp> {
        boundary();
        let etag = if let Some(id) = self.id.clone() {
            if !self.part.is_empty() {
                self.send_part()?;
            }
            while let Some(first) = self.on_their_way.pop_front() {
                self.arrived.push(first.wait()?);
            }
            boundary();
            wait(self.complete_multipart(&id))?
        } else {
            let whole = PutPayload::from(std::mem::take(&mut self.part));
            wait(retry(&self.url, || self.bucket.put(&self.key, whole.clone())))?.e_tag
        };
        boundary();
        self.id = None; // nothing is left to abort
        let etag = etag.map(|etag| etag.trim_matches('"').to_owned());
        let blake3 = self.hasher.finalize().to_hex().to_string();
        Ok(FileStamp { bytes: self.hasher.count(), blake3, etag })
    }
}

impl Upload {
    /// Sends the current part; waits first if the maximum number of parts is being sent.
    fn send_part(&mut self) -> Result<()> {
        boundary();
        if self.on_their_way.len() == PARTS_ON_THEIR_WAY
            && let Some(first) = self.on_their_way.pop_front()
        {
            self.arrived.push(first.wait()?);
        }
        let (url, key, bucket) = (self.url.clone(), self.key.clone(), Arc::clone(&self.bucket));
        let id = match &self.id {
            Some(id) => id.clone(),
            None => self.id.insert(wait(retry(&url, || bucket.create_multipart(&key)))?).clone(),
        };
        let part = PutPayload::from(std::mem::take(&mut self.part));
        let index = self.arrived.len() + self.on_their_way.len();
        let sent = Transfer::spawn(async move {
            retry(&url, || bucket.put_part(&key, &id, index, part.clone())).await
        })?;
        self.on_their_way.push_back(sent);
        Ok(())
    }

    /// Completes the object from the parts that arrived, and returns its ETag.
    async fn complete_multipart(&self, id: &MultipartId) -> Result<Option<String>> {
        let before = self.bucket.head(&self.key).await;
        let complete = || self.bucket.complete_multipart(&self.key, id, self.arrived.clone());
        let completed = retry(&self.url, complete).await;
        let Err(error @ (Error::Missing { .. } | Error::Service { .. })) = completed else {
            return completed.map(|stored| stored.e_tag);
        };
        // The answer to a successful attempt may have been lost. An earlier object is not it.
        let is_new = |meta: &ObjectMeta| match &before {
            Ok(old) => (&meta.e_tag, meta.last_modified) != (&old.e_tag, old.last_modified),
            Err(error) => matches!(error, StoreError::NotFound { .. }),
        };
        match self.bucket.head(&self.key).await {
            Ok(meta) if meta.size == self.hasher.count() && is_new(&meta) => {
                Ok(ObjectVersion::of(&meta).tag)
            }
            _ => Err(error),
        }
    }
}

/// Checks that files can be written below `url`.
pub fn check_destination(url: &str) -> Result<()> {
    let location = Location::parse(url.trim_end_matches('/'))?;
    if location.scheme != Scheme::Hub {
        check_writable(&location)?;
        return location.object_key().map(drop);
    }
    let is_plain = location.url() == url.trim_end_matches('/') && !location.key.contains("//");
    let (id, _) = id_and_revision(&location);
    if is_plain && is_repository_id(id) && client_key(&location.key).is_ok() {
        return Ok(());
    }
    Err(Error::config(url, "is no place in a data set (OWNER/NAME) of a hub"))
}

fn check_writable(location: &Location) -> Result<()> {
    match location.scheme {
        Scheme::S3 | Scheme::Gcs | Scheme::Azure => Ok(()),
        Scheme::Http | Scheme::Hub => {
            let reason =
                "is only read; files are written to s3://, gs://, az:// and hf://datasets/";
            Err(Error::config(location.url(), reason))
        }
    }
}

impl io::Write for Upload {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let length = buffer.len().min(PART_BYTES - self.part.len());
        self.part.extend_from_slice(&buffer[..length]);
        self.hasher.update(&buffer[..length]);
        if self.part.len() == PART_BYTES {
            let sent = self.send_part();
            self.failure.keep(sent)?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.on_their_way.clear();
        if let Some(id) = &self.id {
            // Errors are ignored: the store's rule deletes the rest. A stop waits only briefly.
            let abort = || self.bucket.abort_multipart(&self.key, id);
            let abort = async { tokio::time::timeout(ABORT_TIME, abort()).await };
            let _ = runtime().map(|runtime| runtime.block_on(abort));
        }
    }
}
