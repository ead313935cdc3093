//! The stages of a run. A stage is a function over a [`Context`](polysift_corpus::Context) that may
//! be killed and called again. It freezes the settings that it depends on, then does the units of
//! work that have no marker and that no other process holds. A unit with bad data is reported and
//! skipped. No stage uses another; `run` checks their inputs and runs them in order.
//!
//! ```
//! use polysift_config::RunConfig;
//! use polysift_encoder::HubSettings;
//! use polysift_base::progress::{Silent, Stop};
//! use polysift_runs::run::{RunDir, Worker};
//! use polysift_corpus::{Context, plan};
//! use polysift_stages::{embed, run};
//! use polysift_views::status;
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
//! run::freeze(context, &shards)?;
//! embed::embed(context, &shards, None)?; // with the bundled encoder
//! assert_eq!(status::status(context)?.stages[0].done, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cascade;
pub mod deduplicate;
mod draw;
pub mod embed;
pub mod export;
pub mod filter;
mod filter_counts;
mod input_progress;
pub mod inputs;
pub mod refine;
pub mod run;
mod samples;
pub mod score;
pub mod threshold;
pub mod train;
