//! Export to a folder outside of the run directory, with what an export inside of it has.

use predicates::str::contains;
use serde_json::Value;

use super::TestResult;
use crate::util::{Workspace, digests, polysift};

#[test]
fn a_folder_gets_the_files_of_an_export_in_the_run_directory() -> TestResult {
    let work = Workspace::new()?;
    let go = |out: &str, flags: &[&str]| {
        let mut command = work.command("run", out);
        command.args(["--keep-removed", "--set", "export.card=true"]).args(flags).assert()
    };
    let verify = || polysift().arg("verify").arg(work.path("out")).assert();
    go("inside", &[]).success();
    let told = contains(work.path("chosen/here/export").display().to_string());
    go("out", &["--export-to", "chosen/here/"]).success().stdout(told);
    assert!(!work.path("out/export").exists() && !work.path("out/removed").exists());
    for folder in ["export", "removed"] {
        let expected = digests(&work.path("inside").join(folder))?;
        assert_eq!(digests(&work.path("chosen/here").join(folder))?, expected, "{folder}");
    }
    assert!(work.path("chosen/here/export/README.md").exists());
    verify().success();

    // A file that is gone or foreign is found, and the first is made again.
    let file = work.path("chosen/here/export/fra_Latn/a.parquet");
    let bytes = std::fs::read(&file)?;
    std::fs::remove_file(&file)?;
    work.write("chosen/here/export/deu_Latn/old.parquet", &bytes)?;
    verify()
        .code(65)
        .stdout(contains("a.parquet"))
        .stdout(contains("old.parquet: nothing of this"));
    std::fs::remove_file(work.path("chosen/here/export/deu_Latn/old.parquet"))?;
    polysift().args(["export", "--run"]).arg(work.path("out")).assert().success();
    assert_eq!(std::fs::read(&file)?, bytes);
    verify().success();
    std::fs::write(&file, &bytes[1..])?;
    verify().code(65).stdout(contains("a.parquet: changed since it was written"));

    // The place belongs to this run.
    let other = ["--export-to", "chosen/here", "--retention", "quality=0.5"];
    go("other", &other).code(78).stderr(contains("choose another place"));
    go("other", &[&other[..], &["--redo", "export"]].concat()).success();

    // An export that is done again leaves no file of the one before.
    let files = || digests(&work.path("chosen/here")).map(|files| files.into_keys().collect());
    let before: Vec<_> = files()?;
    go("other", &[&other[..], &["--redo", "export", "--max-file-mb", "1"]].concat()).success();
    let after: Vec<_> = files()?;
    assert!(before.iter().filter(|file| after.contains(file)).count() <= 2, "{after:?}");
    polysift().arg("verify").arg(work.path("other")).assert().success();
    Ok(())
}

#[test]
fn files_of_others_are_not_replaced() -> TestResult {
    let work = Workspace::new()?;
    work.write("theirs/export/fra_Latn/a.parquet", "theirs")?;
    let go = |out: &str, to: &str| {
        let mut command = work.command("run", out);
        command.args(["--export-to", to]).assert()
    };
    go("out", "theirs").code(78).stderr(contains("export: holds files that this run did not make"));
    assert_eq!(std::fs::read(work.path("theirs/export/fra_Latn/a.parquet"))?, b"theirs");
    go("out", "out/export").code(2).stderr(contains("export.to: is in the run directory"));
    work.command("export", "out")
        .args(["--export-to", "theirs", "--redo", "export"])
        .assert()
        .success();
    polysift().arg("verify").arg(work.path("out")).assert().success();
    Ok(())
}

#[test]
fn a_folder_in_a_settings_file_is_relative_to_the_file() -> TestResult {
    let work = Workspace::new()?;
    let settings = std::fs::read_to_string(work.path("run.toml"))?;
    work.write("run.toml", format!("{settings}[export]\nto = 'chosen'\n"))?;
    let mut command = polysift();
    command.args(["run", "-c"]).arg(work.path("run.toml")).arg("--run").arg(work.path("out"));
    command.assert().success();
    assert!(work.path("chosen/export/fra_Latn/a.parquet").exists());
    let owner: Value = work.json("chosen/polysift.json")?;
    assert!(owner["settings"].is_string());
    work.write("file", "")?;
    let mut command = work.command("run", "none");
    command.args(["--export-to", "file"]).assert().failure().stderr(contains("file"));
    Ok(())
}
