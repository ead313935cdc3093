//! The most memory that this process has held, as Linux tells it.

/// Peak resident memory in bytes since the start or the last [`reset_peak_memory`]; `None` where the
/// system does not tell.
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Lets the peak begin anew, so that one stage's memory is not counted as the next one's. Where
/// the system refuses, the peak stays that of the whole process.
pub fn reset_peak_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_touched_shows_in_the_peak() {
        let bytes = 64 << 20;
        let touched = vec![1u8; bytes];
        let peak = peak_memory_bytes();
        assert!(peak.is_some_and(|peak| peak > bytes as u64), "{peak:?} for {}", touched.len());
    }
}
