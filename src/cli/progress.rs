//! What a person sees while a command works: progress on stderr, and what each stage took.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use polysift::Result;
use polysift::panics::lock;
use polysift::progress::{Progress, peak_memory_bytes, reset_peak_memory};
use polysift::run::Stage;

use super::logging::{GlobalArgs, LogFormat};

/// Seconds between two progress lines where there is no terminal.
const LINE_SECS: u64 = 10;
/// Redraws of a bar per second.
const REDRAWS_PER_SEC: u8 = 5;

/// A progress display for the options given: a bar on a terminal, else a line now and then.
pub(crate) fn display(args: &GlobalArgs) -> Box<dyn Progress> {
    if args.quiet {
        return Box::new(polysift::progress::Silent);
    }
    let plain = args.verbose == 0 && args.log_format == LogFormat::Text;
    if plain && std::io::stderr().is_terminal() {
        Box::new(Bar::default())
    } else {
        Box::new(Lines { format: args.log_format, state: Mutex::default() })
    }
}

/// Counts of the running stage.
#[derive(Default)]
struct State {
    stage: String,
    unit: &'static str,
    total: Option<u64>,
    done: u64,
    /// Bytes of the input: read, and in all.
    input: Option<(u64, u64)>,
    tokens: u64,
    began: Option<Instant>,
    reported: Option<Instant>,
}

impl State {
    fn secs(&self) -> f64 {
        self.began.map_or(0.0, |t| t.elapsed().as_secs_f64()).max(1e-9)
    }

    fn extend(&mut self, units: u64) {
        self.total = self.total.map(|total| total + units);
    }

    /// How much of the stage is done: of its units, else of the bytes of its input.
    fn share(&self) -> Option<f64> {
        let (done, total) = self.total.map(|total| (self.done, total)).or(self.input)?;
        (total > 0).then(|| (done as f64 / total as f64).min(1.0))
    }

    fn eta_secs(&self) -> Option<f64> {
        let share = self.share().filter(|share| *share > 0.0)?;
        Some((1.0 - share) * self.secs() / share)
    }

    /// The share where the number of units does not tell it, in parentheses.
    fn share_of_bytes(&self) -> String {
        let share = self.share().filter(|_| self.total.is_none());
        share.map(|share| format!(" ({:.1}%)", 100.0 * share)).unwrap_or_default()
    }
}

struct Lines {
    format: LogFormat,
    state: Mutex<State>,
}

impl Lines {
    fn report(&self, state: &State, ended: bool) {
        let (done, tokens, secs) = (state.done, state.tokens, state.secs());
        let documents_per_sec = done as f64 / secs;
        let text = match self.format {
            LogFormat::Json => serde_json::json!({
                "progress": state.stage, "unit": state.unit, "done": done, "total": state.total,
                "share": state.share(),
                "tokens": tokens, "secs": secs, "per_sec": documents_per_sec,
                "tokens_per_sec": tokens as f64 / secs, "eta_secs": state.eta_secs(), "ended": ended,
            })
            .to_string(),
            LogFormat::Text => {
                let total = state.total.map(|t| format!(" of {t}")).unwrap_or_default();
                let share = state.share_of_bytes();
                let speed = if tokens > 0 {
                    format!(", {:.0} tokens/s", tokens as f64 / secs)
                } else {
                    String::new()
                };
                let end = match (ended, state.eta_secs()) {
                    (true, _) => format!(", {secs:.1} s"),
                    (false, Some(eta)) => format!(", {eta:.0} s left"),
                    (false, None) => String::new(),
                };
                let (stage, unit) = (&state.stage, state.unit);
                format!("{stage}: {done}{total} {unit}{share}, {documents_per_sec:.0} {unit}/s{speed}{end}")
            }
        };
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

impl Progress for Lines {
    fn begin(&self, stage: &str, total: Option<u64>, unit: &'static str) {
        let now = Some(Instant::now());
        *lock(&self.state) = State {
            stage: stage.into(),
            unit,
            total,
            began: now,
            reported: now,
            ..State::default()
        };
    }

    fn advance(&self, units: u64, tokens: u64) {
        let mut state = lock(&self.state);
        state.done += units;
        state.tokens += tokens;
        if state.reported.is_none_or(|t| t.elapsed() >= Duration::from_secs(LINE_SECS)) {
            state.reported = Some(Instant::now());
            self.report(&state, false);
        }
    }

    fn extend(&self, units: u64) {
        lock(&self.state).extend(units);
    }

    fn input(&self, done: u64, total: u64) {
        lock(&self.state).input = Some((done, total));
    }

    fn end(&self) {
        self.report(&lock(&self.state), true);
    }
}

#[derive(Default)]
struct Bar {
    state: Mutex<State>,
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress for Bar {
    fn begin(&self, stage: &str, total: Option<u64>, unit: &'static str) {
        let bar = ProgressBar::with_draw_target(
            total,
            ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SEC),
        );
        let template = if total.is_some() {
            "{prefix:<9} {bar:30} {pos}/{len} {msg} eta {eta}"
        } else {
            "{prefix:<9} {spinner} {pos} {msg} {elapsed}"
        };
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_prefix(stage.to_owned());
        *lock(&self.state) = State { unit, began: Some(Instant::now()), total, ..State::default() };
        *lock(&self.bar) = Some(bar);
    }

    fn advance(&self, units: u64, tokens: u64) {
        let mut state = lock(&self.state);
        state.done += units;
        state.tokens += tokens;
        let secs = state.secs();
        let mut message = format!("{} {:.0}/s", state.unit, state.done as f64 / secs);
        if state.tokens > 0 {
            // Writing into a string cannot fail.
            let _ = write!(message, " {:.0} tokens/s", state.tokens as f64 / secs);
        }
        let share = state.share_of_bytes();
        if let Some(eta) = state.eta_secs().filter(|_| !share.is_empty()) {
            let _ = write!(message, "{share} eta {eta:.0} s");
        }
        if let Some(bar) = lock(&self.bar).as_ref() {
            bar.set_message(message);
            bar.inc(units);
        }
    }

    fn extend(&self, units: u64) {
        lock(&self.state).extend(units);
        if let Some(bar) = lock(&self.bar).as_ref() {
            bar.inc_length(units);
        }
    }

    fn input(&self, done: u64, total: u64) {
        lock(&self.state).input = Some((done, total));
    }

    fn end(&self) {
        if let Some(bar) = lock(&self.bar).take() {
            bar.finish();
        }
    }
}

/// What a stage took.
#[derive(Debug, Clone)]
pub(crate) struct Usage {
    pub(crate) stage: Stage,
    pub(crate) time: Duration,
    /// Peak resident memory in bytes while the stage ran.
    pub(crate) memory: Option<u64>,
    /// Its parts that work side by side, and for how long each was at work.
    pub(crate) busy: Vec<(&'static str, Duration)>,
}

/// A display of progress, and the measurements of the stages that it was shown.
pub(crate) struct Usages<'a> {
    display: &'a dyn Progress,
    busy: Mutex<Vec<(&'static str, Duration)>>,
    taken: Mutex<Vec<Usage>>,
}

impl<'a> Usages<'a> {
    pub(crate) fn new(display: &'a dyn Progress) -> Self {
        Self { display, busy: Mutex::default(), taken: Mutex::default() }
    }

    /// Runs a stage and measures it.
    pub(crate) fn measure(&self, stage: Stage, run: impl FnOnce() -> Result<()>) -> Result<()> {
        reset_peak_memory();
        let began = Instant::now();
        let _span = tracing::trace_span!("stage", name = stage.name()).entered();
        run()?;
        let busy = std::mem::take(&mut *lock(&self.busy));
        let usage = Usage { stage, time: began.elapsed(), memory: peak_memory_bytes(), busy };
        lock(&self.taken).push(usage);
        Ok(())
    }

    /// The measurements so far.
    pub(crate) fn taken(&self) -> Vec<Usage> {
        lock(&self.taken).clone()
    }
}

impl Progress for Usages<'_> {
    fn begin(&self, stage: &str, total: Option<u64>, unit: &'static str) {
        self.display.begin(stage, total, unit);
    }

    fn advance(&self, units: u64, tokens: u64) {
        self.display.advance(units, tokens);
    }

    fn extend(&self, units: u64) {
        self.display.extend(units);
    }

    fn input(&self, done: u64, total: u64) {
        self.display.input(done, total);
    }

    fn busy(&self, activity: &'static str, time: Duration) {
        lock(&self.busy).push((activity, time));
    }

    fn end(&self) {
        self.display.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_the_input_tell_the_share_where_the_units_do_not() {
        let began = Instant::now().checked_sub(Duration::from_secs(30));
        let state = State { done: 7, input: Some((25, 100)), began, ..State::default() };
        assert_eq!((state.share(), state.share_of_bytes()), (Some(0.25), " (25.0%)".to_owned()));
        assert!(state.eta_secs().is_some_and(|secs| (secs - 90.0).abs() < 1.0));
        let state = State { total: Some(14), ..state };
        assert_eq!((state.share(), state.share_of_bytes()), (Some(0.5), String::new()));
        assert!(state.eta_secs().is_some_and(|secs| (secs - 30.0).abs() < 1.0));
        assert_eq!(State::default().eta_secs(), None);
    }
}
