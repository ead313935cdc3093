//! The objects below a place.

use futures_util::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use super::client::{client, patiently, wait};
use super::hub;
use super::location::{Location, Scheme};
use super::object::Version;
use crate::error::{Error, Result};

/// Objects that are asked for their versions at once, where the listing does not tell.
const REQUESTS: usize = 32;

/// An object that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its key, from the root of the store on.
    pub(crate) key: String,
    /// Its version now.
    pub(crate) version: Version,
}

/// All objects below `location`, a directory of the store or its root, sorted by key; none where
/// there is no such directory.
///
/// # Errors
/// [`Error::Config`] for a web server, which cannot tell; [`Error::Store`], [`Error::Hub`].
pub(crate) fn list(location: &Location) -> Result<Vec<Listed>> {
    let mut found = match location.scheme {
        Scheme::Http => {
            let reason = "a web server cannot be searched; name each file by its URL";
            return Err(Error::config(location.url(), reason));
        }
        Scheme::Hub => hub::list(location)?,
        Scheme::S3 | Scheme::Gcs | Scheme::Azure => {
            let (store, prefix) = (client(location)?.store, location.object_key()?);
            let prefix = (!location.key.is_empty()).then_some(&prefix);
            // An answer to a read always names the content; a listing has to name it alike.
            let named = async |meta: ObjectMeta| match meta.e_tag {
                Some(_) => Ok(meta),
                None => store.head(&meta.location).await,
            };
            let listing = async || {
                let named = store.list(prefix).map_ok(named).try_buffer_unordered(REQUESTS);
                named.try_collect::<Vec<_>>().await
            };
            let all = wait(patiently(&location.url(), listing))?;
            let listed = |meta: ObjectMeta| Listed {
                version: Version::of(&meta),
                key: meta.location.into(),
            };
            all.into_iter().map(listed).collect()
        }
    };
    found.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(found)
}
