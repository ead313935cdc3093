//! `--trace-out`: writes a timeline of all threads as Chrome trace events, for Perfetto.
//!
//! Each span is written as one line when it ends. A killed process leaves all spans that had ended,
//! and the format allows the closing bracket to be missing. (`tracing-chrome` buffers its output
//! and panics when the disk is full.)

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use polysift::panics::lock;
use polysift::progress::Stop;
use polysift::{Error, Result};

#[derive(Clone)]
pub(crate) struct Trace {
    began: Instant,
    /// `None` after the end or after a failed write, which does not stop the work.
    file: Arc<Mutex<Option<File>>>,
}

/// A span that has not ended. Spans are entered as soon as they are made.
struct BegunSpan {
    since: Instant,
    fields: Map<String, Value>,
}

impl Trace {
    /// Creates the file and begins the trace; waits for the reader of a pipe, or for a stop.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let to = path.to_owned();
        // Opening a pipe waits until somebody reads it.
        let started = Stop::of_process().run_abandonable(move || {
            let mut file = File::create(to)?;
            file.write_all(b"[\n")?;
            Ok(file)
        })?;
        let source = |source| Error::Io { path: path.to_owned(), action: "create", source };
        let file = Arc::new(Mutex::new(Some(started.map_err(source)?)));
        Ok(Self { began: Instant::now(), file })
    }

    /// Writes `text`, unless writing failed before; the first failure is a warning.
    fn write(&self, text: &str) {
        let mut file = lock(&self.file);
        if file.as_mut().is_some_and(|file| file.write_all(text.as_bytes()).is_err()) {
            *file = None;
            drop(file);
            tracing::warn!("the trace cannot be written any more and stays as it is");
        }
    }
}

impl Drop for Trace {
    /// Ends the file, with an event without a trailing comma, so that strict readers accept it. The
    /// copy in the subscriber, which lives as long as the process, is never dropped.
    fn drop(&mut self) {
        let name =
            json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "polysift"}});
        self.write(&format!("{name}\n]\n"));
        *lock(&self.file) = None;
    }
}

impl<S> Layer<S> for Trace
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut begun = BegunSpan { since: Instant::now(), fields: Map::new() };
        attributes.record(&mut begun);
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(begun);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let extensions = span.extensions();
        let Some(BegunSpan { since, fields }) = extensions.get() else { return };
        let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
        let event = json!({
            "ph": "X",
            "pid": 1,
            "tid": thread_number(),
            "name": span.name(),
            "ts": micros(since.saturating_duration_since(self.began)),
            "dur": micros(since.elapsed()),
            "args": fields,
        });
        self.write(&format!("{event},\n"));
    }
}

/// Returns the number of this thread, counted from 1 in the order in which threads end a span.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

impl Visit for BegunSpan {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.fields.insert(field.name().to_owned(), format!("{value:?}").into());
    }
}
