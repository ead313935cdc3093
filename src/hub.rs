//! Files from the Hugging Face hub and its cache, which other tools share.
//!
//! ```
//! use polysift::hub::HubSettings;
//!
//! let settings = HubSettings::from_env(|name| (name == "HF_HOME").then(|| "/data/hf".to_owned()));
//! assert_eq!(settings.cache, std::path::Path::new("/data/hf/hub"));
//! assert!(!settings.offline);
//! ```

use std::path::PathBuf;

pub(crate) use hf_hub::RepoType;
use hf_hub::api::sync::{ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo};

use crate::error::{Error, Result};

/// [`HubSettings::endpoint`].
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
const DEFAULT_REVISION: &str = "main";
/// How often an interrupted download goes on before it fails.
const RETRIES: usize = 3;

/// Where the hub is, and where its files are kept.
#[derive(Clone, PartialEq, Eq)]
pub struct HubSettings {
    /// Cache directory, the one with `models--*` and `datasets--*` in it.
    pub cache: PathBuf,
    /// Access token.
    pub token: Option<String>,
    /// Address of the hub, without a slash at its end.
    pub endpoint: String,
    /// Take files from the cache only.
    pub offline: bool,
}

impl std::fmt::Debug for HubSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "(hidden)");
        f.debug_struct("HubSettings")
            .field("cache", &self.cache)
            .field("token", &token)
            .field("endpoint", &self.endpoint)
            .field("offline", &self.offline)
            .finish()
    }
}

impl HubSettings {
    /// Settings from environment variables as huggingface_hub reads them: `HF_HUB_CACHE`, else
    /// `hub` in `HF_HOME`, else in `huggingface` in `XDG_CACHE_HOME`, else in `~/.cache`;
    /// `HF_TOKEN`, else the file `token` in `HF_HOME`; `HF_ENDPOINT`; `HF_HUB_OFFLINE`.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let home = get("HF_HOME").map_or_else(
            || {
                let cache = get("XDG_CACHE_HOME").map_or_else(
                    || PathBuf::from(get("HOME").unwrap_or_default()).join(".cache"),
                    PathBuf::from,
                );
                cache.join("huggingface")
            },
            PathBuf::from,
        );
        let token_file = || fs_err::read_to_string(home.join("token")).ok();
        let token = get("HF_TOKEN").or_else(token_file).map(|t| t.trim().to_owned());
        let endpoint = get("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.into());
        let on = ["1", "ON", "YES", "TRUE"];
        Self {
            cache: get("HF_HUB_CACHE").map_or_else(|| home.join("hub"), PathBuf::from),
            token: token.filter(|t| !t.is_empty()),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            offline: get("HF_HUB_OFFLINE").is_some_and(|v| on.contains(&v.to_uppercase().as_str())),
        }
    }
}

/// One repository at one revision.
pub(crate) struct Repository<'a> {
    kind: RepoType,
    id: &'a str,
    revision: &'a str,
    settings: &'a HubSettings,
    cache: Cache,
    /// Absent when offline.
    api: Option<ApiRepo>,
}

/// One commit of a repository.
pub(crate) struct Snapshot {
    /// Its hash.
    pub(crate) commit: String,
    /// Where the cache has its files, with the same paths below.
    pub(crate) folder: PathBuf,
    /// Paths of all files of the repository; `None` offline, when only the folder tells.
    pub(crate) files: Option<Vec<String>>,
}

impl<'a> Repository<'a> {
    pub(crate) fn new(
        kind: RepoType,
        id: &'a str,
        revision: Option<&'a str>,
        settings: &'a HubSettings,
    ) -> Result<Self> {
        let revision = revision.unwrap_or(DEFAULT_REVISION);
        if revision.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
            let reason = format!("`{revision}` is no commit, tag or branch");
            return Err(Error::config("encoder.revision", reason));
        }
        let cache = Cache::new(settings.cache.clone());
        let mut this = Self { kind, id, revision, settings, cache, api: None };
        if !settings.offline {
            let api = ApiBuilder::from_cache(this.cache.clone())
                .with_endpoint(settings.endpoint.clone())
                .with_token(settings.token.clone())
                .with_retries(RETRIES)
                .with_progress(false)
                .build()
                .map_err(|e| this.error(e.to_string()))?;
            this.api = Some(api.repo(this.repo()));
        }
        Ok(this)
    }

    /// Path of `file` in the cache, downloaded if it is not there; `None` if the repository does
    /// not have it (or, offline, the cache).
    pub(crate) fn get(&self, file: &str) -> Result<Option<PathBuf>> {
        if let Some(path) = self.cached(file) {
            return Ok(Some(path));
        }
        let Some(api) = &self.api else {
            return Ok(None);
        };
        tracing::info!(repo = self.id, revision = self.revision, file, "downloading");
        match api.download(file) {
            Ok(path) => Ok(Some(path)),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// The error for a required `file` that [`Repository::get`] did not find.
    pub(crate) fn missing(&self, file: &str) -> Error {
        self.error(if self.settings.offline {
            self.not_cached(&format!("`{file}`"))
        } else {
            let published = match self.kind {
                RepoType::Model => {
                    ", and that the model is published as safetensors with a tokenizer.json"
                }
                _ => "",
            };
            format!(
                "has no `{file}` at revision `{}` (404); check the id and the revision{published}",
                self.revision
            )
        })
    }

    /// The commit that the revision stands for now; offline, when the cache was filled.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        let Some(api) = &self.api else {
            // The empty path below a snapshot is its folder.
            let folder =
                self.cached("").ok_or_else(|| self.error(self.not_cached("the snapshot")))?;
            let commit = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Ok(Snapshot { commit, folder, files: None });
        };
        let info = api.info().map_err(|error| self.explain(&error))?;
        if info.sha.is_empty() || !info.sha.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(self.error(format!("the hub says {:?} for a commit", info.sha)));
        }
        let folder = self.cache.repo(self.repo()).pointer_path(&info.sha);
        let files = info.siblings.into_iter().map(|file| file.rfilename).collect();
        Ok(Snapshot { commit: info.sha, folder, files: Some(files) })
    }

    /// Notes in the cache that the revision stands for `commit`, for [`Repository::snapshot`] offline.
    pub(crate) fn note(&self, commit: &str) -> Result<()> {
        let noted = self.cache.repo(self.repo()).create_ref(commit);
        noted.map_err(Error::io(&self.settings.cache, "write"))
    }

    fn not_cached(&self, what: &str) -> String {
        format!(
            "{what} of revision `{}` is not in the cache {}, and without a network (--offline, \
             HF_HUB_OFFLINE) it has to be; download the {} where there is a network (`{}`) and copy the \
             cache, or give a directory",
            self.revision,
            self.settings.cache.display(),
            self.noun(),
            self.download_command()
        )
    }

    fn noun(&self) -> &'static str {
        match self.kind {
            RepoType::Dataset => "dataset",
            _ => "model",
        }
    }

    fn download_command(&self) -> String {
        match self.kind {
            RepoType::Dataset => format!("hf download --repo-type dataset {}", self.id),
            _ => format!("hf download {}", self.id),
        }
    }

    /// A pinned commit needs no ref file: other tools do not write one.
    fn cached(&self, file: &str) -> Option<PathBuf> {
        let repo = self.cache.repo(self.repo());
        let pinned = repo.pointer_path(self.revision).join(file);
        repo.get(file).or_else(|| pinned.exists().then_some(pinned))
    }

    fn repo(&self) -> Repo {
        Repo::with_revision(self.id.into(), self.kind, self.revision.into())
    }

    fn explain(&self, error: &ApiError) -> Error {
        let noun = self.noun();
        self.error(match status(error) {
            Some(401) => format!(
                "the hub wants to know who asks (401): the id does not exist, or the {noun} is \
                 private and HF_TOKEN is not set to a token that may read it"
            ),
            Some(403) => format!(
                "the hub refuses (403): accept the {noun}'s terms on its page with the account \
                 that HF_TOKEN belongs to"
            ),
            Some(code) => format!("the hub {} answers {code}", self.settings.endpoint),
            None => format!(
                "cannot be downloaded from {}: {error}; without a network, give a directory, or \
                 fill the cache {} elsewhere (`{}`) and set HF_HUB_OFFLINE=1",
                self.settings.endpoint,
                self.settings.cache.display(),
                self.download_command()
            ),
        })
    }

    fn error(&self, reason: String) -> Error {
        Error::Hub { repo: self.id.into(), reason }
    }
}

/// The status that the hub answered with, if it answered.
fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(code) => Some(code),
            _ => None,
        },
        ApiError::TooManyRetries(error) => status(error),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> HubSettings {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name);
        HubSettings::from_env(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_cache_is_looked_for_where_huggingface_hub_looks() {
        for (variables, cache) in [
            (&[("HOME", "/h")][..], "/h/.cache/huggingface/hub"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/hf")], "/hf/hub"),
            (&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")], "/c"),
            (&[("HF_HOME", " "), ("HOME", "/h")], "/h/.cache/huggingface/hub"),
        ] {
            assert_eq!(settings(variables).cache, PathBuf::from(cache));
        }
    }

    #[test]
    fn the_token_variable_wins_over_the_token_file() -> std::io::Result<()> {
        let home = tempfile::tempdir()?;
        std::fs::write(home.path().join("token"), "from_file\n")?;
        let home = home.path().to_str().unwrap_or_default();
        assert_eq!(settings(&[("HF_HOME", home)]).token.as_deref(), Some("from_file"));
        let both = settings(&[("HF_HOME", home), ("HF_TOKEN", "from_env")]);
        assert_eq!(both.token.as_deref(), Some("from_env"));
        Ok(())
    }

    #[test]
    fn endpoint_and_offline_have_their_usual_spellings() {
        let default = settings(&[]);
        assert_eq!((default.endpoint.as_str(), default.offline), (DEFAULT_ENDPOINT, false));
        let set = settings(&[("HF_ENDPOINT", "http://a:1/"), ("HF_HUB_OFFLINE", "true")]);
        assert_eq!((set.endpoint.as_str(), set.offline), ("http://a:1", true));
        assert!(!settings(&[("HF_HUB_OFFLINE", "0")]).offline);
    }

    #[test]
    fn a_token_is_not_printed() {
        let printed = format!("{:?}", settings(&[("HF_TOKEN", "secret")]));
        assert!(!printed.contains("secret") && printed.contains("hidden"));
    }
}
