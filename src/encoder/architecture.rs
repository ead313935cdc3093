//! `config.json`: the sizes of an XLM-RoBERTa encoder and whether we can run it.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};

/// Names of the one architecture we run.
const MODEL_TYPES: [&str; 3] = ["xlm-roberta", "roberta", "camembert"];

/// The part of `config.json` that embeddings depend on; defaults are those of transformers'
/// `XLMRobertaConfig`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Architecture {
    model_type: String,
    pub(super) hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) num_attention_heads: usize,
    pub(super) intermediate_size: usize,
    pub(super) vocab_size: usize,
    pub(super) max_position_embeddings: usize,
    #[serde(default = "two")]
    pub(super) type_vocab_size: usize,
    #[serde(default = "one")]
    pub(super) pad_token_id: usize,
    #[serde(default = "tiny")]
    pub(super) layer_norm_eps: f64,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default = "absolute")]
    position_embedding_type: String,
}

fn one() -> usize {
    1
}
fn two() -> usize {
    2
}
fn tiny() -> f64 {
    1e-12
}
fn gelu() -> String {
    "gelu".into()
}
fn absolute() -> String {
    "absolute".into()
}

impl Architecture {
    /// Parses and checks the contents of a `config.json`; `origin` names it in errors.
    pub(super) fn parse(json: &[u8], origin: &Path) -> Result<Self> {
        let this: Self = serde_json::from_slice(json)
            .map_err(|e| Error::model(origin, format!("is not an encoder's configuration: {e}")))?;
        match this.problem() {
            None => Ok(this),
            Some(reason) => Err(Error::model(origin, reason)),
        }
    }

    fn problem(&self) -> Option<String> {
        let one_of = |key: &str, value: &str, allowed: &[&str]| {
            let bad = !allowed.contains(&value);
            bad.then(|| format!("{key} is `{value}`; supported: {}", allowed.join(", ")))
        };
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("vocab_size", self.vocab_size),
            ("type_vocab_size", self.type_vocab_size),
        ];
        one_of("model_type", &self.model_type, &MODEL_TYPES)
            .or_else(|| one_of("hidden_act", &self.hidden_act, &["gelu"]))
            .or_else(|| {
                let kind = &self.position_embedding_type;
                one_of("position_embedding_type", kind, &["absolute"])
            })
            .or_else(|| {
                let zero = sizes.iter().find(|(_, size)| *size == 0);
                zero.map(|(key, _)| format!("{key} is 0"))
            })
            .or_else(|| {
                let (h, n) = (self.hidden_size, self.num_attention_heads);
                (h % n != 0).then(|| format!("hidden_size {h} is no multiple of {n} heads"))
            })
            .or_else(|| {
                let (p, pad) = (self.max_position_embeddings, self.pad_token_id);
                let none = self.max_tokens() == 0;
                none.then(|| format!("{p} positions after pad_token_id {pad} leave no token"))
            })
            .or_else(|| {
                let bad = !(self.layer_norm_eps >= 0.0 && self.layer_norm_eps.is_finite());
                bad.then(|| format!("layer_norm_eps is {}", self.layer_norm_eps))
            })
    }

    /// Longest sequence: positions start after the padding index.
    pub(super) fn max_tokens(&self) -> usize {
        self.max_position_embeddings.saturating_sub(self.pad_token_id).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"{"model_type":"xlm-roberta","hidden_size":12,"num_hidden_layers":1,
        "num_attention_heads":3,"intermediate_size":8,"vocab_size":9,"max_position_embeddings":514}"#;

    fn parse(from: &str, to: &str) -> Result<Architecture> {
        assert!(BASE.contains(from));
        Architecture::parse(BASE.replace(from, to).as_bytes(), Path::new("m/config.json"))
    }

    #[test]
    fn what_a_configuration_leaves_out_is_as_in_transformers() -> Result<()> {
        let config = parse("{", "{")?;
        assert_eq!((config.pad_token_id, config.type_vocab_size), (1, 2));
        assert_eq!(config.max_tokens(), 512);
        Ok(())
    }

    #[test]
    fn what_we_cannot_run_is_refused_by_name() {
        for (from, to, expected) in [
            ("xlm-roberta", "bert", "model_type is `bert`"),
            ("{", r#"{"hidden_act":"gelu_new","#, "hidden_act is `gelu_new`"),
            ("{", r#"{"position_embedding_type":"relative_key","#, "`relative_key`"),
            ("_heads\":3", "_heads\":5", "hidden_size 12 is no multiple of 5 heads"),
            ("_heads\":3", "_heads\":0", "num_attention_heads is 0"),
            ("514", "2", "2 positions after pad_token_id 1 leave no token"),
            ("{", r#"{"layer_norm_eps":-1.0,"#, "layer_norm_eps is -1"),
            (r#""vocab_size":9,"#, "", "missing field `vocab_size`"),
            ("{", "", "is not an encoder's configuration"),
        ] {
            let message = parse(from, to).map_err(|e| e.to_string());
            assert!(
                message
                    .as_ref()
                    .is_err_and(|m| m.contains(expected) && m.starts_with("m/config.json: ")),
                "{expected}: {message:?}"
            );
        }
    }
}
