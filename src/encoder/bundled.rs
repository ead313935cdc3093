//! The model inside the binary.

/// `config.json`.
pub(super) const CONFIG: &[u8] = include_bytes!("../../models/polysift-mini/config.json");
/// `model.safetensors`.
pub(super) const WEIGHTS: &[u8] = include_bytes!("../../models/polysift-mini/model.safetensors");
/// `tokenizer.json`.
pub(super) const TOKENIZER: &[u8] = include_bytes!("../../models/polysift-mini/tokenizer.json");
