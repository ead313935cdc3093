//! Which texts a row of a report is about.

use serde::Serialize;

/// Which texts a row is about.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TextGroup {
    /// Name of the head.
    pub head: String,
    /// The language, or `mean` for the mean over them.
    pub language: String,
    /// `all`, or `source: NAME`.
    pub texts: String,
    /// The grade above which a text is positive; `None` where labels are classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<f64>,
}
