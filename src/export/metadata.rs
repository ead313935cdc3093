//! What an input file says of itself beside its columns, as the export says it of its own.
//!
//! Owns the descriptions of columns that have to change with them; all else is passed on as it is.

use arrow_schema::{DataType, Fields, Metadata, Schema};
use serde_json::{Map, Value, json};

use super::layout::{Column, METADATA, Plan, Source};
use crate::config::EmbeddingDtype;

/// Key of the features of Hugging Face's `datasets`.
const HUGGING_FACE: &str = "huggingface";
/// Key of Spark's schema. Spark believes it more than the columns, and would not see the new ones.
const SPARK: &str = "org.apache.spark.sql.parquet.row.metadata";

/// The metadata of an export with the columns of `plan`, of an input with the schema `input`.
pub(super) fn exported(
    input: &Schema,
    plan: &Plan,
    embeddings: Option<EmbeddingDtype>,
) -> Metadata {
    let mut metadata = input.metadata().clone();
    metadata.remove(SPARK);
    if let Some(described) = metadata.remove(HUGGING_FACE)
        && let Some(described) = hugging_face(&described, input, plan, embeddings)
    {
        metadata.insert(HUGGING_FACE, described);
    }
    metadata
}

/// The features `described` of the input as those of the export; `None` where they do not describe the
/// input. Without any, `datasets` goes by the types of the columns.
fn hugging_face(
    described: &str,
    input: &Schema,
    plan: &Plan,
    embeddings: Option<EmbeddingDtype>,
) -> Option<String> {
    let mut described: Value = serde_json::from_str(described).ok()?;
    let old = described.get_mut("info")?.get_mut("features")?.take();
    let features = |columns: &[Column]| -> Option<Map<String, Value>> {
        let feature = |column: &Column| {
            let feature = match &column.source {
                Source::Input(path) => of_input(path, input.fields(), &old)?.clone(),
                Source::Embeddings => vectors(embeddings?),
                Source::Score(_) | Source::Retention(_) => value("float64"),
            };
            Some((column.field.name().clone(), feature))
        };
        columns.iter().map(feature).collect()
    };
    let mut new = features(&plan.top)?;
    if !plan.nested.is_empty() {
        new.insert(METADATA.to_owned(), features(&plan.nested)?.into());
    }
    described["info"]["features"] = new.into();
    // It stands for the rows that were.
    described.as_object_mut()?.shift_remove("fingerprint");
    Some(described.to_string())
}

/// The feature of the column at `path` of `fields`.
fn of_input<'a>(path: &[usize], fields: &Fields, features: &'a Value) -> Option<&'a Value> {
    let (at, below) = path.split_first()?;
    let field = fields.get(*at)?;
    let feature = features.get(field.name())?;
    match field.data_type() {
        _ if below.is_empty() => Some(feature),
        DataType::Struct(children) => of_input(below, children, feature),
        _ => None,
    }
}

fn value(dtype: &str) -> Value {
    json!({"dtype": dtype, "_type": "Value"})
}

/// A list of vectors, in the words that every version of `datasets` knows.
fn vectors(dtype: EmbeddingDtype) -> Value {
    let number = match dtype {
        EmbeddingDtype::F16 => "float16",
        EmbeddingDtype::F32 | EmbeddingDtype::Bf16InF32 => "float32",
    };
    let vector = json!({"feature": value(number), "_type": "Sequence"});
    json!({"feature": vector, "_type": "Sequence"})
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow_schema::Field;

    use super::*;
    use crate::config::Layout;
    use crate::error::Result;
    use crate::export::{ExportSpec, export_schema};

    fn spec() -> ExportSpec {
        ExportSpec {
            text: "text".into(),
            id: "id".into(),
            embeddings: Some(EmbeddingDtype::F32),
            score_columns: vec!["quality_score".into()],
            ..ExportSpec::default()
        }
    }

    /// A schema with metadata of its own, and features as `datasets` 5.2 writes them.
    fn input(fields: Vec<Field>, features: &Value) -> Schema {
        let described = json!({"info": {"features": features}, "fingerprint": "0a1b"});
        let metadata = [
            (HUGGING_FACE, described.to_string()),
            (SPARK, "{}".to_owned()),
            ("licence", "ODC-By".to_owned()),
        ];
        Schema::new_with_metadata(fields, metadata)
    }

    fn exported(input: &Schema, spec: &ExportSpec) -> Result<Metadata> {
        Ok(export_schema(input, spec, Path::new("x"))?.metadata().clone())
    }

    #[test]
    fn features_describe_the_new_columns_and_the_rest_stays() -> Result<()> {
        let fields = vec![
            Field::new("text", DataType::Utf8, true).with_metadata([("unit", "m")]),
            Field::new("kind", DataType::Int64, true),
        ];
        let kind = json!({"names": ["web", "book"], "_type": "ClassLabel"});
        let text = json!({"dtype": "string", "_type": "Value"});
        let input = input(fields.clone(), &json!({"text": text, "kind": kind}));
        let schema = export_schema(&input, &spec(), Path::new("x"))?;
        assert_eq!(schema.field(0), &fields[0]);
        let metadata = schema.metadata();
        assert_eq!(metadata.get("licence").map(String::as_str), Some("ODC-By"));
        assert!(!metadata.contains_key(SPARK));
        let score = json!({"dtype": "float64", "_type": "Value"});
        let number = json!({"dtype": "float32", "_type": "Value"});
        let vector = json!({"feature": number, "_type": "Sequence"});
        let vectors = json!({"feature": vector, "_type": "Sequence"});
        let features = json!(
            {"text": text, "kind": kind, "embeddings": vectors, "quality_score": score}
        );
        let expected = json!({"info": {"features": features}});
        // Text, not values: the order of the columns counts.
        assert_eq!(metadata.get(HUGGING_FACE), Some(&expected.to_string()));
        Ok(())
    }

    #[test]
    fn features_move_with_their_columns() -> Result<()> {
        let url = Field::new("url", DataType::Utf8, true);
        let fields = vec![
            Field::new("text", DataType::Utf8, true),
            Field::new(METADATA, DataType::Struct(vec![url].into()), true),
        ];
        let string = json!({"dtype": "large_string", "_type": "Value"});
        let input = input(fields, &json!({"text": string, "metadata": {"url": string}}));
        let score = json!({"dtype": "float64", "_type": "Value"});
        let spec = ExportSpec { embeddings: None, ..spec() };
        let nested = ExportSpec { layout: Layout::Nested, ..spec.clone() };
        for (spec, features) in [
            (&spec, json!({"text": string, "url": string, "quality_score": score})),
            (&nested, json!({"text": string, "metadata": {"url": string, "quality_score": score}})),
        ] {
            let expected = json!({"info": {"features": features}}).to_string();
            assert_eq!(exported(&input, spec)?.get(HUGGING_FACE), Some(&expected));
        }
        Ok(())
    }

    #[test]
    fn features_that_do_not_describe_every_column_go() -> Result<()> {
        let fields = vec![Field::new("text", DataType::Utf8, true)];
        for features in
            [json!({}), json!(null), json!("text"), json!({"other": {"_type": "Value"}})]
        {
            let metadata = exported(&input(fields.clone(), &features), &spec())?;
            assert_eq!(metadata.keys().collect::<Vec<_>>(), ["licence"], "{features}");
        }
        Ok(())
    }
}
