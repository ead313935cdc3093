//! Builds without a feature: what needs it is an error of the settings that names the feature.

use assert_cmd::Command;
use predicates::str::contains;

/// Runs the program with `arguments`, which need `feature`.
fn refused(arguments: &[&str], feature: &str) {
    let expected = format!("built without the feature `{feature}`; build it with");
    let mut program = Command::new(env!("CARGO_BIN_EXE_polysift"));
    program.args(arguments).assert().code(2).stderr(contains(expected));
}

#[test]
fn help_is_there_whatever_was_built() {
    Command::new(env!("CARGO_BIN_EXE_polysift")).arg("--help").assert().success();
}

#[test]
fn what_was_not_built_is_named() {
    if !cfg!(feature = "datasets") {
        refused(&["dataset", "mkc", "--out", "x"], "datasets");
    }
    if !cfg!(feature = "remote") {
        refused(&["inspect", "s3://bucket/a.parquet"], "remote");
        refused(&["embed", "--run", "x", "--export-to", "hf://datasets/o/n", "corpus"], "remote");
    }
}
