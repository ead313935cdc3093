//! Shows progress on stderr and measures time and memory of each stage.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use polysift::Result;
use polysift::panics::lock;
use polysift::progress::Progress;
use polysift::run::{ProgressNote, Stage};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::logging::{GlobalArgs, LogFormat};
use super::printer::print_complaint;

const BETWEEN_LINES: Duration = Duration::from_secs(10);
const BETWEEN_NOTES: Duration = Duration::from_secs(1);
const REDRAWS_PER_SEC: u8 = 5;
const BAR_STEPS: u64 = 1000;

#[derive(Default)]
struct StageProgress {
    stage: String,
    unit: &'static str,
    total: Option<u64>,
    done: u64,
    /// Bytes of the input: done, and in total; earlier processes and other ones do not count.
    input: Option<(u64, u64)>,
    tokens: u64,
    began: Option<Instant>,
    reported: Option<Instant>,
    noted: Option<Instant>,
    bar: Option<ProgressBar>,
    busy_seconds: Map<String, Value>,
}

impl StageProgress {
    /// Returns the seconds since the stage began, above 0.
    fn secs(&self) -> f64 {
        self.began.map_or(0.0, |t| t.elapsed().as_secs_f64()).max(1e-9)
    }

    /// Returns the share of the stage that is done, by input bytes if known, else by units.
    fn share(&self) -> Option<f64> {
        let of_input = self.input.filter(|(_, total)| *total > 0);
        let (done, total) = of_input.or(self.total.map(|total| (self.done, total)))?;
        (total > 0).then(|| (done as f64 / total as f64).min(1.0))
    }

    /// Estimates the seconds that are left; `None` until there is a share.
    fn eta_secs(&self) -> Option<f64> {
        let share = self.share().filter(|share| *share > 0.0)?;
        Some((1.0 - share) * self.secs() / share)
    }

    /// Formats the counts, the share and the throughput for bars and log lines.
    fn format_counts(&self) -> String {
        let (unit, done, secs) = (self.unit, self.done, self.secs());
        let total = self.total.map(|total| format!(" of {total}")).unwrap_or_default();
        let share = self.share().map(|share| format!(" ({:.1}%)", 100.0 * share));
        let speed = |count: u64, unit: &str| format!(", {:.0} {unit}/s", count as f64 / secs);
        let units = (done as f64 / secs >= 1.0).then(|| speed(done, unit));
        let tokens = (self.tokens > 0).then(|| speed(self.tokens, "tokens"));
        let [share, units, tokens] = [share, units, tokens].map(Option::unwrap_or_default);
        format!("{done}{total} {unit}{share}{units}{tokens}")
    }

    /// Formats the counts with the time left.
    fn format_message(&self) -> String {
        let left = self.eta_secs().map(|secs| format!(", {} left", time_for_people(secs)));
        format!("{}{}", self.format_counts(), left.unwrap_or_default())
    }

    /// Describes the progress for scripts and for other processes.
    fn to_json(&self) -> Value {
        let &Self { ref stage, unit, total, done, tokens, .. } = self;
        let secs = self.secs();
        json!({
            "progress": stage, "unit": unit, "done": done, "total": total,
            "share": self.share(), "tokens": tokens, "secs": secs, "per_sec": done as f64 / secs,
            "tokens_per_sec": tokens as f64 / secs, "eta_secs": self.eta_secs(),
        })
    }

    /// Formats a log line; the last line of a stage, `ended`, has its time.
    fn format_line(&self, format: LogFormat, ended: bool) -> String {
        let (stage, secs) = (&self.stage, self.secs());
        if format == LogFormat::Json {
            let mut line = self.to_json();
            line["ended"] = ended.into();
            // In UTC, as the log lines have it; writing into a string cannot fail.
            let mut now = String::new();
            let _ = SystemTime.format_time(&mut Writer::new(&mut now));
            line["timestamp"] = now.into();
            return line.to_string();
        }
        if ended {
            return format!("{stage}: {}, {}", self.format_counts(), time_for_people(secs));
        }
        format!("{stage}: {}", self.format_message())
    }

    fn draw(&self) {
        let Some(bar) = &self.bar else { return };
        bar.set_position((self.share().unwrap_or(0.0) * BAR_STEPS as f64) as u64);
        bar.set_message(self.format_message());
    }
}

/// Formats a duration: `8.3 s`, `3 min 20 s`, `1 h 43 min`.
pub(crate) fn time_for_people(secs: f64) -> String {
    let whole = secs.round() as u64;
    match whole {
        0..10 => format!("{secs:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d {} h", whole / 86_400, whole % 86_400 / 3600),
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Usage {
    pub(crate) stage: Stage,
    pub(crate) seconds: f64,
    /// Peak resident memory while the stage ran.
    pub(crate) peak_bytes: Option<u64>,
    /// Concurrent activities of the stage, with the time each was busy.
    pub(crate) busy_seconds: Map<String, Value>,
}

#[derive(Default)]
pub(crate) struct Display {
    pub(crate) quiet: bool,
    has_bar: bool,
    /// Format of the lines that are printed instead of a bar; `None` for no lines.
    lines: Option<LogFormat>,
    state: Mutex<StageProgress>,
    usages: Mutex<Vec<Usage>>,
    /// Note of the worker, which `status` in other processes reads.
    note: Mutex<Option<ProgressNote>>,
}

impl Display {
    /// Shows a bar on a terminal, otherwise lines, as the options say.
    pub(crate) fn new(args: &GlobalArgs) -> Self {
        let is_plain = args.verbose == 0 && args.log_format == LogFormat::Text;
        let has_bar = !args.quiet && is_plain && std::io::stderr().is_terminal();
        let lines = (!args.quiet && !has_bar).then_some(args.log_format);
        Self { quiet: args.quiet, has_bar, lines, ..Self::default() }
    }

    /// Also writes the progress into `note` from now on.
    pub(crate) fn keep_in(&self, note: ProgressNote) {
        *lock(&self.note) = Some(note);
    }

    /// Writes the progress into the note, at most once a second.
    fn update_note(&self, state: &mut StageProgress) {
        let is_due = state.noted.is_none_or(|last| last.elapsed() >= BETWEEN_NOTES);
        if let (Some(note), true) = (&*lock(&self.note), is_due) {
            state.noted = Some(Instant::now());
            let mut json = state.to_json();
            json["line"] = state.format_line(LogFormat::Text, false).into();
            *lock(note) = Some(json);
        }
    }

    /// Runs a stage and, if it succeeds, adds its usage to the usages.
    pub(crate) fn measure(&self, stage: Stage, run: impl FnOnce() -> Result<()>) -> Result<()> {
        // Resets the peak; if the system refuses, the peak of the whole process stays.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let began = Instant::now();
        let _span = tracing::trace_span!("stage", name = stage.name()).entered();
        run()?;
        let busy_seconds = std::mem::take(&mut lock(&self.state).busy_seconds);
        let (seconds, peak_bytes) = (began.elapsed().as_secs_f64(), peak_memory_bytes());
        lock(&self.usages).push(Usage { stage, seconds, peak_bytes, busy_seconds });
        Ok(())
    }

    pub(crate) fn usages(&self) -> Vec<Usage> {
        lock(&self.usages).clone()
    }
}

impl Progress for Display {
    fn begin(&self, stage: &str, total: Option<u64>, unit: &'static str) {
        let now = Some(Instant::now());
        let mut state =
            StageProgress { stage: stage.into(), unit, total, ..StageProgress::default() };
        (state.began, state.reported) = (now, now);
        state.bar = self.has_bar.then(|| new_bar(stage));
        let mut before = lock(&self.state);
        state.input = before.input;
        state.draw();
        *before = state;
    }

    fn advance(&self, units: u64, tokens: u64) {
        let mut state = lock(&self.state);
        state.done += units;
        state.tokens += tokens;
        state.draw();
        self.update_note(&mut state);
        if let Some(format) = self.lines
            && state.reported.is_none_or(|last| last.elapsed() >= BETWEEN_LINES)
        {
            state.reported = Some(Instant::now());
            print_complaint(&state.format_line(format, false));
        }
    }

    fn extend(&self, units: u64) {
        let mut state = lock(&self.state);
        state.total = state.total.map(|total| total + units);
    }

    fn input(&self, done: u64, total: i64) {
        let mut state = lock(&self.state);
        let (done_before, total_before) = state.input.unwrap_or_default();
        state.input = Some((done_before + done, total_before.saturating_add_signed(total)));
    }

    fn busy(&self, activity: &'static str, time: Duration) {
        lock(&self.state).busy_seconds.insert(activity.into(), time.as_secs_f64().into());
    }

    fn end(&self) {
        let mut state = lock(&self.state);
        if let Some(bar) = state.bar.take() {
            bar.abandon(); // the bar is full only if all was done
        }
        if let Some(format) = self.lines {
            print_complaint(&state.format_line(format, true));
        }
        state.input = None;
    }
}

/// Creates a bar with a spinner that also moves while nothing is reported.
fn new_bar(stage: &str) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SEC);
    let bar = ProgressBar::with_draw_target(Some(BAR_STEPS), target);
    let style = ProgressStyle::with_template("{prefix:<9} {spinner} {bar:30} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_secs(1) / u32::from(REDRAWS_PER_SEC));
    bar.with_prefix(stage.to_owned())
}

/// Returns the peak resident memory in bytes since it was reset, if the system tells.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
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
    fn the_share_is_of_the_bytes_of_the_input_else_of_the_units() {
        let began = Instant::now().checked_sub(Duration::from_secs(30));
        let state = StageProgress {
            stage: "embed".into(),
            unit: "documents",
            done: 60,
            input: Some((25, 100)),
            began,
            ..StageProgress::default()
        };
        assert_eq!(
            state.format_line(LogFormat::Text, false),
            "embed: 60 documents (25.0%), 2 documents/s, 1 min 30 s left"
        );
        assert_eq!(
            state.format_line(LogFormat::Text, true),
            "embed: 60 documents (25.0%), 2 documents/s, 30 s"
        );
        let state = StageProgress { input: None, ..state };
        assert_eq!(state.format_message(), "60 documents, 2 documents/s");
        let state = StageProgress { total: Some(120), tokens: 300, ..state };
        assert_eq!(
            state.format_message(),
            "60 of 120 documents (50.0%), 2 documents/s, 10 tokens/s, 30 s left"
        );
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        for (secs, text) in [
            (0.04, "0.0 s"),
            (9.4, "9.4 s"),
            (59.4, "59 s"),
            (59.6, "1 min 0 s"),
            (6_180.0, "1 h 43 min"),
            (180_000.0, "2 d 2 h"),
        ] {
            assert_eq!(time_for_people(secs), text);
        }
    }
}
