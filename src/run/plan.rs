//! The plan: which input files there are, frozen before the first document is read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::RunDir;
use crate::error::{Error, Result};
use crate::input::InputFile;

/// One input file and the unit of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Unique name, a relative path without extension; outputs carry it.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// Language code from the path, if the pattern had `{lang}`.
    pub language: Option<String>,
    /// Size of the file.
    pub bytes: u64,
    /// Cheap identity of its content (size, first and last 64 KiB).
    pub fingerprint: String,
}

/// All shards of a run, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Plan {
    /// The shards.
    pub shards: Vec<Shard>,
}

impl Plan {
    /// The plan of `files`.
    pub fn new(files: Vec<InputFile>) -> Self {
        let shard = |file: InputFile| Shard {
            name: file.name,
            file: file.path,
            language: file.language,
            bytes: file.bytes,
            fingerprint: file.fingerprint,
        };
        Self { shards: files.into_iter().map(shard).collect() }
    }

    /// What is frozen of the plan: names, languages and fingerprints; not the place of the files.
    pub fn settings(&self) -> Value {
        let shards = self.shards.iter().map(|s| {
            (s.name.clone(), json!({"language": s.language, "fingerprint": s.fingerprint}))
        });
        Value::Object(shards.collect())
    }

    /// Size of all files.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.bytes).sum()
    }
}

impl Shard {
    /// The input file as the readers want it; [`Error::Verify`] if it is no longer the planned one.
    pub fn input(&self) -> Result<InputFile> {
        if !self.file.exists() {
            let path = self.file.display().to_string();
            return Err(Error::Missing { path, reason: "the input file is gone".into() });
        }
        let file = InputFile::at(&self.file, self.name.clone(), self.language.clone())?;
        if file.fingerprint == self.fingerprint {
            Ok(file)
        } else {
            Err(Error::verify(&self.file, "the file changed since the run was planned"))
        }
    }
}

impl RunDir {
    /// The plan as written; [`Error::Missing`] before the embed stage.
    pub fn plan(&self) -> Result<Plan> {
        self.read_json(&self.path("plan.json"))?.ok_or_else(|| Error::Missing {
            path: self.root().display().to_string(),
            reason: "the run directory holds no plan; run `polysift embed` first".into(),
        })
    }

    /// Writes the plan, where it is not written yet; that it is the same was checked when it was frozen.
    pub fn write_plan(&self, plan: &Plan) -> Result<()> {
        if self.path("plan.json").is_file() {
            return Ok(());
        }
        self.write_json(&self.path("plan.json"), plan).map(drop)
    }
}
