//! Manifests, without Kubernetes.

use super::*;
use crate::config::RunConfig;
use crate::run::Stage;

fn settings() -> KubernetesSettings {
    KubernetesSettings {
        name: "fineweb2".into(),
        namespace: None,
        image: "registry.example/polysift:1".into(),
        claim: "corpus".into(),
        mount: "/data".into(),
        run: "/data/runs/a b".into(),
        num_tasks: 400,
        max_running: Some(100),
        gpus: 8,
        cpu: PerStage::default(),
        memory: PerStage::default(),
        secrets: Vec::new(),
        user: (1001, 100),
        retries: 3,
        grace_secs: 180,
    }
}

fn jobs(settings: &KubernetesSettings, stages: &[Stage]) -> Result<Value> {
    let config = RunConfig::default();
    let whole = |stage: &Stage| StageTasks::whole(&config, *stage, settings.num_tasks);
    manifest(settings, &stages.iter().map(whole).collect::<Vec<_>>())
}

#[test]
fn a_stage_that_shards_is_an_indexed_job_with_a_pod_a_task() -> Result<()> {
    let jobs = jobs(&settings(), &[Stage::Embed])?;
    let spec = &jobs["items"][0]["spec"];
    assert_eq!(jobs["items"][0]["metadata"]["name"], "fineweb2-embed");
    assert_eq!((&spec["completionMode"], &spec["suspend"]), (&json!("Indexed"), &json!(false)));
    assert_eq!((&spec["completions"], &spec["parallelism"]), (&json!(400), &json!(100)));
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Never");
    let container = &pod["containers"][0];
    assert_eq!(container["command"], json!(["polysift", "embed", "--run", "/data/runs/a b"]));
    assert_eq!(container["env"][0], json!({"name": "POLYSIFT_NUM_TASKS", "value": "400"}));
    assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "8");
    Ok(())
}

#[test]
fn later_stages_are_suspended_and_what_does_not_encode_asks_for_no_gpu() -> Result<()> {
    let jobs = jobs(&settings(), &[Stage::Embed, Stage::Threshold, Stage::Export])?;
    let suspended = |i: usize| jobs["items"][i]["spec"]["suspend"].clone();
    assert_eq!([suspended(0), suspended(1), suspended(2)], [false, true, true]);
    let threshold = &jobs["items"][1]["spec"];
    assert_eq!(threshold["completions"], 1);
    let container = &threshold["template"]["spec"]["containers"][0];
    assert_eq!(container["env"][0]["value"], "1");
    assert_eq!(container["resources"]["limits"], json!({"cpu": "4", "memory": "16Gi"}));
    Ok(())
}

#[test]
fn only_exit_codes_that_no_retry_helps_fail_a_share_at_once() -> Result<()> {
    let jobs = jobs(&settings(), &[Stage::Score])?;
    let rules = &jobs["items"][0]["spec"]["podFailurePolicy"]["rules"];
    assert_eq!(rules[0]["action"], "FailIndex");
    assert_eq!(rules[0]["onExitCodes"]["values"], json!([2, 3, 65, 66, 70, 78]));
    assert_eq!(rules[1]["action"], "Ignore");
    assert_eq!(rules[1]["onPodConditions"][0]["type"], "DisruptionTarget");
    assert_eq!(rules.as_array().map(Vec::len), Some(2), "all others count");
    Ok(())
}

#[test]
fn a_pod_asks_for_what_its_stage_was_given_and_gets_no_more() -> Result<()> {
    let values = |texts: [&str; 2]| PerStage::parse("--flag", &texts.map(str::to_owned));
    let asked = KubernetesSettings {
        cpu: values(["64", "export=500m"])?,
        memory: values(["embed=256Gi", "export=2Gi"])?,
        ..settings()
    };
    let jobs = jobs(&asked, &[Stage::Embed, Stage::Score, Stage::Export])?;
    for (i, (cpu, memory)) in [("64", "256Gi"), ("64", "16Gi"), ("500m", "2Gi")].iter().enumerate()
    {
        let resources = &jobs["items"][i]["spec"]["template"]["spec"]["containers"][0]["resources"];
        assert_eq!(resources["requests"], json!({"cpu": cpu, "memory": memory}));
        assert_eq!(
            (&resources["limits"]["cpu"], &resources["limits"]["memory"]),
            (&json!(cpu), &json!(memory))
        );
    }
    Ok(())
}

#[test]
fn pods_pass_the_restricted_pod_security_standard_and_can_write_where_they_have_to() -> Result<()> {
    let jobs = jobs(&settings(), &[Stage::Embed])?;
    let pod = &jobs["items"][0]["spec"]["template"]["spec"];
    let expected = json!({"runAsNonRoot": true, "runAsUser": 1001, "runAsGroup": 100,
                          "seccompProfile": {"type": "RuntimeDefault"}});
    assert_eq!(pod["securityContext"], expected);
    let container = &pod["containers"][0];
    let expected = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                          "readOnlyRootFilesystem": true});
    assert_eq!(container["securityContext"], expected);
    assert_eq!(container["volumeMounts"][1], json!({"name": "scratch", "mountPath": "/tmp"}));
    assert_eq!(pod["volumes"][1], json!({"name": "scratch", "emptyDir": {}}));
    assert_eq!(container["env"][1], json!({"name": "HF_HOME", "value": "/tmp/huggingface"}));
    assert!(container.get("envFrom").is_none());
    Ok(())
}

#[test]
fn secrets_are_the_environment_of_the_pods() -> Result<()> {
    let secret = KubernetesSettings { secrets: vec!["hub".into(), "s3.keys".into()], ..settings() };
    let jobs = jobs(&secret, &[Stage::Embed])?;
    let container = &jobs["items"][0]["spec"]["template"]["spec"]["containers"][0];
    let expected = json!([{"secretRef": {"name": "hub"}}, {"secretRef": {"name": "s3.keys"}}]);
    assert_eq!(container["envFrom"], expected);
    Ok(())
}

/// Whether `settings` are refused with a message that begins with `flag`.
fn is_refused(settings: &KubernetesSettings, flag: &str) -> bool {
    let refused = manifest(settings, &[]);
    refused.is_err_and(|e| e.exit_code() == 2 && e.to_string().starts_with(flag))
}

#[test]
fn names_that_kubernetes_does_not_take_are_refused() {
    let (long, longer) = ("a".repeat(41), "a".repeat(64));
    for name in ["", "A", "a_b", "-a", "a-", "a.b", &long] {
        let wrong = KubernetesSettings { name: name.into(), ..settings() };
        assert!(is_refused(&wrong, "--name"), "{name}");
    }
    for name in ["", "Team", "a b", "a.b", "-a", &longer] {
        let wrong = KubernetesSettings { namespace: Some(name.into()), ..settings() };
        assert!(is_refused(&wrong, "--namespace"), "{name}");
    }
    for name in ["", "a..b", "a_b", ".a", "a-.b"] {
        let wrong = KubernetesSettings { claim: name.into(), ..settings() };
        assert!(is_refused(&wrong, "--claim"), "{name}");
        let wrong = KubernetesSettings { secrets: vec!["a".into(), name.into()], ..settings() };
        assert!(is_refused(&wrong, "--secret"), "{name}");
    }
    let namespace = Some(long);
    assert!(manifest(&KubernetesSettings { namespace, ..settings() }, &[]).is_ok());
}

#[test]
fn paths_and_amounts_with_which_no_pod_could_work_are_refused() -> Result<()> {
    let memory = |text: &str| PerStage::parse("--memory", &[text.to_owned()]);
    for (wrong, flag) in [
        (
            KubernetesSettings { run: "/database/a".into(), ..settings() },
            "--mount: the run directory",
        ),
        (
            KubernetesSettings { mount: "data".into(), run: "data/a".into(), ..settings() },
            "--mount",
        ),
        (KubernetesSettings { mount: "/".into(), ..settings() }, "--mount"),
        (
            KubernetesSettings { mount: "/tmp".into(), run: "/tmp/a".into(), ..settings() },
            "--mount",
        ),
        (KubernetesSettings { image: String::new(), ..settings() }, "--image"),
        (KubernetesSettings { user: (0, 0), ..settings() }, "--user"),
        (KubernetesSettings { max_running: Some(0), ..settings() }, "--max-running"),
        (
            KubernetesSettings { memory: memory("256")?, ..settings() },
            "--memory: `256` is 256 bytes",
        ),
        (KubernetesSettings { memory: memory("train=512m")?, ..settings() }, "--memory"),
    ] {
        assert!(is_refused(&wrong, flag), "{wrong:?}");
    }
    Ok(())
}
