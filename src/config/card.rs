//! `[card]`: what a run cannot know of the data set that is made of its export.

use serde::{Deserialize, Serialize};

/// `[card]`; what is missing stays to be done in the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct CardConfig {
    /// Repository of the hub that it is for, `OWNER/NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretty_name: Option<String>,
    /// Licence, as hubs abbreviate it: `odc-by`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Where the documents are from and on what terms, in Markdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// How to cite it, in BibTeX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub citation: Option<String>,
    /// Template in place of the built-in one, in the language of Jinja.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

impl CardConfig {
    /// Whether nothing is set.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
