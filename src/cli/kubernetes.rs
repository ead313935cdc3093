//! `polysift kubernetes`: the jobs of a planned run as a manifest.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use polysift::Result;
use polysift::cluster::kubernetes::{KubernetesSettings, manifest, to_yaml};

use super::planned::{Planned, StageArgs};
use super::{printer, summary};

/// What is done with Kubernetes.
#[derive(Debug, Subcommand)]
pub(crate) enum KubernetesCommand {
    /// Print an Indexed Job per stage, for kubectl apply; all but the first are suspended
    Manifest(Box<ManifestArgs>),
}

/// What the jobs ask for.
#[derive(Debug, Args)]
pub(crate) struct ManifestArgs {
    #[command(flatten)]
    stages: StageArgs,
    /// Container image with polysift in its PATH
    #[arg(long)]
    image: String,
    /// Persistent volume claim that holds the run directory and the input; many nodes have to be able to write
    #[arg(long, value_name = "PVC")]
    claim: String,
    /// Where the claim is mounted; the run directory is below it
    #[arg(long, value_name = "PATH", default_value = "/data")]
    mount: PathBuf,
    /// The run directory as pods see it [default: as it is named here]
    #[arg(long, value_name = "PATH")]
    run_in_pod: Option<PathBuf>,
    /// Prefix of the names of jobs
    #[arg(long, default_value = "polysift")]
    name: String,
    /// Namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Pods of a stage, no more than there are shards [default: one per shard, at most 100]
    #[arg(long, value_name = "N")]
    num_shards: Option<u32>,
    /// Most pods of a stage at once
    #[arg(long, value_name = "N")]
    max_running: Option<u32>,
    /// GPUs of a pod in the stages that encode (embed, train, refine)
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpus: u32,
    /// CPUs of a pod
    #[arg(long, value_name = "QUANTITY")]
    cpu: Option<String>,
    /// Memory of a pod, as in 256Gi
    #[arg(long, value_name = "QUANTITY")]
    memory: Option<String>,
    /// How often a share is tried again after a fault that may pass
    #[arg(long, value_name = "N", default_value_t = 3)]
    retries: u32,
    /// Seconds that a pod has to save its work when it is told to end
    #[arg(long, value_name = "SECS", default_value_t = 180)]
    grace_secs: u32,
    /// Print JSON in place of YAML
    #[arg(long)]
    json: bool,
}

/// Runs `command`.
pub(crate) fn run(command: &KubernetesCommand) -> Result<()> {
    let KubernetesCommand::Manifest(args) = command;
    let planned = Planned::open(&args.stages)?;
    let settings = KubernetesSettings {
        name: args.name.clone(),
        namespace: args.namespace.clone(),
        image: args.image.clone(),
        claim: args.claim.clone(),
        mount: args.mount.clone(),
        run: args.run_in_pod.clone().unwrap_or_else(|| planned.root.clone()),
        num_shards: planned.shares(args.num_shards),
        max_running: args.max_running,
        gpus: args.gpus,
        cpu: args.cpu.clone(),
        memory: args.memory.clone(),
        retries: args.retries,
        grace_secs: args.grace_secs,
    };
    let jobs = manifest(&settings, &planned.stages)?;
    if args.json {
        summary::print_json(&jobs);
    } else {
        printer::bytes(to_yaml(&jobs)?.as_bytes());
    }
    Ok(())
}
