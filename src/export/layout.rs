//! From the input schema to the exported columns: where each comes from and where it goes.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use super::{ExportSpec, metadata};
use crate::config::Layout;
use crate::error::{Error, Result};
use crate::parts::embeddings_type;

/// The struct column of datatrove, which the flat layout opens and the nested layout makes.
pub(super) const METADATA: &str = "metadata";
/// The column of embeddings.
const EMBEDDINGS: &str = "embeddings";

/// Where the values of an exported column come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A column of the input, by its index and those of the struct fields below it.
    Input(Vec<usize>),
    /// The embeddings.
    Embeddings,
    /// The score column of this index.
    Score(usize),
    /// The retention column of this index.
    Retention(usize),
}

/// An exported column.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) field: FieldRef,
    pub(super) source: Source,
}

/// All exported columns.
#[derive(Debug)]
pub(super) struct Plan {
    /// At the top level.
    pub(super) top: Vec<Column>,
    /// Inside the struct `metadata` that follows them; without any, the struct is left out.
    pub(super) nested: Vec<Column>,
}

/// Why a schema cannot be exported.
#[derive(Debug)]
pub(super) struct Misfit {
    /// The column.
    pub(super) column: String,
    /// What is wrong with it.
    pub(super) reason: String,
}

/// Schema of the export of an input file `path` with the schema `input`. A name that is taken
/// twice and a type that Parquet cannot hold are an [`Error::Schema`]. Metadata of fields and of the
/// schema is kept; what of it describes the columns, describes the new ones too or is left out.
pub fn export_schema(input: &Schema, spec: &ExportSpec, path: &Path) -> Result<SchemaRef> {
    let plan = Plan::new(input, spec).map_err(|m| Error::schema(path, m.column, m.reason))?;
    let metadata = metadata::exported(input, &plan, spec.embeddings);
    Ok(Arc::new(Schema::new_with_metadata(plan.fields(), metadata)))
}

impl Plan {
    /// Arranges the columns of `input` and the new ones of `spec`.
    pub(super) fn new(input: &Schema, spec: &ExportSpec) -> Result<Self, Misfit> {
        let opens = spec.layout == Layout::Nested || is_datatrove(input);
        let mut columns = flatten(input, opens);
        for column in &columns {
            if let Some(inner) = empty_struct(&column.field) {
                let reason = format!("`{inner}` is a struct without fields; Parquet has none");
                return Err(Misfit { column: column.field.name().clone(), reason });
            }
        }
        add_new(&mut columns, spec)?;
        let mut seen = HashSet::new();
        for column in &columns {
            let name = column.field.name();
            if !seen.insert(name) {
                let reason = "would be exported twice; rename one of the two".into();
                return Err(Misfit { column: name.clone(), reason });
            }
        }
        match spec.layout {
            Layout::Flat => Ok(Self { top: columns, nested: Vec::new() }),
            Layout::Nested => nest(columns, input, spec),
        }
    }

    /// The exported columns.
    fn fields(&self) -> Vec<FieldRef> {
        let mut fields: Vec<FieldRef> = self.top.iter().map(|c| Arc::clone(&c.field)).collect();
        if !self.nested.is_empty() {
            fields.push(Arc::new(Field::new(METADATA, DataType::Struct(self.metadata()), true)));
        }
        fields
    }

    /// Fields of the struct `metadata`.
    pub(super) fn metadata(&self) -> Fields {
        self.nested.iter().map(|c| Arc::clone(&c.field)).collect()
    }
}

/// Whether datatrove's writers made `input`: text, id and media, and all else in the struct `metadata`.
fn is_datatrove(input: &Schema) -> bool {
    let own = ["text", "id", "media", METADATA];
    input.fields().iter().all(|field| own.contains(&field.name().as_str()))
}

/// The columns of the input, those of a struct `metadata` in its place where that `opens`.
fn flatten(input: &Schema, opens: bool) -> Vec<Column> {
    let mut columns = Vec::new();
    for (i, field) in input.fields().iter().enumerate() {
        match field.data_type() {
            DataType::Struct(children) if opens && field.name() == METADATA => {
                for (j, child) in children.iter().enumerate() {
                    let is_nullable = field.is_nullable() || child.is_nullable();
                    let mut hoisted = child.as_ref().clone().with_nullable(is_nullable);
                    if input.fields().find(child.name()).is_some_and(|(at, _)| at != i) {
                        hoisted.set_name(format!("{METADATA}.{}", child.name()));
                    }
                    let source = Source::Input(vec![i, j]);
                    columns.push(Column { field: Arc::new(hoisted), source });
                }
            }
            _ => columns.push(Column { field: Arc::clone(field), source: Source::Input(vec![i]) }),
        }
    }
    columns
}

/// Adds the new columns to those of the input.
fn add_new(columns: &mut Vec<Column>, spec: &ExportSpec) -> Result<(), Misfit> {
    let new_embeddings = spec.embeddings.map(|dtype| Column {
        field: Arc::new(Field::new(EMBEDDINGS, embeddings_type(dtype), true)),
        source: Source::Embeddings,
    });
    let at = columns.iter().position(|c| c.field.name() == EMBEDDINGS);
    match (at, new_embeddings, spec.replace_embeddings) {
        (Some(at), Some(new), true) => columns[at] = new,
        (Some(at), None, true) => {
            columns.remove(at);
        }
        (Some(_), Some(_), false) => {
            let reason = "is already in the input; set `input.embeddings` to use it, rename it, \
                          or set `export.with_embeddings = false`";
            return Err(Misfit { column: EMBEDDINGS.into(), reason: reason.into() });
        }
        (None, Some(new), _) => columns.push(new),
        (_, None, _) => {}
    }
    let scores = spec.score_columns.iter().enumerate().map(|(i, n)| (n, Source::Score(i)));
    let rates = spec.retention_columns.iter().enumerate().map(|(i, n)| (n, Source::Retention(i)));
    for (name, source) in scores.chain(rates) {
        if let Some(taken) = columns.iter().find(|c| c.field.name() == name) {
            let reason = match taken.source {
                Source::Input(_) => {
                    "is already in the input; give the new column another name with \
                     `heads.<name>.column`"
                }
                _ => "is the name of two new columns; set `heads.<name>.column` of one head",
            };
            return Err(Misfit { column: name.clone(), reason: reason.into() });
        }
        columns.push(Column { field: Arc::new(Field::new(name, DataType::Float64, true)), source });
    }
    Ok(())
}

/// Takes text and id to the top, and the rest into the struct.
fn nest(mut columns: Vec<Column>, input: &Schema, spec: &ExportSpec) -> Result<Plan, Misfit> {
    let mut top = Vec::new();
    for (column, name) in [(&spec.text, "text"), (&spec.id, "id")] {
        let inside = || find(input.fields(), &format!("{METADATA}.{column}"));
        let Some((path, field)) = find(input.fields(), column).or_else(inside) else {
            if name == "text" {
                let reason = "is not in the input".into();
                return Err(Misfit { column: column.clone(), reason });
            }
            continue;
        };
        let source = Source::Input(path);
        columns.retain(|c| c.source != source);
        top.push(Column { field: Arc::new(field.with_name(name)), source });
    }
    Ok(Plan { top, nested: columns })
}

/// Path and field of the column `name`: the whole name first, then from dot to dot into structs.
fn find(fields: &Fields, name: &str) -> Option<(Vec<usize>, Field)> {
    if let Some((at, field)) = fields.find(name) {
        return Some((vec![at], field.as_ref().clone()));
    }
    name.match_indices('.').find_map(|(dot, _)| {
        let (at, parent) = fields.find(&name[..dot])?;
        let DataType::Struct(children) = parent.data_type() else {
            return None;
        };
        let (below, field) = find(children, &name[dot + 1..])?;
        let is_nullable = parent.is_nullable() || field.is_nullable();
        Some(([vec![at], below].concat(), field.with_nullable(is_nullable)))
    })
}

/// Name of a struct without fields in `field`, if there is one.
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

#[cfg(test)]
mod tests;
