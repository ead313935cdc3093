//! Streams of random numbers: one per purpose, so that one more draw here changes nothing there.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::TrainingRequest;

/// The stream of `purpose` for this seed, head and language.
pub(super) fn stream(request: &TrainingRequest<'_>, purpose: &str) -> ChaCha8Rng {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&request.seed.to_le_bytes());
    for field in [request.name, request.language, purpose] {
        hasher.update(&(field.len() as u64).to_le_bytes()).update(field.as_bytes());
    }
    ChaCha8Rng::from_seed(*hasher.finalize().as_bytes())
}
