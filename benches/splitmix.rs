//! Numbers without a pattern, the same in every run.

/// The output function of SplitMix64.
pub(crate) fn splitmix64(index: u64) -> u64 {
    let value = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
