//! Choosing a device. Here on a machine without GPUs: the tests hide those that are there.

mod gpus;

use assert_cmd::Command;
use polysift::encoder::Placement;
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;
use serde_json::json;

use crate::util::{TestResult, Workspace, digests, polysift};

/// Makes the drivers, the real one and the simulated one, say that there is no GPU.
fn without_gpus(mut command: Command) -> Command {
    command.env("CUDA_VISIBLE_DEVICES", "").env("POLYSIFT_SIM_DEVICES", "0");
    command
}

/// In what the CPU computes if it is not told.
fn on_the_cpu() -> String {
    Placement::auto(Vec::new()).precision.to_string()
}

#[test]
fn auto_takes_the_cpu_where_there_is_no_gpu_and_says_so_once() -> TestResult {
    let work = Workspace::new()?;
    let mut command = without_gpus(work.command("run", "out"));
    let output = command.args(["--device", "auto", "-v"]).output()?;
    assert!(output.status.success());
    let log = String::from_utf8(output.stderr)?;
    let said = format!("encoding on the CPU, in {}", on_the_cpu());
    assert_eq!(log.matches(&said).count(), 1, "{log}");
    let summary = String::from_utf8(output.stdout)?;
    assert!(
        summary.contains(&format!("embeddings were computed in {}", on_the_cpu())),
        "{summary}"
    );
    work.command("run", "cpu").args(["--device", "cpu"]).assert().success();
    assert_eq!(digests(&work.path("out/export"))?, digests(&work.path("cpu/export"))?);
    Ok(())
}

#[test]
fn gpus_that_are_asked_for_and_not_there_are_an_error() -> TestResult {
    let work = Workspace::new()?;
    for args in [["--device", "cuda"], ["--device", "cuda:0,2"]] {
        without_gpus(work.command("embed", "out"))
            .args(args)
            .assert()
            .code(69)
            .stderr(contains("no CUDA driver").or(contains("no GPU cuda:")));
    }
    Ok(())
}

#[test]
fn devices_that_do_not_exist_or_do_not_go_together_are_usage_errors() -> TestResult {
    let work = Workspace::new()?;
    for (args, expected) in [
        (["--device", "gpu"], "cuda:0,2"),
        (["--device", "cuda:1,1"], "`cuda:1,1` is no device"),
        (["--set", "encoder.precision=f64"], "unknown variant `f64`"),
        (["--set", "encoder.device=cuda:x"], "`cuda:x` is no device"),
    ] {
        work.command("run", "out").args(args).assert().code(2).stderr(contains(expected));
    }
    work.command("run", "out").env("POLYSIFT_DEVICE", "tpu").assert().code(2);
    assert!(!work.path("out").exists());
    Ok(())
}

#[test]
fn a_run_of_one_precision_is_not_continued_in_another() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out").args(["--precision", "f32"]).assert().success();
    let frozen = work.frozen("out")?;
    assert_eq!(frozen["embed"]["encoder"]["precision"], "f32");
    assert_eq!(frozen["train"]["encoder"]["precision"], "f32");

    let mut begun_in_bf16 = frozen.clone();
    begun_in_bf16["embed"]["encoder"]["precision"] = json!("bf16");
    work.freeze("out", &begun_in_bf16)?;
    work.command("run", "out").args(["--precision", "f32"]).assert().code(78).stderr(
        contains(r#"embed.encoder.precision: was "bf16", now "f32""#)
            .and(contains("--precision bf16")),
    );
    // Heads trained on samples in f32 do not score a corpus in bf16.
    work.command("score", "out").assert().code(78).stderr(contains("bf16"));

    let mut trained_in_bf16 = frozen.clone();
    trained_in_bf16["train"]["encoder"]["precision"] = json!("bf16");
    work.freeze("out", &trained_in_bf16)?;
    let mut command = work.command("train", "out");
    command.args(["--precision", "f32"]).assert().code(78).stderr(contains("--precision bf16"));
    Ok(())
}

#[test]
fn a_run_goes_on_in_the_precision_that_it_was_begun_with() -> TestResult {
    let work = Workspace::new()?;
    for precision in ["f32", "bf16", "f16", "int8"] {
        work.command("embed", precision)
            .args(["--device", "cpu", "--precision", precision])
            .assert()
            .success();
        let mut command = without_gpus(work.command("run", precision));
        command.assert().success();
        let frozen = work.frozen(precision)?;
        assert_eq!(frozen["embed"]["encoder"]["precision"], precision);
        assert_eq!(frozen["train"]["encoder"]["precision"], precision);
    }
    // What is made again is begun again.
    work.command("run", "int8").args(["--device", "cpu", "--redo", "embed"]).assert().success();
    assert_eq!(work.json("int8/frozen/embed.json")?["encoder"]["precision"], on_the_cpu());
    Ok(())
}

#[test]
fn a_head_from_a_file_may_come_from_a_run_of_another_precision() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "first").assert().success();
    let head = work.path("first/heads/quality/fra_Latn.safetensors");
    work.command("embed", "out").assert().success();
    let mut frozen = work.frozen("out")?;
    frozen["embed"]["encoder"]["precision"] = json!("bf16");
    work.freeze("out", &frozen)?;
    work.command("score", "out")
        .args(["--head", &format!("quality={}", head.display())])
        .assert()
        .success();
    Ok(())
}

#[test]
fn devices_lists_nothing_and_succeeds_without_a_gpu() -> TestResult {
    without_gpus(polysift()).arg("devices").assert().success().stdout(
        contains("no GPU can be used")
            .and(contains(format!("--device auto takes cpu, in {}", on_the_cpu()))),
    );
    let output = without_gpus(polysift()).args(["devices", "--json"]).output()?;
    let found: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(found["gpus"], json!([]));
    assert_eq!(found["auto"], json!({"device": "cpu", "precision": on_the_cpu()}));
    assert!(found["problem"].is_string());
    Ok(())
}

#[test]
fn a_dry_run_tells_device_and_precision() -> TestResult {
    let work = Workspace::new()?;
    work.command("run", "out")
        .arg("--dry-run")
        .assert()
        .success()
        .stdout(contains(format!("cpu, in {}", on_the_cpu())).and(contains("on this machine")));
    Ok(())
}
