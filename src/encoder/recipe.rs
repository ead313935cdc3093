//! Describes how texts become embeddings, as far as a head depends on it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::json;

use polysift_config::Pooling;

/// How texts become the embeddings that a head scores, resolved from the settings and the model's
/// files. The recipe does not include the device or the precision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Recipe {
    /// BLAKE3 in hex over `config.json`, the weights (shards by file name) and `tokenizer.json`:
    /// each file's length (u64, little endian), then its bytes. Empty if unknown.
    #[serde(rename = "digest", default, skip_serializing_if = "String::is_empty")]
    pub model_digest: String,
    /// How token states become one vector.
    pub pooling: Pooling,
    /// Digests of the linear maps that are applied to the pooled vector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dense: Vec<String>,
    /// Number of values in an embedding; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<usize>,
    /// Whether the embedding is divided by its L2 norm.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub normalize: bool,
    /// Text that is put before each text.
    pub prompt: String,
    /// Maximum number of tokens in a chunk.
    pub max_tokens: usize,
    /// Number of characters of a document that are tokenized; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
}

impl Recipe {
    /// Returns the BLAKE3 digest, in hex, of the recipe as compact JSON.
    pub fn digest(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        blake3::hash(&json).to_hex().to_string()
    }

    /// Describes the known differences between this recipe and `other`, which made the embeddings,
    /// and the flags that resolve them; returns `None` if there is no difference.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let (mut differences, mut flags) = (Vec::new(), String::new());
        let mut hold = |key: &str, [wanted, found]: [String; 2]| {
            if wanted != found {
                differences.push(format!("{key} {wanted}, not {found}"));
                // A shell takes the value in single quotes.
                let value = wanted.replace('\'', "'\\''");
                let _ = write!(flags, " --set 'encoder.{key}={value}'");
            }
        };
        hold("pooling", [self, other].map(|recipe| recipe.pooling.to_string()));
        hold("normalize", [self, other].map(|recipe| recipe.normalize.to_string()));
        hold("prompt", [self, other].map(|recipe| json!(recipe.prompt).to_string()));
        hold("max_tokens", [self, other].map(|recipe| recipe.max_tokens.to_string()));
        if self.max_chars.is_some() {
            let chars = |recipe: &Self| recipe.max_chars.map_or("all".into(), |n| n.to_string());
            hold("max_chars", [self, other].map(chars));
        }
        if let (Some(wanted), Some(found)) = (self.dimensions, other.dimensions) {
            hold("dimensions", [wanted, found].map(|values| values.to_string()));
        }
        // No flag can unset a setting.
        if let (None, Some(found)) = (self.max_chars, other.max_chars) {
            differences.push(format!("max_chars not set, not {found}"));
        }
        if self.dense != other.dense {
            differences.push(format!("the linear maps {:?}, not {:?}", self.dense, other.dense));
        }
        if differences.is_empty() {
            return None;
        }
        let mend = if flags.is_empty() { String::new() } else { format!("; give{flags}") };
        Some(format!(
            "needs embeddings that are made in another way: {}{mend}",
            differences.join("; ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_of_recipes_says_how_to_mend_it() {
        let head = Recipe {
            pooling: Pooling::Cls,
            normalize: true,
            prompt: "it's: ".into(),
            max_tokens: 8192,
            ..Recipe::default()
        };
        let run = Recipe { max_tokens: 512, dimensions: Some(768), ..Recipe::default() };
        assert_eq!(head.difference(&Recipe { dimensions: Some(9), ..head.clone() }), None);
        let difference = head.difference(&run).unwrap_or_default();
        let flags = "; give --set 'encoder.pooling=cls' --set 'encoder.normalize=true' \
                     --set 'encoder.prompt=\"it'\\''s: \"' --set 'encoder.max_tokens=8192'";
        assert!(difference.contains("pooling cls, not mean; normalize true, not false"));
        assert!(difference.ends_with(flags), "{difference}");
        let short = Recipe { max_chars: Some(10_000), ..run.clone() };
        let difference = short.difference(&run).unwrap_or_default();
        let mend = "max_chars 10000, not all; give --set 'encoder.max_chars=10000'";
        assert!(difference.ends_with(mend), "{difference}");
        let difference = run.difference(&short).unwrap_or_default();
        assert!(difference.ends_with("max_chars not set, not 10000"), "{difference}");
        let cut = Recipe { dimensions: Some(256), ..run.clone() };
        let difference = cut.difference(&run).unwrap_or_default();
        assert!(difference.ends_with("--set 'encoder.dimensions=256'"), "{difference}");
    }

    #[test]
    fn every_part_of_a_recipe_is_in_its_digest() {
        let recipe = Recipe { model_digest: "m".into(), max_tokens: 512, ..Recipe::default() };
        let others = [
            Recipe { model_digest: "n".into(), ..recipe.clone() },
            Recipe { pooling: Pooling::Last, ..recipe.clone() },
            Recipe { dense: vec!["d".into()], ..recipe.clone() },
            Recipe { dimensions: Some(256), ..recipe.clone() },
            Recipe { normalize: true, ..recipe.clone() },
            Recipe { prompt: "query: ".into(), ..recipe.clone() },
            Recipe { max_tokens: 256, ..recipe.clone() },
            Recipe { max_chars: Some(256), ..recipe.clone() },
        ];
        assert!(others.iter().all(|other| other.digest() != recipe.digest()));
        assert_eq!(recipe.clone().digest(), recipe.digest());
    }
}
