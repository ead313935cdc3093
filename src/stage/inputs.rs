//! The inputs of all stages, looked at before the first document is read: a head that is missing or
//! samples without a label would otherwise show only when the whole corpus is embedded.

use std::collections::BTreeSet;

use super::context::ALL_LANGUAGES;
use super::heads::{Loaded, for_each_head};
use super::plan::planned_languages;
use super::train::check_samples;
use crate::config::{HeadConfig, RunConfig};
use crate::encoder::{HubSettings, resolve};
use crate::error::Result;
use crate::input::{DocumentReader, LANG, languages_of};
use crate::progress::Stop;
use crate::run::{Plan, RunDir};
use crate::selection::plan_thresholds;

/// What the stages after the plan are going to read.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// Settings; relative patterns were made absolute.
    pub config: &'a RunConfig,
    /// The corpus.
    pub plan: &'a Plan,
    /// The run directory, if it is there: heads that were trained in it need no samples.
    pub run: Option<&'a RunDir>,
    /// How models are found.
    pub hub: &'a HubSettings,
    /// Asks for a stop.
    pub stop: &'a Stop,
}

impl Inputs<'_> {
    /// Checks that heads can be loaded and fit the encoder, that the others can be trained on their
    /// samples; says so if the store of the export does not answer.
    ///
    /// # Errors
    /// Those of the stage that would find it out.
    pub fn check(&self) -> Result<()> {
        let Self { config, run, stop, .. } = *self;
        for language in config.languages.keys() {
            let thresholds = config.thresholds(language);
            plan_thresholds(&thresholds, &[], &config.selection.order)?;
        }
        let languages = planned_languages(config, self.plan);
        self.check_loaded(languages.as_ref())?;
        check_samples(config, languages.as_ref(), run, stop)?;
        if let Some(to) = &config.export.to {
            super::export::warn_of_place(to);
        }
        Ok(())
    }

    /// Loads the heads that come from files, one after another.
    fn check_loaded(&self, languages: Option<&BTreeSet<String>>) -> Result<()> {
        let mut embeddings = None;
        for (name, head) in &self.config.heads {
            let Some(path) = &head.path else { continue };
            let serves = languages.map_or_else(|| languages_of_head(path), |l| Ok(l.clone()))?;
            let mut served = BTreeSet::new();
            for_each_head(None, name, head, &serves, &mut |language, loaded| {
                self.stop.check()?;
                served.insert(language.to_owned());
                if loaded.head.as_embedding().is_none() {
                    return Ok(());
                }
                if embeddings.is_none() {
                    embeddings = Some(self.embeddings()?);
                }
                embeddings.as_ref().map_or(Ok(()), |embeddings| embeddings.check(&loaded))
            })?;
            warn_of_others(name, head, &served, languages);
        }
        Ok(())
    }

    /// The embeddings that heads will score.
    fn embeddings(&self) -> Result<Embeddings> {
        if self.config.input.embeddings.is_some() {
            return Ok(Embeddings { digest: None, hidden_size: self.width_of_input() });
        }
        let files = resolve(&self.config.encoder, self.hub)?;
        Ok(Embeddings { hidden_size: Some(files.hidden_size()), digest: Some(files.digest) })
    }

    /// Width of the embeddings that the input brings, if its first rows have any; what is wrong with them
    /// the embed stage says, of each shard alone.
    fn width_of_input(&self) -> Option<usize> {
        let file = self.plan.shards.first()?.input().ok()?;
        let mut reader = DocumentReader::open(&file, &self.config.input).ok()?;
        let documents = reader.next_batch(FIRST_ROWS).ok()??;
        let width = |(num_chunks, values): (usize, &[f32])| values.len().checked_div(num_chunks);
        (0..documents.len()).find_map(|i| documents.embeddings(i).and_then(width))
    }
}

/// Rows of the input in which an embedding is looked for.
const FIRST_ROWS: usize = 16;

/// What is known of the embeddings of the corpus.
struct Embeddings {
    /// Digest of their encoder; `None` where the input brings them.
    digest: Option<String>,
    hidden_size: Option<usize>,
}

impl Embeddings {
    fn check(&self, head: &Loaded) -> Result<()> {
        self.hidden_size.map_or(Ok(()), |hidden_size| head.check_width(hidden_size))?;
        self.digest.as_deref().map_or(Ok(()), |digest| head.check_encoder(digest))
    }
}

/// Languages that the files `path` of a head are for; where one file serves all, none.
fn languages_of_head(path: &str) -> Result<BTreeSet<String>> {
    if path.contains(LANG) { languages_of(path) } else { Ok(BTreeSet::new()) }
}

/// Says which of `languages` are not among those that the files of a head serve.
fn warn_of_others(
    name: &str,
    head: &HeadConfig,
    served: &BTreeSet<String>,
    languages: Option<&BTreeSet<String>>,
) {
    let serves_all = head.path.as_ref().is_none_or(|path| !path.contains(LANG))
        || served.contains(ALL_LANGUAGES);
    for language in languages.into_iter().flatten() {
        if !serves_all && !served.contains(language) {
            tracing::warn!(head = %name, %language, "no head for this language; it is not scored");
        }
    }
}
