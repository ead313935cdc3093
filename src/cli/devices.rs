//! `polysift devices`: lists the GPUs of this machine and what `--device auto` chooses.

use serde_json::{Value, json};

use polysift::encoder::{Gpu, Placement, gpus, usable};

use super::printer::{self, cells, or_dash};

const GIB: f64 = 1_073_741_824.0;

/// Prints every GPU, usable or not, and what `--device auto` takes.
pub(crate) fn print_devices(as_json: bool) {
    let found = gpus();
    let usable = found.as_ref().map_err(Clone::clone).and_then(|gpus| usable(gpus));
    let problem = usable.as_ref().err().map(ToString::to_string);
    let auto = Placement::auto(usable.unwrap_or_default());
    let gpus = found.unwrap_or_default();
    if as_json {
        printer::print_json(&json!({
            "gpus": gpus.iter().map(describe_gpu).collect::<Vec<_>>(),
            "problem": problem,
            "auto": {"device": auto.to_string(), "precision": auto.precision},
        }));
        return;
    }
    if !gpus.is_empty() {
        let titles = ["device", "name", "capability", "free", "memory", "usable"];
        printer::print_table(titles, gpus.iter().map(gpu_cells));
    }
    // If there are GPUs, the table says why one cannot be used.
    if let Some(problem) = problem.filter(|_| gpus.is_empty()) {
        printer::print_line(&format!("no GPU can be used: {problem}"));
    }
    printer::print_line(&format!("--device auto takes {auto}, in {}", auto.precision));
}

fn capability(gpu: &Gpu) -> String {
    let (major, minor) = gpu.info.compute_capability;
    format!("{major}.{minor}")
}

fn describe_gpu(gpu: &Gpu) -> Value {
    json!({
        "device": format!("cuda:{}", gpu.info.ordinal),
        "name": gpu.info.name,
        "compute_capability": capability(gpu),
        "free_bytes": gpu.free_bytes.as_ref().ok(),
        "total_bytes": gpu.info.total_bytes,
        "usable": gpu.free_bytes.is_ok(),
        "problem": gpu.free_bytes.as_ref().err().map(ToString::to_string),
    })
}

fn gpu_cells(gpu: &Gpu) -> Vec<String> {
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / GIB);
    let (device, free) = (format!("cuda:{}", gpu.info.ordinal), gpu.free_bytes.as_ref());
    let usable = free.map_or_else(ToString::to_string, |_| "yes".to_owned());
    let (free, all) = (or_dash(free.ok().map(|&bytes| gib(bytes))), gib(gpu.info.total_bytes));
    cells([&device, &gpu.info.name, &capability(gpu), &free, &all, &usable])
}
