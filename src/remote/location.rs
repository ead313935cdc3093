//! Places in stores, parsed from URLs into a store and a key, and what is found there.

use std::path::PathBuf;

use polysift_base::error::{Error, Result};
use polysift_base::io::without_secrets;

const SCHEMES: &str = "s3://, gs://, az://, http://, https:// and hf://datasets/";
const DATASETS: &str = "datasets/";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    /// Amazon S3 and stores with its protocol.
    S3,
    Gcs,
    Azure,
    Http,
    Hub,
}

/// A place in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub(crate) scheme: Scheme,
    /// The store: scheme with bucket, container, server, or repository and revision.
    pub(crate) root: String,
    /// The rest of the URL after one slash, unchanged: the key on S3, Google and Azure; path and
    /// query, without secrets, of a web server; the path on a hub, without a slash at either end.
    pub key: String,
}

impl Location {
    /// Parses `url`. Secrets in it are stored for requests only.
    pub fn parse(url: &str) -> Result<Self> {
        let open = without_secrets(url)?;
        let refused = |reason: &str| Error::config(&open, reason);
        let unknown = || refused(&format!("unknown kind of URL; known are {SCHEMES}"));
        let (scheme, rest) = open.split_once("://").ok_or_else(unknown)?;
        let (scheme, root_parts, what) = match scheme {
            "s3" => (Scheme::S3, 1, "the bucket"),
            "gs" => (Scheme::Gcs, 1, "the bucket"),
            "az" => (Scheme::Azure, 1, "the bucket"),
            "http" | "https" => (Scheme::Http, 1, "the server"),
            "hf" if rest.starts_with(DATASETS) => (Scheme::Hub, 3, "OWNER/NAME"),
            _ => return Err(unknown()),
        };
        let end = match scheme {
            Scheme::Http => rest.find(['/', '?']),
            _ => rest.match_indices('/').nth(root_parts - 1).map(|(at, _)| at),
        };
        let (root, key) = rest.split_at(end.unwrap_or(rest.len()));
        if root.split('/').filter(|part| !part.is_empty()).count() < root_parts {
            return Err(refused(&format!("{what} is missing")));
        }
        let key = match scheme {
            Scheme::Hub => key.trim_matches('/'),
            _ => key.strip_prefix('/').unwrap_or(key),
        };
        let root = format!("{}://{root}", &open[..open.len() - rest.len() - 3]);
        if scheme != Scheme::Hub {
            url::Url::parse(&root).map_err(|error| refused(&error.to_string()))?;
        }
        Ok(Self { scheme, root, key: key.to_owned() })
    }

    /// Returns true if the store can list its objects.
    pub fn can_be_searched(&self) -> bool {
        self.scheme != Scheme::Http
    }

    /// Returns the object `key` of the same store.
    #[must_use]
    pub fn with_key(&self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self.clone() }
    }

    /// Returns the URL without secrets; [`Self::parse`] turns it into an equal location.
    pub fn url(&self) -> String {
        let Self { root, key, .. } = self;
        let is_query = self.scheme == Scheme::Http && key.starts_with('?');
        let slash = if key.is_empty() || is_query { "" } else { "/" };
        format!("{root}{slash}{key}")
    }
}

/// Where the files of a [`Location`] are read.
pub enum Dataset {
    /// A location; on a hub, with the revision's commit.
    Online(Location),
    /// The folder in the hub's cache, offline.
    Cached(PathBuf),
}

/// Decides on a key, or on a folder, which ends with a slash.
pub(crate) type KeyTest<'a> = &'a dyn Fn(&str) -> bool;

/// Identifies one content of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion {
    /// Size in bytes.
    pub bytes: u64,
    /// The store's name of the content, if any: its ETag or time of change; on a hub, the commit.
    pub tag: Option<String>,
}

/// A commit of a repository on a hub.
pub struct Snapshot {
    /// Hash of the commit.
    pub commit: String,
    /// Folder of the commit's files in the cache; their paths below it are as in the repository.
    pub folder: PathBuf,
    /// Paths of all files in the repository; `None` offline, when only the folder is known.
    pub files: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_is_a_store_and_a_key() -> Result<()> {
        for (url, root, key) in [
            ("s3://bucket/a/b c.parquet", "s3://bucket", "a/b c.parquet"),
            ("s3://bucket//a//q?.parquet", "s3://bucket", "/a//q?.parquet"),
            ("gs://bucket", "gs://bucket", ""),
            ("az://container/a/", "az://container", "a/"),
            ("https://host:80/a/b%20c.jsonl", "https://host:80", "a/b%20c.jsonl"),
            ("https://me:1@[::1]:80//a?version=2", "https://[::1]:80", "/a?version=2"),
            ("https://host/a.jsonl?sig=x/y", "https://host", "a.jsonl"),
            ("hf://datasets/o/n/a/?.parquet", "hf://datasets/o/n", "a/?.parquet"),
            ("hf://datasets/o/n@v1.0", "hf://datasets/o/n@v1.0", ""),
        ] {
            let found = Location::parse(url)?;
            assert_eq!((found.root.as_str(), found.key.as_str()), (root, key), "{url}");
        }
        Ok(())
    }

    #[test]
    fn what_is_no_place_in_a_store_is_refused_with_what_is() {
        for url in [
            "ftp://host/a",
            "hf://spaces/o/n/a",
            "hf://datasets/o",
            "s3:///a",
            "s3://",
            "https:///a",
        ] {
            assert!(Location::parse(url).is_err_and(|e| e.exit_code() == 2), "{url}");
        }
        let error = Location::parse("file:///a");
        assert!(error.is_err_and(|e| e.to_string().contains("s3://, gs://")));
    }

    #[test]
    fn a_password_is_not_told_where_it_cannot_be_taken() {
        for url in ["s3://me:hidden@bucket/a", "https://me:hid/den@host/a", "x://me:hidden@host"] {
            let message = Location::parse(url).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(!message.is_empty() && !message.contains("hid"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn a_key_is_itself_again_after_its_url(
            key in "([a-z]|[/?#%+*\\[\\]{}&;<>'\" =.:@~^|`]|%2F|//|\\.\\./|é|日|\u{1F600}){0,24}",
            root in prop_oneof!["s3://bucket", "gs://bucket", "az://container"],
        ) {
            let failed = |e: Error| TestCaseError::fail(e.to_string());
            let place = Location::parse(&root).map_err(failed)?.with_key(key.clone());
            let again = Location::parse(&place.url()).map_err(failed)?;
            prop_assert_eq!(&again.key, &key);
            prop_assert_eq!(again, place);
        }
    }
}
