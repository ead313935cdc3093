//! Numbers for benches that need some, the same in every run.

#[path = "splitmix.rs"]
mod splitmix;

use self::splitmix::splitmix64;

/// Values in -1..1 without a pattern.
pub(crate) fn values(count: usize) -> Vec<f32> {
    let value = |i| (splitmix64(i) >> 40) as f32 / 8_388_608.0 - 1.0;
    (1..=count as u64).map(value).collect()
}
