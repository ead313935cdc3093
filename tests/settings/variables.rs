//! `docs/environment.md` has the environment variables that the sources read.

use std::collections::BTreeSet;
use std::path::Path;

use crate::util::{TestResult, root};

/// Constants in capitals that are no variables.
const NOT_VARIABLES: [&str; 3] = ["EXIT_CODES", "OUT_DIR", "SBATCH_ARGS"];

/// Variables that crates read of which polysift is made: they stand in no source of its own.
const OF_CRATES: [&str; 9] = [
    "RUST_LOG",
    "NO_COLOR",
    "TERM",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// Whether `word` is in capitals as variables are.
fn is_in_capitals(word: &str) -> bool {
    let all =
        word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    let is_compound = word.contains('_') && !word.starts_with('_') && !word.ends_with('_');
    all && (is_compound || ["HOME", "HOSTNAME"].contains(&word))
}

/// The variables that the sources below `folder` name.
fn variables_in(folder: &Path, found: &mut BTreeSet<String>) -> TestResult {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            variables_in(&path, found)?;
        }
        let is_source = path.extension().is_some_and(|end| end == "rs" || end == "py");
        if !path.is_file() || !is_source || stem.ends_with("tests") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let code = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
        for (place, _) in code.match_indices('"') {
            let word = code[place + 1..].split('"').next().unwrap_or_default();
            let is_name_of_value = code[..place].ends_with("value_name = ");
            let is_variable = is_in_capitals(word)
                && !word.starts_with("CARGO_")
                && !NOT_VARIABLES.contains(&word);
            if is_variable && !is_name_of_value {
                found.insert(word.to_owned());
            }
        }
    }
    Ok(())
}

/// The words in capitals that `text` has as code.
fn capitals_in(text: &str) -> impl Iterator<Item = String> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|word| is_in_capitals(word) || OF_CRATES.contains(word)).map(str::to_owned)
}

#[test]
fn the_table_of_variables_has_those_that_are_read() -> TestResult {
    let mut read: BTreeSet<String> = OF_CRATES.map(str::to_owned).into();
    variables_in(&root().join("src"), &mut read)?;
    variables_in(&root().join("kernels/src"), &mut read)?;
    let stores = std::fs::read_to_string(root().join("docs/stores.md"))?;
    let rows = stores.lines().filter(|line| line.starts_with("| `"));
    read.extend(rows.flat_map(capitals_in));
    let page = std::fs::read_to_string(root().join("docs/environment.md"))?;
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|line| line.split(" | ").next());
    let told: BTreeSet<String> = cells.flat_map(capitals_in).collect();
    let missing: Vec<&String> = read.difference(&told).collect();
    let unread: Vec<&String> = told.difference(&read).collect();
    assert!(
        missing.is_empty() && unread.is_empty(),
        "missing: {missing:?}; read by nothing: {unread:?}"
    );
    Ok(())
}
