//! What the configuration of a model for sequence classification says of its head, whose layers are told by
//! the names of their tensors.

use std::collections::BTreeMap;

use serde::Deserialize;

use polysift_config::{Activation, HeadOutput, Pooling};

/// The end of the names of such classes.
const CLASS: &str = "ForSequenceClassification";

/// What the head of a model for sequence classification takes and gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Classifier {
    /// What it takes.
    pub pooling: Pooling,
    /// Between its layers, where the configuration says it.
    pub activation: Option<Activation>,
    /// Of its norm, where it has one.
    pub norm_eps: Option<f64>,
    problem_type: Option<String>,
    labels: BTreeMap<usize, String>,
}

/// The class of a model.
#[derive(Deserialize)]
struct Classes {
    architectures: Option<Vec<String>>,
}

/// The keys of a `config.json`.
#[derive(Deserialize)]
struct ClassifierConfig {
    model_type: String,
    id2label: Option<BTreeMap<usize, String>>,
    problem_type: Option<String>,
    classifier_pooling: Option<String>,
    classifier_activation: Option<Activation>,
    norm_eps: Option<f64>,
}

impl Classifier {
    /// What `config.json` says; `Ok(None)` if the model is of another class.
    pub fn parse(json: &[u8]) -> Result<Option<Self>, String> {
        let classes: Classes = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        if !classes.architectures.into_iter().flatten().any(|class| class.ends_with(CLASS)) {
            return Ok(None);
        }
        let config: ClassifierConfig = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        // All others have the first token in a dense layer with tanh.
        let is_modern = config.model_type == "modernbert";
        let pooling = match config.classifier_pooling.as_deref().filter(|_| is_modern) {
            None | Some("cls") => Pooling::Cls,
            Some("mean") => Pooling::Mean,
            Some(other) => {
                return Err(format!("classifier_pooling is `{other}`; supported: cls, mean"));
            }
        };
        Ok(Some(Self {
            pooling,
            activation: config.classifier_activation.filter(|_| is_modern),
            norm_eps: config.norm_eps.filter(|_| is_modern),
            problem_type: config.problem_type,
            labels: config.id2label.unwrap_or_default(),
        }))
    }

    /// What the score of a single output is; of several one has to be chosen.
    pub fn output(&self, outputs: usize) -> Option<HeadOutput> {
        let is_label = self.problem_type.as_deref() == Some("multi_label_classification");
        (outputs == 1).then_some(if is_label { HeadOutput::Sigmoid } else { HeadOutput::Raw })
    }

    /// Names of the outputs, those of transformers where the configuration has none.
    pub fn labels(&self, outputs: usize) -> Vec<String> {
        let name = |k| self.labels.get(&k).cloned().unwrap_or_else(|| format!("LABEL_{k}"));
        (0..outputs).map(name).collect()
    }
}
