//! `polysift evaluate`: measures against scikit-learn and SciPy, reports, and the command.

mod command;
mod measures;
mod selections;
mod stored;
