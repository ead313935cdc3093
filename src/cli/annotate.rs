//! `polysift annotate`: reads documents from standard input and prints them with annotations.

use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use serde_json::json;

use polysift::config::RunConfig;
use polysift::input::{DocumentStream, StreamDocument};
use polysift::io::without_byte_order_mark;
use polysift::progress::Stop;
use polysift::run::RunDir;
use polysift::views::evaluate::{Annotation, Annotator, TextScorer, find_heads};
use polysift::{Error, Result};

use super::printer;
use super::settings::{BaseArgs, ColumnArgs, EncoderArgs, SettingsArgs, resolve, set_hub};

const STDIN: &str = "standard input";
const BLOCK_DOCUMENTS: usize = 1024;
const BLOCK_BYTES: usize = 16 << 20;
const READ_AHEAD: usize = 64;
/// Time a block waits for more documents: short, for clients that send one and wait for the answer.
const BLOCK_WAIT: Duration = Duration::from_millis(5);
/// Time between checks for a stop while no document arrives.
const STOP_WAIT: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
#[command(mut_arg("run", |run| run.help(
    "A run: its encoder, heads, thresholds and filters"
)))]
pub(crate) struct AnnotateArgs {
    /// Run directory, as --run
    #[arg(value_name = "RUN")]
    run_directory: Option<PathBuf>,
    /// Format of the input
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Key under which the annotation is added to each document
    #[arg(long, value_name = "KEY", default_value = "annotation")]
    key: String,
    /// Load a head, e.g. quality=heads/{lang}.safetensors; may be repeated [default: the heads of
    /// --run or --config]
    #[arg(long, value_name = "NAME=PATH")]
    head: Vec<String>,
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    columns: ColumnArgs,
    #[command(flatten)]
    encoder: EncoderArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Format {
    /// `json` if the input begins with `{`, otherwise `text`
    #[default]
    Auto,
    /// A JSON object on each line
    Json,
    /// The whole input is one text
    Text,
}

type Parsed = Result<StreamDocument, (u64, String)>;

/// Annotates all of standard input; documents that cannot be are reported, at the end as an error.
pub(crate) fn run(args: &AnnotateArgs, stop: &Stop) -> Result<()> {
    let run = args.run_directory.clone().or_else(|| args.base.run.clone());
    let base = BaseArgs { run, ..args.base.clone() };
    let settings = SettingsArgs {
        base: base.clone(),
        head: args.head.clone(),
        columns: args.columns.clone(),
        encoder: args.encoder.clone(),
        ..SettingsArgs::default()
    };
    let mut config = resolve(&settings)?;
    let run = base.run.as_deref().map(RunDir::open).transpose()?;
    if run.is_some() && !args.head.is_empty() {
        let reason = "the thresholds of a run are for its own heads; leave out --run";
        return Err(Error::config("--head", reason));
    }
    if !args.head.is_empty() {
        let names = args.head.iter().filter_map(|head| Some(head.split_once('=')?.0));
        let names: Vec<&str> = names.collect();
        config.heads.retain(|name, _| names.contains(&name.as_str()));
    }
    if config.heads.is_empty() && config.filters.is_empty() {
        let fault = match &base.run {
            Some(run) => format!("{} has neither heads nor filters;", run.display()),
            None => "is missing; or".to_owned(),
        };
        return Err(Error::config("--run", format!("{fault} name heads (`--head NAME=PATH`)")));
    }
    let hub = set_hub(args.encoder.offline);
    let heads = find_heads(&config, run.as_ref())?;
    let chunks_of_heads = args.encoder.chunks.is_none() && run.is_none() && base.config.is_none();
    let scorer = TextScorer::open(&heads, &config, run.as_ref(), chunks_of_heads, (&hub, stop))?;
    let annotator = Annotator::open(scorer, run.as_ref())?;
    let documents = start_reading(args, &config, &annotator, stop)?;
    let (mut first_bad, mut num_bad) = (None, 0);
    while let Some(block) = next_block(&documents, stop)? {
        let (mut documents, mut rejects) = (Vec::new(), Vec::new());
        for document in block {
            match document {
                Ok(document) => documents.push(document),
                Err(reject) => rejects.push(reject),
            }
        }
        annotator.identify_languages(&mut documents);
        let annotated = annotator.annotate(&documents)?;
        let mut lines = Vec::new();
        for (document, annotation) in documents.iter().zip(annotated) {
            match annotation.and_then(|annotation| with_key(document, &args.key, &annotation)) {
                Ok(line) => lines.extend_from_slice(line.as_bytes()),
                Err(reason) => rejects.push((document.row, reason)),
            }
        }
        rejects.sort_by_key(|(row, _)| *row);
        for (row, reason) in rejects {
            printer::print_complaint(&format!("{STDIN}: line {}: {reason}", row + 1));
            num_bad += 1;
            first_bad.get_or_insert((row, reason));
        }
        printer::print_bytes(&lines);
    }
    first_bad.map_or(Ok(()), |(row, reason)| {
        Err(Error::Row { path: STDIN.into(), row: row + 1, reason, count: num_bad })
    })
}

/// Starts a thread that reads the input; the thread ends with the input or with the program.
/// Waits for the first bytes, which tell the format, and for all of a single text.
fn start_reading(
    args: &AnnotateArgs,
    config: &RunConfig,
    annotator: &Annotator<'_>,
    stop: &Stop,
) -> Result<Receiver<Result<Parsed>>> {
    let begin = || {
        let mut input = BufReader::new(std::io::stdin());
        let mut begun = Vec::new(); // a pipe may deliver white space first
        while without_byte_order_mark(&begun).trim_ascii().is_empty() {
            let read = input.fill_buf()?.len();
            if read == 0 {
                break;
            }
            begun.extend_from_slice(input.buffer());
            input.consume(read);
        }
        let head = without_byte_order_mark(&begun).trim_ascii_start();
        let is_array =
            head.strip_prefix(b"[").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"{"));
        let is_json = head.starts_with(b"{");
        Ok((Cursor::new(begun).chain(input), is_json, is_array))
    };
    let (input, is_json, is_array) =
        stop.run_abandonable(begin)?.map_err(Error::io(Path::new(STDIN), "read"))?;
    if is_array && args.format != Format::Text {
        let reason = "is a JSON array; needed is an object a line (`jq -c '.[]'` makes them), or `--format text`";
        return Err(Error::config(STDIN, reason));
    }
    let language = annotator.default_language();
    let (send, documents) = bounded(READ_AHEAD);
    if args.format == Format::Text || args.format == Format::Auto && !is_json {
        let max_bytes = config.input.max_document_bytes;
        let text = stop.run_abandonable(move || read_text(input, max_bytes))??;
        if text.trim().is_empty() {
            return Ok(documents);
        }
        let language = language.ok_or_else(|| {
            Error::config("--language", "is missing; there are heads for several languages")
        })?;
        // The channel has room for it.
        let _ = send.send(Ok(Ok(StreamDocument::of_text(text, language))));
        return Ok(documents);
    }
    let name = Path::new(STDIN);
    let mut stream =
        DocumentStream::new(Box::new(input), name, &config.input, language, &annotator.columns);
    std::thread::spawn(move || {
        while let Some(next) = stream.next_document().transpose() {
            let is_over = next.is_err();
            if send.send(next).is_err() || is_over {
                break;
            }
        }
    });
    Ok(documents)
}

/// Reads all of `input` as one text of at most `max_bytes`.
fn read_text(input: impl Read, max_bytes: u64) -> Result<String> {
    let path = Path::new(STDIN);
    let mut bytes = Vec::new();
    input.take(max_bytes + 1).read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
    if bytes.len() as u64 > max_bytes {
        let reason =
            format!("the text has more bytes than `input.max_document_bytes` = {max_bytes}");
        return Err(Error::corrupt(path, reason));
    }
    String::from_utf8(without_byte_order_mark(&bytes).to_vec()).map_err(|e| {
        let at = e.utf8_error().valid_up_to() + 1;
        Error::corrupt(path, format!("the text is not UTF-8 at byte {at}"))
    })
}

/// Waits for documents and returns those that have arrived; `None` at the end of the input.
fn next_block(documents: &Receiver<Result<Parsed>>, stop: &Stop) -> Result<Option<Vec<Parsed>>> {
    stop.check()?;
    let (mut block, mut bytes) = (Vec::new(), 0);
    while block.len() < BLOCK_DOCUMENTS && bytes < BLOCK_BYTES {
        let wait = if block.is_empty() { STOP_WAIT } else { BLOCK_WAIT };
        match documents.recv_timeout(wait) {
            Ok(sent) => {
                let document = sent?;
                bytes += document.as_ref().map_or(0, |document| document.object.len());
                block.push(document);
            }
            Err(RecvTimeoutError::Timeout) if block.is_empty() => stop.check()?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok((!block.is_empty()).then_some(block))
}

/// Returns the line of `document` with `annotation` added under `key`, or why it cannot be added.
fn with_key(
    document: &StreamDocument,
    key: &str,
    annotation: &Annotation<'_>,
) -> Result<String, String> {
    if document.keys.iter().any(|known| known == key) {
        return Err(format!("has a `{key}` already; name another key with --key"));
    }
    let object = document.object.strip_suffix('}').unwrap_or(&document.object);
    let comma = if document.keys.is_empty() { "" } else { ", " };
    let annotation = serde_json::to_string(annotation).map_err(|e| e.to_string())?;
    Ok(format!("{object}{comma}{}: {annotation}}}\n", json!(key)))
}
