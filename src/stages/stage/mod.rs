//! The stages of a run. A stage is a function over a [`Context`] that may be killed and called
//! again. It freezes the settings that it depends on, then does the units of work that have no
//! marker and that no other process holds. A unit with bad data is reported and skipped.
//!
//! Stages (`train`, `cascade`, `embed`, `score`, `filter`, `refine`, `threshold`, `export`) and
//! commands (`plan`, `status`, `estimate`, `inspect`, `sampling`, `report`, `verify`) share
//! `context`, `model`, `embedded`, `cascaded` (the result of a cascade), `samples` (embedded),
//! `heads`, `corpus` (its scores), `verdicts` (of filters), `work` (units of work) and `texts` (of
//! the input). No stage uses another.
//!
//! ```
//! use polysift_config::RunConfig;
//! use polysift_encoder::HubSettings;
//! use polysift_base::progress::{Silent, Stop};
//! use polysift_runs::run::{RunDir, Worker};
//! use polysift_stages::stage::{Context, embed, plan, status};
//!
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("a.jsonl");
//! std::fs::write(&file, r#"{"id": "1", "text": "Ein Text."}"#)?;
//! let settings = format!("input = {{ language = 'deu_Latn', files = ['{}'] }}", file.display());
//! let config = RunConfig::from_toml(&settings, "run.toml")?;
//!
//! let (run, stop) = (RunDir::create(&folder.path().join("run"))?, Stop::default());
//! let (hub, worker) = (HubSettings::from_env(|_| None), Worker::join(&run, &stop)?);
//! let context = Context::observing(&config, &run, &hub, &stop, &Silent, &worker);
//! let shards = plan::plan(&config)?;
//! plan::freeze(context, &shards)?;
//! embed::embed(context, &shards)?; // with the bundled encoder
//! assert_eq!(status::status(context)?.stages[0].done, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod audit;
pub mod cascade;
pub(crate) mod cascaded;
pub(crate) mod context;
pub(crate) mod corpus;
pub mod embed;
pub(crate) mod embedded;
pub mod estimate;
pub mod export;
pub mod filter;
pub(crate) mod heads;
mod input_progress;
pub mod inputs;
pub mod inspect;
pub(crate) mod model;
pub mod plan;
pub mod refine;
pub mod report;
pub(crate) mod rows;
mod samples;
pub mod sampling;
pub mod score;
pub mod status;
mod texts;
pub mod threshold;
pub mod train;
pub(crate) mod verdicts;
pub mod verify;
mod work;

pub use cascaded::{Candidate, LanguageCascade, languages as cascaded_languages};
pub use context::{ALL_LANGUAGES, Context};
pub use heads::{Heads, check_files};
