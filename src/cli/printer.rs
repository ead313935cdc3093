//! Prints results to stdout and errors to stderr.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use clap::builder::Styles;
use clap::{ColorChoice, ValueEnum};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use polysift::Error;
use polysift::cluster::shell_quoted;

/// Version and the commit that the program was built from.
pub(crate) const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("POLYSIFT_COMMIT"), ")");

/// Returns `text` with escapes (valid in JSON too) for control characters, which could command the
/// terminal, and for direction marks, which disguise text. Line ends and tabs stay.
fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| {
        c.is_control() && c != '\n' && c != '\t'
            || matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if is_harmful(c) { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Finds and sets the `--color` of a command line before it is parsed: its errors have colours too.
pub(crate) fn choose_color(arguments: impl Iterator<Item = OsString>) -> ColorChoice {
    let arguments: Vec<String> = arguments.filter_map(|word| word.into_string().ok()).collect();
    let values = arguments.iter().zip(arguments.iter().skip(1).map(Some).chain([None]));
    let values = values.filter_map(|(word, next)| match word.strip_prefix("--color")? {
        "" => next.map(String::as_str),
        rest => rest.strip_prefix('='),
    });
    let choice = values.filter_map(|value| ColorChoice::from_str(value, false).ok()).last();
    let choice = choice.unwrap_or_default();
    match choice {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
    choice
}

pub(crate) fn print_error(message: &str) {
    let styles = Styles::styled();
    let style = styles.get_error();
    // If stderr is closed, there is nowhere to report it.
    let _ = writeln!(anstream::stderr().lock(), "{style}error:{style:#} {}", harmless(message));
}

/// Prints progress, or what is wrong with a part of the input while the rest continues, to stderr.
pub(crate) fn print_complaint(message: &str) {
    // See `print_error`.
    let _ = writeln!(std::io::stderr().lock(), "{}", harmless(message));
}

/// Prints a line to stdout, with escapes for characters that would do harm; see [`print_bytes`].
pub(crate) fn print_line(text: &str) {
    print_bytes(format!("{}\n", harmless(text)).as_bytes());
}

/// Prints the command that a person is likely to run next; `path` is quoted for a shell.
pub(crate) fn print_next(command: &str, path: &Path, flags: &str) {
    print_line(&format!(
        "next: polysift {command} {}{flags}",
        shell_quoted(&path.display().to_string())
    ));
}

/// Prints the next command for `run`: to report it if it is done, else to continue it.
pub(crate) fn print_next_on(run: &Path, is_done: bool) {
    print_next(if is_done { "report" } else { "run" }, run, "");
}

/// Writes to stdout. If the write fails, ends the program: quietly if the reader closed the pipe
/// (`| head`), else with the error. The results of stages are saved by then.
pub(crate) fn print_bytes(content: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    if let Err(source) = stdout.write_all(content).and_then(|()| stdout.flush()) {
        if source.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        let failed = Error::Io { path: "stdout".into(), action: "write", source };
        print_error(&failed.report());
        std::process::exit(failed.exit_code().into());
    }
}

/// Prints `value` to stdout, as JSON or as `print` does.
pub(crate) fn print_value<T: Serialize>(as_json: bool, value: &T, print: impl FnOnce(&T)) {
    if as_json { print_json(value) } else { print(value) }
}

pub(crate) fn print_json(value: &impl Serialize) {
    // Maps with string keys and finite numbers always serialise.
    if let Ok(text) = serde_json::to_string_pretty(value) {
        print_line(&text);
    }
}

/// Formats the values of a row for [`print_table`].
pub(crate) fn cells<const N: usize>(values: [&dyn Display; N]) -> Vec<String> {
    values.map(ToString::to_string).into()
}

/// Formats `value`; `-` without one.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Prints rows in columns under their titles; the first column is left-aligned, the others right.
pub(crate) fn print_table<T: Into<String>>(
    titles: impl IntoIterator<Item = T>,
    rows: impl IntoIterator<Item = Vec<String>>,
) {
    let titles: Vec<String> = titles.into_iter().map(Into::into).collect();
    let mut table = Table::new();
    table.load_style(NOTHING).add_row(titles).add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        let side = if at == 0 { CellAlignment::Left } else { CellAlignment::Right };
        column.set_padding((0, 2)).set_cell_alignment(side);
    }
    table.lines().for_each(|text| print_line(text.trim_end()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_choice_of_colours_counts_before_the_command_line_is_parsed() {
        let words = ["polysift", "--color", "never", "run", "--color=always", "--colors=never"];
        let choice = choose_color(words.map(OsString::from).into_iter());
        assert_eq!(choice, ColorChoice::Always);
    }

    #[test]
    fn what_commands_a_terminal_is_printed_as_an_escape() {
        assert_eq!(harmless("a\tb\nc ü 中"), "a\tb\nc ü 中");
        assert_eq!(
            harmless("\u{1b}]0;x\u{7}\u{9b}2J\u{7f}\r"),
            "\\u001b]0;x\\u0007\\u009b2J\\u007f\\u000d"
        );
        assert_eq!(harmless("a\u{202e}b\u{2066}"), "a\\u202eb\\u2066");
        // JSON keeps its value.
        let text = serde_json::json!("\u{9b}\u{202e}").to_string();
        assert_eq!(
            serde_json::from_str::<String>(&harmless(&text)).ok().as_deref(),
            Some("\u{9b}\u{202e}")
        );
    }
}
