//! The settings of a run: the contents of `run.toml`, with defaults.
//!
//! This crate owns the names of the settings and their checks. It does not read arguments or the
//! environment (`cli` does). Unknown keys are errors. Paths are relative to the file that names
//! them and may hold `{lang}`, the FineWeb-2 language code (`deu_Latn`).
//!
//! ```
//! use polysift_config::RunConfig;
//!
//! let config = RunConfig::from_toml("[heads.quality]\npath = 'q.safetensors'", "run.toml")?;
//! assert_eq!(config.encoder.model, "polysift-mini");
//! assert!(RunConfig::from_toml("[inputs]", "run.toml").is_err()); // an unknown key
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod amounts;
mod cascade;
mod encoder;
mod export;
mod fasttext;
mod filters;
mod heads;
mod input;
mod selection;
mod training;
mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

pub use amounts::{Budget, MAX_DECIMALS, Rate, number_or_text, parse_units};
pub use cascade::{CascadeConfig, FirstPass};
pub use encoder::{
    Chunks, DeviceChoice, EmbeddingDtype, EncoderConfig, EncoderPrecision, Gelu, PartsConfig,
    Pooling,
};
pub use export::{CardConfig, ExportConfig, Layout};
pub use fasttext::{FastTextConfig, LABEL_PREFIX, Preprocessing, Segmenter, TextSpec};
pub use filters::{
    ConsentSource, ContaminationRule, DecontaminationConfig, EmbeddingsConfig, FilterAction,
    FilterConfig, FilterKind, FilterWhen, IdsConfig, ListMode, NearFilter, RepetitionConfig,
    RobotsConfig, Unknown, UrlsConfig, WordsConfig,
};
pub use heads::{
    Activation, Centering, ChunkRule, HeadConfig, HeadKind, HeadLanguages, HeadOutput, Keep,
    LabelKind, Preset,
};
pub use input::{DEFAULT_MAX_DOCUMENT_BYTES, InputConfig, LARGEST_DOCUMENT_BYTES, LanguageSource};
pub use polysift_text::pii::{PiiAudit, PiiConfig};
pub use polysift_text::rules::LicenseConfig;
pub use selection::{
    FixedThreshold, LanguageConfig, LanguageThresholds, REFINE_MAX_SAMPLE, REFINE_MIN_SAMPLE,
    REFINE_RISK_DIVISOR, REFINE_SAFETY, REFINE_SAMPLE_EVERY, SelectionConfig, Weight,
};
pub use training::{Checkpoint, Loss, Negatives, TrainingConfig};
pub use words::explain_file_error;

use polysift_base::error::{Error, Result};
use polysift_base::hub::is_repository_id;
use polysift_base::io::is_url;

/// Value of [`EncoderConfig::model`] for the encoder inside the binary.
pub const DEFAULT_MODEL: &str = "polysift-mini";
/// Value of [`EncoderConfig::model`] for a run without embeddings.
pub const NO_MODEL: &str = "none";
/// [`EncoderConfig::batch_tokens`] for encoders that do not suggest a value.
pub const DEFAULT_BATCH_TOKENS: usize = 16_384;
/// Default of [`PartsConfig::zstd`] and [`ExportConfig::zstd`].
pub const DEFAULT_ZSTD_LEVEL: i32 = 3;
/// Default of [`RunConfig::seed`].
pub const DEFAULT_SEED: u64 = 42;
/// Key of [`RunConfig::languages`] for the defaults of all languages.
pub const DEFAULT_LANGUAGE: &str = "_default";
/// Key of [`RunConfig::languages`] that replaces [`DEFAULT_LANGUAGE`] for languages without a head.
pub const UNSCORED_LANGUAGE: &str = "_unscored";

/// Name under which exports count the selected documents.
pub const KEPT: &str = "kept";
/// Reason for not selecting documents with null, empty or blank text.
pub const NO_TEXT: &str = "no_text";
/// Reason for not selecting documents that the first pass of a cascade drops.
pub const CASCADE: &str = "cascade";

/// All settings of a run. These keys stand above the tables. Each stage freezes its part of the
/// settings in the run directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Run directory, which holds everything that the run writes.
    pub run_dir: Option<String>,
    /// The files and the columns that are read.
    pub input: InputConfig,
    /// The encoder that turns text into embeddings.
    pub encoder: EncoderConfig,
    /// How embeddings are stored in the run directory.
    pub parts: PartsConfig,
    /// The heads by name; the name is used in flags, paths and reports.
    pub heads: BTreeMap<String, HeadConfig>,
    /// The filters by name. A document that several filters remove counts under the first name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub filters: BTreeMap<String, FilterConfig>,
    /// What is kept and removed, by language code. `_default` applies where a language sets
    /// nothing, or `_unscored` where a language has no head to select by.
    pub languages: BTreeMap<String, LanguageConfig>,
    /// How thresholds are computed.
    pub selection: SelectionConfig,
    /// A first pass that drops documents before the encoder sees them; none without this table.
    pub cascade: Option<CascadeConfig>,
    /// Redaction of personal data in exported texts; without this table, texts stay unchanged.
    pub pii: Option<PiiConfig>,
    /// The exported files and their columns.
    pub export: ExportConfig,
    /// Facts for the data set card that a run cannot know.
    #[serde(skip_serializing_if = "is_default")]
    pub card: CardConfig,
    /// Seed of all random choices, below 2^63: splits, samples, first weights, shuffling, dropout.
    #[default(DEFAULT_SEED)]
    pub seed: u64,
}

/// Whether polysift uses its own method or does what the published code does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The method of polysift, as the guide describes it.
    #[default]
    Default,
    /// Do what the published code does, including its mistakes.
    Published,
}

/// A key of a table, and what is wrong with it.
type Wrong = (&'static str, &'static str);

/// Returns true for a default value, which settings files leave out.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Description of a valid language code.
pub const LANGUAGE_CODE: &str = "made of up to 64 ASCII letters, digits, `_` and `-`";

/// Returns true if `code` is a valid language code; codes become parts of file names.
pub fn is_language_code(code: &str) -> bool {
    (1..=64).contains(&code.len()) && code.bytes().all(is_language_byte)
}

/// Returns true if `byte` may stand in a language code.
pub fn is_language_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

impl RunConfig {
    /// Parses and [checks](Self::check) `run.toml`; `origin` names the file in errors.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self> {
        let config = Self::parse(text, origin)?;
        config.check()?;
        Ok(config)
    }

    /// Returns the settings as TOML; `origin` names the file in errors.
    pub fn to_toml(&self, origin: &str) -> Result<String> {
        toml::to_string(self).map_err(|e| Error::config(origin, e.to_string()))
    }

    /// Parses `run.toml`, which flags may still complete; errors name `origin` and the line.
    pub fn parse(text: &str, origin: &str) -> Result<Self> {
        toml::from_str(text).map_err(|e| Error::config(origin, explain_file_error(&e)))
    }

    /// Reads settings from a table without [checking](Self::check) them.
    pub fn from_table(table: toml::Table) -> Result<Self, String> {
        table.try_into().map_err(|e: toml::de::Error| words::explain(e.message()))
    }

    /// Returns true if the run embeds texts.
    pub fn embeds_texts(&self) -> bool {
        self.input.embeddings.is_none() && self.encoder.model != NO_MODEL
    }

    /// Returns true if there are embeddings, computed or read from the input.
    pub fn has_embeddings(&self) -> bool {
        self.input.embeddings.is_some() || self.encoder.model != NO_MODEL
    }

    /// Returns the filters that look at one document at a time, by name.
    pub fn row_filters(&self) -> impl Iterator<Item = (&str, &FilterConfig)> {
        let filters = self.filters.iter().map(|(name, filter)| (name.as_str(), filter));
        filters.filter(|(_, filter)| filter.embeddings().is_none())
    }

    /// Returns the filter that finds near duplicates, if there is one.
    pub fn near(&self) -> Option<NearFilter<'_>> {
        self.filters.iter().find_map(|(name, filter)| {
            let embeddings = filter.embeddings()?;
            let only = self.heads.keys().next();
            let head = embeddings.head.as_ref().or(only).map_or("", String::as_str);
            Some(NearFilter { name, filter, embeddings, head })
        })
    }

    /// Returns [`Error::Config`]: there is no encoder, and `what` needs one.
    pub fn no_encoder(what: impl std::fmt::Display) -> Error {
        Error::config("encoder.model", format!("is `{NO_MODEL}`, and {what}"))
    }

    /// Returns the thresholds for `language`: key by key from its own table, else from `_default`.
    pub fn thresholds(&self, language: &str) -> LanguageThresholds {
        self.thresholds_or(language, DEFAULT_LANGUAGE)
    }

    /// Returns the thresholds for `language`. If `has_head` is false for every head that would keep
    /// documents, the table `_unscored`, if present, replaces `_default`.
    pub fn thresholds_with(
        &self,
        language: &str,
        has_head: impl Fn(&str) -> bool,
    ) -> LanguageThresholds {
        let usual = self.thresholds(language);
        let LanguageThresholds { retention, threshold, budget, .. } = &usual;
        let mut keeping = retention.keys().chain(threshold.keys()).chain(budget.keys());
        if keeping.any(|head| has_head(head)) || !self.languages.contains_key(UNSCORED_LANGUAGE) {
            return usual;
        }
        self.thresholds_or(language, UNSCORED_LANGUAGE)
    }

    /// Returns retention, removal, threshold and budget, each whole from the table `language`, else
    /// from the table `other`; sorts rates and removes repeats.
    fn thresholds_or(&self, language: &str, other: &str) -> LanguageThresholds {
        let tables = [self.languages.get(language), self.languages.get(other)];
        let tables = || tables.into_iter().flatten();
        let mut retention = tables().find_map(|c| c.retention.clone()).unwrap_or_default();
        for rates in retention.values_mut() {
            rates.sort_unstable();
            rates.dedup();
        }
        LanguageThresholds {
            retention,
            removal: tables().find_map(|c| c.removal.clone()).unwrap_or_default(),
            threshold: tables().find_map(|c| c.threshold.clone()).unwrap_or_default(),
            budget: tables().find_map(|c| c.budget.clone()).unwrap_or_default(),
        }
    }

    /// Checks what the types cannot express: ranges, and that every head that is named is defined.
    pub fn check(&self) -> Result<()> {
        for (name, value, least) in [
            ("encoder.max_tokens", Some(self.encoder.max_tokens), 3),
            ("encoder.batch_tokens", self.encoder.batch_tokens, self.encoder.max_tokens),
            ("encoder.max_chars", self.encoder.max_chars, 1),
            ("parts.rows", Some(self.parts.rows), 1),
            ("export.row_group_mb", Some(self.export.row_group_mb), 1),
            ("export.max_file_mb", self.export.max_file_mb, 1),
        ] {
            if let Some(value) = value.filter(|value| *value < least) {
                let reason = format!("is {value}; at least {least} is needed");
                return Err(Error::config(name, reason));
            }
        }
        let columns = [("input.text", &self.input.text), ("input.id", &self.input.id)];
        let files = self.input.files.iter().map(|file| ("input.files", file));
        let folders = [("run_dir", &self.run_dir), ("export.to", &self.export.to)];
        let folders = folders.into_iter().filter_map(|(key, folder)| Some((key, folder.as_ref()?)));
        for (name, value) in columns.into_iter().chain(files).chain(folders) {
            let reason = match value.as_str() {
                "" => "is empty; a name is needed",
                path if path.split('/').next() == Some("~") => {
                    "begins with `~`, which only a shell replaces; write the whole path"
                }
                _ => continue,
            };
            return Err(Error::config(name, reason));
        }
        let is_id = |id: &String| id.contains('/') && is_repository_id(id);
        if !self.card.repository.iter().all(is_id) {
            return Err(Error::config("card.repository", "is not of the form OWNER/NAME"));
        }
        self.encoder.check_device()?;
        if is_url(&self.encoder.model) {
            let reason = "is a URL; a model is a directory or a hub id (OWNER/NAME)";
            return Err(Error::config("encoder.model", reason));
        }
        if self.encoder.model == DEFAULT_MODEL && self.encoder.revision.is_some() {
            let reason = "is for models of a hub; the bundled encoder has none";
            return Err(Error::config("encoder.revision", reason));
        }
        let document_bytes = i128::from(self.input.max_document_bytes);
        for (name, value, most) in [
            ("parts.zstd", self.parts.zstd.into(), 22),
            ("export.zstd", self.export.zstd.into(), 22),
            ("input.max_document_bytes", document_bytes, LARGEST_DOCUMENT_BYTES.into()),
        ] {
            if !(1..=most).contains(&value) {
                let reason = format!("is {value}; 1 to {most} are allowed");
                return Err(Error::config(name, reason));
            }
        }
        self.input.language.check()?;
        for (name, head) in &self.heads {
            self.check_name("heads", name)?;
            head.check(name)?;
            self.check_fallback(name, head)?;
            if head.learns_from_embeddings() && self.encoder.model == NO_MODEL {
                let what = format!("the head `{name}` is trained on embeddings");
                return Err(Self::no_encoder(what));
            }
        }
        for (name, filter) in &self.filters {
            self.check_name("filters", name)?;
            if let Some((key, reason)) = filter.wrong() {
                return Err(Error::config(format!("filters.{name}.{key}"), reason));
            }
            if let FilterKind::Robots(robots) = &filter.kind {
                robots.agents(name)?;
            }
        }
        self.check_near()?;
        self.pii.as_ref().map_or(Ok(()), PiiConfig::check)?;
        self.cascade.as_ref().map_or(Ok(()), |cascade| cascade.check(self))?;
        self.check_refinement()?;
        self.check_thresholds()
    }

    /// Checks that the fallback of `name` is a head for the same input that has no fallback itself.
    fn check_fallback(&self, name: &str, head: &HeadConfig) -> Result<()> {
        let Some(fallback) = &head.fallback else { return Ok(()) };
        let reason = match self.heads.get(fallback) {
            None => format!("names the head `{fallback}`, which is not defined"),
            Some(_) if fallback == name => "names the head itself".to_owned(),
            Some(other) if other.fallback.is_some() => {
                "names a head with a fallback of its own".to_owned()
            }
            Some(other) if other.kind.is_of_rows() => {
                format!("names the head `{fallback}`, which has no file to load")
            }
            Some(other) if other.kind.is_of_texts() != head.kind.is_of_texts() => {
                "names a head of texts for one of embeddings, or the other way round".to_owned()
            }
            Some(_) => return Ok(()),
        };
        Err(Error::config(format!("heads.{name}.fallback"), reason))
    }

    /// Checks that the name of `table.name`, a head or filter, can be part of the names of files
    /// and is not yet a reason for a removal.
    fn check_name(&self, table: &str, name: &str) -> Result<()> {
        let of_head = |head: &String| match name.strip_prefix(head.as_str()) {
            Some("") => table != "heads",
            Some(rest) => ["_unscored", "_nan"].contains(&rest),
            None => false,
        };
        let is_reason =
            [KEPT, NO_TEXT].contains(&name) || self.cascade.is_some() && name == CASCADE;
        let reason = if !is_language_code(name) {
            format!("the names of {table} are {LANGUAGE_CODE}")
        } else if is_reason || self.heads.keys().any(of_head) {
            "is already a reason why documents are removed; choose another name".into()
        } else {
            return Ok(());
        };
        Err(Error::config(format!("{table}.{name}"), reason))
    }

    /// Checks that near duplicates can be found: by embeddings, by one filter, with a known head.
    fn check_near(&self) -> Result<()> {
        let Some(near) = self.near() else { return Ok(()) };
        let place = format!("filters.{}", near.name);
        let is_near = |filter: &&FilterConfig| filter.embeddings().is_some();
        if self.filters.values().filter(is_near).count() > 1 {
            let reason = "is not the only filter of the kind `embeddings`; a run has at most one";
            return Err(Error::config(place, reason));
        }
        if !self.has_embeddings() {
            let what = format!("the filter `{}` compares embeddings", near.name);
            return Err(Self::no_encoder(what));
        }
        let reason = match near.embeddings.head.as_deref() {
            Some(head) if self.heads.contains_key(head) => return Ok(()),
            Some(head) => format!("names the head `{head}`, which is not defined"),
            None if self.heads.len() == 1 => return Ok(()),
            None if self.heads.is_empty() => {
                "is missing; add a head that scores documents (`[heads.NAME]`)".to_owned()
            }
            None => format!("is missing; the run has {} heads", self.heads.len()),
        };
        Err(Error::config(format!("{place}.head"), reason))
    }

    /// Checks that scores can be refined: f32 must compute the same scores in another way.
    fn check_refinement(&self) -> Result<()> {
        if !(0.0..1.0).contains(&self.selection.refine_risk) {
            let reason = "is not a share of documents; 0 to below 1 is allowed";
            return Err(Error::config("selection.refine_risk", reason));
        }
        let reason = match self {
            Self { selection: SelectionConfig { refine: false, .. }, .. } => return Ok(()),
            Self { selection, .. } if selection.mode == Mode::Published => {
                "does not go with the mode `published`, whose thresholds lie between two sampled scores"
            }
            Self { input, .. } if input.embeddings.is_some() => {
                "needs an encoder; the input brings its own embeddings"
            }
            Self { encoder, .. } if encoder.model == NO_MODEL => "needs an encoder; there is none",
            _ => return Ok(()),
        };
        Err(Error::config("selection.refine", reason))
    }

    /// Checks `selection.weight` and the names of `[languages.*]`, and that heads with thresholds
    /// are defined, and once in `order` unless it is empty.
    fn check_thresholds(&self) -> Result<()> {
        if self.selection.weight == Weight::Tokens && !self.embeds_texts() {
            return Err(Error::config(
                "selection.weight",
                "tokens are not counted where no text is embedded; use documents or bytes",
            ));
        }
        let known = |key: String, head: &String| {
            if self.heads.contains_key(head) {
                return Ok(());
            }
            let known: Vec<&str> = self.heads.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let reason = format!(
                "names the head `{head}`, which is not defined (there are: {known}); define it by \
                 a table `[heads.{head}]`, or by a flag, as in `--head {head}=FILE`"
            );
            Err(Error::config(key, reason))
        };
        let order = &self.selection.order;
        for (i, head) in order.iter().enumerate() {
            known("selection.order".into(), head)?;
            if order[..i].contains(head) {
                let reason = format!("names the head `{head}` twice");
                return Err(Error::config("selection.order", reason));
            }
        }
        // `_default` sorts before every language, so its own mistakes are reported under its name.
        for language in self.languages.keys() {
            let is_for_others = [DEFAULT_LANGUAGE, UNSCORED_LANGUAGE].contains(&language.as_str());
            if language.starts_with('_') && !is_for_others {
                return Err(Error::config(
                    format!("languages.{language}"),
                    format!("is neither a language nor {DEFAULT_LANGUAGE} or {UNSCORED_LANGUAGE}"),
                ));
            }
            let LanguageThresholds { retention, removal, threshold, budget } =
                self.thresholds(language);
            let retention = retention.keys().map(|head| ("retention", head));
            let by_rate = retention.chain(removal.keys().map(|head| ("removal", head)));
            let others = threshold.keys().map(|head| ("threshold", head));
            let others = others.chain(budget.keys().map(|head| ("budget", head)));
            for (kind, head) in by_rate.chain(others) {
                known(format!("languages.{language}.{kind}"), head)?;
                if !order.is_empty() && !order.contains(head) {
                    let reason = format!("does not name the head `{head}`, which has a threshold");
                    return Err(Error::config("selection.order", reason));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_pass_their_own_checks() {
        assert!(RunConfig::default().check().is_ok());
    }

    #[test]
    fn settings_read_back_as_they_were_written() -> Result<()> {
        let config = RunConfig::from_toml(
            "[heads.q]\npath='q'\n[languages._default]\nretention={q=[0.1]}",
            "run.toml",
        )?;
        let text = config.to_toml("test")?;
        assert_eq!(RunConfig::from_toml(&text, "written")?, config);
        Ok(())
    }

    #[test]
    fn device_and_precision_have_to_go_together() {
        for (settings, wrong) in [
            ("device='cuda'\nprecision='f32'", "encoder.precision: is f32"),
            ("device='cuda:1'\nprecision='int8'", "encoder.precision: is int8"),
            ("device='cpu'\nprecision='fp8'", "encoder.precision: is fp8, which is only for GPUs"),
        ] {
            let error = RunConfig::from_toml(&format!("[encoder]\n{settings}"), "run.toml");
            let message = error.map_err(|e| (e.exit_code(), e.to_string()));
            assert!(message.is_err_and(|(code, text)| code == 2 && text.starts_with(wrong)));
        }
        for settings in [
            "device='cpu'\nprecision='bf16'",
            "device='cpu'\nprecision='int8'",
            "device='cuda:0,2'\nprecision='bf16'",
            "device='auto'\nprecision='f16'",
            "precision='bf16'",
            "device='cuda'\nprecision='fp8'",
        ] {
            assert!(RunConfig::from_toml(&format!("[encoder]\n{settings}"), "run.toml").is_ok());
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        let error = RunConfig::from_toml("[encoder]\nmodle = 'x'", "run.toml");
        assert!(error.is_err_and(|e| e.to_string().contains("modle")));
    }

    #[test]
    fn a_language_overrides_the_default_key_by_key() -> Result<()> {
        let config = RunConfig::from_toml(
            "[heads.q]\npath='q'\n[heads.t]\npath='t'\npreset='toxicity'\n\
             [languages._default]\nretention={q=[0.33,0.1]}\nremoval={t=0.05}\n\
             [languages.deu_Latn]\nremoval={}",
            "run.toml",
        )?;
        let thresholds = config.thresholds("deu_Latn");
        assert!(thresholds.removal.is_empty());
        assert_eq!(
            thresholds.retention["q"].iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["0.1", "0.33"]
        );
        Ok(())
    }

    #[test]
    fn a_language_without_a_head_takes_another_table() -> Result<()> {
        let config = RunConfig::from_toml(
            "[heads.q]\npath='q'\n[heads.t]\npath='t'\n[heads.chance]\nkind='random'\n\
             [languages._default]\nretention={q=0.1}\nremoval={t=0.05}\n\
             [languages._unscored]\nretention={chance=0.095}\n\
             [languages.isl_Latn]\nretention={}\n[languages.mlt_Latn]\nremoval={chance=0.5}",
            "run.toml",
        )?;
        let heads = |language: &str, has: &[&str]| {
            let LanguageThresholds { retention, removal, .. } =
                config.thresholds_with(language, |head| has.contains(&head));
            let names: Vec<String> = retention.into_keys().chain(removal.into_keys()).collect();
            names.join(" ")
        };
        assert_eq!(heads("deu_Latn", &["q", "t", "chance"]), "q t");
        assert_eq!(heads("fao_Latn", &["t", "chance"]), "chance");
        assert_eq!(heads("isl_Latn", &["t", "chance"]), "");
        assert_eq!(heads("mlt_Latn", &["chance"]), "chance chance");
        Ok(())
    }

    #[test]
    fn what_cannot_be_refined_is_refused() {
        for (settings, wrong) in [
            ("[selection]\nrefine=true\nmode='published'", "`published`"),
            ("[selection]\nrefine=true\n[input]\nembeddings='e'", "its own embeddings"),
            ("[selection]\nrefine=true\n[encoder]\nmodel='none'", "there is none"),
            ("[selection]\nrefine_risk=1.0", "0 to below 1"),
            ("[selection]\nrefine_risk=nan", "0 to below 1"),
        ] {
            let error = RunConfig::from_toml(settings, "run.toml").map_err(|e| e.to_string());
            let named = |text: String| text.starts_with("selection.refine") && text.contains(wrong);
            assert!(error.is_err_and(named), "{settings}");
        }
        assert!(RunConfig::from_toml("[selection]\nrefine=true", "run.toml").is_ok());
    }

    #[test]
    fn a_folder_to_write_to_has_a_name_that_no_shell_has_to_complete() {
        for settings in ["run_dir = ''", "run_dir = '~/run'", "export.to = ''", "export.to = '~'"] {
            let error = RunConfig::from_toml(settings, "run.toml").map_err(|e| e.to_string());
            let (name, _) = settings.split_once(' ').unwrap_or_default();
            assert!(error.is_err_and(|e| e.starts_with(name)), "{settings}");
        }
        assert!(RunConfig::from_toml("run_dir = '~run'", "run.toml").is_ok());
    }

    #[test]
    fn names_without_the_form_that_they_need_are_refused() {
        for (settings, key) in [
            ("input.text = ''", "input.text: is empty"),
            ("input.id = ''", "input.id: is empty"),
            ("input.files = ['']", "input.files: is empty"),
            ("heads.q = { path = 'q', column = '' }", "heads.q.column: is empty"),
            ("card.repository = 'nope'", "card.repository: is not of the form OWNER/NAME"),
            ("card.repository = 'a/b/c'", "card.repository: is not of the form OWNER/NAME"),
        ] {
            let error = RunConfig::from_toml(settings, "run.toml").map_err(|e| e.to_string());
            assert!(error.as_ref().is_err_and(|told| told.starts_with(key)), "{error:?}");
        }
        assert!(RunConfig::from_toml("card.repository = 'me/data'", "run.toml").is_ok());
    }

    #[test]
    fn a_table_of_languages_that_nothing_reads_is_refused() {
        let error = RunConfig::from_toml("[languages._unscore]\nretention={}", "run.toml");
        assert!(error.is_err_and(|e| e.to_string().contains("nor _default or _unscored")));
    }

    #[test]
    fn a_threshold_by_an_undefined_head_is_refused() {
        let error = RunConfig::from_toml("[languages._default]\nremoval={tox=0.05}", "run.toml");
        assert!(error.is_err_and(|e| e.to_string().contains("`tox`")));
    }

    #[test]
    fn an_order_names_each_head_with_a_threshold_once() {
        let order = |heads: &str| {
            let heads_of = "[heads]\na={path='a'}\nb={path='b'}\nc={path='c'}\n";
            let kept = "[languages._default]\nretention={a=0.1}\nremoval={b=0.1}\n";
            let settings = format!("{heads_of}{kept}[selection]\norder=[{heads}]");
            RunConfig::from_toml(&settings, "run.toml").map_err(|e| e.to_string())
        };
        assert!(order("'a','c','b'").is_ok());
        assert!(order("'a','c'").is_err_and(|e| e.contains("does not name the head `b`")));
        assert!(order("'a','b','a'").is_err_and(|e| e.contains("names the head `a` twice")));
    }
}
