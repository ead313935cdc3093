//! What reads a run and writes nothing into it: status, description, checks, estimates, reports,
//! samples, evaluation. Views use `polysift_corpus` and no stage.

pub mod estimate;
pub mod evaluate;
pub mod inspect;
pub mod report;
pub mod sampling;
pub mod status;
pub mod verify;
