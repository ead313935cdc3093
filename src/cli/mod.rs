//! The command line: parses arguments, resolves settings, calls a stage and prints the result.

mod annotate;
mod card;
#[cfg(feature = "datasets")]
mod dataset;
#[cfg(not(feature = "datasets"))]
#[path = "no_dataset.rs"]
mod dataset;
mod devices;
mod evaluate;
mod head;
mod help;
mod init;
mod logging;
mod mix;
mod models;
pub(crate) mod printer;
mod progress;
mod settings;
pub(crate) mod signals;
mod slurm;
mod summary;
mod tokenize;
mod trace;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use serde_json::{Value, json};

use polysift::cluster::{Task, array_expression};
use polysift::config::RunConfig;
use polysift::corpus::Context;
use polysift::corpus::work::stages_of;
use polysift::input::row_values;
use polysift::io::is_url;
use polysift::progress::{Silent, Stop};
use polysift::run::{RunDir, Stage, Worker};
use polysift::stages::run::{RunRequest, check_input, check_redo, checked_plan, freeze};
use polysift::views::report::ReportRequest;
use polysift::views::sampling::{SampleRequest, sample};
use polysift::{Error, Result, stages, views};

use annotate::AnnotateArgs;
use card::CardArgs;
use dataset::DatasetCommand;
use evaluate::EvaluateArgs;
use head::HeadCommand;
use init::InitArgs;
use logging::GlobalArgs;
use mix::MixArgs;
use progress::Display;
use settings::{
    BaseArgs, RunDirArgs, SettingsArgs, read_run_settings, resolve, set_hub, stage_parser,
};
use slurm::SlurmArgs;

/// Selects the best pretraining text, in every language, at web scale.
///
/// A run embeds every document with a multilingual encoder, trains small heads on labelled samples,
/// scores the stored embeddings, finds exact thresholds per language, and exports the selected
/// documents with all their columns, the scores and the embeddings.
///
/// Settings come from a TOML file (-c), from flags, or from both; flags win. Every stage writes
/// into a run directory (--run) and continues there after an interruption.
#[derive(Debug, Parser)]
#[command(name = "polysift", version = printer::VERSION, max_term_width = 100, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look at data files and write a settings file for them
    Init(#[command(flatten)] InitArgs),
    /// Run all stages that the settings ask for, from text to export
    Run {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        /// Print the plan, estimates of time and disk, and all digests; write nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Freeze the list of input files and estimate time and disk
    #[command(mut_arg("redo", |redo| redo.num_args(0..=1).default_missing_value("embed").help(
        "Discard the plan and all outputs, then plan again from the files that are there now"
    )))]
    Plan {
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        /// Print the plan and the estimates; write nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Turn text into embeddings; with --head also score them
    Embed(#[command(flatten)] Box<SettingsArgs>),
    /// Drop documents that a cheap first pass predicts would not be kept
    Cascade(#[command(flatten)] Box<SettingsArgs>),
    /// Train the heads that have labelled samples
    Train(#[command(flatten)] Box<SettingsArgs>),
    /// Score the stored embeddings with every head
    Score(#[command(flatten)] Box<SettingsArgs>),
    /// Find the documents that filters remove or flag
    Filter(#[command(flatten)] Box<SettingsArgs>),
    /// Find near duplicates by their embeddings; the best document of each group stays
    Deduplicate(#[command(flatten)] Box<SettingsArgs>),
    /// Rescore documents near the thresholds in f32 (fp8: bf16)
    Refine(#[command(flatten)] Box<SettingsArgs>),
    /// Find the exact threshold of every head and language
    Threshold(#[command(flatten)] Box<SettingsArgs>),
    /// Write the selected documents with their scores and embeddings
    Export(#[command(flatten)] Box<SettingsArgs>),
    /// Show the progress of a run
    Status(RunArgs),
    /// Print the tasks that have work left, for a scheduler's array
    #[command(mut_arg("json", |json| {
        json.help("Print JSON: the stage, the number of units of work left, the tasks")
    }))]
    Retry {
        #[command(flatten)]
        run: RunArgs,
        /// The stage [default: the first that is not done]
        #[arg(long, value_parser = stage_parser())]
        stage: Option<Stage>,
        /// Number of tasks of the next attempt [default: one per shard]
        #[arg(long, value_name = "N", env = "POLYSIFT_NUM_TASKS", value_parser = clap::value_parser!(u32).range(1..))]
        num_tasks: Option<u32>,
    },
    /// Check files, digests, counts and thresholds of a run
    Verify(RunArgs),
    /// Describe data files, heads or runs, or print rows
    Inspect {
        /// Parquet or JSON lines files, directories of them, heads (.safetensors, .pt, .pth, a
        /// fastText .bin or .ftz), run directories
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Print the first N rows of all data files together instead of descriptions
        #[arg(long, value_name = "N")]
        rows: Option<usize>,
        /// Print the rows with the highest values of a column, such as a score [default rows: 10]
        #[arg(long, value_name = "COLUMN")]
        sort_by: Option<String>,
        /// Print the rows with the lowest values instead
        #[arg(long, requires = "sort_by")]
        ascending: bool,
        /// Print JSON: one object; for several files one object per line, the last with the totals
        #[arg(long)]
        json: bool,
    },
    /// Measure heads on labelled texts, or compare the heads of a run
    Evaluate(#[command(flatten)] Box<EvaluateArgs>),
    /// Print documents from standard input with scores and verdicts
    Annotate(#[command(flatten)] Box<AnnotateArgs>),
    /// Draw documents for annotators, with their probabilities
    Sample {
        #[command(flatten)]
        run: RunArgs,
        #[command(flatten)]
        request: Box<SampleRequest>,
    },
    /// Mix sources by tokens or epochs into one shuffled corpus
    Mix(#[command(flatten)] Box<MixArgs>),
    /// Write a page that shows what was kept and dropped
    #[command(mut_arg("json", |json| {
        json.help("Print JSON: the paths written and the counts of each language")
    }))]
    Report {
        #[command(flatten)]
        run: RunArgs,
        #[command(flatten)]
        request: Box<ReportRequest>,
    },
    /// Print the dataset card of a run's export, for a hub
    Card(#[command(flatten)] Box<CardArgs>),
    /// Import heads of other software
    #[command(subcommand)]
    Head(HeadCommand),
    /// Look up which agents robots.txt files block
    #[command(subcommand)]
    Robots(RobotsCommand),
    /// List the GPUs of this machine and what `--device auto` chooses
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List recommended encoders: licence, size, speed, heads that fit
    Models {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the token ids of every chunk as JSON lines
    Tokenize(#[command(flatten)] Box<SettingsArgs>),
    /// Build labelled samples from published sources
    #[command(subcommand)]
    Dataset(DatasetCommand),
    /// Print a shell script that submits the unfinished work of a planned run to Slurm
    Slurm(#[command(flatten)] Box<SlurmArgs>),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands into a folder
    Man {
        /// The folder, such as ~/.local/share/man/man1; it is created if it does not exist
        #[arg(value_name = "FOLDER")]
        out: PathBuf,
    },
}

impl Command {
    /// Takes the first argument as the run directory, if the command also accepts other arguments.
    fn take_run(&mut self) -> Result<()> {
        match self {
            Self::Run { settings, .. }
            | Self::Plan { settings, .. }
            | Self::Embed(settings)
            | Self::Cascade(settings)
            | Self::Tokenize(settings) => settings.take_run(true),
            Self::Train(settings)
            | Self::Score(settings)
            | Self::Filter(settings)
            | Self::Deduplicate(settings)
            | Self::Refine(settings)
            | Self::Threshold(settings)
            | Self::Export(settings) => settings.take_run(false),
            Self::Evaluate(args) => args.base.take_run(&mut args.heads),
            _ => Ok(()),
        }
    }
}

const DEFAULT_ROWS: usize = 10;

#[derive(Debug, Subcommand)]
pub(crate) enum RobotsCommand {
    /// Print for each URL which agents a robots.txt filter blocks, and the lines that decide
    Check {
        /// The URLs
        #[arg(required = true)]
        urls: Vec<String>,
        /// Settings file
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// Name of the filter [default: all robots.txt filters]
        #[arg(long, value_name = "NAME")]
        filter: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    run: RunDirArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command of the process's arguments. Help and wrong arguments end the process.
pub(crate) fn run(stop: &Stop) -> Result<ExitCode> {
    let color = printer::choose_color(std::env::args_os());
    // The help is built only for a command line that shows it or is wrong.
    let matches = Cli::command().color(color).try_get_matches().unwrap_or_else(|_| {
        let all = std::env::args_os().any(|arg| arg == help::HELP_ALL);
        help::with_help(Cli::command, all).color(color).get_matches()
    });
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    check_one_run(&matches)?;
    check_outputs(&matches)?;
    cli.command.take_run()?;
    if let Command::Refine(settings) = &mut cli.command {
        settings.keys.refine = true;
    }
    let _trace = logging::install(&cli.global)?;
    cli.global.start_threads()?;
    let display = Display::new(&cli.global);
    let context = CommandContext { stop, display: &display };
    match &cli.command {
        Command::Init(args) => init::run(args, stop, display.quiet)?,
        Command::Run { settings, dry_run: true } => context.plan(settings, true)?,
        Command::Plan { settings, dry_run } => context.plan(settings, *dry_run)?,
        Command::Run { settings, .. } => context.run_stages(settings, &Stage::ALL)?,
        Command::Embed(settings) if settings.head.is_empty() => {
            context.run_stages(settings, &[Stage::Embed])?;
        }
        Command::Embed(settings) => context.run_stages(settings, &[Stage::Embed, Stage::Score])?,
        Command::Cascade(settings) => context.run_stages(settings, &[Stage::Cascade])?,
        Command::Train(settings) => context.run_stages(settings, &[Stage::Train])?,
        Command::Score(settings) => context.run_stages(settings, &[Stage::Score])?,
        Command::Filter(settings) => context.run_stages(settings, &[Stage::Filter])?,
        Command::Deduplicate(settings) => context.run_stages(settings, &[Stage::Deduplicate])?,
        Command::Refine(settings) => context.run_stages(settings, &[Stage::Refine])?,
        Command::Threshold(settings) => context.run_stages(settings, &[Stage::Threshold])?,
        Command::Export(settings) => context.run_stages(settings, &[Stage::Export])?,
        Command::Status(args) => context.print_status(args)?,
        Command::Retry { run, stage, num_tasks } => context.retry(run, *stage, *num_tasks)?,
        Command::Verify(args) => return context.verify(args),
        Command::Inspect { paths, rows: None, sort_by: None, json, .. } => {
            context.inspect(paths, *json)?;
        }
        Command::Inspect { paths, rows, sort_by, ascending, json } => {
            let files = views::inspect::expand_paths(paths)?;
            let (count, sort_by) = (rows.unwrap_or(DEFAULT_ROWS), sort_by.as_deref());
            print_rows(&row_values(&files, count, sort_by, *ascending, stop)?, *json);
        }
        Command::Evaluate(args) => evaluate::run(args, stop, &display)?,
        Command::Annotate(args) => annotate::run(args, stop)?,
        Command::Sample { run, request } => context.draw_sample(run, request)?,
        Command::Report { run, request } => context.write_report(run, request)?,
        Command::Card(args) => context.with_run(args.run.path(), |run| args.print(run))?,
        Command::Robots(command) => context.check_robots(command)?,
        Command::Devices { json } => devices::print_devices(*json),
        Command::Models { json } => models::print_models(*json)?,
        Command::Mix(args) => mix::run(args, stop, &display)?,
        Command::Head(command) => head::run(command, display.quiet)?,
        Command::Tokenize(settings) => {
            tokenize::print_tokens(&resolve(settings)?, &set_hub(settings.encoder.offline), stop)?;
        }
        Command::Dataset(command) => dataset::run(command, stop, &display)?,
        Command::Slurm(args) => context.with_run(&args.root()?, |run| args.print(run))?,
        Command::Completions { shell } => {
            let (mut script, mut command) = (Vec::new(), help::with_help(Cli::command, true));
            clap_complete::generate(*shell, &mut command, "polysift", &mut script);
            printer::print_bytes(&script);
        }
        Command::Man { out } => {
            std::fs::create_dir_all(out).map_err(Error::io(out, "create"))?;
            clap_mangen::generate_to(help::with_help(Cli::command, true), out)
                .map_err(Error::io(out, "write"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

struct CommandContext<'a> {
    stop: &'a Stop,
    display: &'a Display,
}

impl CommandContext<'_> {
    /// Runs `stages` of the run, which is planned if it is not yet, and prints what came of it.
    fn run_stages(&self, args: &SettingsArgs, stages: &[Stage]) -> Result<()> {
        let config = resolve(args)?;
        let run_dir = args.base.run_dir(&config);
        let root = run_dir.ok_or_else(no_run_directory)?;
        let hub = set_hub(args.encoder.offline);
        let is_shared = RunDir::open(&root).is_ok_and(|run| run.is_shared());
        let env = |name: &str| std::env::var(name).ok();
        let request = RunRequest {
            config: &config,
            root: &root,
            stages,
            redo: args.redo,
            task: Task::resolve(args.task.as_deref(), args.num_tasks, is_shared, env)?,
            hub: &hub,
            stop: self.stop,
        };
        let (run, worker, plan) = request.join()?;
        self.display.keep_in(worker.note());
        let context = request.context(&run, &worker, self.display);
        let plan = plan.as_ref();
        let stages = request.run(context, plan, |stage, run| self.display.measure(stage, run))?;
        if args.json {
            printer::print_json(&summary::describe_results(context, &self.display.usages())?);
        } else if !self.display.quiet {
            if context.task.is_none() {
                summary::print_results(context, &stages)?;
            }
            summary::print_usages(&self.display.usages());
            if context.task.is_none() {
                printer::print_next_on(context.run.root(), stages.contains(&Stage::Export));
            }
        }
        Ok(())
    }

    /// Freezes the plan unless this is a dry run, and prints the estimates.
    fn plan(&self, args: &SettingsArgs, dry_run: bool) -> Result<()> {
        let config = resolve(args)?;
        let run_dir = args.base.run_dir(&config);
        run_dir.as_deref().map_or(Ok(()), |root| check_input(&config, root))?;
        let hub = set_hub(args.encoder.offline);
        // After `--redo` the heads are trained again, which needs their samples.
        let root = run_dir.as_deref().filter(|_| args.redo.is_none());
        let run = root.and_then(|root| RunDir::open(root).ok());
        let (plan, heads) = checked_plan(&config, run.as_ref(), &hub, self.stop)?;
        if !dry_run {
            let run = RunDir::create(&run_dir.clone().ok_or_else(no_run_directory)?)?;
            check_redo(args.redo, &[Stage::Embed])?;
            let worker = Worker::join(&run, self.stop)?;
            let context = Context::observing(&config, &run, &hub, self.stop, &Silent, &worker);
            freeze(Context { redo: args.redo, waits: true, ..context }, &plan)?;
        }
        if self.display.quiet && !args.json {
            return Ok(());
        }
        let estimate =
            views::estimate::estimate(&config, &plan, heads, &hub, self.stop, self.display)?;
        printer::print_value(args.json, &estimate, |estimate| {
            summary::print_estimate(estimate, &config, run_dir.as_deref());
            if let Some(run) = run_dir.as_ref().filter(|_| !dry_run) {
                printer::print_next_on(run, false);
            }
        });
        Ok(())
    }

    /// Calls `work` with the planned run `root`, which nothing is written into, and its settings.
    fn with_run<T>(&self, root: &Path, work: impl FnOnce(Context<'_>) -> Result<T>) -> Result<T> {
        self.observe(&RunDir::open(root)?, &read_run_settings(root)?, work)
    }

    /// Calls `work` with a context that claims no work, for `run` with the settings `config`.
    fn observe<T>(
        &self,
        run: &RunDir,
        config: &RunConfig,
        work: impl FnOnce(Context<'_>) -> Result<T>,
    ) -> Result<T> {
        let (hub, worker) = (set_hub(false), Worker::observer(run));
        work(Context::observing(config, run, &hub, self.stop, self.display, &worker))
    }

    fn print_status(&self, args: &RunArgs) -> Result<()> {
        self.with_run(args.run.path(), |context| {
            printer::print_value(args.json, &views::status::status(context)?, |status| {
                summary::print_status(status);
                printer::print_next_on(context.run.root(), status.is_done());
            });
            Ok(())
        })
    }

    /// Prints the tasks with unfinished work of `stage`, else of the first stage that has some.
    fn retry(&self, args: &RunArgs, stage: Option<Stage>, num_tasks: Option<u32>) -> Result<()> {
        let left = self.with_run(args.run.path(), |context| {
            let stages = stage.map_or_else(|| stages_of(context.config), |one| vec![one]);
            views::status::find_unfinished(context, &stages, num_tasks)
        })?;
        printer::print_value(args.json, &left, |left| {
            if let Some(left) = left {
                printer::print_line(&array_expression(&left.tasks));
            }
        });
        Ok(())
    }

    /// Prints what is wrong with a run; returns the exit code of damage if anything is.
    fn verify(&self, args: &RunArgs) -> Result<ExitCode> {
        let run = RunDir::open(args.run.path())?;
        // `verify` itself says if the settings are lost.
        let is_stored = run.path("config.toml").is_file();
        let config = if is_stored { read_run_settings(run.root())? } else { RunConfig::default() };
        let verified = self.observe(&run, &config, views::verify::verify)?;
        printer::print_value(args.json, &verified, summary::print_verified);
        let wrong = Error::corrupt(args.run.path(), "does not hold together");
        let code = if verified.problems.is_empty() { 0 } else { wrong.exit_code() };
        Ok(ExitCode::from(code))
    }

    fn check_robots(&self, command: &RobotsCommand) -> Result<()> {
        let RobotsCommand::Check { urls, config, filter, json } = command;
        let base = BaseArgs { config: Some(config.clone()), ..BaseArgs::default() };
        let config = resolve(&SettingsArgs { base, ..SettingsArgs::default() })?;
        let verdicts = stages::filter::check_robots(&config, filter.as_deref(), urls, self.stop)?;
        printer::print_value(*json, &verdicts, |verdicts| summary::print_robots(verdicts));
        Ok(())
    }

    fn draw_sample(&self, args: &RunArgs, request: &SampleRequest) -> Result<()> {
        let samples = self.with_run(args.run.path(), |run| sample(run, request))?;
        if !self.display.quiet || args.json {
            printer::print_value(args.json, &samples, |samples| summary::print_samples(samples));
        }
        Ok(())
    }

    fn write_report(&self, args: &RunArgs, request: &ReportRequest) -> Result<()> {
        let written = self.with_run(args.run.path(), |context| {
            let other = request.compare.as_deref().map(Path::new);
            let other = other.filter(|path| RunDir::open(path).is_ok());
            let other = other.map(read_run_settings).transpose()?;
            views::report::write_report(context, request, other.as_ref(), printer::VERSION)
        })?;
        if !self.display.quiet || args.json {
            printer::print_value(args.json, &written, summary::print_report);
        }
        Ok(())
    }

    /// Prints a description of each file and, unless there is one, of all together.
    fn inspect(&self, paths: &[PathBuf], json: bool) -> Result<()> {
        let files = views::inspect::expand_paths(paths)?;
        let mut total = views::inspect::Total::default();
        let show = |description: &Value| match (json, files.len()) {
            (true, 1) => printer::print_json(description),
            (true, _) => printer::print_line(&description.to_string()),
            (false, _) => summary::print_tree(description, ""),
        };
        for path in &files {
            self.stop.check()?;
            if path.is_dir() && !json {
                self.with_run(path, summary::print_run)?;
                total.add(&Value::Null); // a run has no rows of its own
                continue;
            }
            let description = if path.is_dir() {
                self.with_run(path, views::inspect::inspect_run)?
            } else {
                views::inspect::inspect_file(path, self.stop)?
            };
            total.add(&description);
            show(&description);
        }
        if files.len() != 1 {
            show(&json!({"total": total}));
        }
        Ok(())
    }
}

fn print_rows(rows: &[Value], json: bool) {
    for row in rows {
        if json {
            printer::print_line(&row.to_string());
        } else {
            summary::print_tree(row, "");
            printer::print_line("");
        }
    }
}

fn no_run_directory() -> Error {
    Error::config(
        "--run",
        "no run directory is named (one argument, `--run DIR`, or `run_dir` in the file)",
    )
}

/// Checks that a command line names one run: by position or by `--run`.
fn check_one_run(matches: &ArgMatches) -> Result<()> {
    let Some((_, command)) = matches.subcommand() else { return Ok(()) };
    let is_given = |name: &str| {
        let is_there = command.ids().any(|id| id == name);
        is_there && command.value_source(name) == Some(ValueSource::CommandLine)
    };
    if is_given("run_directory") && is_given("run") {
        return Err(Error::config("--run", "names a run, and so does the argument; give one"));
    }
    Ok(())
}

/// Refuses URLs for the outputs of commands; only exports go to stores.
fn check_outputs(matches: &ArgMatches) -> Result<()> {
    let given = ["out", "trace_out"].iter().filter_map(|name| matches.try_get_raw(name).ok()?);
    if let Some(url) = given.flatten().filter_map(OsStr::to_str).find(|text| is_url(text)) {
        return Err(Error::config(url, "is a URL; this output is written to a local path"));
    }
    matches.subcommand().map_or(Ok(()), |(_, command)| check_outputs(command))
}
