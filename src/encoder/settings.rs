//! Resolves the settings of an encoder: the user's settings take precedence over the files of
//! sentence-transformers, and those over the defaults.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Once;

use serde::Serialize;

use super::output::{Dense, Output};
use super::recipe::Recipe;
use super::sentence_transformers::{Said, SentenceTransformers};
use polysift_base::error::{Error, Result};
use polysift_config::{EncoderConfig, Pooling};

/// A resolved setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResolvedSetting {
    /// Name of the setting.
    pub name: &'static str,
    /// Value as a settings file would contain it.
    pub value: String,
    /// Source of the value: `settings`, a file, or `default`.
    pub source: String,
}

/// Models whose cards allow truncated embeddings: suffix of the name and allowed numbers of values.
const CUT: [(&str, RangeInclusive<usize>); 3] = [
    ("arctic-embed-m-v2.0", 256..=256),
    ("arctic-embed-l-v2.0", 256..=256),
    ("gte-multilingual-base", 128..=768),
];

const SET: &str = "settings";

/// Returns the user's value, else the value in a file, else the default, together with its source.
fn pick<T>(set: Option<T>, said: Said<T>, default: T) -> (T, String) {
    match (set, said) {
        (Some(value), _) => (value, SET.to_owned()),
        (None, Some((value, path))) => (value, path.display().to_string()),
        (None, None) => (default, "default".to_owned()),
    }
}

/// Resolves `config` and `files` for a model with `model_digest` and `hidden_size`. `of_head` is
/// the pooling of the classification head, if the model has one; a `modules.json` wins. Warns once
/// per process if `max_tokens` exceeds the length in the files.
pub(super) fn resolve_encoder(
    config: &EncoderConfig,
    (files, of_head): (SentenceTransformers, Said<Pooling>),
    model_digest: &str,
    hidden_size: usize,
) -> Result<(Output, Recipe, Vec<ResolvedSetting>)> {
    let said = match config.pooling {
        None if files.modules.is_some() => files.pooling()?,
        _ => of_head,
    };
    let (pooling, pooling_source) = pick(config.pooling, said, Pooling::Mean);

    let by_modules = files.modules.clone().map(|path| (files.normalize, path));
    let (normalize, normalize_source) = pick(config.normalize, by_modules, false);

    if config.prompt.is_some() && config.prompt_name.is_some() {
        let reason = "and encoder.prompt are both set; set only one of them";
        return Err(Error::config("encoder.prompt_name", reason));
    }
    let prompts =
        if config.prompt.is_none() { files.prompt(config.prompt_name.as_deref())? } else { None };
    let (prompt, prompt_source) = pick(config.prompt.clone(), prompts, String::new());
    files.check_prompt(&prompt)?;

    let of_default = EncoderConfig::default().max_tokens;
    let set = Some(config.max_tokens).filter(|tokens| *tokens != of_default);
    let (mut max_tokens, mut max_source) = pick(set, None, of_default);
    if let Some((most, path)) = &files.max_seq_length
        && *most < max_tokens
    {
        static SAID: Once = Once::new();
        if *most < 3 {
            return Err(Error::model(path, format!("says that the model takes {most} tokens")));
        }
        let then =
            if set.is_some() { "longer chunks may fit it less" } else { "chunks are cut there" };
        SAID.call_once(|| {
            tracing::warn!(
                "encoder.max_tokens is {max_tokens}, but {} says that the model takes {most}; {then}",
                path.display()
            );
        });
        if set.is_none() {
            (max_tokens, max_source) = (*most, path.display().to_string());
        }
    }

    let mut size = hidden_size;
    for (map, path) in &files.dense {
        if map.inputs() != size {
            let inputs = map.inputs();
            let reason = format!("in_features is {inputs}, but {size} values come to it");
            return Err(Error::model(path, reason));
        }
        size = map.outputs();
    }
    let truncate_dim = files.truncate_dim();
    let source = |(map, path): (Dense, PathBuf)| (map, path.display().to_string());
    let (dense, dense_sources): (Vec<Dense>, Vec<String>) =
        files.dense.into_iter().map(source).unzip();
    if let Some(wanted) = config.dimensions {
        check_cut(&config.model, wanted, size, truncate_dim.as_ref().map(|said| said.0))?;
    }
    let truncate_dim = truncate_dim.filter(|(kept, _)| (1..=size).contains(kept));
    let (kept, kept_source) = pick(config.dimensions, truncate_dim, size);

    let dense_source =
        if dense.is_empty() { "default".to_owned() } else { dense_sources.join(", ") };
    let dense_widths: Vec<usize> = dense.iter().map(Dense::outputs).collect();
    let output = Output { dense, embedding_size: kept, normalize };
    let recipe = Recipe {
        model_digest: model_digest.to_owned(),
        pooling,
        dense: output.dense.iter().map(|map| map.digest.clone()).collect(),
        dimensions: Some(kept),
        normalize,
        prompt,
        max_tokens,
        max_chars: config.max_chars,
    };
    let setting = |name, value: String, source| ResolvedSetting { name, value, source };
    let mut settings = vec![
        setting("pooling", pooling.to_string(), pooling_source),
        setting("dense", format!("{dense_widths:?}"), dense_source),
        setting("dimensions", kept.to_string(), kept_source),
        setting("normalize", normalize.to_string(), normalize_source),
        setting("prompt", format!("{:?}", recipe.prompt), prompt_source),
        setting("max_tokens", max_tokens.to_string(), max_source),
    ];
    let max_chars = config.max_chars.map(|chars| chars.to_string());
    settings.extend(max_chars.map(|chars| setting("max_chars", chars, SET.to_owned())));
    Ok((output, recipe, settings))
}

/// Returns [`Error::Config`] unless `model` was trained for truncation from `size` to `wanted`
/// values. `truncate_dim` is the value in its files.
fn check_cut(model: &str, wanted: usize, size: usize, truncate_dim: Option<usize>) -> Result<()> {
    let refuse = |reason| Err(Error::config("encoder.dimensions", reason));
    if wanted == 0 || wanted > size {
        return refuse(format!("is {wanted}; the embeddings of this model have {size} values"));
    }
    let name = model.trim_end_matches('/');
    let is_known = CUT.iter().any(|(end, sizes)| name.ends_with(end) && sizes.contains(&wanted));
    if wanted == size || truncate_dim == Some(wanted) || is_known {
        return Ok(());
    }
    refuse(format!(
        "is {wanted}; nothing says that this model was trained to be cut to {wanted} values"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_that_were_trained_for_it_are_cut() {
        for (model, wanted, truncate_dim, is_allowed) in [
            ("Snowflake/snowflake-arctic-embed-m-v2.0", 256, None, true),
            ("models/snowflake-arctic-embed-m-v2.0/", 256, None, true),
            ("Snowflake/snowflake-arctic-embed-m-v2.0", 255, None, false),
            ("x/y", 256, None, false),
            ("x/y", 256, Some(256), true),
            ("x/y", 128, Some(256), false),
            ("x/y", 768, Some(256), true),
            ("x/y", 769, None, false),
            ("x/y", 0, None, false),
        ] {
            let outcome = check_cut(model, wanted, 768, truncate_dim).map_err(|e| e.exit_code());
            assert_eq!(outcome, if is_allowed { Ok(()) } else { Err(2) }, "{model} {wanted}");
        }
    }
}
