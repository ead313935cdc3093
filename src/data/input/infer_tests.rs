//! Tests of the inference and of the arrays.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};

use super::*;

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Returns the column whose rows are `values`.
fn column(values: &[&str]) -> Result<ArrayRef, Box<dyn std::error::Error>> {
    let parsed: Vec<_> =
        values.iter().map(|v| Json::parse(v.as_bytes())).collect::<Result<_, _>>()?;
    let mut shape = JsonShape::default();
    for json in &parsed {
        shape.observe(json);
    }
    let array = shape.array(&parsed.iter().map(Some).collect::<Vec<_>>())?;
    assert_eq!(*array.data_type(), shape.data_type(&DataType::Utf8));
    Ok(array)
}

/// Returns the values of a column that must be text; `NULL` for null.
fn texts(values: &[&str]) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let array = column(values)?;
    let strings = array.as_string_opt::<i32>().ok_or(format!("{}", array.data_type()))?;
    Ok(strings.iter().map(|text| text.unwrap_or("NULL").to_owned()).collect())
}

#[test]
fn numbers_get_the_type_that_holds_them_exactly() -> TestResult {
    let integers = column(&["-9223372036854775808", "null", "9223372036854775807"])?;
    let integers = integers.as_primitive::<Int64Type>();
    assert_eq!((integers.value(0), integers.value(2)), (i64::MIN, i64::MAX));
    assert!(integers.is_null(1));

    let unsigned = column(&["0", "18446744073709551615"])?;
    assert_eq!(unsigned.as_primitive::<UInt64Type>().value(1), u64::MAX);

    let floats = column(&["0.1", "1", "-0.0", "9007199254740992", "1e300"])?;
    let floats = floats.as_primitive::<Float64Type>().values().to_vec();
    assert_eq!(floats[..2], [0.1, 1.0]);
    assert!(floats[2].is_sign_negative());
    assert_eq!(floats[3..], [9_007_199_254_740_992.0, 1e300]);
    Ok(())
}

#[test]
fn numbers_that_no_type_holds_stay_as_written() -> TestResult {
    for values in [
        ["1", "18446744073709551616"],
        ["-1", "18446744073709551615"],
        ["1", "1234567890123456789012345678901234567890"],
        ["0.5", "9007199254740993"],
        ["1.50", "1e400"],
    ] {
        assert_eq!(texts(&values)?, [values[0], values[1]]);
    }
    Ok(())
}

#[test]
fn mixed_scalars_become_text() -> TestResult {
    let found = texts(&[r#""a\n""#, "1.50", "true", "null"])?;
    assert_eq!(found, ["a\n", "1.50", "true", "NULL"]);
    Ok(())
}

#[test]
fn a_container_among_scalars_becomes_json() -> TestResult {
    let found = texts(&[r#""a\n""#, r#"{"b": [1, 2.0]}"#, "null", "[]"])?;
    assert_eq!(found, [r#""a\n""#, r#"{"b": [1, 2.0]}"#, "NULL", "[]"]);
    assert_eq!(texts(&[r#"{"a":1}"#, "[1]"])?, [r#"{"a":1}"#, "[1]"]);
    Ok(())
}

#[test]
fn columns_without_values_and_empty_objects_are_text() -> TestResult {
    assert_eq!(texts(&["null", "null"])?, ["NULL", "NULL"]);
    assert_eq!(texts(&["{}", "null"])?, ["{}", "NULL"]);
    assert_eq!(*column(&["[]"])?.data_type(), DataType::new_list(DataType::Utf8, true));
    Ok(())
}

#[test]
fn nested_values_keep_their_places() -> TestResult {
    let array = column(&[
        r#"{"b": [1, null], "a": {"x": "p"}}"#,
        "null",
        r#"{"a": null, "c": 1.5}"#,
        r#"{"b": [], "a": {"x": 2}}"#,
    ])?;
    let rows = array.as_struct();
    assert_eq!(rows.column_names(), ["b", "a", "c"]);
    assert!(rows.is_null(1) && rows.null_count() == 1);
    let b = rows.column(0).as_list::<i32>();
    assert_eq!((b.value(0).len(), b.value(0).null_count(), b.value(3).len()), (2, 1, 0));
    assert!(b.is_null(1) && b.is_null(2));
    let x = rows.column(1).as_struct().column(0).as_string::<i32>();
    assert_eq!(x.iter().collect::<Vec<_>>(), [Some("p"), None, None, Some("2")]);
    assert_eq!(rows.column(2).as_primitive::<Float64Type>().value(2).to_bits(), 1.5f64.to_bits());
    Ok(())
}

#[test]
fn an_object_with_a_thousand_keys_and_more_becomes_json() -> TestResult {
    let rows: Vec<_> = (0..=MAX_STRUCT_FIELDS).map(|i| format!("{{\"k{i}\":{i}}}")).collect();
    let rows: Vec<_> = rows.iter().map(String::as_str).collect();
    assert_eq!(texts(&rows)?[7], "{\"k7\":7}");
    assert!(matches!(column(&rows[1..])?.data_type(), DataType::Struct(_)));
    Ok(())
}

#[test]
fn a_value_of_another_shape_is_an_error() -> TestResult {
    let mut shape = JsonShape::default();
    shape.observe(&Json::parse(b"1")?);
    assert!(shape.array(&[Some(&Json::parse(b"\"a\"")?)]).is_err());
    shape = JsonShape::default();
    shape.observe(&Json::parse(b"[1]")?);
    assert!(shape.array(&[Some(&Json::parse(b"{}")?)]).is_err());
    Ok(())
}

fn shape(values: &[&str]) -> Result<JsonShape, String> {
    let mut shape = JsonShape::default();
    for value in values {
        shape.observe(&Json::parse(value.as_bytes())?);
    }
    Ok(shape)
}

#[test]
fn the_shape_of_two_files_is_that_of_their_values_together() -> TestResult {
    let values = [
        "null",
        "1",
        "-3",
        "18446744073709551615",
        "2.5",
        "1e400",
        "true",
        r#""a""#,
        "[]",
        "[1]",
        r#"[2.5,"b"]"#,
        "{}",
        r#"{"a":1}"#,
        r#"{"b":[1],"a":0.5}"#,
        r#"{"a":{"c":null}}"#,
    ];
    for first in values {
        for second in values {
            for third in values {
                let mut merged = shape(&[first])?;
                merged.merge(shape(&[second, third])?);
                assert_eq!(merged, shape(&[first, second, third])?, "{first} {second} {third}");
                let kept = serde_json::to_vec(&merged)?;
                assert_eq!(serde_json::from_slice::<JsonShape>(&kept)?, merged);
            }
        }
    }
    Ok(())
}
