//! Columns of an exported file: their sources, their places in the layout, and the schema metadata.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, StringViewArray, StructArray};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use serde_json::{Map, Value, json};

use crate::input::{InputColumn, METADATA, column_at, dense, retyped, strings};
use crate::parts::embeddings_type;
use polysift_base::error::{Error, Result};
use polysift_config::{EmbeddingDtype, Layout};

/// Name of the exported column of embeddings.
pub const EMBEDDINGS: &str = "embeddings";
/// Name of the exported column that counts the PII found in a document.
pub const PII_COUNT: &str = "pii_count";
/// Metadata key under which Hugging Face's `datasets` stores its features.
const HUGGING_FACE: &str = "huggingface";
/// Metadata key of Spark's schema. Spark trusts it more than the columns and would miss new ones.
const SPARK: &str = "org.apache.spark.sql.parquet.row.metadata";

/// Metadata key under which an export says how it was made.
pub const PROVENANCE: &str = "polysift";

/// Which columns are exported, and how they are arranged.
///
/// - [`Layout::Flat`] (FineWeb2-HQ): the input columns in their order, then `embeddings`, the
///   scores, the retention rates, the text columns and `pii_count`. In an input of datatrove's
///   layout (`text`, `id` and a struct `metadata`) the children of the struct take its place. They
///   are null where it is null, and a child whose name is taken is called `metadata.<child>`.
/// - [`Layout::Nested`] (datatrove): `text`, `id` (left out if the input has none), and a struct
///   `metadata` of all other columns of the flat layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportSpec {
    /// Arrangement of the columns.
    pub layout: Layout,
    /// Input column of the text. A dotted name reaches into structs. [`Layout::Nested`] needs it.
    pub text: String,
    /// Input column of the id. A dotted name reaches into structs.
    pub id: String,
    /// Type of the values of the new column `embeddings`; `None` leaves the column out.
    pub embeddings: Option<EmbeddingDtype>,
    /// Whether the embeddings come from a column `embeddings` of the input: a new column takes its
    /// place, and without a new one it is dropped. Otherwise it is an error to have both.
    pub replace_embeddings: bool,
    /// Names and types of the other new columns, in this order: scores and rates (float64), the
    /// identified language and what flagging filters write (utf8), and [`PII_COUNT`] (int32).
    pub new_columns: Vec<(String, DataType)>,
    /// Whether other texts replace the input's texts.
    pub replaces_texts: bool,
}

/// Arranges the columns of an input file for the export.
#[derive(Debug)]
pub struct ExportColumns {
    top: Vec<ExportColumn>,
    /// Columns inside the struct `metadata`, which follows `top`. An empty struct is left out.
    nested: Vec<ExportColumn>,
    /// Schema of the export.
    pub schema: SchemaRef,
    /// [`Self::schema`] without dictionaries, as rows are written.
    rows: SchemaRef,
    /// Path of the input's column of texts, from the top level down, if texts may be replaced.
    text: Option<Vec<String>>,
}

#[derive(Debug, Clone)]
struct ExportColumn {
    field: FieldRef,
    source: ColumnSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ColumnSource {
    /// A column of the input, as a path from the top level down.
    Input(Vec<String>),
    /// Index of a new column; the embeddings are the first one.
    New(usize),
}

type Misfit = (String, String);

impl ExportColumns {
    /// Arranges the columns of the input file `path`, with the schema `input`, and those new in
    /// `spec`. Metadata that describes the columns is extended to the new ones or left out.
    /// Returns [`Error::Schema`] if a name is used twice, Parquet cannot hold a type, the nested
    /// layout has no text column, or texts to replace are inside a struct that is exported whole.
    pub fn new(input: &SchemaRef, spec: &ExportSpec, path: &Path) -> Result<Self> {
        let misfit = |(column, reason): Misfit| Error::schema(path, column, reason);
        let (top, nested) = arrange(input, spec).map_err(misfit)?;
        let fields_of = |columns: &[ExportColumn]| -> Vec<FieldRef> {
            columns.iter().map(|column| Arc::clone(&column.field)).collect()
        };
        let mut fields = fields_of(&top);
        if !nested.is_empty() {
            let children = DataType::Struct(fields_of(&nested).into());
            fields.push(Arc::new(Field::new(METADATA, children, true)));
        }
        let mut metadata = input.metadata().clone();
        metadata.remove(SPARK);
        metadata.remove(PROVENANCE);
        if let Some(described) = metadata.remove(HUGGING_FACE)
            && let Some(described) = new_features(&described, &top, &nested)
        {
            metadata.insert(HUGGING_FACE, described);
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        let text = text_path(input, spec, &top, &nested).map_err(misfit)?;
        let rows = dense(&schema);
        Ok(Self { top, nested, schema, rows, text })
    }

    /// Returns the texts of the rows of `input`, if texts may be replaced.
    pub fn texts(&self, input: &RecordBatch) -> Result<StringViewArray, ArrowError> {
        match &self.text {
            Some(path) => strings(&column_at(input, path)?),
            None => Ok(StringViewArray::new_null(input.num_rows())),
        }
    }

    /// Returns the exported rows: the columns of `input`, with `texts` for its own if given,
    /// and the `new` ones: embeddings, if the spec has them, then [`ExportSpec::new_columns`].
    pub fn assemble(
        &self,
        input: &RecordBatch,
        new: &[ArrayRef],
        texts: Option<&ArrayRef>,
    ) -> Result<RecordBatch> {
        let array = |column: &ExportColumn| {
            let array = match &column.source {
                ColumnSource::Input(path) => {
                    let own = column_at(input, path);
                    match texts.filter(|_| self.text.as_ref() == Some(path)) {
                        Some(texts) => own.and_then(|own| retyped(texts, own.data_type())),
                        None => own,
                    }
                }
                ColumnSource::New(at) => {
                    let missing = || ArrowError::SchemaError("a new column is missing".to_owned());
                    new.get(*at).cloned().ok_or_else(missing)
                }
            };
            let array = array.map_err(|e| shape(e.to_string()))?;
            let (num_rows, len, name) = (input.num_rows(), array.len(), column.field.name());
            if len != num_rows {
                return Err(shape(format!("{num_rows} rows, but {len} values of {name}")));
            }
            Ok(array)
        };
        let arrays = |columns: &[ExportColumn]| -> Result<Vec<ArrayRef>> {
            columns.iter().map(array).collect()
        };
        let mut columns = arrays(&self.top)?;
        let metadata = self.rows.fields().get(columns.len()).map(|field| field.data_type());
        if let Some(DataType::Struct(fields)) = metadata {
            let metadata = StructArray::try_new(fields.clone(), arrays(&self.nested)?, None);
            columns.push(Arc::new(metadata.map_err(|e| shape(e.to_string()))?));
        }
        let rows = RecordBatch::try_new(Arc::clone(&self.rows), columns);
        rows.map_err(|e| shape(e.to_string()))
    }
}

/// Returns the path of the column whose texts are replaced. No struct around it may be exported.
fn text_path(
    input: &Schema,
    spec: &ExportSpec,
    top: &[ExportColumn],
    nested: &[ExportColumn],
) -> Result<Option<Vec<String>>, Misfit> {
    let found = InputColumn::find(input.fields(), &spec.text).filter(|_| spec.replaces_texts);
    let Some(InputColumn { path, .. }) = found else { return Ok(None) };
    let holds = |column: &ExportColumn| match &column.source {
        ColumnSource::Input(outer) => outer.len() < path.len() && path.starts_with(outer),
        ColumnSource::New(_) => false,
    };
    if top.iter().chain(nested).any(holds) {
        let reason = "is inside a struct that is exported whole; its texts cannot be replaced";
        return Err((spec.text.clone(), reason.to_owned()));
    }
    Ok(Some(path))
}

fn shape(reason: String) -> Error {
    Error::shape("assemble", reason)
}

/// Arranges the input's and the new columns: those at the top level, and those in `metadata`.
fn arrange(
    input: &Schema,
    spec: &ExportSpec,
) -> Result<(Vec<ExportColumn>, Vec<ExportColumn>), Misfit> {
    // datatrove's layout: text, id, media, and all else in `metadata`.
    let own = ["text", "id", "media", METADATA];
    let is_datatrove = input.fields().iter().all(|field| own.contains(&field.name().as_str()));
    let mut columns = flatten(input, spec.layout == Layout::Nested || is_datatrove);
    add_new(&mut columns, spec)?;
    let mut seen = HashSet::new();
    if let Some(twice) = columns.iter().find(|column| !seen.insert(column.field.name().clone())) {
        let reason = "would be exported twice; rename one of the two";
        return Err((twice.field.name().clone(), reason.into()));
    }
    let mut top = Vec::new();
    if spec.layout == Layout::Flat {
        return Ok((columns, top));
    }
    for (column, name) in [(&spec.text, "text"), (&spec.id, "id")] {
        let Some(InputColumn { path, field }) = InputColumn::find(input.fields(), column) else {
            if name == "text" && !input.fields().is_empty() {
                return Err((column.clone(), "is not in the input".into()));
            }
            continue;
        };
        let source = ColumnSource::Input(path);
        columns.retain(|c| c.source != source);
        top.push(ExportColumn { field: Arc::new(field.with_name(name)), source });
    }
    Ok((top, columns))
}

/// Returns the columns of the input. With `opens_metadata`, the children of the column `metadata`
/// replace it, under `metadata.CHILD` where another column has the name.
fn flatten(input: &Schema, opens_metadata: bool) -> Vec<ExportColumn> {
    let mut columns = Vec::new();
    for (i, field) in input.fields().iter().enumerate() {
        match field.data_type() {
            DataType::Struct(children) if opens_metadata && field.name() == METADATA => {
                for child in children {
                    let is_nullable = field.is_nullable() || child.is_nullable();
                    let mut hoisted = child.as_ref().clone().with_nullable(is_nullable);
                    if input.fields().find(child.name()).is_some_and(|(at, _)| at != i) {
                        hoisted.set_name(format!("{METADATA}.{}", child.name()));
                    }
                    let source =
                        ColumnSource::Input(vec![METADATA.to_owned(), child.name().clone()]);
                    columns.push(ExportColumn { field: Arc::new(hoisted), source });
                }
            }
            _ => columns.push(ExportColumn {
                field: Arc::clone(field),
                source: ColumnSource::Input(vec![field.name().clone()]),
            }),
        }
    }
    columns
}

/// Adds the new columns of `spec` behind the input's, but new embeddings in the place of old ones.
fn add_new(columns: &mut Vec<ExportColumn>, spec: &ExportSpec) -> Result<(), Misfit> {
    let new_embeddings = spec.embeddings.map(|dtype| ExportColumn {
        field: Arc::new(Field::new(EMBEDDINGS, embeddings_type(dtype), true)),
        source: ColumnSource::New(0),
    });
    let at = columns.iter().position(|c| c.field.name() == EMBEDDINGS);
    match at {
        Some(at) if spec.replace_embeddings => drop(columns.splice(at..=at, new_embeddings)),
        Some(_) if new_embeddings.is_some() => {
            let reason = "is already in the input; set `input.embeddings` to use it, rename it, \
                          or set `export.with_embeddings = false`";
            return Err((EMBEDDINGS.into(), reason.into()));
        }
        _ => columns.extend(new_embeddings),
    }
    for (i, (name, data_type)) in spec.new_columns.iter().enumerate() {
        let source = ColumnSource::New(i + usize::from(spec.embeddings.is_some()));
        if let Some(taken) = columns.iter().find(|c| c.field.name() == name) {
            let place = match taken.source {
                ColumnSource::Input(_) => "already in the input",
                ColumnSource::New(_) => "the name of two new columns",
            };
            let remedy = match data_type {
                DataType::Int32 => "rename that one, since `[pii]` adds this column",
                DataType::Utf8 => {
                    "rename the filter, or set `input.language.column` if that names it"
                }
                _ => "set `heads.<name>.column`",
            };
            return Err((name.clone(), format!("is {place}; {remedy}")));
        }
        let field = Arc::new(Field::new(name, data_type.clone(), true));
        columns.push(ExportColumn { field, source });
    }
    Ok(())
}

/// Rewrites the features `described` of the input for the export. Returns `None` if they do not
/// describe the input. Without features, `datasets` goes by the types of the columns.
fn new_features(described: &str, top: &[ExportColumn], nested: &[ExportColumn]) -> Option<String> {
    let mut described: Value = serde_json::from_str(described).ok()?;
    let old = described.get_mut("info")?.get_mut("features")?.take();
    let features = |columns: &[ExportColumn]| -> Option<Map<String, Value>> {
        let feature = |column: &ExportColumn| {
            let feature = match &column.source {
                ColumnSource::Input(path) => {
                    path.iter().try_fold(&old, |feature, name| feature.get(name))?.clone()
                }
                ColumnSource::New(_) => feature_of(column.field.data_type()),
            };
            Some((column.field.name().clone(), feature))
        };
        columns.iter().map(feature).collect()
    };
    let mut new = features(top)?;
    if !nested.is_empty() {
        new.insert(METADATA.to_owned(), features(nested)?.into());
    }
    described["info"]["features"] = new.into();
    described.as_object_mut()?.shift_remove("fingerprint");
    Some(described.to_string())
}

/// Returns the feature of a new column.
fn feature_of(data_type: &DataType) -> Value {
    let name = match data_type {
        DataType::List(item) => {
            return json!({"feature": feature_of(item.data_type()), "_type": "Sequence"});
        }
        DataType::Utf8 => "string",
        DataType::Int32 => "int32",
        DataType::Float16 => "float16",
        DataType::Float32 => "float32",
        _ => "float64",
    };
    json!({"dtype": name, "_type": "Value"})
}

#[cfg(test)]
mod tests;
