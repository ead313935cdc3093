//! Tables of JSON lines: an object a line.

use super::{Cell, InputFile, Json, Lines, Rows, Values, missing};
use crate::config::DEFAULT_MAX_DOCUMENT_BYTES;
use crate::error::{Error, Result};
use crate::input::json::Value;
use crate::input::json_lines::object;
use crate::input::lines::Line;

/// The objects of a file.
pub(super) struct Objects {
    lines: Lines,
    line: Line,
    required: Vec<String>,
    optional: Vec<String>,
    first: bool,
}

impl Objects {
    pub(super) fn open(file: &InputFile) -> Result<Self> {
        Ok(Self {
            lines: Lines::open(file, DEFAULT_MAX_DOCUMENT_BYTES)?,
            line: Line::default(),
            required: Vec::new(),
            optional: Vec::new(),
            first: true,
        })
    }

    /// The same objects with these columns.
    pub(super) fn columns(mut self, required: &[&str], optional: &[&str]) -> Self {
        self.required = required.iter().map(|&name| name.to_owned()).collect();
        self.optional = optional.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Keys of the first object.
    pub(super) fn first_keys(mut self) -> Result<Vec<String>> {
        if !self.lines.read(&mut self.line)? {
            return Ok(Vec::new());
        }
        let row = self.line.row + 1;
        let path = self.lines.path().to_owned();
        keys(&self.line).map_err(|reason| Error::Row { path, row, reason, count: 1 })
    }

    fn values(&self) -> Values {
        let json = object(&self.line)?;
        let names = self.required.iter().chain(&self.optional);
        names.map(|name| json.get(name).map_or(Ok(None), |value| cell(name, value))).collect()
    }
}

impl Rows for Objects {
    fn next(&mut self) -> Result<Option<(u64, Values)>> {
        if !self.lines.read(&mut self.line)? {
            return Ok(None);
        }
        // A first line that is no object is a bad row as any other.
        if let (true, Ok(found)) = (std::mem::take(&mut self.first), keys(&self.line))
            && let Some(name) = self.required.iter().find(|name| !found.contains(name))
        {
            return Err(missing(self.lines.path(), name, &found));
        }
        Ok(Some((self.line.row, self.values())))
    }
}

fn keys(line: &Line) -> Result<Vec<String>, String> {
    Ok(object(line)?.keys().map(ToOwned::to_owned).collect())
}

fn cell(name: &str, value: &Json<'_>) -> Result<Option<Cell>, String> {
    if let Value::Array(items) = &value.value {
        let items = items.iter().map(|item| text(name, item)).collect::<Result<_, _>>()?;
        return Ok(Some(Cell::List(items)));
    }
    Ok(text(name, value)?.map(Cell::Text))
}

/// Strings as they are, numbers and booleans as they are written.
fn text(name: &str, value: &Json<'_>) -> Result<Option<String>, String> {
    match &value.value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.to_string())),
        Value::Number | Value::Bool(_) => Ok(Some(value.raw.to_owned())),
        Value::Array(_) | Value::Object(_) => {
            Err(format!("`{name}` is {}, not text", value.kind()))
        }
    }
}
