//! Reads what the configuration of a sequence classification model says about its classification
//! head. The names of the head's tensors determine its layers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use polysift_config::{Activation, HeadOutput, Pooling};

/// Suffix of the class names of these models.
const CLASS: &str = "ForSequenceClassification";

/// Configuration of the head of a sequence classification model.
#[derive(Debug, Clone, PartialEq)]
pub struct Classifier {
    /// How the head pools token states.
    pub pooling: Pooling,
    /// The activation between the head's layers, if the configuration names it.
    pub activation: Option<Activation>,
    /// Epsilon of the head's norm, if it has one.
    pub norm_eps: Option<f64>,
    problem_type: Option<String>,
    labels: BTreeMap<usize, String>,
}

#[derive(Deserialize)]
struct ClassifierConfig {
    model_type: String,
    /// Mostly strings; some models have numbers.
    id2label: Option<BTreeMap<usize, Value>>,
    problem_type: Option<String>,
    classifier_pooling: Option<String>,
    norm_eps: Option<f64>,
}

impl Classifier {
    /// Parses `config.json`; returns `Ok(None)` if the model belongs to another class.
    pub fn parse(json: &[u8]) -> Result<Option<Self>, String> {
        let keys: Value = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        let classes = keys["architectures"].as_array().into_iter().flatten();
        if !classes.filter_map(Value::as_str).any(|class| class.ends_with(CLASS)) {
            return Ok(None);
        }
        let config = ClassifierConfig::deserialize(&keys).map_err(|e| e.to_string())?;
        let label = |(output, label): (usize, Value)| {
            (output, label.as_str().map_or_else(|| label.to_string(), str::to_owned))
        };
        // All other families pass the first token through a dense layer with tanh.
        let is_modern = config.model_type == "modernbert";
        let pooling = match config.classifier_pooling.as_deref().filter(|_| is_modern) {
            None | Some("cls") => Pooling::Cls,
            Some("mean") => Pooling::Mean,
            Some(other) => {
                return Err(format!("classifier_pooling is `{other}`; supported: cls, mean"));
            }
        };
        let activation = if is_modern { &keys["classifier_activation"] } else { &Value::Null };
        let activation = Option::<Activation>::deserialize(activation);
        let activation = activation.map_err(|e| format!("classifier_activation: {e}"))?;
        Ok(Some(Self {
            pooling,
            activation,
            norm_eps: config.norm_eps.filter(|_| is_modern),
            problem_type: config.problem_type,
            labels: config.id2label.unwrap_or_default().into_iter().map(label).collect(),
        }))
    }

    /// Returns how a single output becomes a score; `None` if the user has to choose among several.
    pub fn output(&self, outputs: usize) -> Option<HeadOutput> {
        let is_label = self.problem_type.as_deref() == Some("multi_label_classification");
        (outputs == 1).then_some(if is_label { HeadOutput::Sigmoid } else { HeadOutput::Raw })
    }

    /// Returns the names of the outputs; unnamed ones get transformers' `LABEL_{k}`.
    pub fn labels(&self, outputs: usize) -> Vec<String> {
        let name = |k| self.labels.get(&k).cloned().unwrap_or_else(|| format!("LABEL_{k}"));
        (0..outputs).map(name).collect()
    }
}
