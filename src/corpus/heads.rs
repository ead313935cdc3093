//! The heads of a run: loading, checking, scoring, and their frozen settings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::{Value, json};

use crate::frozen::trained_keys;
use crate::languages::ALL_LANGUAGES;
use crate::{Context, Embedded};
use polysift_base::error::{Error, Result};
use polysift_config::{HeadConfig, Keep, RunConfig};
use polysift_data::input::LANG;
use polysift_encoder::{EmbeddedTexts, Recipe};
use polysift_fasttext::TextScratch;
use polysift_heads::head::{AnyHead, DocumentScore, RowHead, ScoreScratch};
use polysift_runs::run::{RunDir, Stage};

/// The heads of a run: by head name, then by language (or [`ALL_LANGUAGES`]).
pub struct Heads {
    languages: BTreeSet<String>,
    by_name: BTreeMap<String, ByLanguage>,
}

type ByLanguage = BTreeMap<String, Loaded>;

/// A head and its file; a head of rows has none.
pub struct Loaded {
    /// File of the head; empty for a head of rows.
    pub path: PathBuf,
    /// The head.
    pub head: AnyHead,
}

impl Loaded {
    /// Returns [`Error::Model`] if the head is for embeddings of another encoder or recipe.
    pub fn check_recipe(&self, recipe: &Recipe) -> Result<()> {
        let Some(head) = self.head.as_embedding() else { return Ok(()) };
        let Some(provenance) = &head.card.provenance else { return Ok(()) };
        let (trained, digest) = (&provenance.encoder_digest, &recipe.model_digest);
        if !trained.is_empty() && trained != digest {
            let reason = format!(
                "was trained on embeddings of the encoder {trained}, these are of {digest}"
            );
            return Err(Error::model(&self.path, reason));
        }
        let difference = provenance.recipe.as_ref().and_then(|wanted| wanted.difference(recipe));
        difference.map_or(Ok(()), |reason| Err(Error::model(&self.path, reason)))
    }
}

impl Heads {
    /// Loads the heads of the run of `context` for its languages.
    pub fn load(context: Context<'_>, embedded: &Embedded) -> Result<Self> {
        let (config, languages) = (context.config, embedded.languages());
        if languages.is_empty() {
            return Ok(Self { languages, by_name: BTreeMap::new() });
        }
        Self::find(&config.heads, Some(context.run), languages, config.seed)
    }

    /// Loads the `heads` that serve one of `languages`, those without a path from `run`; a fallback
    /// serves languages without a file. `seed` is for random scores.
    pub fn find(
        heads: &BTreeMap<String, HeadConfig>,
        run: Option<&RunDir>,
        languages: BTreeSet<String>,
        seed: u64,
    ) -> Result<Self> {
        let mut by_name = BTreeMap::new();
        for (name, config) in heads {
            if let (Some(run), None) = (run, &config.path) {
                check_trained(run, name, &languages)?;
            }
            if config.kind.is_of_rows() {
                let head = AnyHead::Row(Box::new(RowHead::new(name, config, seed)));
                let loaded = Loaded { path: PathBuf::new(), head };
                by_name.insert(name.clone(), [(ALL_LANGUAGES.to_owned(), loaded)].into());
                continue;
            }
            let load = |name: &str, config: &HeadConfig, languages: &BTreeSet<String>| {
                let mut found = ByLanguage::new();
                let mut insert = |language: &str, loaded: Loaded| {
                    found.insert(language.to_owned(), loaded);
                    Ok(())
                };
                for_each_head(run, name, config, languages, &mut insert).map(|()| found)
            };
            let fallback = config.fallback.as_ref().and_then(|name| heads.get_key_value(name));
            let mut found = match load(name, config, &languages) {
                Err(Error::Missing { .. }) if fallback.is_some() => ByLanguage::new(),
                found => found?,
            };
            let is_unserved = |language: &&String| !found.contains_key(*language);
            let unserved: BTreeSet<String> =
                languages.iter().filter(is_unserved).cloned().collect();
            if let Some((name, config)) = fallback
                && !unserved.is_empty()
                && !found.contains_key(ALL_LANGUAGES)
            {
                match load(name, config, &unserved) {
                    // These languages have no score.
                    Err(Error::Missing { .. }) if !found.is_empty() => {}
                    served => found.extend(served?),
                }
            }
            let mut of_texts = found.values().map(|loaded| loaded.head.spec().kind.is_of_texts());
            if of_texts.next().is_some_and(|first| of_texts.any(|other| other != first)) {
                let reason = "names a head of texts for one of embeddings, or the other way round";
                return Err(Error::config(format!("heads.{name}.fallback"), reason));
            }
            by_name.insert(name.clone(), found);
        }
        Ok(Self { languages, by_name })
    }

    /// Returns the languages of the run.
    pub fn languages(&self) -> &BTreeSet<String> {
        &self.languages
    }

    /// Returns the head `name` for `language`, or else the one for all languages.
    pub fn get(&self, name: &str, language: &str) -> Option<&AnyHead> {
        self.loaded(name, language).map(|loaded| &loaded.head)
    }

    /// Returns all heads of all languages.
    pub fn all(&self) -> impl Iterator<Item = &AnyHead> {
        self.by_name.values().flat_map(ByLanguage::values).map(|loaded| &loaded.head)
    }

    /// Checks every head with [`Loaded::check_recipe`].
    pub fn check_recipe(&self, recipe: &Recipe) -> Result<()> {
        let mut all = self.by_name.values().flat_map(ByLanguage::values);
        all.try_for_each(|loaded| loaded.check_recipe(recipe))
    }

    /// Returns true if the heads `name` score texts.
    pub fn is_text(&self, name: &str) -> bool {
        self.named(name).any(|head| head.spec().kind.is_of_texts())
    }

    /// Returns the head `name` if it scores rows; it then serves all languages.
    pub fn of_rows(&self, name: &str) -> Option<&RowHead> {
        self.named(name).find_map(|head| match head {
            AnyHead::Row(head) => Some(&**head),
            _ => None,
        })
    }

    /// Returns true if the scores of the heads `name` depend on the encoder.
    pub fn is_encoded(&self, name: &str) -> bool {
        self.named(name).any(|head| head.as_embedding().is_some())
    }

    /// Returns the heads that are called `name`, of all languages.
    fn named(&self, name: &str) -> impl Iterator<Item = &AnyHead> {
        let heads = self.by_name.get(name).into_iter().flat_map(ByLanguage::values);
        heads.map(|loaded| &loaded.head)
    }

    /// Returns the head of [`Heads::get`] with its file.
    pub fn loaded(&self, name: &str, language: &str) -> Option<&Loaded> {
        let heads = self.by_name.get(name)?;
        heads.get(language).or_else(|| heads.get(ALL_LANGUAGES))
    }

    /// Scores documents with the heads `name` of their `languages`, on the calling thread; document
    /// `i` has the chunks `offsets[i]..offsets[i + 1]` of `values`, with `width` values each. A
    /// document without a head of embeddings has no score.
    pub fn score_chunks(
        &self,
        name: &str,
        languages: &[&str],
        width: usize,
        (values, offsets): (&[f32], &[usize]),
        scratch: &mut ScoreScratch,
    ) -> Result<Vec<Option<DocumentScore>>> {
        let mut by_language: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (document, language) in languages.iter().enumerate() {
            by_language.entry(language).or_default().push(document);
        }
        let mut scores = vec![None; languages.len()];
        for (language, documents) in by_language {
            let Some(Loaded { path, head }) = self.loaded(name, language) else { continue };
            let Some(head) = head.as_embedding() else { continue };
            if width > 0 {
                head.check_hidden_size(path, width)?;
            }
            let scored = head.score_with(values, offsets, &documents, scratch)?;
            for (document, score) in documents.into_iter().zip(scored) {
                scores[document] = score;
            }
        }
        Ok(scores)
    }

    /// Scores texts with the heads `name` of their `languages`, in parallel. A document without a
    /// text or without a head of texts has no score.
    pub fn score_texts<T: AsRef<str> + Sync>(
        &self,
        name: &str,
        languages: &[&str],
        texts: &[Option<T>],
    ) -> Vec<Option<DocumentScore>> {
        let documents = languages.par_iter().zip(texts);
        let scored = documents.map_init(TextScratch::default, |scratch, (language, text)| {
            let AnyHead::FastText(head) = self.get(name, language)? else { return None };
            Some(head.score_one(text.as_ref()?.as_ref(), scratch))
        });
        scored.collect()
    }

    /// Scores `texts` and their embeddings with the heads `name`, not of rows, by `languages`.
    pub fn score_embedded<T: AsRef<str> + Sync>(
        &self,
        name: &str,
        languages: &[&str],
        texts: &[Option<T>],
        EmbeddedTexts { values, width, chunk_offsets }: &EmbeddedTexts,
    ) -> Result<Vec<Option<DocumentScore>>> {
        if self.is_text(name) {
            return Ok(self.score_texts(name, languages, texts));
        }
        let chunks = (values.as_slice(), chunk_offsets.as_slice());
        self.score_chunks(name, languages, *width, chunks, &mut ScoreScratch::default())
    }

    /// Returns 1 if the head keeps high logits (or does not exist), −1 if it keeps low ones.
    pub fn sign(&self, name: &str, language: &str) -> f32 {
        let keep = self.get(name, language).map(|head| head.spec().keep);
        if keep == Some(Keep::Below) { -1.0 } else { 1.0 }
    }

    /// Returns digest and specification by head and language, which are frozen with the scores.
    pub fn settings(&self) -> Value {
        let describe = |Loaded { head, .. }: &Loaded| {
            let mut described = json!({"digest": head.digest(), "spec": head.spec()});
            match head {
                AnyHead::FastText(head) => described["text"] = json!(head.scorer.spec),
                AnyHead::Row(head) => described["source"] = json!(head.scorer),
                AnyHead::Embedding(_) => {}
            }
            described
        };
        let by_language = |heads: &ByLanguage| {
            heads.iter().map(|(language, loaded)| (language.clone(), describe(loaded))).collect()
        };
        let by_name = self.by_name.iter();
        by_name.map(|(name, heads)| (name.clone(), Value::Object(by_language(heads)))).collect()
    }
}

/// Returns what the head `name` keeps in `language`, from frozen [`Heads::settings`].
pub fn frozen_keep(settings: &Value, name: &str, language: &str) -> Option<Keep> {
    let heads = &settings[name];
    let head = heads.get(language).or_else(|| heads.get(ALL_LANGUAGES))?;
    serde_json::from_value(head["spec"]["keep"].clone()).ok()
}

/// Checks, before hours of encoding, that heads have files that exist; not files by language.
pub fn check_head_files(config: &RunConfig) -> Result<()> {
    let lacks_file = |head: &HeadConfig| head.path.is_none() && !head.kind.is_of_rows();
    if let Some((name, _)) = config.heads.iter().find(|(_, head)| lacks_file(head)) {
        let reason = format!(
            "`embed` scores only where every head is loaded from a file, and `{name}` is not; use \
             `run`, or `embed` without --head"
        );
        return Err(Error::config("--head", reason));
    }
    for (name, head) in &config.heads {
        let Some(path) = head.path.as_deref() else { continue };
        // The languages are known only after all documents are embedded.
        if !path.contains(LANG) && !Path::new(path).is_file() {
            return Err(no_head_error(None, name, head, &BTreeSet::new()));
        }
    }
    Ok(())
}

/// Checks the digests of trained heads: a lost one would leave its language without scores.
fn check_trained(run: &RunDir, name: &str, languages: &BTreeSet<String>) -> Result<()> {
    for key in trained_keys(run)?.unwrap_or_default() {
        let serves = key.strip_prefix(name).and_then(|rest| rest.strip_prefix('/'));
        let mut serves = serves.into_iter().flat_map(|serves| serves.split('+'));
        if serves.any(|language| language == ALL_LANGUAGES || languages.contains(language)) {
            run.check_files(Stage::Train, &key)?;
        }
    }
    Ok(())
}

/// Loads every head `name` for one of `languages` or [`ALL_LANGUAGES`] and passes it to `take`;
/// [`Error::Missing`] if there is none, [`Error::Config`] for heads both of texts and of others.
pub fn for_each_head(
    run: Option<&RunDir>,
    name: &str,
    config: &HeadConfig,
    languages: &BTreeSet<String>,
    take: &mut dyn FnMut(&str, Loaded) -> Result<()>,
) -> Result<()> {
    let (mut of_texts, mut of_embeddings) = (false, false);
    for language in languages.iter().map(String::as_str).chain([ALL_LANGUAGES]) {
        let path = head_file(run, name, config, language).filter(|path| path.is_file());
        let Some(path) = path else { continue };
        let head = AnyHead::load(&path, name, config, language)?;
        of_texts |= head.spec().kind.is_of_texts();
        of_embeddings |= !head.spec().kind.is_of_texts();
        take(language, Loaded { path, head })?;
    }
    if of_texts && of_embeddings {
        let reason = "is of heads of texts and of other heads; that takes two names";
        return Err(Error::config(format!("heads.{name}.path"), reason));
    }
    if of_texts || of_embeddings {
        Ok(())
    } else {
        Err(no_head_error(run, name, config, languages))
    }
}

/// Says of a head without a file what is wrong if no run is named.
pub const TRAINED_IN_A_RUN: &str = "is trained in a run; name the run (`--run DIR`) or the file";

/// Makes an [`Error::Missing`]: the head `name` has no file for any language `of` the run.
fn no_head_error(
    run: Option<&RunDir>,
    name: &str,
    config: &HeadConfig,
    of: &BTreeSet<String>,
) -> Error {
    let languages = in_words(of);
    let (path, reason) = match &config.path {
        None if run.is_none() => (format!("heads.{name}"), TRAINED_IN_A_RUN.to_owned()),
        None => (format!("heads/{name}"), format!("the head is trained for none of {languages}")),
        Some(path) if path.contains(LANG) => {
            (path.clone(), format!("the head `{name}` has no file for any of {languages}"))
        }
        Some(path) => (path.clone(), format!("the file of the head `{name}` does not exist")),
    };
    Error::Missing { path, reason }
}

/// Makes an [`Error::Config`]: the head `name` scores embeddings, and the run has no encoder.
pub fn needs_encoder_error(name: &str) -> Error {
    RunConfig::no_encoder(format!("the head `{name}` scores embeddings"))
}

/// Warns that there is no head `name` for `languages`, if there are any.
pub fn warn_of_unserved(name: &str, languages: &BTreeSet<String>) {
    if !languages.is_empty() {
        let languages = in_words(languages);
        tracing::warn!(
            head = name,
            "no head for {languages}; their documents are not scored by it"
        );
    }
}

const MAX_NAMED: usize = 10;

/// Writes `languages` for a message, at most ten: `the languages deu_Latn, fra_Latn`.
pub fn in_words(languages: &BTreeSet<String>) -> String {
    let named: Vec<&str> = languages.iter().take(MAX_NAMED).map(String::as_str).collect();
    match languages.len() - named.len() {
        0 => format!("the languages {}", named.join(", ")),
        more => format!("the languages {} and {more} more", named.join(", ")),
    }
}

/// Returns where the file of a head is, or would be: trained in `run`, or at the path in the
/// settings. `None` without a run, or for a language of a file that serves all languages.
pub fn head_file(
    run: Option<&RunDir>,
    name: &str,
    config: &HeadConfig,
    language: &str,
) -> Option<PathBuf> {
    match &config.path {
        None => Some(run?.head_file(name, config.kind, language)),
        Some(template) if template.contains(LANG) => Some(template.replace(LANG, language).into()),
        Some(path) => (language == ALL_LANGUAGES).then(|| path.into()),
    }
}
