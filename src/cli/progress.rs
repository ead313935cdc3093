//! What a person sees while a command works: progress on stderr, and what each stage took.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use polysift::Result;
use polysift::panics::lock;
use polysift::progress::Progress;
use polysift::run::Stage;

use super::logging::{GlobalArgs, LogFormat};

/// Between two progress lines where there is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
/// Redraws of a bar per second.
const REDRAWS_PER_SEC: u8 = 5;

/// Counts of the running stage.
#[derive(Default)]
struct StageProgress {
    stage: String,
    unit: &'static str,
    total: Option<u64>,
    done: u64,
    /// Bytes of the input: read, and in all.
    input: Option<(u64, u64)>,
    tokens: u64,
    began: Option<Instant>,
    reported: Option<Instant>,
    bar: Option<ProgressBar>,
    /// Its parts that work side by side, and for how long each was at work.
    busy: Vec<(&'static str, Duration)>,
}

impl StageProgress {
    fn secs(&self) -> f64 {
        self.began.map_or(0.0, |t| t.elapsed().as_secs_f64()).max(1e-9)
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

    /// The share where the number of units does not show it, in parentheses.
    fn share_of_bytes(&self) -> String {
        let share = self.share().filter(|_| self.total.is_none());
        share.map(|share| format!(" ({:.1}%)", 100.0 * share)).unwrap_or_default()
    }

    /// What the bar says beside the number of units.
    fn message(&self) -> String {
        let secs = self.secs();
        let mut message = format!("{} {:.0}/s", self.unit, self.done as f64 / secs);
        if self.tokens > 0 {
            // Writing into a string cannot fail.
            let _ = write!(message, " {:.0} tokens/s", self.tokens as f64 / secs);
        }
        let share = self.share_of_bytes();
        if let Some(eta) = self.eta_secs().filter(|_| !share.is_empty()) {
            let _ = write!(message, "{share} eta {eta:.0} s");
        }
        message
    }

    /// The same as a line for a log.
    fn line(&self, format: LogFormat, ended: bool) -> String {
        let &Self { ref stage, unit, total, done, tokens, .. } = self;
        let (secs, eta) = (self.secs(), self.eta_secs());
        let (per_sec, tokens_per_sec) = (done as f64 / secs, tokens as f64 / secs);
        if format == LogFormat::Json {
            let line = serde_json::json!({
                "progress": stage, "unit": unit, "done": done, "total": total,
                "share": self.share(), "tokens": tokens, "secs": secs, "per_sec": per_sec,
                "tokens_per_sec": tokens_per_sec, "eta_secs": eta, "ended": ended,
            });
            return line.to_string();
        }
        let total = total.map(|t| format!(" of {t}")).unwrap_or_default();
        let share = self.share_of_bytes();
        let mut line = format!("{stage}: {done}{total} {unit}{share}, {per_sec:.0} {unit}/s");
        if tokens > 0 {
            let _ = write!(line, ", {tokens_per_sec:.0} tokens/s");
        }
        if ended {
            let _ = write!(line, ", {secs:.1} s");
        } else if let Some(eta) = eta {
            let _ = write!(line, ", {eta:.0} s left");
        }
        line
    }
}

/// How progress is shown.
enum Form {
    Nothing,
    /// A line now and then.
    Lines(LogFormat),
    Bar,
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

/// Shows the progress of stages, and measures them.
pub(crate) struct Display {
    form: Form,
    state: Mutex<StageProgress>,
    taken: Mutex<Vec<Usage>>,
}

impl Display {
    /// A bar on a terminal, else a line now and then, as the options say.
    pub(crate) fn new(args: &GlobalArgs) -> Self {
        let is_plain = args.verbose == 0 && args.log_format == LogFormat::Text;
        let form = if args.quiet {
            Form::Nothing
        } else if is_plain && std::io::stderr().is_terminal() {
            Form::Bar
        } else {
            Form::Lines(args.log_format)
        };
        Self { form, state: Mutex::default(), taken: Mutex::default() }
    }

    /// Runs a stage and measures it.
    pub(crate) fn measure(&self, stage: Stage, run: impl FnOnce() -> Result<()>) -> Result<()> {
        reset_peak_memory();
        let began = Instant::now();
        let _span = tracing::trace_span!("stage", name = stage.name()).entered();
        run()?;
        let busy = std::mem::take(&mut lock(&self.state).busy);
        let usage = Usage { stage, time: began.elapsed(), memory: peak_memory_bytes(), busy };
        lock(&self.taken).push(usage);
        Ok(())
    }

    /// The measurements so far.
    pub(crate) fn taken(&self) -> Vec<Usage> {
        lock(&self.taken).clone()
    }
}

impl Progress for Display {
    fn begin(&self, stage: &str, total: Option<u64>, unit: &'static str) {
        let now = Some(Instant::now());
        let mut state =
            StageProgress { stage: stage.into(), unit, total, ..StageProgress::default() };
        (state.began, state.reported) = (now, now);
        state.bar = matches!(self.form, Form::Bar).then(|| bar(stage, total));
        *lock(&self.state) = state;
    }

    fn advance(&self, units: u64, tokens: u64) {
        let mut state = lock(&self.state);
        state.done += units;
        state.tokens += tokens;
        if let Some(bar) = &state.bar {
            bar.set_message(state.message());
            bar.inc(units);
        }
        if let Form::Lines(format) = self.form
            && state.reported.is_none_or(|last| last.elapsed() >= BETWEEN_LINES)
        {
            state.reported = Some(Instant::now());
            print(&state.line(format, false));
        }
    }

    fn extend(&self, units: u64) {
        let mut state = lock(&self.state);
        state.total = state.total.map(|total| total + units);
        if let Some(bar) = &state.bar {
            bar.inc_length(units);
        }
    }

    fn input(&self, done: u64, total: u64) {
        lock(&self.state).input = Some((done, total));
    }

    fn busy(&self, activity: &'static str, time: Duration) {
        lock(&self.state).busy.push((activity, time));
    }

    fn end(&self) {
        let mut state = lock(&self.state);
        if let Some(bar) = state.bar.take() {
            bar.finish();
        }
        if let Form::Lines(format) = self.form {
            print(&state.line(format, true));
        }
    }
}

fn bar(stage: &str, total: Option<u64>) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SEC);
    let bar = ProgressBar::with_draw_target(total, target);
    let template = if total.is_some() {
        "{prefix:<9} {bar:30} {pos}/{len} {msg} eta {eta}"
    } else {
        "{prefix:<9} {spinner} {pos} {msg} {elapsed}"
    };
    bar.set_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.with_prefix(stage.to_owned())
}

fn print(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Peak resident memory in bytes since the start or the last [`reset_peak_memory`]; `None` where Linux does
/// not tell.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Lets the peak begin anew, so that one stage's memory is not counted as the next one's. Where
/// the system refuses, the peak stays that of the whole process.
fn reset_peak_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_was_touched_shows_in_the_peak() {
        let bytes = 64 << 20;
        let touched = vec![1u8; bytes];
        let peak = peak_memory_bytes();
        assert!(peak.is_some_and(|peak| peak > bytes as u64), "{peak:?} for {}", touched.len());
    }

    #[test]
    fn the_bytes_of_the_input_tell_the_share_where_the_units_do_not() {
        let began = Instant::now().checked_sub(Duration::from_secs(30));
        let state =
            StageProgress { done: 7, input: Some((25, 100)), began, ..StageProgress::default() };
        assert_eq!((state.share(), state.share_of_bytes()), (Some(0.25), " (25.0%)".to_owned()));
        assert!(state.eta_secs().is_some_and(|secs| (secs - 90.0).abs() < 1.0));
        let state = StageProgress { total: Some(14), ..state };
        assert_eq!((state.share(), state.share_of_bytes()), (Some(0.5), String::new()));
        assert!(state.eta_secs().is_some_and(|secs| (secs - 30.0).abs() < 1.0));
        assert_eq!(StageProgress::default().eta_secs(), None);
    }
}
