use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, Float64Array, Int64Array, NullArray, StringArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, Fields, Metadata};

use super::*;

fn export_schema(input: &Schema, spec: &ExportSpec, path: &Path) -> Result<SchemaRef> {
    let columns = ExportColumns::new(&Arc::new(input.clone()), spec, path)?;
    Ok(Arc::clone(&columns.schema))
}

fn names(schema: &Schema) -> Vec<&str> {
    schema.fields().iter().map(|f| f.name().as_str()).collect()
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

fn strukt(name: &str, children: Vec<Field>) -> Field {
    Field::new(name, DataType::Struct(children.into()), true)
}

fn numbers<const N: usize>(names: [&str; N]) -> Vec<(String, DataType)> {
    names.map(|name| (name.to_owned(), DataType::Float64)).to_vec()
}

fn spec() -> ExportSpec {
    ExportSpec {
        text: "text".into(),
        id: "id".into(),
        embeddings: Some(EmbeddingDtype::F32),
        new_columns: numbers(["quality_score", "quality_retention"]),
        ..ExportSpec::default()
    }
}

fn reason(input: &Schema, spec: &ExportSpec) -> String {
    match export_schema(input, spec, Path::new("in.parquet")) {
        Ok(schema) => format!("no error, but {schema:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_metadata_struct_is_opened_in_its_place() -> Result<()> {
    let children = vec![Field::new("date", DataType::Int64, false), text("id")];
    let input = Schema::new(vec![text("text"), strukt("metadata", children), text("id")]);
    let schema = export_schema(&input, &spec(), Path::new("x"))?;
    let expected =
        ["text", "date", "metadata.id", "id", "embeddings", "quality_score", "quality_retention"];
    assert_eq!(names(&schema), expected);
    assert!(schema.field(1).is_nullable(), "the struct can be null");
    assert_eq!(schema.field(5).data_type(), &DataType::Float64);
    Ok(())
}

#[test]
fn the_nested_layout_has_text_id_and_metadata() -> Result<()> {
    let children = vec![text("url"), text("body")];
    let input = Schema::new(vec![text("key"), strukt("metadata", children), text("text")]);
    let spec = ExportSpec {
        layout: Layout::Nested,
        text: "metadata.body".into(),
        id: "key".into(),
        ..spec()
    };
    let schema = export_schema(&input, &spec, Path::new("x"))?;
    assert_eq!(names(&schema), ["text", "id", "metadata"]);
    let DataType::Struct(inner) = schema.field(2).data_type() else {
        return Ok(());
    };
    let inner: Vec<_> = inner.iter().map(|f| f.name().as_str()).collect();
    assert_eq!(inner, ["url", "text", "embeddings", "quality_score", "quality_retention"]);
    Ok(())
}

#[test]
fn the_nested_layout_needs_a_text_but_no_id() -> Result<()> {
    let spec = ExportSpec { layout: Layout::Nested, ..spec() };
    let schema = export_schema(&Schema::new(vec![text("text")]), &spec, Path::new("x"))?;
    assert_eq!(names(&schema), ["text", "metadata"]);
    let message = reason(&Schema::new(vec![text("id")]), &spec);
    assert_eq!(message, "in.parquet: column `text`: is not in the input");
    // An empty file of JSON lines has no columns at all.
    let schema = export_schema(&Schema::empty(), &spec, Path::new("x"))?;
    assert_eq!(names(&schema), ["metadata"]);
    Ok(())
}

#[test]
fn texts_inside_a_struct_that_is_exported_whole_are_not_replaced() -> Result<()> {
    let input = Schema::new(vec![strukt("doc", vec![text("body"), text("title")])]);
    let nested = |replaces_texts| ExportSpec {
        layout: Layout::Nested,
        text: "doc.body".into(),
        replaces_texts,
        ..spec()
    };
    let schema = export_schema(&input, &nested(false), Path::new("x"))?;
    assert_eq!(names(&schema), ["text", "metadata"]);
    // `metadata.doc.body` would hold the text as it was.
    let message = reason(&input, &nested(true));
    assert!(message.contains("`doc.body`: is inside a struct"), "{message}");
    Ok(())
}

#[test]
fn embeddings_that_were_the_source_are_replaced_in_place() -> Result<()> {
    let input = Schema::new(vec![text("text"), text("embeddings"), text("url")]);
    assert!(reason(&input, &spec()).contains("`embeddings`: is already in the input"));
    let replace = ExportSpec { replace_embeddings: true, ..spec() };
    let schema = export_schema(&input, &replace, Path::new("x"))?;
    assert_eq!(names(&schema)[..3], ["text", "embeddings", "url"]);
    assert_eq!(schema.field(1).data_type(), &embeddings_type(EmbeddingDtype::F32));
    let drop = ExportSpec { embeddings: None, ..replace };
    let schema = export_schema(&input, &drop, Path::new("x"))?;
    assert_eq!(names(&schema), ["text", "url", "quality_score", "quality_retention"]);
    Ok(())
}

#[test]
fn a_name_that_is_taken_is_an_error_that_says_how_to_rename() {
    let input = Schema::new(vec![text("text"), text("quality_score")]);
    let message = reason(&input, &spec());
    assert!(message.contains("`quality_score`") && message.contains("`heads.<name>.column`"));
    let twice = ExportSpec { new_columns: numbers(["a", "a"]), ..spec() };
    assert!(reason(&Schema::empty(), &twice).contains("two new columns"));
    let input = Schema::new(vec![text("a"), text("a")]);
    assert!(reason(&input, &spec()).contains("exported twice"));
}

#[test]
fn a_metadata_struct_without_fields_is_left_out() -> Result<()> {
    let opened = Schema::new(vec![strukt("metadata", vec![])]);
    let schema = export_schema(&opened, &spec(), Path::new("x"))?;
    assert_eq!(names(&schema), ["embeddings", "quality_score", "quality_retention"]);
    Ok(())
}

#[test]
fn a_metadata_struct_beside_other_columns_is_one_of_them() -> Result<()> {
    let metadata = strukt("metadata", vec![text("source")]);
    let input = Schema::new(vec![text("id"), text("text"), metadata.clone(), text("url")]);
    let schema = export_schema(&input, &spec(), Path::new("x"))?;
    assert_eq!(names(&schema)[..5], ["id", "text", "metadata", "url", "embeddings"]);
    assert_eq!(schema.field(2), &metadata);
    // datatrove's layout has room for only one struct named `metadata`.
    let nested = ExportSpec { layout: Layout::Nested, ..spec() };
    let schema = export_schema(&input, &nested, Path::new("x"))?;
    let DataType::Struct(inner) = schema.field(2).data_type() else {
        return Err(Error::shape("test", "no struct"));
    };
    assert_eq!(names(&Schema::new(inner.clone()))[..3], ["source", "url", "embeddings"]);
    Ok(())
}

fn scored() -> ExportSpec {
    ExportSpec {
        text: "text".into(),
        id: "id".into(),
        embeddings: Some(EmbeddingDtype::F32),
        new_columns: numbers(["quality_score"]),
        ..ExportSpec::default()
    }
}

/// Returns a schema with its own metadata and with features as `datasets` 5.2 writes them.
fn input(fields: Vec<Field>, features: &Value) -> Schema {
    let described = json!({"info": {"features": features}, "fingerprint": "0a1b"});
    let metadata = [
        (HUGGING_FACE, described.to_string()),
        (SPARK, "{}".to_owned()),
        ("licence", "ODC-By".to_owned()),
    ];
    Schema::new_with_metadata(fields, metadata)
}

fn metadata_of(input: &Schema, spec: &ExportSpec) -> Result<Metadata> {
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
    let schema = export_schema(&input, &scored(), Path::new("x"))?;
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
    // The text is compared, not the values, because the order of the columns counts.
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
    let spec = ExportSpec { embeddings: None, ..scored() };
    let nested = ExportSpec { layout: Layout::Nested, ..spec.clone() };
    for (spec, features) in [
        (&spec, json!({"text": string, "url": string, "quality_score": score})),
        (&nested, json!({"text": string, "metadata": {"url": string, "quality_score": score}})),
    ] {
        let expected = json!({"info": {"features": features}}).to_string();
        assert_eq!(metadata_of(&input, spec)?.get(HUGGING_FACE), Some(&expected));
    }
    Ok(())
}

#[test]
fn features_that_do_not_describe_every_column_go() -> Result<()> {
    let fields = vec![Field::new("text", DataType::Utf8, true)];
    for features in [json!({}), json!(null), json!("text"), json!({"other": {"_type": "Value"}})] {
        let metadata = metadata_of(&input(fields.clone(), &features), &scored())?;
        assert_eq!(metadata.keys().collect::<Vec<_>>(), ["licence"], "{features}");
    }
    Ok(())
}

fn nested_input() -> Result<RecordBatch, ArrowError> {
    let fields: Fields =
        vec![Field::new("n", DataType::Int64, false), Field::new("x", DataType::Null, true)].into();
    let children: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(vec![1, 2, 3])), Arc::new(NullArray::new(3))];
    let nulls = NullBuffer::from(vec![true, false, true]);
    let metadata = StructArray::try_new(fields.clone(), children, Some(nulls))?;
    let schema = Schema::new(vec![
        Field::new("text", DataType::Utf8, true),
        Field::new("metadata", DataType::Struct(fields), true),
    ]);
    let text = StringArray::from(vec![Some("a"), None, Some("c")]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(text), Arc::new(metadata)])
}

#[test]
fn a_null_struct_gives_null_children() -> Result<(), Box<dyn std::error::Error>> {
    let input = nested_input()?;
    let spec = ExportSpec::default();
    let columns = ExportColumns::new(&input.schema(), &spec, Path::new("x"))?;
    for (start, len, expected) in
        [(0, 3, vec![Some(1), None, Some(3)]), (1, 2, vec![None, Some(3)])]
    {
        let batch = columns.assemble(&input.slice(start, len), &[], None)?;
        let numbers: Vec<_> = batch.column(1).as_primitive::<Int64Type>().iter().collect();
        assert_eq!(numbers, expected);
        assert_eq!(batch.column(2).data_type(), &DataType::Null);
    }
    Ok(())
}

#[test]
fn absent_values_of_new_columns_are_null() -> Result<(), Box<dyn std::error::Error>> {
    let input = nested_input()?;
    let spec = ExportSpec { new_columns: numbers(["s", "r"]), ..ExportSpec::default() };
    let columns = ExportColumns::new(&input.schema(), &spec, Path::new("x"))?;
    let values = [[Some(0.1), None, Some(f64::NAN)], [Some(0.2), None, None]];
    let new = values.map(|values| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef);
    let batch = columns.assemble(&input, &new, None)?;
    let scores = batch.column(3).as_primitive::<Float64Type>();
    assert_eq!(scores.value(0).to_bits(), 0.1f64.to_bits());
    assert!(scores.is_null(1) && scores.value(2).is_nan());
    let rates = batch.column(4).as_primitive::<Float64Type>();
    assert_eq!(rates.value(0).to_bits(), 0.2f64.to_bits());
    Ok(())
}

#[test]
fn new_columns_of_another_length_are_refused() -> Result<(), Box<dyn std::error::Error>> {
    let input = nested_input()?;
    let spec = ExportSpec { new_columns: numbers(["s"]), ..ExportSpec::default() };
    let columns = ExportColumns::new(&input.schema(), &spec, Path::new("x"))?;
    let values = |len| -> ArrayRef { Arc::new(Float64Array::new_null(len)) };
    for new in [vec![], vec![values(2)], vec![values(4)]] {
        let result = columns.assemble(&input, &new, None);
        assert!(matches!(result, Err(Error::Shape { .. })), "{result:?}");
    }
    Ok(())
}
