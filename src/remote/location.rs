//! URLs of objects: which store, and which key in it.

use object_store::path::Path as Key;

use crate::error::{Error, Result};

const SCHEMES: &str = "s3://, gs://, az://, http://, https:// and hf://datasets/";

/// Repositories of a hub have this before their names.
const DATASETS: &str = "datasets/";

/// Whether `text` names something in a store, rather than a file.
pub fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
}

/// Kinds of stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    /// Amazon S3 and what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// A web server.
    Http,
    /// Data sets of a Hugging Face hub.
    Hub,
}

/// A place in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) scheme: Scheme,
    /// The store: scheme and bucket, container, server or repository at a revision.
    pub(crate) root: String,
    /// The rest, as in the URL and without a slash at either end.
    pub(crate) key: String,
}

impl Location {
    /// Parses `url`.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown scheme, and where the bucket or the repository is missing.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let unknown = || Error::config(url, format!("unknown kind of URL; known are {SCHEMES}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(unknown)?;
        let scheme = match scheme {
            "s3" => Scheme::S3,
            "gs" => Scheme::Gcs,
            "az" => Scheme::Azure,
            "http" | "https" => Scheme::Http,
            "hf" if rest.starts_with(DATASETS) => Scheme::Hub,
            _ => return Err(unknown()),
        };
        let root_parts = if scheme == Scheme::Hub { 3 } else { 1 };
        let (mut root, mut key) = split(rest, root_parts);
        if scheme == Scheme::Http && rest.contains('?') {
            // What follows the question mark, a signature for one, belongs to this one object.
            (root, key) = (rest, "");
        }
        if root.split('/').filter(|part| !part.is_empty()).count() < root_parts
            && scheme != Scheme::Http
        {
            let what = if scheme == Scheme::Hub { "OWNER/NAME" } else { "the bucket" };
            return Err(Error::config(url, format!("{what} is missing")));
        }
        let root = format!("{}://{root}", &url[..url.len() - rest.len() - 3]);
        Ok(Self { scheme, root, key: key.trim_matches('/').to_owned() })
    }

    /// Whether it is a data set of a hub.
    pub(crate) fn is_on_hub(&self) -> bool {
        self.scheme == Scheme::Hub
    }

    /// Whether the store can say which objects it has.
    pub(crate) fn can_be_searched(&self) -> bool {
        self.scheme != Scheme::Http
    }

    /// The URL of the object `key` in the same store.
    pub(crate) fn url_of(&self, key: &str) -> String {
        format!("{}/{key}", self.root)
    }

    /// The URL.
    pub(crate) fn url(&self) -> String {
        if self.key.is_empty() { self.root.clone() } else { self.url_of(&self.key) }
    }

    /// The key as stores are asked for it.
    ///
    /// # Errors
    /// [`Error::Config`] where parts are empty or `..`, or not UTF-8 once decoded.
    pub(crate) fn object_key(&self) -> Result<Key> {
        let parsed = match self.scheme {
            Scheme::Http => Key::from_url_path(&self.key),
            _ => Key::parse(&self.key),
        };
        parsed.map_err(|error| Error::config(self.url(), error.to_string()))
    }
}

/// The first `parts` components of `rest`, and the others.
fn split(rest: &str, parts: usize) -> (&str, &str) {
    let end = rest.match_indices('/').nth(parts - 1).map_or(rest.len(), |(at, _)| at);
    (&rest[..end], &rest[end..])
}

/// The last component of a URL, without a query.
pub(crate) fn file_name(url: &str) -> &str {
    let path = url.split_once('?').map_or(url, |(path, _)| path);
    path.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_store_and_a_key() -> Result<()> {
        for (url, root, key) in [
            ("s3://bucket/a/b c.parquet", "s3://bucket", "a/b c.parquet"),
            ("gs://bucket", "gs://bucket", ""),
            ("az://container/a/", "az://container", "a"),
            ("https://host:80/a/b%20c.jsonl", "https://host:80", "a/b%20c.jsonl"),
            ("https://host/a.jsonl?sig=x/y", "https://host/a.jsonl?sig=x/y", ""),
            ("hf://datasets/o/n/a/*.parquet", "hf://datasets/o/n", "a/*.parquet"),
            ("hf://datasets/o/n@v1.0", "hf://datasets/o/n@v1.0", ""),
        ] {
            let found = Location::parse(url)?;
            assert_eq!((found.root.as_str(), found.key.as_str()), (root, key), "{url}");
        }
        Ok(())
    }

    #[test]
    fn what_is_no_place_in_a_store_is_refused_with_what_is() {
        for url in ["ftp://host/a", "hf://spaces/o/n/a", "hf://datasets/o", "s3:///a", "s3://"] {
            assert!(Location::parse(url).is_err_and(|e| e.exit_code() == 2), "{url}");
        }
        let error = Location::parse("file:///a");
        assert!(error.is_err_and(|e| e.to_string().contains("s3://, gs://")));
    }

    #[test]
    fn paths_are_no_urls() {
        for path in ["/a/b.parquet", "a:b", "C:/x", "./s3:/b", "://x", "a b://c"] {
            assert!(!is_url(path), "{path}");
        }
        assert!(is_url("s3://b/k") && is_url("hf://datasets/o/n") && is_url("ftp://x"));
    }

    #[test]
    fn a_query_is_no_part_of_the_file_name() {
        assert_eq!(file_name("https://h/a/b.jsonl.gz?x=c/d.txt"), "b.jsonl.gz");
        assert_eq!(file_name("s3://b/a.parquet"), "a.parquet");
    }
}
