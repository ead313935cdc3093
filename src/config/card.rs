//! `[card]`: facts for the data set card that a run cannot know.

use serde::{Deserialize, Serialize};

/// Settings of `[card]`; the card keeps a to-do for each one that is unset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct CardConfig {
    /// Hub repository of the data set, as `OWNER/NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Display name of the data set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretty_name: Option<String>,
    /// Licence identifier as hubs write it, such as `odc-by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Origin of the documents and their terms of use, in Markdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Citation of the data set, in BibTeX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub citation: Option<String>,
    /// Jinja template that replaces the built-in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

impl CardConfig {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
