//! What the CPU could do at best, measured next to what a kernel does.

use std::hint::black_box;
use std::io::Write;

use polysift_kernels::Precision;

#[cfg(target_arch = "x86_64")]
use super::x86;

/// What limits a kernel.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    /// This many operations (a multiply-add is two) with the instructions of an precision.
    Products(Precision, f64),
    /// A copy of this many f32.
    Copy(usize),
}

const REPEATS: usize = 15;

/// Prints by what share of its bound `run` goes: the median over repetitions, each between two
/// measurements of the bound.
pub(crate) fn share(name: &str, bound: Bound, run: &mut dyn FnMut()) {
    run();
    let mut best = Best::new(bound);
    let (mut shares, mut times) = (Vec::new(), Vec::new());
    let mut before = best.secs();
    for _ in 0..REPEATS {
        let secs = timed(&mut *run);
        let after = best.secs();
        shares.push(f64::midpoint(before, after) / secs);
        times.push(secs);
        before = after;
    }
    let secs = median(times);
    let rate = match bound {
        Bound::Products(_, operations) => format!("{:.1} G operations/s", operations / secs / 1e9),
        Bound::Copy(count) => format!("{:.2} G values/s", count as f64 / secs / 1e9),
    };
    let share = 100.0 * median(shares);
    // Without a place to print to there is nothing to measure for.
    let _ = writeln!(
        std::io::stdout(),
        "{name}: {:.1} µs, {rate}, {share:.1}% of {}",
        secs * 1e6,
        best.name
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor seconds of this thread in `run`, which is repeated until the clock can tell.
fn timed(run: &mut dyn FnMut()) -> f64 {
    const SHORTEST: f64 = 2e-3;
    let (start, mut count) = (thread_secs(), 0);
    loop {
        run();
        count += 1;
        let secs = thread_secs() - start;
        if secs >= SHORTEST {
            return secs / f64::from(count);
        }
    }
}

/// Other programs' share of the cores does not count in it.
fn thread_secs() -> f64 {
    let stat = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    stat.tv_sec as f64 + stat.tv_nsec as f64 * 1e-9
}

/// The bound itself, ready to be measured.
struct Best {
    name: &'static str,
    run: Box<dyn FnMut()>,
    /// Times `run` that make up the bound.
    runs: f64,
}

impl Best {
    fn new(bound: Bound) -> Self {
        match bound {
            Bound::Copy(count) => {
                let (from, mut to) = (vec![1.0f32; count], vec![0.0f32; count]);
                let run = move || black_box(&mut to).copy_from_slice(black_box(&from));
                Self { name: "a copy", run: Box::new(run), runs: 1.0 }
            }
            Bound::Products(precision, operations) => {
                let (name, chains, lanes) = chains(precision);
                let made = (2 * STEPS * SUMS * lanes) as f64;
                Self { name, run: Box::new(chains), runs: operations / made }
            }
        }
    }

    /// Processor seconds that the bound takes.
    fn secs(&mut self) -> f64 {
        timed(&mut self.run) * self.runs
    }
}

/// Independent sums, enough to hide the latency of an instruction.
pub(crate) const SUMS: usize = 12;
pub(crate) const STEPS: usize = 20_000;

/// Name, code and multiply-adds per instruction of the fastest way to sum products of `precision`.
fn chains(precision: Precision) -> (&'static str, fn(), usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(found) = x86::chains(precision) {
        return found;
    }
    let _ = precision;
    ("plain f32 multiply-adds", plain, 4)
}

/// What the compiler makes of four lanes.
fn plain() {
    let (a, b) = (black_box([0.5f32; 4]), black_box([0.25f32; 4]));
    let mut sums = [b; SUMS];
    for _ in 0..STEPS {
        for sum in &mut sums {
            for ((sum, a), b) in sum.iter_mut().zip(a).zip(b) {
                *sum = *sum * a + b;
            }
        }
    }
    black_box(sums);
}
