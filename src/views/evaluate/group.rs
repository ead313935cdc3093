//! Key of a row in an evaluation report: the texts that the row is about.

use serde::Serialize;

/// The texts that a row is about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TextGroup {
    /// Name of the head.
    pub head: String,
    /// The language, or `mean` for the mean over the languages.
    pub language: String,
    /// `all`, or `source: NAME`.
    pub texts: String,
    /// The grade above which a text is positive; `None` if the labels are classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<f64>,
}
