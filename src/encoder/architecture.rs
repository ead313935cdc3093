//! What an encoder computes, and how the `config.json` of XLM-RoBERTa says it.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};

/// What an encoder computes, under the names that both devices use. A family of encoders is a way to
/// parse this, and the names of its tensors (`weights`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Architecture {
    /// Width H of a token's state.
    pub(super) width: usize,
    /// Width F inside the feed-forward part.
    pub(super) inner: usize,
    pub(super) num_layers: usize,
    pub(super) num_heads: usize,
    pub(super) vocab_size: usize,
    pub(super) num_positions: usize,
    pub(super) num_token_types: usize,
    pub(super) pad_token_id: usize,
    pub(super) norm_eps: f64,
}

/// Names of the one family that we run.
const MODEL_TYPES: [&str; 3] = ["xlm-roberta", "roberta", "camembert"];

/// The part of a `config.json` that embeddings depend on, as transformers' `XLMRobertaConfig` has it.
#[derive(Deserialize)]
struct XlmRobertaConfig {
    model_type: String,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    vocab_size: usize,
    max_position_embeddings: usize,
    type_vocab_size: Option<usize>,
    pad_token_id: Option<usize>,
    layer_norm_eps: Option<f64>,
    hidden_act: Option<String>,
    position_embedding_type: Option<String>,
}

impl Architecture {
    /// Parses and checks the contents of a `config.json`; `origin` names it in errors.
    pub(super) fn parse(json: &[u8], origin: &Path) -> Result<Self> {
        let config: XlmRobertaConfig = serde_json::from_slice(json)
            .map_err(|e| Error::model(origin, format!("is not an encoder's configuration: {e}")))?;
        config.architecture().map_err(|reason| Error::model(origin, reason))
    }

    /// Width of a head.
    pub(super) fn head_size(&self) -> usize {
        self.width / self.num_heads
    }

    /// Longest sequence: positions start after the padding index.
    pub(super) fn max_tokens(&self) -> usize {
        self.num_positions.saturating_sub(self.pad_token_id).saturating_sub(1)
    }
}

impl XlmRobertaConfig {
    /// What it says, or why we cannot run that.
    fn architecture(&self) -> Result<Architecture, String> {
        let supported = |key: &str, value: &str, values: &[&str]| {
            let reason = || format!("{key} is `{value}`; supported: {}", values.join(", "));
            values.contains(&value).then_some(()).ok_or_else(reason)
        };
        supported("model_type", &self.model_type, &MODEL_TYPES)?;
        supported("hidden_act", self.hidden_act.as_deref().unwrap_or("gelu"), &["gelu"])?;
        let positions = self.position_embedding_type.as_deref().unwrap_or("absolute");
        supported("position_embedding_type", positions, &["absolute"])?;
        let this = Architecture {
            width: self.hidden_size,
            inner: self.intermediate_size,
            num_layers: self.num_hidden_layers,
            num_heads: self.num_attention_heads,
            vocab_size: self.vocab_size,
            num_positions: self.max_position_embeddings,
            num_token_types: self.type_vocab_size.unwrap_or(2),
            pad_token_id: self.pad_token_id.unwrap_or(1),
            norm_eps: self.layer_norm_eps.unwrap_or(1e-12),
        };
        let Architecture { width, num_heads, num_positions, pad_token_id, norm_eps, .. } = this;
        let sizes = [
            ("hidden_size", width),
            ("num_attention_heads", num_heads),
            ("intermediate_size", this.inner),
            ("vocab_size", this.vocab_size),
            ("type_vocab_size", this.num_token_types),
        ];
        if let Some((key, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(format!("{key} is 0"));
        }
        if !width.is_multiple_of(num_heads) {
            return Err(format!("hidden_size {width} is no multiple of {num_heads} heads"));
        }
        if this.max_tokens() == 0 {
            return Err(format!(
                "{num_positions} positions after pad_token_id {pad_token_id} leave no token"
            ));
        }
        if !(norm_eps >= 0.0 && norm_eps.is_finite()) {
            return Err(format!("layer_norm_eps is {norm_eps}"));
        }
        Ok(this)
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
        assert_eq!((config.pad_token_id, config.num_token_types), (1, 2));
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
