//! Gets files from a Hugging Face hub and its cache, which other tools share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

pub use hf_hub::RepoType;
use hf_hub::{Cache, Repo};
use serde::Deserialize;

use super::client::wait;
use super::download::{ask, cache_error, download, get_request, hub_client, read_body};
use super::explain::{is_final, message, status};
use super::key::encode;
use crate::location::Snapshot;
use polysift_base::error::{Error, Result};
use polysift_base::hub::HubSettings;

pub(super) const DEFAULT_REVISION: &str = "main";

/// A repository at a revision.
pub struct Repository<'a> {
    kind: RepoType,
    id: &'a str,
    revision: &'a str,
    settings: &'a HubSettings,
    cache: Cache,
    /// Whether the hub did not answer and the cache's snapshot is used instead.
    is_unreachable: AtomicBool,
    /// Whether a file was downloaded: the cache's snapshot is not complete before the last one.
    is_downloading: AtomicBool,
}

#[derive(Deserialize)]
struct RevisionInfo {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl<'a> Repository<'a> {
    /// Creates a handle for the repository `id` at `revision`, or at the default revision.
    pub fn new(
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
        let [is_unreachable, is_downloading] = [false; 2].map(AtomicBool::new);
        Ok(Self { kind, id, revision, settings, cache, is_unreachable, is_downloading })
    }

    /// Returns the path of `file` in the cache, and downloads it if needed. Returns `None` if the
    /// repository does not have it; offline, or if the hub is unreachable, if the cache does not.
    pub fn get(&self, file: &str) -> Result<Option<PathBuf>> {
        if file.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
            return Err(self.error(format!("`{file}` is no path of a file in it")));
        }
        if let Some(path) = self.find_cached(file) {
            return Ok(Some(path));
        }
        let is_absent = || self.absence_note(file).is_some_and(|note| note.exists());
        if self.is_without_hub() || is_absent() {
            return Ok(None);
        }
        tracing::info!(repo = self.id, revision = self.revision, file, "downloading");
        let url = self.url("", &format!("resolve/{{}}/{}", encode(file)));
        let folder = self.cache.path().join(self.cache_key().folder_name());
        let downloaded = wait(async {
            let client = hub_client(self.settings)?;
            Ok(download(&client, &url, &folder, file, self.revision).await)
        })?;
        // The cache also notes which commit the revision is.
        let noted = downloaded.and_then(|(path, commit)| {
            let noted = self.cache.repo(self.cache_key()).create_ref(&commit);
            noted.map(|()| path).map_err(cache_error(&folder))
        });
        match noted {
            Ok(path) => {
                self.is_downloading.store(true, Ordering::Relaxed);
                Ok(Some(path))
            }
            Err(error) if status(&error) == Some(404) => {
                if let Some(path) = self.absence_note(file) {
                    // If the note cannot be written, the hub is asked again next time.
                    let folder = path.parent().unwrap_or(&path);
                    let _ =
                        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, ""));
                }
                Ok(None)
            }
            Err(error)
                if status(&error).is_none()
                    && !is_final(&error)
                    && self.find_cached("").is_some()
                    && !self.is_downloading.load(Ordering::Relaxed) =>
            {
                let reason = message(&error);
                tracing::warn!(
                    repo = self.id,
                    file,
                    reason,
                    "the hub cannot be reached; the cache is taken as it is"
                );
                self.is_unreachable.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Returns the path of huggingface_hub's note that `file` is absent from the snapshot.
    fn absence_note(&self, file: &str) -> Option<PathBuf> {
        // The files of a data set are on a list: one that is not there now may be there later.
        if matches!(self.kind, RepoType::Dataset) {
            return None;
        }
        let snapshot = self.find_cached("")?;
        let repo = snapshot.parent()?.parent()?;
        Some(repo.join(".no_exist").join(snapshot.file_name()?).join(file))
    }

    /// Returns the error for a required `file` that [`Repository::get`] did not find.
    pub fn missing_error(&self, file: &str) -> Error {
        self.error(if self.is_without_hub() {
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

    /// Returns the current commit of the revision; offline, the cached one.
    pub fn snapshot(&self) -> Result<Snapshot> {
        if self.settings.offline {
            // The path of a snapshot's folder is that of an empty file name.
            let folder =
                self.find_cached("").ok_or_else(|| self.error(self.not_cached("the snapshot")))?;
            let commit = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Ok(Snapshot { commit, folder, files: None });
        }
        let url = self.url("api/", "revision/{}");
        let answer = wait(async {
            let answer = ask(&hub_client(self.settings)?, get_request(&url, None), read_body).await;
            answer.map_err(|error| self.explain(&error))
        })?;
        let info: RevisionInfo = serde_json::from_slice(&answer)
            .map_err(|e| self.error(format!("the hub does not describe the revision: {e}")))?;
        if info.sha.is_empty() || !info.sha.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(self.error(format!("the hub says {:?} for a commit", info.sha)));
        }
        let folder = self.cache.repo(self.cache_key()).pointer_path(&info.sha);
        let files = info.siblings.into_iter().map(|file| file.rfilename).collect();
        Ok(Snapshot { commit: info.sha, folder, files: Some(files) })
    }

    /// Notes in the cache that the revision is `commit`, for [`Repository::snapshot`] offline.
    pub fn note_commit(&self, commit: &str) -> Result<()> {
        let noted = self.cache.repo(self.cache_key()).create_ref(commit);
        noted.map_err(Error::io(&self.settings.cache, "write"))
    }

    fn is_without_hub(&self) -> bool {
        self.settings.offline || self.is_unreachable.load(Ordering::Relaxed)
    }

    /// Says that `what` is not in the cache, and how it gets there.
    fn not_cached(&self, what: &str) -> String {
        let (noun, download) = self.noun_and_download();
        format!(
            "{what} of revision `{}` is not in the cache {}, and without a network (--offline, \
             HF_HUB_OFFLINE) it has to be; download the {noun} where there is a network \
             (`{download}`) and copy the cache, or give a directory",
            self.revision,
            self.settings.cache.display(),
        )
    }

    /// Returns the repository's URL below `api`, with the path `rest`, where `{}` is the revision.
    fn url(&self, api: &str, rest: &str) -> String {
        let kind = match self.kind {
            RepoType::Dataset => "datasets/",
            _ if api.is_empty() => "",
            _ => "models/",
        };
        let rest = rest.replacen("{}", &self.revision.replace('/', "%2F"), 1);
        format!("{}/{api}{kind}{}/{rest}", self.settings.endpoint, self.id)
    }

    /// Returns what messages call the repository, and the command that downloads it.
    fn noun_and_download(&self) -> (&'static str, String) {
        let (noun, option) = match self.kind {
            RepoType::Dataset => ("dataset", "--repo-type dataset "),
            _ => ("model", ""),
        };
        (noun, format!("hf download {option}{}", self.id))
    }

    /// Finds `file` in the snapshot of the revision; the empty name finds the folder. A pinned
    /// commit needs no ref file, because other tools do not write one.
    fn find_cached(&self, file: &str) -> Option<PathBuf> {
        let repo = self.cache.repo(self.cache_key());
        let pinned = repo.pointer_path(self.revision).join(file);
        repo.get(file).or_else(|| pinned.exists().then_some(pinned))
    }

    /// Returns the name under which the cache has the repository at the revision.
    fn cache_key(&self) -> Repo {
        Repo::with_revision(self.id.into(), self.kind, self.revision.into())
    }

    /// Translates an `error` of the hub or the cache, with advice; a 404 is [`Error::Missing`].
    fn explain(&self, error: &object_store::Error) -> Error {
        let (noun, download) = self.noun_and_download();
        self.error(match status(error) {
            Some(404) => {
                let reason =
                    format!("the hub has no such {noun}, or not the revision `{}`", self.revision);
                return Error::Missing { path: self.id.into(), reason };
            }
            Some(401) => format!(
                "the hub wants to know who asks (401): the id does not exist, or the {noun} is \
                 private and HF_TOKEN is not set to a token that may read it"
            ),
            Some(403) => format!(
                "the hub refuses (403): accept the {noun}'s terms on its page with the account \
                 that HF_TOKEN belongs to"
            ),
            Some(code) => format!("the hub {} answers {code}", self.settings.endpoint),
            None if is_final(error) => format!("cannot be kept in the cache: {}", message(error)),
            None => format!(
                "cannot be downloaded from {}: {}; without a network, give a directory, or \
                 fill the cache {} elsewhere (`{download}`) and set HF_HUB_OFFLINE=1",
                self.settings.endpoint,
                message(error),
                self.settings.cache.display(),
            ),
        })
    }

    fn error(&self, reason: String) -> Error {
        Error::Service { name: self.id.into(), reason }
    }
}
