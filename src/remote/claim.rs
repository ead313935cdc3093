//! Objects that only one of several writers creates.

use bytes::Bytes;
use object_store::path::Path as Key;
use object_store::{
    Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};

use super::client::{client, patiently, wait};
use super::location::Location;
use crate::error::Result;

/// Creates the object `url` of `content`, or gives the content of the one that is there.
///
/// Of several processes that try at once one succeeds, where the store has conditional writes.
///
/// # Errors
/// [`crate::Error::Store`]; [`crate::Error::Config`] for a URL that is none.
pub(crate) fn create(url: &str, content: &str) -> Result<Option<Bytes>> {
    let location = Location::parse(url)?;
    let (client, key) = (client(&location)?, location.object_key()?);
    let payload = PutPayload::from(content.as_bytes().to_vec());
    let create = async || create_or_read(client.store.as_ref(), &key, payload.clone()).await;
    wait(patiently(url, create))
}

async fn create_or_read(
    store: &dyn ObjectStore,
    key: &Key,
    payload: PutPayload,
) -> object_store::Result<Option<Bytes>> {
    let mode = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    match store.put_opts(key, payload.clone(), mode).await {
        Ok(_) => return Ok(None),
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
    store.get(key).await?.bytes().await.map(Some)
}

/// Puts the object `url` of `content`, whatever is there.
///
/// # Errors
/// As [`create`].
pub(crate) fn replace(url: &str, content: &str) -> Result<()> {
    let location = Location::parse(url)?;
    let (client, key) = (client(&location)?, location.object_key()?);
    let payload = PutPayload::from(content.as_bytes().to_vec());
    let put = async || client.store.put(&key, payload.clone()).await.map(drop);
    wait(patiently(url, put))
}
