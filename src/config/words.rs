//! Error messages about settings in the user's terms; the parser's messages use Rust's types.

/// Minimum Jaro similarity of a suggested name to the unknown one, as in clap.
const LEAST_LIKENESS: f64 = 0.7;

/// Returns the message about a settings file, with the line, in the user's terms.
pub fn explain_file_error(error: &toml::de::Error) -> String {
    error.to_string().replace(error.message(), &explain(error.message()))
}

/// Puts a message of the parser into the user's terms; returns it unchanged if its form is unknown.
pub(super) fn explain(message: &str) -> String {
    let of_choices = ["wanted string or table", "invalid type: unit variant, expected string only"];
    if of_choices.contains(&message) {
        return "text in quotes is needed".to_owned();
    }
    let kinds = ["invalid type: ", "invalid value: "];
    let stripped = kinds.iter().find_map(|kind| message.strip_prefix(kind));
    match stripped.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, expected)) => {
            format!("is {}; {} is needed", describe_found(found), describe_needed(expected))
        }
        None => suggest_name(message).unwrap_or_else(|| message.to_owned()),
    }
}

/// Adds a suggestion to the message about an unknown key or name: the most similar known one.
/// Returns `None` for other messages, or if no known name is similar.
fn suggest_name(message: &str) -> Option<String> {
    let names =
        message.strip_prefix("unknown field `").or(message.strip_prefix("unknown variant `"));
    let (wrong, known) = names?.split_once("`, expected ")?;
    // Every second part stands between backticks.
    let likeness =
        known.split('`').skip(1).step_by(2).map(|name| (strsim::jaro(wrong, name), name));
    let (likeness, name) = likeness.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (likeness > LEAST_LIKENESS).then(|| {
        format!(
            "`{wrong}` is unknown; did you mean `{name}`? ({})",
            known.replacen("one of", "known are", 1)
        )
    })
}

/// Returns the words for what serde found.
fn describe_found(found: &str) -> String {
    let quoted = |kind: &str| found.strip_prefix(kind)?.split('`').next();
    match found {
        "map" => "a table".to_owned(),
        "sequence" => "an array".to_owned(),
        _ => match (quoted("floating point `").or(quoted("integer `")), quoted("boolean `")) {
            (Some(number), _) => format!("the number {number}"),
            (_, Some(value)) => value.to_owned(),
            _ => found.replacen("string ", "the text ", 1),
        },
    }
}

/// Returns the words for what serde expected.
fn describe_needed(expected: &str) -> &str {
    match expected {
        "a sequence" => "an array, as in [\"a\", \"b\"],",
        "a map" => "a table",
        _ if expected.starts_with("struct ") => "a table",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "any valid TOML value" => "a whole number below 2^63",
        "a string" | "string or table" | "a string or table" | "string or map"
        | "variant identifier" => "text in quotes",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::RunConfig;

    /// All kinds of settings, each with a valid value.
    const SETTINGS: &str = r#"
        run_dir = "r"
        seed = 1
        [input]
        files = []
        text = "t"
        language = "deu_Latn"
        max_rejects = 1
        max_document_bytes = 1000
        [encoder]
        model = "m"
        max_tokens = 8
        batch_tokens = 100
        device = "cpu"
        precision = "f32"
        chunks = "first"
        [parts]
        embeddings = "f32"
        zstd = 3
        [heads.q]
        train = ["t"]
        kind = "mlp"
        [heads.q.training]
        epochs = 1
        learning_rate = 0.1
        mode = "default"
        [heads.q.fasttext]
        dim = 3
        lowercase = true
        [languages._default]
        retention = { q = [0.1] }
        removal = { q = 0.1 }
        threshold = { q = 0.1 }
        [selection]
        order = ["q"]
        weight = "bytes"
        refine = false
        [export]
        layout = "flat"
        max_file_mb = 1
    "#;

    /// Returns copies of `table` with one value each replaced by `wrong`.
    fn spoilt(table: &toml::Table, wrong: &toml::Value) -> Vec<toml::Table> {
        let mut all = Vec::new();
        for (key, value) in table {
            let mut with = |value: toml::Value| {
                let mut table = table.clone();
                table.insert(key.clone(), value);
                all.push(table);
            };
            with(wrong.clone());
            if let Some(inner) = value.as_table() {
                for inner in spoilt(inner, wrong) {
                    with(inner.into());
                }
            }
        }
        all
    }

    #[test]
    fn no_message_speaks_of_rust() -> Result<(), toml::de::Error> {
        let settings: toml::Table = SETTINGS.parse()?;
        let rust =
            ["struct", "enum", "sequence", "map", "u32", "u64", "usize", "i32", "f32,", "f64"];
        let mut messages = Vec::new();
        for wrong in ["-1", "0.5", "'x'", "true", "[['x']]", "{ a = {} }"] {
            let wrong = format!("wrong = {wrong}").parse::<toml::Table>()?["wrong"].clone();
            for table in spoilt(&settings, &wrong) {
                let text = table.to_string();
                messages
                    .extend(RunConfig::from_toml(&text, "run.toml").err().map(|e| e.to_string()));
                messages.extend(RunConfig::from_table(table).err());
            }
        }
        assert!(messages.len() > 200, "{}", messages.len());
        for message in messages {
            let told = message.lines().last().unwrap_or_default();
            assert!(!rust.iter().any(|word| told.contains(word)), "{message}");
        }
        Ok(())
    }

    #[test]
    fn a_misspelt_key_is_told_with_the_key_that_is_meant() {
        for (settings, told) in [
            (
                "[encoder]\nmodle = 'm'",
                "`modle` is unknown; did you mean `model`? (known are `model`",
            ),
            ("[heads.q]\nkind = 'logistik'", "did you mean `logistic`?"),
            ("[filters.f]\nkind = 'ids'\nactoin = 'cut'", "did you mean `action`?"),
            ("[filters.f]\nkind = 'ids'\nlist = ['a']", "did you mean `lists`?"),
            ("[encoders]", "did you mean `encoder`?"),
            ("[encoder]\nzzz = 1", "unknown field `zzz`, expected one of"),
        ] {
            let message = RunConfig::from_toml(settings, "run.toml").map_err(|e| e.to_string());
            assert!(message.as_ref().is_err_and(|m| m.contains(told)), "{settings}: {message:?}");
        }
    }

    #[test]
    fn a_value_is_told_with_what_is_needed() {
        for (settings, told) in [
            ("[input]\nfiles = 'a'", "is the text \"a\"; an array"),
            ("[encoder]\nmax_tokens = -1", "is the number -1; a whole number"),
            ("[encoder]\nmax_tokens = 0.5", "is the number 0.5; a whole number"),
            ("encoder = 1", "is the number 1; a table is needed"),
            ("[input]\nlanguage = 1", "a language code in quotes"),
            ("[encoder]\npooling = 3\nchunks = 'first'", "text in quotes is needed"),
            ("[filters.f]\nkind = 3", "text in quotes is needed"),
            ("seed = 99999999999999999999", "the number 99999999999999999999"),
            ("languages = { _default = { retention = 0.1 } }", "a table is needed"),
            (
                "[filters.f]\nkind = 'words'\nmax_share = 'x'",
                "`max_share`: is the text \"x\"; a number is needed",
            ),
            (
                "[filters.f]\nkind = 'robots'\n[[filters.f.sources]]\nid = 'a'",
                "`sources`: `id` is unknown; did you mean `ids`?",
            ),
            ("[filters.f]\nkind = 'words'\naction = 'x'", "`action`: unknown variant `x`"),
        ] {
            let message = RunConfig::from_toml(settings, "run.toml").map_err(|e| e.to_string());
            assert!(message.as_ref().is_err_and(|m| m.contains(told)), "{settings}: {message:?}");
        }
    }
}
