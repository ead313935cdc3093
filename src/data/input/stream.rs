//! Documents as they come in: lines of JSON, one by one, each with the line that it stands on.

use std::io::BufRead;
use std::path::Path;

use super::Reject;
use super::columns::{ColumnKind, ColumnRequest};
use super::json_lines::{JsonField, LineChecker, find};
use super::lines::{LineReader, TextLine};
use polysift_base::error::Result;
use polysift_config::{InputConfig, LanguageSource};

/// Keys of the language and the script of a document where the settings name none.
const LANGUAGE_COLUMNS: [&str; 2] = ["language", "language_script"];

/// One document of a [`DocumentStream`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamDocument {
    /// Number of its line, counted from 0.
    pub row: u64,
    /// The object as it stands on its line, from `{` to `}`.
    pub object: String,
    /// Its keys.
    pub keys: Vec<String>,
    /// Its id; of a document without one, `<row>`.
    pub id: String,
    /// Its language.
    pub language: String,
    /// Its text; `None` where it is null.
    pub text: Option<String>,
    /// The values of the columns that were asked for, as text.
    pub columns: Vec<Option<String>>,
}

/// Reads documents from lines of JSON.
pub struct DocumentStream {
    lines: LineReader,
    line: TextLine,
    checker: LineChecker,
    text: String,
    fixed_language: Option<String>,
    default_language: Option<String>,
    has_script: bool,
}

impl DocumentStream {
    /// The documents of `reader`, which messages call `name`. Text, id and language have the columns that `config`
    /// names, found as those of files are; a language that no setting names is in `language` (and
    /// `language_script`), or it is `default_language`. Of `columns` the values are read too.
    pub fn new(
        reader: Box<dyn BufRead + Send>,
        name: &Path,
        config: &InputConfig,
        default_language: Option<&str>,
        columns: &[String],
    ) -> Self {
        let [language, script] = match &config.language {
            LanguageSource::Column { column, script_column } => {
                [Some(column.as_str()), script_column.as_deref()]
            }
            LanguageSource::Path => LANGUAGE_COLUMNS.map(Some),
            LanguageSource::Fixed(_) => [None, None],
        };
        let scalar = |name: &str| ColumnRequest::new(name, ColumnKind::Scalar, false);
        let requests = [
            ColumnRequest::new(&config.text, ColumnKind::Text, false),
            ColumnRequest::new(&config.id, ColumnKind::Id, false),
        ];
        let languages = [language, script].into_iter().flatten().map(scalar);
        let others = columns.iter().map(|name| scalar(name));
        let fixed_language = match &config.language {
            LanguageSource::Fixed(language) => Some(language.clone()),
            LanguageSource::Path | LanguageSource::Column { .. } => None,
        };
        Self {
            lines: LineReader::new(reader, name, config.max_document_bytes),
            line: TextLine::default(),
            checker: LineChecker::new(
                requests.into_iter().chain(languages).chain(others).collect(),
            ),
            text: config.text.clone(),
            fixed_language,
            default_language: default_language.map(str::to_owned),
            has_script: script.is_some(),
        }
    }

    /// The next document, or the next line that is none; `None` at the end.
    ///
    /// # Errors
    /// Those of reading.
    pub fn next_document(&mut self) -> Result<Option<Result<StreamDocument, Reject>>> {
        if !self.lines.read(&mut self.line)? {
            return Ok(None);
        }
        Ok(Some(self.document().map_err(|reason| Reject {
            row: self.line.row,
            reason,
            raw: self.line.bytes.clone(),
        })))
    }

    /// The document on the line, or why there is none.
    fn document(&mut self) -> Result<StreamDocument, String> {
        let mut values = Vec::new();
        let json = self.checker.check(&self.line, |fields| {
            values.extend(fields.into_iter().map(JsonField::into_text));
        })?;
        if find(&json, &self.text).is_none() {
            let keys: Vec<&str> = json.keys().collect();
            return Err(format!("has no `{}`; its keys are {}", self.text, keys.join(", ")));
        }
        let mut values = values.into_iter();
        let (text, id) = (values.next().flatten(), values.next().flatten());
        let language = if let Some(language) = &self.fixed_language {
            language.clone()
        } else {
            let code = values.next().flatten();
            let script = if self.has_script { values.next().flatten() } else { None };
            // A code with its script needs no other.
            let script = script.filter(|_| code.as_ref().is_some_and(|c| !c.contains('_')));
            let script = script.map(|script| format!("_{script}")).unwrap_or_default();
            let own = code.map(|code| code + &script);
            own.or_else(|| self.default_language.clone()).ok_or("has no language")?
        };
        let row = self.line.row;
        Ok(StreamDocument {
            row,
            object: json.raw.to_owned(),
            keys: json.keys().map(str::to_owned).collect(),
            id: id.unwrap_or_else(|| row.to_string()),
            language,
            text,
            columns: values.collect(),
        })
    }
}

impl StreamDocument {
    /// A text alone, of this language, as the object `{"text": ...}`.
    pub fn of_text(text: String, language: &str) -> Self {
        Self {
            object: serde_json::json!({"text": text}).to_string(),
            keys: vec!["text".to_owned()],
            id: "0".to_owned(),
            language: language.to_owned(),
            text: Some(text),
            ..Self::default()
        }
    }
}
