//! fastText models: their files, and their scores for a line of text.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::path::Path;

use super::dictionary::{Dictionary, LineRows};
use super::matrix::{WordMatrix, scale};
use super::settings::{ModelLoss, ModelSettings};
use super::source::{ModelReader, broken};
use super::tree::{LabelTree, std_log};
use polysift_base::error::{Error, Result};
use polysift_base::io::{AtomicFile, FileStamp, open};

const MAGIC: i32 = 793_712_314;
/// Version of the format that is written; also the newest that is read.
const VERSION: i32 = 12;

/// Bound of the table of sigmoids on both sides, and its number of steps.
const SIGMOID_END: f32 = 8.0;
const SIGMOID_STEPS: f32 = 512.0;

/// A fastText classifier as trained by `fasttext supervised`.
#[derive(Debug, Clone)]
pub struct FastTextModel {
    /// Settings that the model was trained with.
    pub settings: ModelSettings,
    /// Its words and labels.
    pub dictionary: Dictionary,
    /// `[words + buckets, dim]`.
    pub(super) input: WordMatrix,
    /// `[labels, dim]`.
    pub(super) output: WordMatrix,
    /// Empty without [`ModelLoss::Hierarchical`].
    pub(super) tree: LabelTree,
}

/// Buffers for scoring, reused between calls.
#[derive(Debug, Default)]
pub struct TextScratch {
    line: LineRows,
    hidden: Vec<f32>,
    outputs: Vec<f32>,
}

/// fastText's sigmoid (C++ `Loss::sigmoid`): the entry below `x` of 512 steps from -8 to 8.
fn sigmoid(x: f32) -> f32 {
    if x < -SIGMOID_END {
        0.0
    } else if x > SIGMOID_END {
        1.0
    } else {
        let step = ((x + SIGMOID_END) * SIGMOID_STEPS / SIGMOID_END / 2.0).floor();
        let at = step * 2.0 * SIGMOID_END / SIGMOID_STEPS - SIGMOID_END;
        (1.0 / (1.0 + f64::from((-at).exp()))) as f32
    }
}

impl FastTextModel {
    /// Reads a `.bin` or `.ftz` file and its BLAKE3 (C++ `FastText::loadModel`), with every loss,
    /// n-grams of words and characters, and quantisation.
    pub fn read(path: &Path) -> Result<(Self, String)> {
        let file = open(path)?;
        let bytes = file.metadata().map_err(Error::io(path, "read"))?.len();
        let mut source = ModelReader::new(BufReader::with_capacity(1 << 20, file), bytes);
        let read = Self::from_source(&mut source).and_then(|model| Ok((model, source.finish()?)));
        read.map_err(|error| match error.kind() {
            ErrorKind::InvalidData => Error::model(path, error.to_string()),
            _ => Error::io(path, "read")(error),
        })
    }

    /// Reads a model and checks it; bytes may be left in `source`.
    fn from_source(source: &mut ModelReader<impl Read>) -> io::Result<Self> {
        if source.left < 8 || source.read_i32()? != MAGIC {
            return broken("is not a fastText model of version 11 or 12");
        }
        let version = source.read_i32()?;
        if !(11..=VERSION).contains(&version) {
            return broken(format!("is of version {version} of the format; 11 and 12 are known"));
        }
        let settings = ModelSettings::read(source, version)?;
        let dictionary = Dictionary::read(source)?;
        let is_quantised = source.read_bool()?;
        let input = WordMatrix::read(source, is_quantised)?;
        let quantises_output = source.read_bool()?;
        let output = WordMatrix::read(source, is_quantised && quantises_output)?;
        let mut model = Self { settings, dictionary, input, output, tree: LabelTree::default() };
        model.check()?;
        if model.settings.loss == ModelLoss::Hierarchical {
            model.tree = LabelTree::new(&model.dictionary.counts[model.dictionary.num_words..])?;
        }
        Ok(model)
    }

    /// Checks that the parts fit together, so that every row of a line exists.
    fn check(&self) -> io::Result<()> {
        let Self { settings, dictionary, input, output, .. } = self;
        let Some(rows) = dictionary.num_rows(settings) else {
            return broken("has pruned n-grams without a place in its matrix");
        };
        if dictionary.pruned.is_some() && matches!(input, WordMatrix::Dense(_)) {
            return broken("is pruned but not quantised, which fastText refuses too");
        }
        if dictionary.num_labels() == 0 {
            return broken("has no labels");
        }
        let dim = settings.dim;
        for (name, matrix, rows) in
            [("input", input, rows), ("output", output, dictionary.num_labels())]
        {
            let (found, cols) = matrix.shape();
            if (found, cols) != (rows, dim) {
                return broken(format!(
                    "has an {name} matrix of {found} rows of {cols} values where {rows} of {dim} \
                     are needed"
                ));
            }
        }
        if dim == 0 { broken("has vectors of no values") } else { Ok(()) }
    }

    /// Writes the model, which must not be quantised, whole or not at all (C++ `saveModel`).
    pub fn write(&self, path: &Path) -> Result<FileStamp> {
        let mut file = AtomicFile::create(path)?;
        let mut write = || -> io::Result<()> {
            file.write_all(&MAGIC.to_le_bytes())?;
            file.write_all(&VERSION.to_le_bytes())?;
            self.settings.write(&mut file)?;
            self.dictionary.write(&mut file)?;
            file.write_all(&[0])?; // not quantised
            self.input.write(&mut file)?;
            file.write_all(&[0])?;
            self.output.write(&mut file)
        };
        write().map_err(Error::io(path, "write"))?;
        file.commit()
    }

    /// Returns the labels, with their prefix, in the order of the file.
    pub fn labels(&self) -> Vec<String> {
        let text = |at| String::from_utf8_lossy(self.dictionary.label(at)).into_owned();
        (0..self.dictionary.num_labels()).map(text).collect()
    }

    /// Returns the logit of the label with this index for the first line of `text`, its log-odds
    /// (softmax) or output (other losses), and fastText's probability of it. Returns `None` if the
    /// model knows no word of the line, for which fastText makes no prediction.
    pub fn score(&self, text: &str, label: usize, scratch: &mut TextScratch) -> Option<(f32, f32)> {
        let outputs = self.compute_outputs(text, scratch)?;
        let output = *outputs.get(label)?;
        let logit = match self.settings.loss {
            ModelLoss::NegativeSampling | ModelLoss::OneVersusAll => output,
            ModelLoss::Hierarchical => {
                let hidden = &scratch.hidden;
                let log_odds = self.tree.log_odds(|fork| self.output.dot_row(fork, hidden), label);
                return Some((log_odds as f32, output.exp()));
            }
            ModelLoss::Softmax => {
                let others = || outputs[..label].iter().chain(&outputs[label + 1..]).copied();
                let largest = others().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = others().map(|z| f64::from(z - largest).exp()).sum();
                (f64::from(output) - f64::from(largest) - sum.ln()) as f32
            }
        };
        Some((logit, self.probability(outputs, label)))
    }

    /// Returns the index and fastText's probability of the best label for the first line of `text`,
    /// the last of equal ones (C++ `Loss::findKBest`); `None` if the model knows no word of it.
    pub fn best(&self, text: &str, scratch: &mut TextScratch) -> Option<(usize, f32)> {
        let outputs = self.compute_outputs(text, scratch)?;
        let value = |label: usize| match self.settings.loss {
            ModelLoss::NegativeSampling | ModelLoss::OneVersusAll => sigmoid(outputs[label]),
            ModelLoss::Hierarchical | ModelLoss::Softmax => outputs[label],
        };
        let better = |best, label| if value(label) >= value(best) { label } else { best };
        let best = (0..outputs.len()).reduce(better)?;
        Some((best, self.probability(outputs, best)))
    }

    /// Returns fastText's probability of `label`, exp(log(p + 0.00001)) at every sigmoid or
    /// softmax.
    fn probability(&self, outputs: &[f32], label: usize) -> f32 {
        match self.settings.loss {
            ModelLoss::NegativeSampling | ModelLoss::OneVersusAll => {
                std_log(sigmoid(outputs[label])).exp()
            }
            ModelLoss::Hierarchical => outputs[label].exp(),
            ModelLoss::Softmax => std_log(softmax(outputs, label)).exp(),
        }
    }

    /// Returns the logits of all labels, or the logarithms of probabilities of a hierarchical loss;
    /// `None` if the model knows no word of the first line of `text`.
    fn compute_outputs<'a>(&self, text: &str, scratch: &'a mut TextScratch) -> Option<&'a [f32]> {
        let TextScratch { line, hidden, outputs } = scratch;
        self.dictionary.find_rows(&self.settings, text.as_bytes(), line);
        if line.rows.is_empty() {
            return None;
        }
        hidden.clear();
        hidden.resize(self.settings.dim, 0.0);
        for &row in &line.rows {
            self.input.add_row(row as usize, hidden);
        }
        scale(hidden, (1.0 / line.rows.len() as f64) as f32);
        outputs.clear();
        if self.settings.loss == ModelLoss::Hierarchical {
            self.tree.log_probabilities(|fork| self.output.dot_row(fork, hidden), outputs);
        } else {
            let labels = 0..self.dictionary.num_labels();
            outputs.extend(labels.map(|label| self.output.dot_row(label, hidden)));
        }
        Some(outputs)
    }
}

/// Returns the probability of `label` in f32, like fastText (C++ `SoftmaxLoss::computeOutput`).
fn softmax(outputs: &[f32], label: usize) -> f32 {
    let largest = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = outputs.iter().map(|z| (z - largest).exp()).sum();
    (outputs[label] - largest).exp() / sum
}

/// Returns true if the file at `path` begins like a fastText model.
pub fn is_model(path: &Path) -> Result<bool> {
    let mut start = Vec::new();
    open(path)?.take(4).read_to_end(&mut start).map_err(Error::io(path, "read"))?;
    Ok(start == MAGIC.to_le_bytes())
}
