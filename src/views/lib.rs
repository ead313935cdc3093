//! Views read a run and change none of its outputs: status, description, checks, estimates,
//! reports, samples, evaluation. They use `polysift_corpus` and no stage.

pub mod estimate;
pub mod evaluate;
pub mod inspect;
pub mod report;
pub mod sampling;
pub mod status;
pub mod verify;
