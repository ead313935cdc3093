//! `[card]`: facts for the data set card that a run cannot know.

use serde::{Deserialize, Serialize};

/// Settings of `[card]`; the card keeps a to-do for each one that is unset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct CardConfig {
    /// Hub repository of the data set, as `OWNER/NAME`.
    pub repository: Option<String>,
    /// Display name of the data set.
    pub pretty_name: Option<String>,
    /// Licence identifier as hubs write it, such as `odc-by`.
    pub license: Option<String>,
    /// Origin of the documents and their terms of use, in Markdown.
    pub source: Option<String>,
    /// Citation of the data set, in BibTeX.
    pub citation: Option<String>,
    /// Jinja template that replaces the built-in one.
    pub template: Option<String>,
}
