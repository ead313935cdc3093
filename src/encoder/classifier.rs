//! Reads what the configuration of a sequence classification model says about its classification
//! head. The names of the head's tensors determine its layers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::keys::check_value;
use polysift_config::{Activation, HeadOutput, Pooling};

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
    /// Mostly strings; some models have numbers.
    labels: BTreeMap<usize, Value>,
}

impl Classifier {
    /// Parses `config.json`; returns `Ok(None)` if the model belongs to another class.
    pub fn parse(json: &[u8]) -> Result<Option<Self>, String> {
        let keys: Value = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        let classes = keys["architectures"].as_array().into_iter().flatten();
        let mut classes = classes.filter_map(Value::as_str);
        if !classes.any(|class| class.ends_with("ForSequenceClassification")) {
            return Ok(None);
        }
        // All other families pass the first token through a dense layer with tanh.
        let is_modern = keys["model_type"] == "modernbert";
        let of_modern = |key: &str| if is_modern { &keys[key] } else { &Value::Null };
        let pooling = of_modern("classifier_pooling");
        check_value("classifier_pooling", pooling, "cls mean")?;
        let activation = Option::deserialize(of_modern("classifier_activation"));
        let labels = Option::deserialize(&keys["id2label"]);
        Ok(Some(Self {
            pooling: if pooling == "mean" { Pooling::Mean } else { Pooling::Cls },
            activation: activation.map_err(|e| format!("classifier_activation: {e}"))?,
            norm_eps: of_modern("norm_eps").as_f64(),
            problem_type: keys["problem_type"].as_str().map(str::to_owned),
            labels: labels.map_err(|e| format!("id2label: {e}"))?.unwrap_or_default(),
        }))
    }

    /// Returns how a single output becomes a score; `None` if the user has to choose among several.
    pub fn output(&self, outputs: usize) -> Option<HeadOutput> {
        let is_label = self.problem_type.as_deref() == Some("multi_label_classification");
        (outputs == 1).then_some(if is_label { HeadOutput::Sigmoid } else { HeadOutput::Raw })
    }

    /// Returns the names of all outputs; unnamed ones get `LABEL_{k}`, as in transformers.
    pub fn labels(&self, outputs: usize) -> Vec<String> {
        let name = |k| match self.labels.get(&k) {
            Some(Value::String(label)) => label.clone(),
            Some(label) => label.to_string(),
            None => format!("LABEL_{k}"),
        };
        (0..outputs).map(name).collect()
    }
}
