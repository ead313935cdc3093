//! The pod of a task.

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::run::Stage;

use super::super::{Needs, StageTasks};
use super::{DEFAULT_CPU, DEFAULT_MEMORY, KubernetesSettings};

/// Where a pod may write besides the claim: its root file system is read-only.
pub(super) const SCRATCH: &str = "/tmp";

/// The pod of one of `pods` tasks.
pub(super) fn pod(settings: &KubernetesSettings, work: &StageTasks, pods: u32) -> Result<Value> {
    let run = settings.run.to_str().ok_or_else(|| not_text("--run"))?;
    let mount = settings.mount.to_str().ok_or_else(|| not_text("--mount"))?;
    let mut container = json!({
        "name": "polysift",
        "image": settings.image,
        "command": ["polysift", work.stage.name(), "--run", run],
        // Kubernetes gives the index, JOB_COMPLETION_INDEX, and not how many there are.
        "env": [
            {"name": "POLYSIFT_NUM_TASKS", "value": pods.to_string()},
            {"name": "HF_HOME", "value": format!("{SCRATCH}/huggingface")},
            {"name": "XDG_CACHE_HOME", "value": format!("{SCRATCH}/cache")},
        ],
        "resources": resources(settings, work.stage, work.needs),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{"name": "data", "mountPath": mount}, {"name": "scratch", "mountPath": SCRATCH}],
    });
    if !settings.secrets.is_empty() {
        let secrets = settings.secrets.iter().map(|name| json!({"secretRef": {"name": name}}));
        container["envFrom"] = secrets.collect();
    }
    let (user, group) = settings.user;
    Ok(json!({
        "restartPolicy": "Never", // as podFailurePolicy wants it: every attempt is a pod
        "terminationGracePeriodSeconds": settings.grace_secs,
        "automountServiceAccountToken": false, // it speaks to no API of the cluster
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": user,
            "runAsGroup": group,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": settings.claim}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }))
}

/// The limits are what is requested: the program starts as many threads as it may use CPUs, and a pod
/// that uses what was promised to it is the last to be evicted.
fn resources(settings: &KubernetesSettings, stage: Stage, needs: Needs) -> Value {
    let cpu = settings.cpu.get(stage).map_or(DEFAULT_CPU, |cpu| cpu.as_str());
    let memory = settings.memory.get(stage).map_or(DEFAULT_MEMORY, |memory| memory.as_str());
    let asked = json!({"cpu": cpu, "memory": memory});
    let mut resources = json!({"requests": asked, "limits": asked});
    if settings.gpus > 0 && needs == Needs::Gpus {
        resources["limits"]["nvidia.com/gpu"] = json!(settings.gpus.to_string());
    }
    resources
}

fn not_text(flag: &str) -> Error {
    Error::config(flag, "holds bytes that are not UTF-8")
}
