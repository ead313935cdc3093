//! State shared by the threads of the embed stage.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use crate::input_progress::InputProgress;
use polysift_base::progress::Busy;
use polysift_corpus::work::Failures;
use polysift_corpus::{Cascade, Context};
use polysift_encoder::Model;
use polysift_heads::fasttext::LanguageIdentifier;
use polysift_runs::run::{Claims, Shard};

/// The shards that this process claims, and its progress.
pub(super) struct Pipeline<'a> {
    pub(super) context: Context<'a>,
    pub(super) shards: &'a [Shard],
    pub(super) claims: &'a Claims<'a>,
    /// `None` if no text is embedded.
    pub(super) model: Option<&'a Model>,
    /// Identifies the language of every text, if the settings name a classifier.
    pub(super) languages: Option<LanguageIdentifier>,
    pub(super) failures: Mutex<Failures<'a>>,
    /// Whether a stream has failed; the others then end too.
    pub(super) is_broken: AtomicBool,
    pub(super) counts_tokens: bool,
    pub(super) cascade: &'a Cascade,
    pub(super) input: InputProgress,
    pub(super) reading: Busy,
    pub(super) tokenizing: Busy,
    pub(super) encoding: Busy,
    pub(super) writing: Busy,
}
