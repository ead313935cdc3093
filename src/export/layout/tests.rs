use super::*;
use crate::config::EmbeddingDtype;

fn names(schema: &Schema) -> Vec<&str> {
    schema.fields().iter().map(|f| f.name().as_str()).collect()
}

fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, true)
}

fn strukt(name: &str, children: Vec<Field>) -> Field {
    Field::new(name, DataType::Struct(children.into()), true)
}

fn spec() -> ExportSpec {
    ExportSpec {
        text: "text".into(),
        id: "id".into(),
        embeddings: Some(EmbeddingDtype::F32),
        score_columns: vec!["quality_score".into()],
        retention_columns: vec!["quality_retention".into()],
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
    let twice = ExportSpec { score_columns: vec!["a".into(), "a".into()], ..spec() };
    assert!(reason(&Schema::empty(), &twice).contains("two new columns"));
    let input = Schema::new(vec![text("a"), text("a")]);
    assert!(reason(&input, &spec()).contains("exported twice"));
}

#[test]
fn a_struct_without_fields_is_an_error_unless_it_is_opened() {
    let inner = strukt("inner", vec![]);
    let message = reason(&Schema::new(vec![strukt("outer", vec![inner])]), &spec());
    assert!(message.contains("column `outer`: `inner` is a struct without fields"));
    let opened = Schema::new(vec![strukt("metadata", vec![])]);
    assert!(export_schema(&opened, &spec(), Path::new("x")).is_ok());
}

#[test]
fn a_metadata_struct_beside_other_columns_is_one_of_them() -> Result<()> {
    let metadata = strukt("metadata", vec![text("source")]);
    let input = Schema::new(vec![text("id"), text("text"), metadata.clone(), text("url")]);
    let schema = export_schema(&input, &spec(), Path::new("x"))?;
    assert_eq!(names(&schema)[..5], ["id", "text", "metadata", "url", "embeddings"]);
    assert_eq!(schema.field(2), &metadata);
    // datatrove's layout has room for one struct of that name.
    let nested = ExportSpec { layout: Layout::Nested, ..spec() };
    let schema = export_schema(&input, &nested, Path::new("x"))?;
    let DataType::Struct(inner) = schema.field(2).data_type() else {
        return Err(Error::shape("test", "no struct"));
    };
    assert_eq!(names(&Schema::new(inner.clone()))[..3], ["source", "url", "embeddings"]);
    Ok(())
}
