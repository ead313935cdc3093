//! The families of encoders: what their `config.json` says, and how their tensors are called.
//!
//! Defaults are those of transformers. Sources: transformers 5.23 (`XLMRobertaConfig`, `BertConfig`,
//! `GteConfig`, `ModernBertConfig`), and for GTE's older files their own configuration.

use std::path::Path;

use serde::Deserialize;

use super::architecture::{
    Architecture, FeedForward, LayerKind, Names, Positions, Rope, TensorsOfMap,
};
use crate::error::{Error, Result};

/// Parses and checks the contents of a `config.json`; `origin` names it in errors.
pub(super) fn parse(json: &[u8], origin: &Path) -> Result<Architecture> {
    let config: Config = serde_json::from_slice(json)
        .map_err(|e| Error::model(origin, format!("is not an encoder's configuration: {e}")))?;
    config.architecture().map_err(|reason| Error::model(origin, reason))
}

/// The keys of a `config.json` that embeddings depend on, of all families.
#[derive(Deserialize)]
struct Config {
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
    norm_eps: Option<f64>,
    hidden_act: Option<String>,
    hidden_activation: Option<String>,
    position_embedding_type: Option<String>,
    layer_norm_type: Option<String>,
    logn_attention_scale: Option<bool>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    norm_bias: bool,
    local_attention: Option<usize>,
    layer_types: Option<Vec<String>>,
    global_attn_every_n_layers: Option<usize>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeParameters>,
    rope_parameters: Option<RopeSettings>,
    global_rope_theta: Option<f64>,
    local_rope_theta: Option<f64>,
}

#[derive(Clone, Default, Deserialize)]
struct RopeParameters {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
}

/// One rope, or one for each type of layer.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum RopeSettings {
    ByLayer { full_attention: RopeParameters, sliding_attention: RopeParameters },
    One(RopeParameters),
}

/// Of BERT and of those that took its names.
const BERT: Names = Names {
    prefixes: &["", "bert.", "roberta."],
    words: "embeddings.word_embeddings",
    positions: "embeddings.position_embeddings",
    token_types: "embeddings.token_type_embeddings",
    embedding_norm: "embeddings.LayerNorm",
    query_key_value: (
        &[
            "encoder.layer.{i}.attention.self.query",
            "encoder.layer.{i}.attention.self.key",
            "encoder.layer.{i}.attention.self.value",
        ],
        true,
    ),
    attention_output: (&["encoder.layer.{i}.attention.output.dense"], true),
    attention_norm: "encoder.layer.{i}.attention.output.LayerNorm",
    intermediate: (&["encoder.layer.{i}.intermediate.dense"], true),
    output: (&["encoder.layer.{i}.output.dense"], true),
    output_norm: "encoder.layer.{i}.output.LayerNorm",
    final_norm: "",
    norm_bias: true,
};

const GTE: Names = Names {
    prefixes: &["", "new.", "gte."],
    query_key_value: (&["encoder.layer.{i}.attention.qkv_proj"], true),
    attention_output: (&["encoder.layer.{i}.attention.o_proj"], true),
    attention_norm: "encoder.layer.{i}.attn_ln",
    intermediate: (&["encoder.layer.{i}.mlp.up_gate_proj"], false),
    output: (&["encoder.layer.{i}.mlp.down_proj"], true),
    output_norm: "encoder.layer.{i}.mlp_ln",
    ..BERT
};

const MODERN_BERT: Names = Names {
    prefixes: &["", "model."],
    words: "embeddings.tok_embeddings",
    embedding_norm: "embeddings.norm",
    query_key_value: (&["layers.{i}.attn.Wqkv"], false),
    attention_output: (&["layers.{i}.attn.Wo"], false),
    attention_norm: "layers.{i}.attn_norm",
    intermediate: (&["layers.{i}.mlp.Wi"], false),
    output: (&["layers.{i}.mlp.Wo"], false),
    output_norm: "layers.{i}.mlp_norm",
    final_norm: "final_norm",
    norm_bias: false,
    ..BERT
};

impl Config {
    /// What it says, or why we cannot run that.
    fn architecture(&self) -> Result<Architecture, String> {
        let this = match self.model_type.as_str() {
            "xlm-roberta" | "roberta" | "camembert" => self.xlm_roberta()?,
            "bert" => self.bert()?,
            "gte" | "new" => self.gte()?,
            "modernbert" => self.modern_bert()?,
            other => {
                return Err(format!(
                    "model_type is `{other}`; supported: xlm-roberta, roberta, camembert, bert, gte, \
                     new, modernbert"
                ));
            }
        };
        let sizes = [
            ("hidden_size", this.width),
            ("num_attention_heads", this.num_heads),
            ("intermediate_size", this.inner),
            ("vocab_size", this.vocab_size),
        ];
        if let Some((key, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(format!("{key} is 0"));
        }
        if !this.width.is_multiple_of(this.num_heads) {
            let Architecture { width, num_heads, .. } = this;
            return Err(format!("hidden_size {width} is no multiple of {num_heads} heads"));
        }
        if !this.ropes.is_empty() && !this.head_size().is_multiple_of(2) {
            return Err(format!("heads of {} values cannot be rotated", this.head_size()));
        }
        if this.max_tokens == 0 {
            let (rows, pad) = (self.max_position_embeddings, self.pad_token_id.unwrap_or(1));
            return Err(format!("{rows} positions after pad_token_id {pad} leave no token"));
        }
        if !(this.norm_eps >= 0.0 && this.norm_eps.is_finite()) {
            return Err(format!("layer_norm_eps is {}", this.norm_eps));
        }
        Ok(this)
    }

    /// What all families say alike, and for the rest BERT: learned positions from 0, norms after the sums.
    fn base(&self) -> Architecture {
        let rows = self.max_position_embeddings;
        let layer = LayerKind { window: None, rope: None, first_norm: true };
        Architecture {
            family: self.model_type.clone(),
            width: self.hidden_size,
            inner: self.intermediate_size,
            num_heads: self.num_attention_heads,
            vocab_size: self.vocab_size,
            max_tokens: rows,
            positions: Positions::Learned { rows, first: 0, skips: None },
            num_token_types: self.type_vocab_size.unwrap_or(2),
            norm_eps: self.layer_norm_eps.unwrap_or(1e-12),
            pre_norm: false,
            feed_forward: FeedForward::Plain,
            ropes: Vec::new(),
            layers: vec![layer; self.num_hidden_layers].into(),
            names: BERT,
        }
    }

    /// BERT. Its padding id means nothing.
    fn bert(&self) -> Result<Architecture, String> {
        let activation = self.hidden_act.as_deref();
        supported("hidden_act", activation.unwrap_or("gelu"), &["gelu"])?;
        let kind = self.position_embedding_type.as_deref();
        supported("position_embedding_type", kind.unwrap_or("absolute"), &["absolute"])?;
        let this = self.base();
        if this.num_token_types == 0 {
            return Err("type_vocab_size is 0".into());
        }
        Ok(this)
    }

    /// BERT whose positions start after the padding id, which has the row of its own number.
    fn xlm_roberta(&self) -> Result<Architecture, String> {
        let (rows, pad) = (self.max_position_embeddings, self.pad_token_id.unwrap_or(1));
        let positions = Positions::Learned { rows, first: pad + 1, skips: Some(pad) };
        let max_tokens = rows.saturating_sub(pad + 1);
        Ok(Architecture { max_tokens, positions, ..self.bert()? })
    }

    /// GTE (`new` on the hub): BERT with rotary positions and a gated feed-forward part.
    fn gte(&self) -> Result<Architecture, String> {
        let activation = self.hidden_act.as_deref();
        supported("hidden_act", activation.unwrap_or("gelu"), &["gelu"])?;
        let kind = self.position_embedding_type.as_deref();
        supported("position_embedding_type", kind.unwrap_or("rope"), &["rope"])?;
        let norm = self.layer_norm_type.as_deref();
        supported("layer_norm_type", norm.unwrap_or("layer_norm"), &["layer_norm"])?;
        if self.logn_attention_scale == Some(true) {
            return Err("logn_attention_scale is true, which is not supported".into());
        }
        let parameters = match &self.rope_parameters {
            Some(RopeSettings::One(parameters)) => parameters.clone(),
            Some(RopeSettings::ByLayer { full_attention, .. }) => full_attention.clone(),
            None => self.rope_scaling.clone().unwrap_or_default(),
        };
        let default = if self.model_type == "gte" { 160_000.0 } else { 10_000.0 };
        let theta = parameters.rope_theta.or(self.rope_theta).unwrap_or(default);
        let rope = self.rope(&parameters, theta)?;
        let layer = LayerKind { window: None, rope: Some(0), first_norm: true };
        Ok(Architecture {
            positions: Positions::None,
            num_token_types: self.type_vocab_size.unwrap_or(1),
            feed_forward: FeedForward::Gated { activated_first: false },
            ropes: vec![rope],
            layers: vec![layer; self.num_hidden_layers].into(),
            names: GTE,
            ..self.base()
        })
    }

    /// `ModernBERT`: rotary positions, norms before, a gated feed-forward part, and windows in most layers.
    fn modern_bert(&self) -> Result<Architecture, String> {
        let activation = self.hidden_activation.as_deref();
        supported("hidden_activation", activation.unwrap_or("gelu"), &["gelu"])?;
        let (full, sliding) = match &self.rope_parameters {
            Some(RopeSettings::ByLayer { full_attention, sliding_attention }) => {
                (full_attention.clone(), sliding_attention.clone())
            }
            Some(RopeSettings::One(one)) => (one.clone(), one.clone()),
            None => Default::default(),
        };
        let global_theta = full.rope_theta.or(self.global_rope_theta).unwrap_or(160_000.0);
        let local_theta = sliding.rope_theta.or(self.local_rope_theta).unwrap_or(10_000.0);
        let ropes = vec![self.rope(&full, global_theta)?, self.rope(&sliding, local_theta)?];
        let window = self.local_attention.unwrap_or(128) / 2;
        let mut layers = Vec::with_capacity(self.num_hidden_layers);
        for i in 0..self.num_hidden_layers {
            let is_full = match &self.layer_types {
                Some(types) => {
                    let kind = types.get(i).map_or("", String::as_str);
                    supported("layer_types", kind, &["full_attention", "sliding_attention"])?;
                    kind == "full_attention"
                }
                None => i.is_multiple_of(self.global_attn_every_n_layers.unwrap_or(3).max(1)),
            };
            let (window, rope) = if is_full { (None, 0) } else { (Some(window), 1) };
            layers.push(LayerKind { window, rope: Some(rope), first_norm: i > 0 });
        }
        let with = |(names, _): TensorsOfMap, bias| (names, bias);
        Ok(Architecture {
            positions: Positions::None,
            num_token_types: 0,
            norm_eps: self.norm_eps.unwrap_or(1e-5),
            pre_norm: true,
            feed_forward: FeedForward::Gated { activated_first: true },
            ropes,
            layers: layers.into(),
            names: Names {
                query_key_value: with(MODERN_BERT.query_key_value, self.attention_bias),
                attention_output: with(MODERN_BERT.attention_output, self.attention_bias),
                intermediate: with(MODERN_BERT.intermediate, self.mlp_bias),
                output: with(MODERN_BERT.output, self.mlp_bias),
                norm_bias: self.norm_bias,
                ..MODERN_BERT
            },
            ..self.base()
        })
    }

    /// A rope with the base `theta`. NTK scaling by a factor f, as GTE's older files name it, is the base
    /// `theta · f` and the divisor `f^(2 / head_size)`.
    fn rope(&self, parameters: &RopeParameters, theta: f64) -> Result<Rope, String> {
        let head_size = self.hidden_size as f64 / self.num_attention_heads.max(1) as f64;
        let factor = parameters.factor.unwrap_or(1.0);
        let rope = match parameters.rope_type.as_deref().unwrap_or("default") {
            "default" => Rope { theta, divisor: 1.0 },
            "linear" => Rope { theta, divisor: factor },
            "ntk" => Rope { theta: theta * factor, divisor: libm::pow(factor, 2.0 / head_size) },
            other => {
                return Err(format!("rope type is `{other}`; supported: default, linear, ntk"));
            }
        };
        let sound = |value: f64| value.is_finite() && value > 0.0;
        if sound(rope.theta) && sound(rope.divisor) {
            Ok(rope)
        } else {
            Err(format!("rope_theta is {theta} with the factor {factor}"))
        }
    }
}

fn supported(key: &str, value: &str, values: &[&str]) -> Result<(), String> {
    let reason = || format!("{key} is `{value}`; supported: {}", values.join(", "));
    values.contains(&value).then_some(()).ok_or_else(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"{"model_type":"xlm-roberta","hidden_size":12,"num_hidden_layers":1,
        "num_attention_heads":3,"intermediate_size":8,"vocab_size":9,"max_position_embeddings":514}"#;

    fn parse(from: &str, to: &str) -> Result<Architecture> {
        assert!(BASE.contains(from));
        super::parse(BASE.replace(from, to).as_bytes(), Path::new("m/config.json"))
    }

    #[test]
    fn what_a_configuration_leaves_out_is_as_in_transformers() -> Result<()> {
        let config = parse("{", "{")?;
        assert_eq!(config.positions, Positions::Learned { rows: 514, first: 2, skips: Some(1) });
        assert_eq!((config.max_tokens, config.num_token_types, config.norm_eps), (512, 2, 1e-12));
        let gte = parse("xlm-roberta", "gte")?;
        assert_eq!((gte.ropes[0].theta, gte.num_token_types), (160_000., 1));
        let modern = parse("xlm-roberta", "modernbert")?;
        assert_eq!(
            modern.ropes.iter().map(|rope| rope.theta).collect::<Vec<_>>(),
            [160_000., 10_000.]
        );
        assert_eq!((modern.layers[0].window, modern.norm_eps), (None, 1e-5));
        Ok(())
    }

    #[test]
    fn bert_has_no_padding_and_positions_from_zero() -> Result<()> {
        let bert = parse("xlm-roberta\"", "bert\",\"pad_token_id\":0")?;
        assert_eq!(bert.max_tokens, 514);
        assert_eq!(bert.positions.of(&[5, 0, 7]).collect::<Vec<_>>(), [0, 1, 2]);
        let roberta = parse("xlm-roberta\"", "xlm-roberta\",\"pad_token_id\":0")?;
        assert_eq!(roberta.positions.of(&[5, 0, 7]).collect::<Vec<_>>(), [1, 0, 2]);
        Ok(())
    }

    #[test]
    fn the_two_spellings_of_modernberts_layers_and_of_gtes_scaling_agree() -> Result<()> {
        let layers = "modernbert\",\"num_hidden_layers\":4,";
        let base = BASE.replace("\"num_hidden_layers\":1,", "");
        let parse =
            |to: &str| super::parse(base.replace("xlm-roberta\",", to).as_bytes(), Path::new("m"));
        let old = parse(&format!(
            "{layers}\"global_attn_every_n_layers\":2,\"local_rope_theta\":5.0,\"local_attention\":16,"
        ))?;
        let new = parse(&format!(
            "{layers}\"local_attention\":16,\"layer_types\":[\"full_attention\",\"sliding_attention\",
            \"full_attention\",\"sliding_attention\"],\"rope_parameters\":{{\"full_attention\":
            {{\"rope_theta\":160000.0}},\"sliding_attention\":{{\"rope_theta\":5.0}}}},"
        ))?;
        assert_eq!(old, new);
        assert_eq!(old.layers[1].window, Some(8));

        let gte = |family: &str, rope: &str| {
            parse(&format!("{family}\",\"num_hidden_layers\":4,{rope},"))
        };
        let ntk = gte("new", r#""rope_theta":20000,"rope_scaling":{"type":"ntk","factor":8}"#)?;
        let factor = 8f64.powf(2.0 / 4.0);
        let linear = gte(
            "gte",
            &format!(
                r#""rope_parameters":{{"rope_type":"linear","rope_theta":160000,"factor":{factor}}}"#
            ),
        )?;
        assert_eq!(ntk.ropes, linear.ropes);
        Ok(())
    }

    #[test]
    fn what_we_cannot_run_is_refused_by_name() {
        for (from, to, expected) in [
            ("xlm-roberta", "deberta-v2", "model_type is `deberta-v2`; supported: xlm-roberta"),
            ("{", r#"{"hidden_act":"gelu_new","#, "hidden_act is `gelu_new`"),
            ("{", r#"{"position_embedding_type":"relative_key","#, "`relative_key`"),
            ("_heads\":3", "_heads\":5", "hidden_size 12 is no multiple of 5 heads"),
            ("_heads\":3", "_heads\":0", "num_attention_heads is 0"),
            ("514", "2", "2 positions after pad_token_id 1 leave no token"),
            ("{", r#"{"layer_norm_eps":-1.0,"#, "layer_norm_eps is -1"),
            ("{", r#"{"type_vocab_size":0,"#, "type_vocab_size is 0"),
            (r#"xlm-roberta","#, r#"gte","rope_scaling":{"type":"yarn"},"#, "rope type is `yarn`"),
            (r#"xlm-roberta","#, r#"new","rope_theta":0,"#, "rope_theta is 0"),
            (r#"xlm-roberta","#, r#"new","logn_attention_scale":true,"#, "logn_attention_scale"),
            (r#"xlm-roberta","#, r#"modernbert","layer_types":["linear"],"#, "is `linear`"),
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
