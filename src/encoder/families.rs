//! Parses the `config.json` of each family of encoders, and names its tensors. Defaults are those
//! of transformers. Sources: transformers 5.24 (`XLMRobertaConfig`, `BertConfig`, `GteConfig`,
//! `ModernBertConfig`), and for GTE's older files their own configuration.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::architecture::{
    Architecture, FeedForward, LayerKind, Names, Positions, Rope, TensorsOfMap,
};
use super::keys::{self, ALL, check_value, is_in};
use polysift_base::error::{Error, Result};

/// Maximum positions of a model with rotary positions, since no table in its files limits them.
const MOST_ANGLES: usize = 1 << 17;

/// Parses and checks the contents of a `config.json`; `origin` names it in errors. Sizes that need
/// more than `weight_bytes` bytes of weights are refused.
pub(crate) fn parse(json: &[u8], origin: &Path, weight_bytes: u64) -> Result<Architecture> {
    let wrong = |e| Error::model(origin, format!("is not an encoder's configuration: {e}"));
    let mut keys: Value = serde_json::from_slice(json).map_err(wrong)?;
    // For these two, null is something else than no key.
    if let Some(keys) = keys.as_object_mut() {
        keys.entry("pad_token_id").or_insert(1.into());
        keys.entry("local_rope_theta").or_insert(10_000.0.into());
    }
    if let Some(other) = keys["model_type"].as_str().filter(|of| !is_in(ALL, of)) {
        let supported = ALL.replace(' ', ", ");
        let reason = format!("model_type is `{other}`; supported: {supported}");
        return Err(Error::model(origin, reason));
    }
    let config = Config::deserialize(&keys).map_err(wrong)?;
    let architecture = config.check_sizes(weight_bytes).and_then(|()| config.build_architecture());
    let check = |this: Architecture| keys::check_config(&keys, &config.model_type).map(|()| this);
    architecture.and_then(check).map_err(|reason| Error::model(origin, reason))
}

/// The keys of a `config.json` on which embeddings of any family depend.
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
    /// Null means that there is no padding id.
    pad_token_id: Option<i64>,
    head_dim: Option<usize>,
    layer_norm_eps: Option<f64>,
    norm_eps: Option<f64>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    norm_bias: Option<bool>,
    local_attention: Option<usize>,
    sliding_window: Option<usize>,
    layer_types: Option<Vec<Value>>,
    global_attn_every_n_layers: Option<usize>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Map<String, Value>>,
    rope_parameters: Option<Map<String, Value>>,
    global_rope_theta: Option<f64>,
    /// Null means the value of the global layers.
    local_rope_theta: Option<f64>,
}

#[derive(Clone, Default, Deserialize)]
struct RopeParameters {
    rope_type: Option<String>,
    /// The older name of `rope_type`.
    #[serde(rename = "type")]
    kind: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The kinds of layers in `ModernBERT`.
const KINDS: &str = "full_attention sliding_attention";

/// Tensor names of BERT and of the families that adopted them.
const BERT: Names = Names {
    prefixes: &["", "bert.", "roberta."],
    words: "embeddings.word_embeddings",
    embedding_norm: "embeddings.LayerNorm",
    layer: "encoder.layer.{i}.",
    query_key_value: ("attention.self.query attention.self.key attention.self.value", true),
    attention_output: ("attention.output.dense", true),
    attention_norm: "attention.output.LayerNorm",
    intermediate: ("intermediate.dense", true),
    output: ("output.dense", true),
    output_norm: "output.LayerNorm",
    norm_bias: true,
};

const GTE: Names = Names {
    prefixes: &["", "new.", "gte."],
    query_key_value: ("attention.qkv_proj", true),
    attention_output: ("attention.o_proj", true),
    attention_norm: "attn_ln",
    intermediate: ("mlp.up_gate_proj", false),
    output: ("mlp.down_proj", true),
    output_norm: "mlp_ln",
    ..BERT
};

const MODERN_BERT: Names = Names {
    prefixes: &["", "model."],
    words: "embeddings.tok_embeddings",
    embedding_norm: "embeddings.norm",
    layer: "layers.{i}.",
    query_key_value: ("attn.Wqkv", false),
    attention_output: ("attn.Wo", false),
    attention_norm: "attn_norm",
    intermediate: ("mlp.Wi", false),
    output: ("mlp.Wo", false),
    output_norm: "mlp_norm",
    norm_bias: false,
};

impl Config {
    /// Builds the architecture of the family and checks its sizes; the error says what is wrong.
    fn build_architecture(&self) -> Result<Architecture, String> {
        let this = match self.model_type.as_str() {
            "xlm-roberta" | "roberta" | "camembert" => self.xlm_roberta()?,
            "bert" => self.base(), // it ignores its padding id
            "gte" | "new" => self.gte()?,
            _ => self.modern_bert()?,
        };
        let sizes = [
            ("hidden_size", this.width),
            ("num_attention_heads", this.num_heads),
            ("intermediate_size", this.inner),
            ("vocab_size", this.vocab_size),
        ];
        let zero = sizes.iter().find(|(_, size)| *size == 0);
        let &Architecture { width, num_heads, max_tokens, norm_eps, .. } = &this;
        let (head_size, is_rotated) = (width / num_heads.max(1), !this.ropes.is_empty());
        Err(if let Some((key, _)) = zero {
            format!("{key} is 0")
        } else if !width.is_multiple_of(num_heads) {
            format!("hidden_size {width} is no multiple of {num_heads} heads")
        } else if this.names == BERT && this.num_token_types == 0 {
            "type_vocab_size is 0".into()
        } else if self.head_dim.is_some_and(|size| size != head_size) {
            format!("head_dim is not hidden_size by num_attention_heads, {head_size}")
        } else if is_rotated && !head_size.is_multiple_of(2) {
            format!("heads of {head_size} values cannot be rotated")
        } else if is_rotated && max_tokens > MOST_ANGLES {
            format!("max_position_embeddings is {max_tokens}; {MOST_ANGLES} are rotated")
        } else if max_tokens == 0 {
            let (rows, pad) = (self.max_position_embeddings, self.pad_token_id.unwrap_or(1));
            format!("{rows} positions after pad_token_id {pad} leave no token")
        } else if !(norm_eps >= 0.0 && norm_eps.is_finite()) {
            let key = if this.pre_norm { "norm_eps" } else { "layer_norm_eps" };
            format!("{key} is {norm_eps}")
        } else {
            return Ok(this);
        })
    }

    /// Refuses sizes whose weights exceed `bytes` bytes even at four bits a value.
    fn check_sizes(&self, bytes: u64) -> Result<(), String> {
        let Self { hidden_size, intermediate_size, vocab_size, num_hidden_layers, .. } = self;
        let [h, f, v, n] = [hidden_size, intermediate_size, vocab_size, num_hidden_layers]
            .map(|&size| size as f64);
        // The entries of a layer in the header have 256 bytes and more.
        let layer = (2.0 * h * h + h * f) + 256.0;
        let reason = || {
            format!(
                "num_hidden_layers {num_hidden_layers}, hidden_size {hidden_size}, intermediate_size \
                 {intermediate_size} and vocab_size {vocab_size} are more than {bytes} bytes of weights"
            )
        };
        (v * h / 2.0 + n * layer <= bytes as f64).then_some(()).ok_or_else(reason)
    }

    /// Returns what all families share; the rest is as in BERT: positions from 0, and post-norms.
    fn base(&self) -> Architecture {
        let rows = self.max_position_embeddings;
        let layer = LayerKind { window: None, rope: None };
        Architecture {
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

    /// XLM-RoBERTa is BERT with positions after the padding id, which has the row of its number.
    fn xlm_roberta(&self) -> Result<Architecture, String> {
        let rows = self.max_position_embeddings;
        let pad = self.pad_token_id.and_then(|pad| usize::try_from(pad).ok());
        let pad = pad.ok_or("pad_token_id is no token id; positions begin after it")?;
        let positions = Positions::Learned { rows, first: pad + 1, skips: Some(pad) };
        let max_tokens = rows.saturating_sub(pad + 1);
        Ok(Architecture { max_tokens, positions, ..self.base() })
    }

    /// GTE (`new` on the hub) is BERT with rotary positions and a gated feed-forward block.
    fn gte(&self) -> Result<Architecture, String> {
        let (name, said) = self.rope_settings()?;
        let theta =
            self.rope_theta.unwrap_or(if self.model_type == "gte" { 160_000.0 } else { 10_000.0 });
        let layer = LayerKind { window: None, rope: Some(0) };
        Ok(Architecture {
            positions: Positions::None,
            num_token_types: self.type_vocab_size.unwrap_or(1),
            feed_forward: FeedForward::Gated { activated_first: false },
            ropes: vec![self.parse_rope(name, said.into(), theta)?],
            layers: vec![layer; self.num_hidden_layers].into(),
            names: GTE,
            ..self.base()
        })
    }

    /// `ModernBERT` has rotary positions, pre-norms, a gated feed-forward block and local layers.
    fn modern_bert(&self) -> Result<Architecture, String> {
        let window = self.sliding_window.unwrap_or(self.local_attention.unwrap_or(128) / 2);
        if let Some(types) = self.layer_types.as_ref().filter(|t| t.len() != self.num_hidden_layers)
        {
            let (found, layers) = (types.len(), self.num_hidden_layers);
            return Err(format!("layer_types has {found} entries for {layers} layers"));
        }
        let mut layers = Vec::with_capacity(self.num_hidden_layers);
        for i in 0..self.num_hidden_layers {
            let is_full = match &self.layer_types {
                Some(types) => {
                    check_value("layer_types", &types[i], KINDS)?;
                    types[i] == "full_attention"
                }
                None => i.is_multiple_of(self.global_attn_every_n_layers.unwrap_or(3).max(1)),
            };
            let (window, rope) = if is_full { (None, 0) } else { (Some(window), 1) };
            layers.push(LayerKind { window, rope: Some(rope) });
        }
        let with = |(names, _): TensorsOfMap, bias: Option<bool>| (names, bias == Some(true));
        Ok(Architecture {
            positions: Positions::None,
            num_token_types: 0,
            norm_eps: self.norm_eps.unwrap_or(1e-5),
            pre_norm: true,
            feed_forward: FeedForward::Gated { activated_first: true },
            ropes: self.ropes_by_kind()?,
            layers: layers.into(),
            names: Names {
                query_key_value: with(MODERN_BERT.query_key_value, self.attention_bias),
                attention_output: with(MODERN_BERT.attention_output, self.attention_bias),
                intermediate: with(MODERN_BERT.intermediate, self.mlp_bias),
                output: with(MODERN_BERT.output, self.mlp_bias),
                norm_bias: self.norm_bias == Some(true),
                ..MODERN_BERT
            },
            ..self.base()
        })
    }

    /// Returns the key that describes the ropes and its value, maybe empty; two keys are an error.
    fn rope_settings(&self) -> Result<(&'static str, Map<String, Value>), String> {
        let [old, new] = [&self.rope_scaling, &self.rope_parameters].map(Option::clone);
        match (old.unwrap_or_default(), new.unwrap_or_default()) {
            (old, new) if old.is_empty() => Ok(("rope_parameters", new)),
            (old, new) if new.is_empty() => Ok(("rope_scaling", old)),
            _ => Err("rope_scaling stands beside rope_parameters; give one".into()),
        }
    }

    /// Returns the ropes of `ModernBERT`, one for each kind; `rope_scaling` applies to both.
    fn ropes_by_kind(&self) -> Result<Vec<Rope>, String> {
        let (name, said) = self.rope_settings()?;
        let is_change = name == "rope_scaling";
        // transformers adds a `rope_type`, which takes precedence over `type`.
        if is_change && said.contains_key("type") {
            return Err("rope_scaling.type is not read for modernbert; give rope_type".into());
        }
        let mut kinds = said.keys().filter(|_| !is_change);
        kinds.try_for_each(|key| {
            check_value("a key of rope_parameters", &key.as_str().into(), KINDS)
        })?;
        let global = self.global_rope_theta.unwrap_or(160_000.0);
        let of_kind = |(kind, theta): (&str, f64)| {
            let of_kind = said.get(kind).cloned().unwrap_or_else(|| Map::new().into());
            let said = if is_change { said.clone().into() } else { of_kind };
            self.parse_rope(&format!("{name}.{kind}"), said, theta)
        };
        let thetas = [global, self.local_rope_theta.unwrap_or(global)];
        KINDS.split(' ').zip(thetas).map(of_kind).collect()
    }

    /// Parses `said`, the rope under the key `name`, with the default base `theta`. For GTE's older
    /// NTK scaling by a factor f, the base is `theta · f` and the divisor `f^(2 / head_size)`.
    /// Dynamic scaling has no effect, because it starts beyond the model's positions.
    fn parse_rope(&self, name: &str, said: Value, theta: f64) -> Result<Rope, String> {
        let said: RopeParameters =
            serde_json::from_value(said).map_err(|e| format!("{name} is no rope: {e}"))?;
        let theta = said.rope_theta.unwrap_or(theta);
        let head_size = self.hidden_size as f64 / self.num_attention_heads.max(1) as f64;
        let kind = said.rope_type.as_ref().or(said.kind.as_ref()).map_or("default", String::as_str);
        check_value(&format!("{name}.rope_type"), &kind.into(), "default dynamic linear ntk")?;
        let factor = match kind {
            "default" | "dynamic" => 1.0,
            _ => said.factor.ok_or_else(|| format!("{name} has no factor"))?,
        };
        let rope = match kind {
            "ntk" if factor < 1.0 => {
                return Err(format!("{name}.factor is {factor}; supported: 1 and more"));
            }
            "ntk" => Rope { theta: theta * factor, divisor: libm::pow(factor, 2.0 / head_size) },
            _ => Rope { theta, divisor: factor },
        };
        for (key, value) in &said.others {
            let one = if key == "partial_rotary_factor" { "1.0" } else { "" };
            if key != "original_max_position_embeddings" {
                check_value(&format!("{name}.{key}"), value, one)?;
            }
        }
        let is_sound = [rope.theta, rope.divisor].iter().all(|v| v.is_finite() && *v > 0.0);
        let wrong = || format!("rope_theta is {theta} with the divisor {}", rope.divisor);
        is_sound.then_some(rope).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"{"model_type":"xlm-roberta","hidden_size":12,"num_hidden_layers":1,
        "num_attention_heads":3,"intermediate_size":8,"vocab_size":9,"max_position_embeddings":514}"#;

    fn parse(from: &str, to: &str) -> Result<Architecture> {
        assert!(BASE.contains(from));
        super::parse(BASE.replace(from, to).as_bytes(), Path::new("m/config.json"), u64::MAX)
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
        assert_eq!(bert.positions.table_rows(&[5, 0, 7]).collect::<Vec<_>>(), [0, 1, 2]);
        let roberta = parse("xlm-roberta\"", "xlm-roberta\",\"pad_token_id\":0")?;
        assert_eq!(roberta.positions.table_rows(&[5, 0, 7]).collect::<Vec<_>>(), [1, 0, 2]);
        Ok(())
    }

    #[test]
    fn the_two_spellings_of_modernberts_layers_and_of_gtes_scaling_agree() -> Result<()> {
        let layers = "modernbert\",\"num_hidden_layers\":4,";
        let base = BASE.replace("\"num_hidden_layers\":1,", "");
        let parse = |to: &str| {
            super::parse(base.replace("xlm-roberta\",", to).as_bytes(), Path::new("m"), u64::MAX)
        };
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
            ("xlm-roberta\",\"hidden_size", "distilbert\",\"dim", "model_type is `distilbert`"),
            ("{", r#"{"hidden_act":"gelu_new","#, "hidden_act is `gelu_new`"),
            ("{", r#"{"position_embedding_type":"relative_key","#, "`relative_key`"),
            ("_heads\":3", "_heads\":5", "hidden_size 12 is no multiple of 5 heads"),
            ("_heads\":3", "_heads\":0", "num_attention_heads is 0"),
            ("514", "2", "2 positions after pad_token_id 1 leave no token"),
            ("{", r#"{"layer_norm_eps":-1.0,"#, "layer_norm_eps is -1"),
            ("{", r#"{"type_vocab_size":0,"#, "type_vocab_size is 0"),
            (
                r#"xlm-roberta","#,
                r#"gte","rope_scaling":{"type":"yarn"},"#,
                "rope_scaling.rope_type is `yarn`",
            ),
            (r#"xlm-roberta","#, r#"new","rope_theta":0,"#, "rope_theta is 0"),
            (r#"xlm-roberta","#, r#"new","logn_attention_scale":true,"#, "logn_attention_scale"),
            (r#"xlm-roberta","#, r#"modernbert","layer_types":["linear"],"#, "is `linear`"),
            (
                r#"xlm-roberta","#,
                r#"new","rope_scaling":{"type":"ntk","factor":8,"mixed_b":0.5},"#,
                "rope_scaling.mixed_b is `0.5`",
            ),
            (
                r#"xlm-roberta","#,
                r#"new","rope_scaling":{"type":"ntk","factor":0.5},"#,
                "rope_scaling.factor is 0.5; supported: 1 and more",
            ),
            (
                r#"xlm-roberta","#,
                r#"gte","rope_parameters":{"rope_type":"linear"},"#,
                "rope_parameters has no factor",
            ),
            (
                r#"xlm-roberta","#,
                r#"gte","rope_parameters":{"full_attention":{"rope_theta":9.0}},"#,
                "rope_parameters.full_attention is `{\"rope_theta\":9.0}`",
            ),
            (
                r#"xlm-roberta","#,
                r#"modernbert","rope_parameters":{"rope_theta":9.0},"#,
                "a key of rope_parameters is `rope_theta`; supported: full_attention, sliding",
            ),
            (
                r#"xlm-roberta","#,
                r#"modernbert","rope_scaling":{"type":"linear","factor":4},"#,
                "rope_scaling.type is not read for modernbert",
            ),
            (r#"xlm-roberta","#, r#"modernbert","layer_types":[],"#, "has 0 entries for 1 layers"),
            (
                r#"xlm-roberta","#,
                r#"gte","head_dim":8,"#,
                "head_dim is not hidden_size by num_attention_heads, 4",
            ),
            (r#"xlm-roberta","#, r#"camembert","pad_token_id":-1,"#, "pad_token_id is no token id"),
            (r#"xlm-roberta","#, r#"roberta","pad_token_id":null,"#, "pad_token_id is no token id"),
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
