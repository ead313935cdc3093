//! Processor time of a benchmark.

use anyhow::Result;

/// Returns the processor seconds of this process, user and system.
pub(crate) fn cpu_seconds() -> Result<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| -> Result<f64> { Ok(fields[at].parse::<f64>()? / 100.0) };
    Ok((ticks(12)?, ticks(13)?))
}
