//! Builds the help: commands in groups, the flags that each stage reads, defaults and examples.

use clap::builder::Styles;
use clap::{Arg, Command};
use toml::Value;

use polysift::config::RunConfig;

/// All commands, by what a person wants to do.
const GROUPS: [(&str, &str); 6] = [
    ("Select text", "init run plan"),
    ("Single stages", "embed cascade train score filter deduplicate refine threshold export"),
    ("Look at a run", "status report evaluate inspect verify card"),
    ("Label and mix", "sample annotate dataset mix"),
    ("Many machines", "slurm retry"),
    ("Tools", "head models devices tokenize robots completions man help"),
];

const EVERY_STAGE: [&str; 6] = ["config", "run", "set", "redo", "Many machines", "json"];

/// The other flags, or headings of flags, that a stage reads; `run` and `plan` read every flag.
const STAGES: [(&str, &str); 10] = [
    ("embed", "Input Encoder head seed"),
    ("cascade", "Input Encoder cascade cascade_repair train_on retention weight seed"),
    ("train", "train_on device precision batch_tokens offline seed"),
    ("score", "head score_column"),
    ("filter", ""),
    ("deduplicate", ""),
    ("refine", "device batch_tokens offline"),
    ("threshold", "weight mode retention removal"),
    ("export", "Export"),
    ("tokenize", "Input Encoder"),
];

const EXAMPLES: [(&str, &str); 15] = [
    ("init", "my-corpus"),
    ("run", "-c run.toml"),
    ("plan", "-c run.toml"),
    ("embed", "'corpus/{lang}/*.parquet' --run RUN --precision int8"),
    ("cascade", "RUN -c run.toml"),
    ("train", "RUN --train-on 'quality=labelled/{lang}.jsonl'"),
    ("score", "RUN --head 'quality=heads/{lang}.safetensors'"),
    ("filter", "RUN -c run.toml"),
    ("deduplicate", "RUN -c run.toml"),
    ("refine", "RUN --device cuda"),
    ("threshold", "RUN --retention quality=5%,10% --redo threshold"),
    ("export", "RUN --no-embeddings --redo export"),
    ("report", "RUN --compare OTHER_RUN"),
    ("sample", "RUN --out sample.jsonl --count 200"),
    ("annotate", "RUN --language deu_Latn < page.txt"),
];

/// The flag that shows all flags of a command, including those that the command does not read.
pub(crate) const HELP_ALL: &str = "--help-all";

/// Adds this help to a command line; with `all`, stages also show flags that they do not read.
pub(crate) fn with_help(derived: fn() -> Command, all: bool) -> Command {
    let mut built = derived();
    built.build(); // with the command `help`
    let groups = list_groups(&built);
    let mut command = derived().help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\nGlobal options:\n{{options}}\n\n\
         Run `polysift COMMAND --help` for the flags of a command, with the settings key of each.\n"
    ));
    let defaults = Value::try_from(RunConfig::default()).ok();
    for (name, read) in STAGES {
        // `tokenize` writes no run.
        let every = if name == "tokenize" { &EVERY_STAGE[..3] } else { &EVERY_STAGE };
        let read: Vec<&str> = read.split_whitespace().chain(every.iter().copied()).collect();
        command = command.mut_subcommand(name, |stage| {
            let stage = stage.mut_args(|arg| if all { arg } else { hide_unread(arg, &read) });
            let stage = if read.contains(&"Input") { stage } else { describe_run_argument(stage) };
            stage.after_help(format!("`polysift {name} {HELP_ALL}` shows the flags of all stages."))
        });
    }
    for (name, arguments) in EXAMPLES {
        command = command.mut_subcommand(name, |command| {
            let more = command.get_after_help().map(|more| format!("\n{more}")).unwrap_or_default();
            command.after_help(format!("Example: polysift {name} {arguments}{more}"))
        });
    }
    let settings = STAGES.iter().map(|(name, _)| *name).chain(["run", "plan"]);
    settings.fold(command, |command, name| {
        command.mut_subcommand(name, |stage| {
            stage.mut_args(|arg| show_default(arg, defaults.as_ref()))
        })
    })
}

/// Lists the commands of each group with their descriptions, below the name of the group.
fn list_groups(command: &Command) -> String {
    let line = |name: &str| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        format!("  {name:<12} {}", about.map(ToString::to_string).unwrap_or_default())
    };
    let styles = Styles::styled();
    let header = styles.get_header();
    let group = |(title, names): &(&str, &str)| {
        let lines: Vec<String> = names.split(' ').map(line).collect();
        format!("{header}{title}:{header:#}\n{}\n", lines.join("\n"))
    };
    GROUPS.iter().map(group).collect::<Vec<_>>().join("\n")
}

/// Hides a flag unless it or its heading is among the `read` ones, or every command has it.
fn hide_unread(arg: Arg, read: &[&str]) -> Arg {
    let names = [Some(arg.get_id().as_str()), arg.get_help_heading()];
    let is_settings =
        !arg.is_global_set() && !["help", "help_all", "version"].contains(&arg.get_id().as_str());
    let hidden = is_settings && !names.into_iter().flatten().any(|name| read.contains(&name));
    arg.hide(hidden)
}

/// Says that the argument of a stage that reads no input is the run directory.
fn describe_run_argument(stage: Command) -> Command {
    stage.mut_arg("input", |arg| {
        arg.value_name("RUN").help("Run directory, as --run").help_heading("Arguments").hide(false)
    })
}

/// Adds the default of the settings key that the help of a flag names, if it is a number or a text.
fn show_default(arg: Arg, defaults: Option<&Value>) -> Arg {
    let Some(help) = arg.get_help().map(ToString::to_string) else { return arg };
    let key = help.rsplit_once('[').and_then(|(_, key)| key.strip_suffix(']'));
    let value =
        key.and_then(|key| key.split('.').try_fold(defaults?, |table, name| table.get(name)));
    let value = match value {
        Some(Value::String(text)) => text.clone(),
        Some(number @ (Value::Integer(_) | Value::Float(_))) => number.to_string(),
        _ => return arg,
    };
    arg.help(format!("{help} [default: {value}]"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::Cli;
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::command();
        let mut commands: Vec<&str> =
            command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.split(' ')).collect();
        commands.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, commands);
    }

    #[test]
    fn what_stages_read_are_flags_or_headings() {
        for (name, read) in STAGES {
            let command = Cli::command();
            let stage = command.find_subcommand(name);
            for flag in read.split_whitespace().chain(EVERY_STAGE) {
                let is_flag = |arg: &Arg| {
                    arg.get_id() == flag || arg.get_help_heading().is_some_and(|h| h == flag)
                };
                assert!(stage.is_some_and(|s| s.get_arguments().any(is_flag)), "{name}: {flag}");
            }
        }
    }

    #[test]
    fn the_argument_tree_is_consistent() {
        with_help(Cli::command, false).debug_assert();
        with_help(Cli::command, true).debug_assert();
    }

    #[test]
    fn examples_are_command_lines() {
        for (name, arguments) in EXAMPLES {
            let words = arguments.split(" <").next().unwrap_or_default().replace('\'', "");
            let line = ["polysift", name].into_iter().chain(words.split_whitespace());
            let parsed = with_help(Cli::command, false).try_get_matches_from(line);
            assert!(parsed.is_ok(), "{name} {arguments}: {:?}", parsed.err());
        }
    }

    #[test]
    fn a_stage_shows_what_it_reads_and_its_defaults() {
        let help = |all: bool, name: &str| {
            let mut command = with_help(Cli::command, all);
            command.find_subcommand_mut(name).map(|stage| stage.render_long_help().to_string())
        };
        let threshold = help(false, "threshold").unwrap_or_default();
        assert!(threshold.contains("--retention") && threshold.contains("[RUN]"), "{threshold}");
        assert!(!threshold.contains("--max-tokens"), "{threshold}");
        assert!(help(true, "threshold").is_some_and(|help| help.contains("--max-tokens")));
        let embed = help(false, "embed").unwrap_or_default();
        assert!(embed.contains("[encoder.max_tokens] [default: 512]"), "{embed}");
    }
}
