//! The job on GPUs: real ones, or those of the simulator. Without any the tests are skipped, or
//! fail where `POLYSIFT_REQUIRE_CUDA=1` says that there must be one.

use arrow::array::AsArray;
use arrow::datatypes::Float32Type;
use polysift::encoder::{gpus, usable};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

use crate::util::{TestResult, Workspace, digests, polysift, read_parquet};

/// Whether there is a GPU to test with; says so if not.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn is_there_a_gpu() -> Result<bool, Box<dyn std::error::Error>> {
    let Err(cause) = gpus().and_then(|gpus| usable(&gpus)) else { return Ok(true) };
    if std::env::var("POLYSIFT_REQUIRE_CUDA").is_ok_and(|value| value == "1") {
        return Err(cause.into());
    }
    eprintln!("skipped: {cause}");
    Ok(false)
}

/// Logits of the French documents with a text, of those in `run` or what refining it put in their place.
fn logits(work: &Workspace, run: &str) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
    let mut logits = Vec::new();
    for part in 0..3 {
        let path = format!("{run}/quality/fra_Latn/a/part-{part:05}.parquet");
        let scores = read_parquet(&work.path(&path))?;
        let column = scores.column_by_name("logit").ok_or("no logit")?;
        logits.extend(column.as_primitive::<Float32Type>().iter().flatten());
    }
    Ok(logits)
}

#[test]
fn a_run_on_a_gpu_says_so_and_is_not_continued_in_another_precision() -> TestResult {
    if !is_there_a_gpu()? {
        return Ok(());
    }
    let work = Workspace::with_bundled_encoder()?;
    work.command("run", "out").args(["--device", "cuda"]).assert().success();
    let frozen = work.frozen("out")?;
    assert_eq!(frozen["embed"]["encoder"]["precision"], "bf16");
    polysift().arg("verify").arg(work.path("out")).assert().success();
    work.command("run", "out")
        .args(["--precision", "f32"])
        .assert()
        .code(78)
        .stderr(contains(r#"was "bf16", now "f32""#).and(contains("--precision bf16")));
    // The CPU computes in bf16 too.
    work.command("embed", "out").args(["--device", "cpu"]).assert().success();
    // Which GPU it is does not matter, nor that it is named.
    work.command("run", "out").args(["--device", "cuda:0"]).assert().success();
    Ok(())
}

#[test]
fn auto_takes_a_gpu_to_encode() -> TestResult {
    if !is_there_a_gpu()? {
        return Ok(());
    }
    let work = Workspace::with_bundled_encoder()?;
    let mut command = work.command("run", "out");
    let output = command.args(["--device", "auto", "-v"]).output()?;
    let log = String::from_utf8(output.stderr)?;
    assert!(output.status.success(), "{log}");
    assert_eq!(log.matches("encoding on cuda:0").count(), 1, "{log}");
    assert_eq!(work.frozen("out")?["train"]["encoder"]["precision"], "bf16");
    Ok(())
}

#[test]
fn a_run_in_fp8_is_refined_in_bf16_and_selects_what_bf16_selects() -> TestResult {
    if !is_there_a_gpu()? || gpus()?[0].info.compute_capability != (9, 0) {
        return Ok(());
    }
    let work = Workspace::with_bundled_encoder()?;
    work.command("run", "fp8")
        .args(["--device", "cuda", "--precision", "fp8", "--refine"])
        .args(["--set", "selection.refine_risk=0"]) // a sample of 64
        .assert()
        .success()
        .stdout(contains("refined in bf16:").and(contains("largest difference")));
    // With the heads of that run: which of several like weights a training ends with depends on the last
    // bits of the samples' embeddings.
    work.command("run", "bf16")
        .args(["--device", "cuda", "--head", "quality=fp8/heads/quality/{lang}.safetensors"])
        .assert()
        .success();
    let frozen = work.frozen("fp8")?;
    assert_eq!(frozen["embed"]["encoder"]["precision"], "fp8");
    assert_eq!(frozen["train"]["encoder"]["precision"], "bf16");
    let ids = |run: &str| -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let rows = read_parquet(&work.path(&format!("{run}/export/fra_Latn/a.parquet")))?;
        let ids = rows.column_by_name("id").ok_or("no id")?.as_string::<i32>();
        Ok(ids.iter().flatten().map(str::to_owned).collect())
    };
    // All documents are in the sample that is scored again. Their batches are others, so that
    // bf16 rounds otherwise: what lies so near to the last one that is kept may take its place, and nothing else.
    let [bf16, fp8, refined] =
        ["bf16/scores", "fp8/scores", "fp8/refined"].map(|folder| logits(&work, folder));
    let (bf16, fp8, refined) = (bf16?, fp8?, refined?);
    let largest =
        |of: &[f32]| of.iter().zip(&bf16).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
    let (rounding, error) = (largest(&refined), largest(&fp8));
    assert!(rounding < error / 2.0, "{rounding} {error}");
    let (kept, expected) = (ids("fp8")?, ids("bf16")?);
    assert_eq!(kept.len(), expected.len());
    let mut order = bf16.clone();
    order.sort_by(|a, b| b.total_cmp(a));
    let last = order[expected.len() - 1];
    let with_text = (0..40).filter(|i| ![7, 8].contains(i)).map(|i| format!("fra_Latn-{i}"));
    for (id, logit) in with_text.zip(bf16) {
        let is_near = (logit - last).abs() <= 2.0 * rounding;
        assert!(
            is_near || kept.contains(&id) == expected.contains(&id),
            "{id} {logit} {last} {rounding}"
        );
    }
    polysift().arg("verify").arg(work.path("fp8")).assert().success();
    // A GPU has two types; it says which one the run is in.
    work.command("run", "fp8")
        .args(["--device", "cuda", "--precision", "bf16"])
        .assert()
        .code(78)
        .stderr(contains(r#"was "fp8", now "bf16""#).and(contains("--precision fp8")));
    Ok(())
}

#[test]
fn gpus_are_listed_and_a_plan_for_them_is_rough() -> TestResult {
    if !is_there_a_gpu()? {
        return Ok(());
    }
    polysift()
        .arg("devices")
        .assert()
        .success()
        .stdout(contains("cuda:0").and(contains("--device auto takes cuda:0")));
    let output = polysift().args(["devices", "--json"]).output()?;
    let found: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(
        (&found["gpus"][0]["usable"], &found["auto"]["precision"]),
        (&true.into(), &"bf16".into())
    );
    let work = Workspace::with_bundled_encoder()?;
    work.command("run", "out")
        .args(["--dry-run", "--device", "cuda:0"])
        .assert()
        .success()
        .stdout(contains("cuda:0, in bf16").and(contains("roughly")));
    // A number that is not there is an error, not the next best GPU.
    work.command("embed", "out")
        .args(["--device", "cuda:0,99"])
        .assert()
        .code(69)
        .stderr(contains("no GPU cuda:99"));
    Ok(())
}

#[test]
fn a_gpu_is_opened_once_and_only_where_it_is_wanted() -> TestResult {
    if !is_there_a_gpu()? || !gpus()?[0].info.name.starts_with("Simulated") {
        return Ok(());
    }
    let work = Workspace::with_bundled_encoder()?;
    let embed = |device: &str| {
        let mut command = work.command("embed", &device.replace([':', ','], "-"));
        command.args(["--device", device]);
        command
    };
    let mut devices = polysift();
    devices.arg("devices");
    for (mut command, expected) in
        [(embed("cuda:1"), [0, 1, 0]), (embed("cuda:2,0"), [1, 0, 1]), (devices, [1, 1, 1])]
    {
        command.envs([("POLYSIFT_SIM_DEVICES", "3"), ("POLYSIFT_SIM_LOG_CONTEXTS", "1")]);
        let output = command.output()?;
        let log = String::from_utf8(output.stderr)?;
        assert!(output.status.success(), "{log}");
        let contexts = [0, 1, 2].map(|gpu| log.matches(&format!("{gpu}: new context")).count());
        assert_eq!(contexts, expected, "{command:?}: {log}");
    }
    Ok(())
}

#[test]
fn a_gpu_without_memory_is_an_error_and_no_reason_for_the_cpu() -> TestResult {
    if !is_there_a_gpu()? || !gpus()?[0].info.name.starts_with("Simulated") {
        return Ok(());
    }
    let work = Workspace::with_bundled_encoder()?;
    work.command("embed", "auto")
        .args(["--device", "auto"])
        .env("POLYSIFT_SIM_MEMORY_BYTES", "1000000")
        .assert()
        .failure()
        .stderr(contains("cuda:0: out of memory").and(contains("choose another device")));
    Ok(())
}

#[test]
fn near_duplicates_are_those_that_the_cpu_finds() -> TestResult {
    if !is_there_a_gpu()? {
        return Ok(());
    }
    let work = Workspace::with_near_duplicates()?;
    let of = |run: &str| digests(&work.path(run).join("duplicates"));
    // Clusters of some 40 documents, and all documents of a language in one.
    for (clusters, similarity) in [("3", "0.94"), ("1", "0.985"), ("1", "0.3")] {
        let settings = [clusters, similarity].join("-");
        let [gpu, cpu] = ["gpu", "cpu"].map(|device| format!("{device}-{settings}"));
        let run = |run: &str, device: &str| {
            let mut command = work.command("run", run);
            command.args(["-v", "--device", device]);
            command.args(["--set", &format!("filters.near.clusters={clusters}")]);
            command.args(["--set", &format!("filters.near.similarity={similarity}")]);
            command.assert().success()
        };
        run(&gpu, "cuda").stderr(contains("comparing embeddings on cuda:0"));
        run(&cpu, "cpu").stderr(contains("comparing embeddings on").not());
        assert_eq!(of(&gpu)?, of(&cpu)?, "{settings}");
        let report = work.json(&format!("{gpu}/duplicates/report.json"))?;
        assert!(report["total"]["found"]["documents"].as_u64() > Some(50), "{settings}");
    }
    Ok(())
}
