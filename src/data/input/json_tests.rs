//! Tests of the parser, with `serde_json` as the oracle of valid JSON.

use proptest::prelude::*;

use super::*;

fn strings(json: &Json<'_>) -> String {
    match &json.value {
        JsonValue::String(text) => text.to_string(),
        _ => String::new(),
    }
}

/// Converts a value to that of `serde_json`.
fn converted(json: &Json<'_>) -> Result<serde_json::Value, serde_json::Error> {
    Ok(match &json.value {
        JsonValue::Null => serde_json::Value::Null,
        JsonValue::Bool(value) => (*value).into(),
        JsonValue::Number => serde_json::from_str(json.raw)?,
        JsonValue::String(text) => text.as_ref().into(),
        JsonValue::Array(items) => {
            items.iter().map(converted).collect::<Result<Vec<_>, _>>()?.into()
        }
        JsonValue::Object(entries) => {
            let entries =
                entries.iter().map(|(key, value)| Ok((key.to_string(), converted(value)?)));
            serde_json::Value::Object(entries.collect::<Result<_, serde_json::Error>>()?)
        }
    })
}

#[test]
fn values_keep_their_source() -> Result<(), String> {
    let json = Json::parse(br#" {"a" : 123456789012345678901, "b": [ 1.0 , "\u00e9\n" ]} "#)?;
    assert_eq!(json.get("a").map(|a| a.raw), Some("123456789012345678901"));
    assert_eq!(json.get("b").map(|b| b.raw), Some(r#"[ 1.0 , "\u00e9\n" ]"#));
    assert_eq!(json.get("c"), None);
    Ok(())
}

#[test]
fn escapes_are_decoded() -> Result<(), String> {
    let json = Json::parse(br#""\"\\\/\b\f\n\r\t\u0000\ud83d\ude00x""#)?;
    assert_eq!(strings(&json), "\"\\/\u{8}\u{c}\n\r\t\0\u{1F600}x");
    Ok(())
}

#[test]
fn of_duplicate_keys_the_last_value_counts_at_the_first_place() -> Result<(), String> {
    let json = Json::parse(br#"{"a":1,"b":2,"a":3}"#)?;
    assert_eq!(converted(&json).map(|v| v.to_string()).unwrap_or_default(), r#"{"a":3,"b":2}"#);
    let many: Vec<_> = (0..40).map(|i| format!("\"k{}\":{i}", i % 20)).collect();
    let many = format!("{{{}}}", many.join(","));
    let json = Json::parse(many.as_bytes())?;
    assert_eq!(json.get("k7").map(|v| v.raw), Some("27"));
    Ok(())
}

#[test]
fn a_lone_surrogate_is_refused_and_named() {
    for line in [r#"{"a":"\ud800"}"#, r#"{"a":"\ud800\u0041"}"#, r#"{"a":"\udc00"}"#] {
        let reason = Json::parse(line.as_bytes()).err().unwrap_or_default();
        assert!(reason.contains("a surrogate without its pair at byte 1"), "{reason}");
    }
}

#[test]
fn reasons_say_where() {
    let reason = |line: &[u8]| Json::parse(line).err().unwrap_or_default();
    assert_eq!(reason(b"{\"a\":\"\xff\"}"), "is not UTF-8 at byte 7");
    assert_eq!(reason(b"{\"a\" 1}"), "is not JSON: no `:` at byte 6");
    assert_eq!(reason(b"{\"a\":NaN}"), "is not JSON: expected value at byte 6");
    assert_eq!(reason(b"{\"a\":1"), "is not JSON: the line ends early, at byte 6");
    assert_eq!(reason(b"{} {}"), "is not JSON: more text after the value at byte 4");
    let control = reason(b"{\"a\0\":1}");
    assert!(control.starts_with("is not JSON: control character") && control.ends_with("byte 4"));
}

#[test]
fn nesting_is_limited() {
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(Json::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert!(Json::parse(nested(MAX_DEPTH + 1).as_bytes()).is_err());
    assert!(Json::parse("[".repeat(1_000_000).as_bytes()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn anything_json_like_is_judged_as_serde_json_does(
        line in r#"([\[\]{},:0-9eE.+\- "\\untrf]|null|true|false|"[a-z]?"|\\u[0-9a-f]{4}|\x00|\t|é)*"#
    ) {
        let oracle = serde_json::from_str::<serde_json::Value>(&line);
        match Json::parse(line.as_bytes()) {
            // Literals beyond f64 (1e999) are valid JSON, but `serde_json` cannot represent them.
            Ok(json) => if let Ok(value) = converted(&json) { prop_assert_eq!(value, oracle?) },
            Err(_) => prop_assert!(oracle.is_err(), "{line}"),
        }
    }

    #[test]
    fn any_string_comes_back(text in any::<String>()) {
        let line = serde_json::to_string(&text)?;
        let json = Json::parse(line.as_bytes()).map_err(TestCaseError::fail)?;
        prop_assert_eq!(strings(&json), text);
    }

    #[test]
    fn any_bytes_are_no_reason_to_panic(line in any::<Vec<u8>>()) {
        let _ = Json::parse(&line);
    }
}
