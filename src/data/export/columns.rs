//! Columns of an exported file: their sources, their places in the layout, and the schema metadata.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, RecordBatch, StringArray,
    StringViewArray, StructArray,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use arrow_select::zip::zip;
use serde_json::{Map, Value, json};

use crate::input::{InputColumn, METADATA, column_at, dense, retyped, string, strings};
use crate::parts::{embeddings_array, embeddings_type};
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
    /// Names of the columns of scores and retention rates (float64).
    pub new_columns: Vec<String>,
    /// Names of the text columns: the identified language and what filters that flag write.
    pub text_columns: Vec<String>,
    /// Whether the texts of [`RowExtras::texts`] replace those of the input.
    pub replaces_texts: bool,
    /// Whether a column `pii_count` holds the number of PII matches.
    pub counts_pii: bool,
}

/// Values added to the rows of one batch of input.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RowExtras {
    /// Shape `[rows + 1]`. Row `i` has the chunks `chunk_offsets[i]..chunk_offsets[i + 1]`; without
    /// chunks its embeddings are null. Ignored if [`ExportSpec::embeddings`] is `None`.
    pub chunk_offsets: Vec<usize>,
    /// Embeddings, shape `[chunks, hidden_size]`, f32.
    pub values: Vec<f32>,
    /// Length of one embedding.
    pub hidden_size: usize,
    /// Shape `[rows]` for each of [`ExportSpec::new_columns`]; `None` is null.
    pub new_columns: Vec<Vec<Option<f64>>>,
    /// Shape `[rows]` for each of [`ExportSpec::text_columns`]; `None` is null.
    pub text_columns: Vec<Vec<Option<String>>>,
    /// Texts that replace those of the input, if some differ.
    pub texts: Option<ArrayRef>,
    /// Shape `[rows]` if [`ExportSpec::counts_pii`] is set.
    pub pii_counts: Vec<i32>,
}

/// Arranges the columns of an input file for the export.
#[derive(Debug)]
pub struct ExportColumns {
    /// Columns of the input as they are read.
    input: SchemaRef,
    top: Vec<ExportColumn>,
    /// Columns inside the struct `metadata`, which follows `top`. An empty struct is left out.
    nested: Vec<ExportColumn>,
    schema: SchemaRef,
    /// [`Self::schema`] without dictionaries, as rows are written.
    rows: SchemaRef,
    /// Paths of the input's columns of texts, from the top level down, if texts may be replaced.
    /// The text of a row is in the first column that has one.
    texts: Vec<Vec<String>>,
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
    Embeddings(EmbeddingDtype),
    /// Index into [`ExportSpec::new_columns`].
    New(usize),
    /// Index into [`ExportSpec::text_columns`].
    Text(usize),
    PiiCount,
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
            && let Some(described) = hugging_face(&described, &top, &nested)
        {
            metadata.insert(HUGGING_FACE, described);
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        let texts = text_paths(input, spec, &top, &nested).map_err(misfit)?;
        let (input, rows) = (dense(input), dense(&schema));
        Ok(Self { input, top, nested, schema, rows, texts })
    }

    /// Returns the schema of the export.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the texts of the rows of `input`, if texts may be replaced.
    pub fn texts(&self, input: &RecordBatch) -> Result<StringViewArray, ArrowError> {
        let column =
            |path: &Vec<String>| column_at(input, path).and_then(|column| strings(&column));
        let columns = self.texts.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        if let [column] = &columns[..] {
            return Ok(column.clone());
        }
        let text = |row: usize| columns.iter().find_map(|column| string(column, row));
        Ok((0..input.num_rows()).map(text).collect())
    }

    /// Returns the column `path` of `input` with `texts` in place of those that it holds.
    fn replaced(
        &self,
        input: &RecordBatch,
        path: &[String],
        texts: &ArrayRef,
    ) -> Result<ArrayRef, ArrowError> {
        let own = column_at(input, path)?;
        let before = self.texts.iter().take_while(|other| *other != path);
        let before = before.map(|other| column_at(input, other)).collect::<Result<Vec<_>, _>>()?;
        if self.texts.len() == 1 {
            return retyped(texts, own.data_type());
        }
        let is_text = |row| own.is_valid(row) && before.iter().all(|other| other.is_null(row));
        let mask: BooleanArray = (0..own.len()).map(|row| Some(is_text(row))).collect();
        retyped(&zip(&mask, texts, &strings(&own)?)?, own.data_type())
    }

    /// Returns the exported rows: the columns of `input` with `extras`, which must fit its rows.
    pub fn assemble(&self, input: &RecordBatch, extras: &RowExtras) -> Result<RecordBatch> {
        let types = self.input.fields().iter().map(|field| field.data_type());
        if !types.eq(input.schema_ref().fields().iter().map(|field| field.data_type())) {
            return Err(shape(format!("{:?} expected, not {:?}", self.input, input.schema_ref())));
        }
        let arrays = |columns: &[ExportColumn]| -> Result<Vec<ArrayRef>> {
            columns.iter().map(|column| self.array(input, extras, column)).collect()
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

    fn array(
        &self,
        input: &RecordBatch,
        extras: &RowExtras,
        column: &ExportColumn,
    ) -> Result<ArrayRef> {
        let array: ArrayRef = match &column.source {
            ColumnSource::Input(path) => {
                let array = match extras.texts.as_ref().filter(|_| self.texts.contains(path)) {
                    Some(texts) => self.replaced(input, path, texts),
                    None => column_at(input, path),
                };
                array.map_err(|e| shape(e.to_string()))?
            }
            ColumnSource::PiiCount => Arc::new(Int32Array::from(extras.pii_counts.clone())),
            ColumnSource::Embeddings(dtype) => {
                let RowExtras { chunk_offsets, values, hidden_size, .. } = extras;
                embeddings_array(chunk_offsets, values, *hidden_size, *dtype)?
            }
            ColumnSource::New(i) => {
                let values = extras.new_columns.get(*i).into_iter().flatten();
                Arc::new(values.copied().collect::<Float64Array>())
            }
            ColumnSource::Text(i) => {
                let values = extras.text_columns.get(*i).into_iter().flatten();
                Arc::new(values.cloned().collect::<StringArray>())
            }
        };
        let (num_rows, len, name) = (input.num_rows(), array.len(), column.field.name());
        if len != num_rows {
            return Err(shape(format!("{num_rows} rows, but {len} values of {name}")));
        }
        Ok(array)
    }
}

/// Returns the paths of the columns whose texts are replaced. The first that the input has must be
/// exported by itself; others inside a struct that is exported whole are left out.
fn text_paths(
    input: &Schema,
    spec: &ExportSpec,
    top: &[ExportColumn],
    nested: &[ExportColumn],
) -> Result<Vec<Vec<String>>, Misfit> {
    if !spec.replaces_texts {
        return Ok(Vec::new());
    }
    let sources = || top.iter().chain(nested).map(|column| &column.source);
    let is_in_struct = |path: &[String], source: &ColumnSource| matches!(source, ColumnSource::Input(of) if of.len() < path.len() && path.starts_with(of));
    let is_exported = |path: &Vec<String>| {
        sources().any(|source| *source == ColumnSource::Input(path.clone()))
            && !sources().any(|source| is_in_struct(path, source))
    };
    let columns = InputColumn::all(input.fields(), &spec.text);
    let mut paths: Vec<Vec<String>> = columns.into_iter().map(|column| column.path).collect();
    if paths.first().is_some_and(|first| !is_exported(first)) {
        let reason = "is inside a struct that is exported whole; its texts cannot be replaced";
        return Err((spec.text.clone(), reason.to_owned()));
    }
    paths.retain(is_exported);
    Ok(paths)
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
    for column in &columns {
        if let Some(inner) = empty_struct(&column.field) {
            let reason = format!("`{inner}` is a struct without fields; Parquet has none");
            return Err((column.field.name().clone(), reason));
        }
    }
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

/// Returns the columns of the input, with the children of `metadata` in its place if it `opens`.
fn flatten(input: &Schema, opens: bool) -> Vec<ExportColumn> {
    let mut columns = Vec::new();
    for (i, field) in input.fields().iter().enumerate() {
        match field.data_type() {
            DataType::Struct(children) if opens && field.name() == METADATA => {
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

fn add_new(columns: &mut Vec<ExportColumn>, spec: &ExportSpec) -> Result<(), Misfit> {
    let new_embeddings = spec.embeddings.map(|dtype| ExportColumn {
        field: Arc::new(Field::new(EMBEDDINGS, embeddings_type(dtype), true)),
        source: ColumnSource::Embeddings(dtype),
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
    let scores = spec.new_columns.iter().enumerate();
    let scores = scores.map(|(i, name)| (&**name, DataType::Float64, ColumnSource::New(i)));
    let texts = spec.text_columns.iter().enumerate();
    let texts = texts.map(|(i, name)| (&**name, DataType::Utf8, ColumnSource::Text(i)));
    let pii = spec.counts_pii.then_some((PII_COUNT, DataType::Int32, ColumnSource::PiiCount));
    for (name, data_type, source) in scores.chain(texts).chain(pii) {
        if let Some(taken) = columns.iter().find(|c| c.field.name() == name) {
            let place = match taken.source {
                ColumnSource::Input(_) => "already in the input",
                _ => "the name of two new columns",
            };
            let remedy = match source {
                ColumnSource::PiiCount => "rename that one, since `[pii]` adds this column",
                ColumnSource::Text(_) => {
                    "rename the filter, or set `input.language.column` if that names it"
                }
                _ => "set `heads.<name>.column`",
            };
            return Err((name.into(), format!("is {place}; {remedy}")));
        }
        columns.push(ExportColumn { field: Arc::new(Field::new(name, data_type, true)), source });
    }
    Ok(())
}

/// Returns the name of a struct without fields in `field`, if there is one.
fn empty_struct(field: &Field) -> Option<&str> {
    match field.data_type() {
        DataType::Struct(children) if children.is_empty() => Some(field.name()),
        DataType::Struct(children) => children.iter().find_map(|child| empty_struct(child)),
        DataType::List(child)
        | DataType::LargeList(child)
        | DataType::FixedSizeList(child, _)
        | DataType::Map(child, _) => empty_struct(child),
        _ => None,
    }
}

/// Rewrites the features `described` of the input for the export. Returns `None` if they do not
/// describe the input. Without features, `datasets` goes by the types of the columns.
fn hugging_face(described: &str, top: &[ExportColumn], nested: &[ExportColumn]) -> Option<String> {
    let mut described: Value = serde_json::from_str(described).ok()?;
    let old = described.get_mut("info")?.get_mut("features")?.take();
    let value = |dtype: &str| json!({"dtype": dtype, "_type": "Value"});
    let features = |columns: &[ExportColumn]| -> Option<Map<String, Value>> {
        let feature = |column: &ExportColumn| {
            let feature = match &column.source {
                ColumnSource::Input(path) => {
                    path.iter().try_fold(&old, |feature, name| feature.get(name))?.clone()
                }
                ColumnSource::Embeddings(dtype) => {
                    let is_half = *dtype == EmbeddingDtype::F16;
                    let number = value(if is_half { "float16" } else { "float32" });
                    let vector = json!({"feature": number, "_type": "Sequence"});
                    json!({"feature": vector, "_type": "Sequence"})
                }
                ColumnSource::New(_) => value("float64"),
                ColumnSource::Text(_) => value("string"),
                ColumnSource::PiiCount => value("int32"),
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

#[cfg(test)]
mod tests;
