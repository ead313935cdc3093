//! A large file as several shards: what comes out is what comes out of the file as one.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::UInt64Type;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use polysift::config::RunConfig;
use polysift::corpus::{Context, plan};
use polysift::encoder::HubSettings;
use polysift::progress::{Silent, Stop};
use polysift::run::{Plan, RunDir, Shard, Stage, Worker};
use polysift::{stages, views};
use serde_json::json;

use crate::util::{TestResult, Workspace, read_parquet, text};

type Failure = Box<dyn std::error::Error>;

/// Rows of the row groups of the file.
const GROUPS: [usize; 4] = [20, 30, 25, 10];
/// Rows of the file.
const NUM_ROWS: i64 = 85;

/// A corpus of one file without ids, and samples for two heads, one of them of fastText.
fn workspace(rate: f64, with_blanks: bool) -> Result<(Workspace, RunConfig), Failure> {
    let work = Workspace::new()?;
    let texts = (0..GROUPS.iter().sum()).map(|i| (!with_blanks || i % 17 != 3).then(|| text(i)));
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("text", Arc::new(texts.collect::<StringArray>()) as ArrayRef, true),
        ("n", Arc::new(Int64Array::from_iter_values(0..NUM_ROWS)), true),
    ])?;
    let file = std::fs::File::create(work.path("big.parquet"))?;
    let properties = WriterProperties::builder().set_data_page_row_count_limit(7).build();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties))?;
    let mut start = 0;
    for rows in GROUPS {
        writer.write(&batch.slice(start, rows))?;
        writer.flush()?;
        start += rows;
    }
    writer.close()?;
    let samples = (100..160).map(|i| json!({"text": text(i), "label": i % 3 == 0}));
    work.write_lines("samples.jsonl", samples)?;
    let path = |name: &str| work.path(name).display().to_string();
    let (big, samples) = (path("big.parquet"), path("samples.jsonl"));
    let config = RunConfig::from_toml(
        &format!(
            "[input]\nfiles = ['{big}']\nlanguage = 'fra_Latn'\n\
             [encoder]\ndevice = 'cpu'\nprecision = 'f32'\n[parts]\nrows = 16\n\
             [heads.ft]\nkind = 'fasttext'\ntrain = ['{samples}']\n\
             [heads.ft.fasttext]\ndim = 8\nbuckets = 1000\nepochs = 5\n\
             [heads.quality]\ntrain = ['{samples}']\n\
             training = {{ batch_size = 16, epochs = 6, weight_decay = 0.01 }}\n\
             [languages._default]\nretention = {{ quality = [{rate}] }}\n[export]\nkeep_removed = true\n"
        ),
        "test",
    )?;
    Ok((work, config))
}

/// All stages over `plan`, in the run directory `root`.
fn run(root: &Path, config: &RunConfig, plan: &Plan) -> Result<RunDir, Failure> {
    let run = RunDir::create(root)?;
    let hub =
        HubSettings { cache: "none".into(), token: None, endpoint: String::new(), offline: true };
    let stop = Stop::default();
    let worker = Worker::join(&run, &stop)?;
    let context = Context::observing(config, &run, &hub, &stop, &Silent, &worker);
    stages::embed::embed(context, plan, None)?;
    stages::train::train(context)?;
    stages::score::score(context)?;
    stages::threshold::threshold(context)?;
    stages::export::export(context)?;
    let verified = views::verify::verify(context)?;
    assert_eq!(verified.problems, [""; 0]);
    Ok(run)
}

/// Rows of all files that `stage` wrote for the shards in the order of the plan, and whose path
/// holds `part`.
fn rows(run: &RunDir, stage: Stage, prefix: &str, part: &str) -> Result<RecordBatch, Failure> {
    let mut batches = Vec::new();
    for shard in run.plan()?.shards {
        let marker = run.shard_marker(stage, &format!("{prefix}{}", shard.name))?;
        let files = marker.ok_or("not done")?.files;
        for file in files.iter().filter(|file| file.path.starts_with(part)) {
            batches.push(read_parquet(&run.path(&file.path))?);
        }
    }
    Ok(concat_batches(&batches.first().ok_or("no file")?.schema(), &batches)?)
}

fn check(rate: f64, with_blanks: bool) -> TestResult {
    let (work, config) = workspace(rate, with_blanks)?;
    let plan = plan::plan(&config)?;
    let whole = run(&work.path("whole"), &config, &plan)?;
    let part = |rows: Range<u64>| Shard {
        name: format!("big.{:012}", rows.start),
        num_rows: Some(rows.end - rows.start),
        rows: Some(rows),
        ..plan.shards[0].clone()
    };
    let shards = [part(0..20), part(20..75), part(75..85)].to_vec();
    let split = run(&work.path("split"), &config, &Plan { shards, ..Plan::default() })?;
    let names: Vec<String> = split.plan()?.shards.into_iter().map(|shard| shard.name).collect();
    assert_eq!(names, ["big.000000000000", "big.000000000020", "big.000000000075"]);
    for (stage, prefix, folder) in [
        (Stage::Embed, "", "embeddings/"),
        (Stage::Score, "quality/", "scores/"),
        (Stage::Score, "ft/", "scores/"),
        (Stage::Export, "", "export/"),
    ] {
        let expected = rows(&whole, stage, prefix, folder)?;
        assert_eq!(rows(&split, stage, prefix, folder)?, expected, "{folder}{prefix}");
    }
    let embedded = rows(&split, Stage::Embed, "", "embeddings/")?;
    let numbers = embedded.column_by_name("row").ok_or("no rows")?.as_primitive::<UInt64Type>();
    assert!(numbers.values().iter().copied().eq(0..85));
    let ids = embedded.column_by_name("id").ok_or("no ids")?.as_string::<i32>();
    assert_eq!((ids.len(), ids.value(80)), (85, "big/80"));
    let thresholds = |run: &RunDir| std::fs::read(run.selection_file("fra_Latn"));
    assert_eq!(thresholds(&split)?, thresholds(&whole)?);
    Ok(())
}

#[test]
fn a_file_in_three_ranges_has_the_rows_scores_and_exports_of_the_whole() -> TestResult {
    check(0.4, true)
}

#[test]
fn a_file_of_which_all_is_kept_has_the_same_in_three_ranges() -> TestResult {
    check(1.0, false)
}
