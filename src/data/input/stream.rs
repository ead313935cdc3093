//! Documents from a stream: lines of JSON, one by one, each with its line number.

use std::borrow::Cow;
use std::io::BufRead;
use std::path::Path;

use super::columns::{ColumnKind, ColumnRequest};
use super::documents::join_script;
use super::json_lines::{JsonField, LineChecker, find, parse_object};
use super::lines::{LineReader, TextLine};
use polysift_base::error::Result;
use polysift_base::language::UNDETERMINED_LANGUAGE;
use polysift_config::{InputConfig, LanguageSource};

/// Keys of the language and the script of a document if the settings name none.
const LANGUAGE_COLUMNS: [&str; 2] = ["language", "language_script"];

/// One document of a [`DocumentStream`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamDocument {
    /// Line number, counted from 0.
    pub row: u64,
    /// The object as written, from `{` to `}`.
    pub object: String,
    /// Keys of the object.
    pub keys: Vec<String>,
    /// Id; `<row>` if the document has none.
    pub id: String,
    /// Language code.
    pub language: String,
    /// Text; `None` for null.
    pub text: Option<String>,
    /// Values of the requested columns, as text.
    pub columns: Vec<Option<String>>,
}

/// Reads documents from lines of JSON.
pub struct DocumentStream {
    lines: LineReader,
    line: TextLine,
    checker: LineChecker,
    text: String,
    default_language: Option<String>,
}

impl DocumentStream {
    /// Reads the documents of `reader`, called `name` in messages, and the values of `columns`.
    /// Text, id and language are found in the columns that `config` names, as in files. If it names
    /// no language, `language` (and `language_script`) hold it, else it is `default_language`. If
    /// a model identifies languages, they are [`UNDETERMINED_LANGUAGE`] until the caller asks it.
    pub fn new(
        reader: Box<dyn BufRead + Send>,
        name: &Path,
        config: &InputConfig,
        default_language: Option<&str>,
        columns: &[String],
    ) -> Self {
        let (default_language, languages) = match &config.language {
            LanguageSource::Fixed(language) => (Some(language.as_str()), [""; 2]),
            LanguageSource::Model { .. } => (Some(UNDETERMINED_LANGUAGE), [""; 2]),
            LanguageSource::Path => (default_language, LANGUAGE_COLUMNS),
            LanguageSource::Column { column, script_column } => {
                (default_language, [column.as_str(), script_column.as_deref().unwrap_or_default()])
            }
        };
        let mut requests = vec![
            ColumnRequest::new(&config.text, ColumnKind::Text, false),
            ColumnRequest::new(&config.id, ColumnKind::Id, false),
        ];
        let others = languages.into_iter().chain(columns.iter().map(String::as_str));
        requests.extend(others.map(|name| ColumnRequest::new(name, ColumnKind::Scalar, false)));
        let lines = LineReader::new(reader, name, "JSON lines", config.max_document_bytes);
        let (line, checker) = (TextLine::default(), LineChecker::new(requests));
        let default_language = default_language.map(str::to_owned);
        Self { lines, line, checker, text: config.text.clone(), default_language }
    }

    /// Returns the next document, or the row and the fault of the next line; `None` at the end.
    pub fn next_document(&mut self) -> Result<Option<Result<StreamDocument, (u64, String)>>> {
        if !self.lines.read(&mut self.line)? {
            return Ok(None);
        }
        Ok(Some(self.document().map_err(|reason| (self.line.row, reason))))
    }

    /// Reads the document on the current line, or says why it cannot be used.
    fn document(&mut self) -> Result<StreamDocument, String> {
        let json = parse_object(&self.line)?;
        let mut values = self.checker.fields(&json)?.into_iter().map(|field| match field {
            JsonField::Text(text) => Some(text.into_owned()),
            JsonField::Null | JsonField::Vectors(_) => None,
        });
        if find(&json, &self.text).is_none() {
            let keys: Vec<&str> = json.keys().collect();
            return Err(format!("has no `{}`; its keys are {}", self.text, keys.join(", ")));
        }
        let [text, id, code, script] = [(); 4].map(|()| values.next().flatten());
        let language = join_script(code.as_deref(), script.as_deref()).map(Cow::into_owned);
        let language = language.or_else(|| self.default_language.clone());
        let language = language.ok_or("has no language")?;
        let (row, object) = (self.line.row, json.raw.to_owned());
        let keys = json.keys().map(str::to_owned).collect();
        let id = id.unwrap_or_else(|| row.to_string());
        Ok(StreamDocument { row, object, keys, id, language, text, columns: values.collect() })
    }
}

impl StreamDocument {
    /// Creates a document of a single text in `language`, as the object `{"text": ...}`.
    pub fn of_text(text: String, language: &str) -> Self {
        let object = serde_json::json!({"text": text}).to_string();
        let (keys, id, language) = (vec!["text".to_owned()], "0".to_owned(), language.to_owned());
        Self { object, keys, id, language, text: Some(text), ..Self::default() }
    }
}
