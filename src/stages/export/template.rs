//! Renders the template of a card. Templates are untrusted: work, memory and output are bounded.

use std::error::Error as _;
use std::io::{self, Write};
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, filters};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::PrettyFormatter;

use polysift_base::error::{Error as Failure, Result};
use polysift_base::io::read_text;
use polysift_base::progress::{bytes_for_people, thousands};
use polysift_config::CardConfig;

const TEMPLATE: &str = include_str!("card.md.jinja");
/// Maximum steps of a template; each 64 bytes that it makes count as one. Two thousand languages
/// with ten thresholds take about a million.
const FUEL: u64 = 10_000_000;
/// Maximum bytes of a card, and of a value in JSON.
const MAX_BYTES: usize = 32 << 20;

/// Renders the card of `facts` with the template of `settings`; without facts, only checks the
/// template. Returns the errors of [`read_text`]; [`Failure::Config`] for an invalid template.
pub fn render_card(settings: &CardConfig, facts: Option<&serde_json::Value>) -> Result<String> {
    let (origin, text) = match &settings.template {
        None => ("card.md.jinja", TEMPLATE.to_owned()),
        Some(path) => (path.as_str(), read_text(Path::new(path))?),
    };
    render(origin, &text, facts).map_err(|error| {
        let cause = error.source().map_or_else(String::new, |cause| format!(": {cause}"));
        Failure::config(origin, format!("{error:#}{cause}"))
    })
}

/// Renders `text`, from the file `origin`, with `facts`; without facts, only parses it.
fn render(origin: &str, text: &str, facts: Option<&serde_json::Value>) -> Result<String, Error> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
    environment.set_syntax(syntax.build()?);
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("thousands", thousands);
    environment.add_filter("size", bytes_for_people);
    for name in ["pretty", "pprint"] {
        environment.add_filter(name, |value: &Value| indented(value, 2));
    }
    environment.add_filter("tojson", tojson);
    environment.add_filter("cell", |text: String| text.replace('|', "\\|").replace('\n', " "));
    let mut card = Bounded::default();
    let template = environment.template_from_named_str(origin, text)?;
    if let Some(facts) = facts {
        template.render_captured_to(Serde(facts), &mut card)?;
    }
    Ok(String::from_utf8_lossy(&card.0).into_owned())
}

/// A buffer of at most [`MAX_BYTES`].
#[derive(Default)]
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if self.0.len() + buffer.len() > MAX_BYTES {
            return Err(io::Error::other("the text has more than 32 MiB"));
        }
        self.0.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns `value` as JSON over several lines, indented by `spaces` per level.
fn indented(value: &Value, spaces: usize) -> Result<String, Error> {
    let indent = " ".repeat(spaces.min(MAX_BYTES));
    let mut json = Bounded::default();
    let formatter = PrettyFormatter::with_indent(indent.as_bytes());
    let written = value.serialize(&mut Serializer::with_formatter(&mut json, formatter));
    written.map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))?;
    Ok(String::from_utf8_lossy(&json.0).into_owned())
}

/// Jinja's `tojson`; fails first if `value` would exceed the maximum when written out.
fn tojson(value: &Value, indent: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let by_name = named.peek::<Option<Value>>("indent")?;
    let spaces = indent.as_ref().or(by_name.as_ref()).and_then(Value::as_usize);
    indented(value, spaces.unwrap_or_default())?;
    filters::tojson(value, indent, named)
}
