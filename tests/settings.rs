//! The reference of settings, `docs/settings.md`, is what the sources and the program say.
//!
//! `POLYSIFT_UPDATE_DOCS=1 cargo test -p polysift --test integration -- settings` writes the reference anew.

mod types;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write as _};
use std::rc::Rc;

use polysift::config::{
    CardConfig, CascadeConfig, ConsentSource, DecontaminationConfig, EmbeddingsConfig,
    EncoderConfig, ExportConfig, FastTextConfig, FilterConfig, HeadConfig, IdsConfig, InputConfig,
    LanguageConfig, LicenseConfig, Negatives, PartsConfig, PiiConfig, RepetitionConfig,
    RobotsConfig, RunConfig, SelectionConfig, TrainingConfig, UrlsConfig, WordsConfig,
};
use polysift::mix::{MixConfig, MixSource};
use polysift::pii::Markers;
use serde::Serialize;
use serde::de::DeserializeOwned;
use syn::{Expr, Type};

use self::types::{Form, Types, doc_of, is_hidden, parts_of, renamed, serde_of, without_option};
use crate::util::{TestResult, polysift, root};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What the guide says about a section.
const PAGES: [(&str, &str); 16] = [
    ("input", "[Input and output](input-and-output.md)"),
    ("encoder", "[Encoders](encoders.md), [CPU](cpu.md) and [GPU](gpu.md)"),
    ("parts", "[The run directory](run-directory.md)"),
    ("heads.NAME", "[Heads](heads.md)"),
    ("heads.NAME.negatives", "[Training heads](training.md#negatives-from-the-corpus)"),
    ("heads.NAME.training", "[Training heads](training.md)"),
    ("heads.NAME.fasttext", "[Heads](heads.md#fasttext)"),
    ("filters.NAME", "[Filters](filters.md)"),
    ("filters.NAME.sources", "[Filters](filters.md)"),
    ("languages.LANGUAGE", "[Selection](selection.md)"),
    ("selection", "[Selection](selection.md)"),
    ("cascade", "[Cascade](cascade.md)"),
    ("pii", "[Filters](filters.md#personal-data)"),
    ("export", "[Input and output](input-and-output.md#export)"),
    ("card", "[Data set card](card.md)"),
    ("source", "[Mixtures](mix.md)"),
];

const INTRODUCTION: &str = r#"# Settings

This page lists every key of a settings file. A test generates it from the sources of the program.

polysift takes each setting from the first of these places that has it:

1. `--set KEY=VALUE`, which sets any key of a run;
2. the flag of the key, or, without the flag, its [environment variable](environment.md);
3. the settings file, `-c FILE`; without `-c`, the settings that the run directory (`--run`) holds;
4. the default.

```toml
seed = 7                                 # the key `seed`

[encoder]
max_tokens = 256                         # the key `encoder.max_tokens`

[heads.quality]                          # `heads.NAME`: you choose the name
train = ["samples/{lang}.jsonl"]

[languages.deu_Latn]                     # `languages.LANGUAGE`: `_default` stands for all languages
retention = { quality = 0.1 }
```

An unknown key and a value of the wrong type are errors (exit code 2). Relative paths in a settings file begin at the
folder of that file, those in flags at the current directory. Each stage freezes its part of the settings in the run
directory; other settings are refused there (exit code 78) unless you give `--redo STAGE`.

Where the column *default* is empty, the key is not set. These words stand for types:

- A *choice* is one of the values listed, in quotes.
- A *rate* is a number above 0 and at most 1 with at most 12 decimals, or a percentage in quotes, as in `"10%"`.
  polysift computes with exactly this number.
- An *amount* is a whole number above 0, or text with `k`, `M`, `B` or `T` for 10^3, 10^6, 10^9 or 10^12, as in
  `"1.5M"`.
- A *table* of values has the names of heads as keys, unless the meaning says otherwise.
"#;

/// The defaults of a struct, as they are written and as `Debug` shows them, which leaves nothing out.
struct Defaults {
    written: toml::Table,
    shown: BTreeMap<String, Expr>,
}

impl Defaults {
    fn of<T: Serialize + Debug>(value: &T) -> Result<Self> {
        let written = toml::Table::try_from(value)?;
        let shown = match syn::parse_str(&format!("{value:?}"))? {
            Expr::Struct(shown) => shown.fields.into_iter(),
            _ => return Err(format!("not a struct: {value:?}").into()),
        };
        let named = shown.filter_map(|field| match field.member {
            syn::Member::Named(name) => Some((name.to_string(), field.expr)),
            syn::Member::Unnamed(_) => None,
        });
        Ok(Self { written, shown: named.collect() })
    }

    /// Those of all sections, by the name of their struct.
    fn all() -> Result<BTreeMap<&'static str, Self>> {
        let filter: FilterConfig = toml::from_str("kind = 'ids'")?;
        Ok(BTreeMap::from([
            ("RunConfig", Self::of(&RunConfig::default())?),
            ("InputConfig", Self::of(&InputConfig::default())?),
            ("EncoderConfig", Self::of(&EncoderConfig::default())?),
            ("PartsConfig", Self::of(&PartsConfig::default())?),
            ("HeadConfig", Self::of(&HeadConfig::default())?),
            ("TrainingConfig", Self::of(&TrainingConfig::default())?),
            ("Negatives", Self::of(&toml::from_str::<Negatives>("corpus = 1")?)?),
            ("FastTextConfig", Self::of(&FastTextConfig::default())?),
            ("FilterConfig", Self::of(&filter)?),
            ("IdsConfig", Self::of(&IdsConfig::default())?),
            ("UrlsConfig", Self::of(&UrlsConfig::default())?),
            ("RobotsConfig", Self::of(&RobotsConfig::default())?),
            ("DecontaminationConfig", Self::of(&DecontaminationConfig::default())?),
            ("LicenseConfig", Self::of(&LicenseConfig::default())?),
            ("WordsConfig", Self::of(&WordsConfig::default())?),
            ("EmbeddingsConfig", Self::of(&EmbeddingsConfig::default())?),
            ("RepetitionConfig", Self::of(&RepetitionConfig::default())?),
            ("ConsentSource", Self::of(&ConsentSource::default())?),
            ("LanguageConfig", Self::of(&LanguageConfig::default())?),
            ("SelectionConfig", Self::of(&SelectionConfig::default())?),
            ("CascadeConfig", Self::of(&CascadeConfig::default())?),
            ("PiiConfig", Self::of(&PiiConfig::default())?),
            ("Markers", Self::of(&Markers::default())?),
            ("ExportConfig", Self::of(&ExportConfig::default())?),
            ("CardConfig", Self::of(&CardConfig::default())?),
            ("MixConfig", Self::of(&MixConfig::default())?),
            ("MixSource", Self::of(&MixSource::default())?),
        ]))
    }

    /// The default of a field as TOML; `None` where the field is unset.
    fn get(&self, types: &Types, field: &syn::Field, key: &str) -> Option<String> {
        if let Some(written) = self.written.get(key) {
            return Some(written.to_string())
                .filter(|text| !["\"\"", "[]", "{}"].contains(&&**text));
        }
        let ident = field.ident.as_ref()?.to_string();
        match self.shown.get(&ident)? {
            Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Bool(value) => Some(value.value.to_string()),
                syn::Lit::Int(value) => Some(value.base10_digits().to_owned()),
                syn::Lit::Float(value) => Some(value.base10_digits().to_owned()),
                _ => None,
            },
            Expr::Path(path) => {
                let variant = path.path.get_ident()?.to_string();
                if variant == "None" && parts_of(&field.ty).0 == "Option" {
                    return None;
                }
                let (name, _) = types.enum_in(without_option(&field.ty))?;
                let of = &types.enums[&name];
                let own = of.variants.iter().find(|own| own.ident == variant)?;
                let given = serde_of(&own.attrs).remove("rename");
                let rule = serde_of(&of.attrs).remove("rename_all");
                let value = given.or_else(|| Some(renamed(&variant, &rule?)))?;
                Some(format!("{value:?}"))
            }
            _ => None,
        }
    }
}

struct Row {
    key: String,
    called: String,
    default: String,
    flags: String,
    meaning: String,
    /// Settings with each of the values that the meaning names.
    examples: Vec<String>,
}

struct Section {
    /// The key of its table, with `[]` behind that of an array; empty at the top.
    key: String,
    /// The kind whose keys these are, if the table has several kinds.
    kind: Option<String>,
    introduction: String,
    rows: Vec<Row>,
}

/// Everything that the page is made of.
struct Reference {
    types: Rc<Types>,
    defaults: BTreeMap<&'static str, Defaults>,
    /// Flags by key.
    flags: BTreeMap<String, Vec<String>>,
    /// The kinds that each key of heads is for, unless it is for all.
    kinds: BTreeMap<String, String>,
    /// What is wrong with the doc comments.
    wrong: Vec<String>,
}

impl Reference {
    fn read() -> Result<Self> {
        let types = Rc::new(Types::read()?);
        let flags = flags()?;
        let kinds = kinds_of_heads(&types.forms("HeadKind"));
        Ok(Self { types, defaults: Defaults::all()?, flags, kinds, wrong: vec![] })
    }

    /// Adds the section of the struct `name` and those in it; `doc` is the comment of the field that holds it.
    fn walk(
        &mut self,
        key: &str,
        name: &str,
        doc: &str,
        sections: &mut Vec<Section>,
    ) -> TestResult {
        let types = Rc::clone(&self.types);
        let of = &types.structs[name];
        let place = sections.len();
        let names_table = |doc: &str| key.is_empty() || doc.contains(&heading(key));
        let Some(introduction) =
            [doc_of(&of.attrs), doc.to_owned()].into_iter().find(|doc| names_table(doc))
        else {
            return Err(
                format!("the comment of {name} does not say what {} is", heading(key)).into()
            );
        };
        let kind =
            introduction.split_once("of the kind `").and_then(|(_, rest)| rest.split_once('`'));
        let kind = kind.map(|(kind, _)| kind.to_owned());
        sections.push(Section {
            key: key.to_owned(),
            kind: kind.clone(),
            introduction,
            rows: vec![],
        });
        let prefix = match key.trim_end_matches("[]") {
            "" => String::new(),
            key => format!("{key}."),
        };
        // A filter is read by hand, and all of its keys but the kind have defaults.
        let has_defaults = serde_of(&of.attrs).contains_key("default") || name == "FilterConfig";
        let mut structs_of_kinds = vec![];
        for field in of.fields.iter().filter(|field| !is_hidden(&field.attrs)) {
            let said = serde_of(&field.attrs);
            if said.contains_key("skip") {
                continue;
            }
            assert!(!said.contains_key("alias"), "{name}: `alias` is not known to this test");
            let ident = field.ident.as_ref().ok_or("a field without a name")?.to_string();
            if said.contains_key("flatten") {
                let of_kind = &types.enums[&parts_of(&field.ty).0];
                assert_eq!(serde_of(&of_kind.attrs).get("tag"), Some(&ident), "{name}.{ident}");
                let own = of_kind.variants.iter().flat_map(|variant| &variant.fields);
                structs_of_kinds.extend(own.map(|field| parts_of(&field.ty).0));
            }
            let own = said.get("rename").cloned().unwrap_or(ident);
            let full = format!("{prefix}{own}");
            let of = without_option(&field.ty);
            if let Some((inner, added)) = self.types.section_in(&full, of) {
                let doc = doc_of(&field.attrs);
                self.walk(&format!("{full}{added}"), &inner, &doc, sections)?;
                continue;
            }
            let is_required =
                !has_defaults && !said.contains_key("default") || said.contains_key("flatten");
            let default = match self.defaults.get(name) {
                Some(defaults) => defaults.get(&self.types, field, &own),
                None if is_required => None,
                None => return Err(format!("{name} is not in `Defaults::all`").into()),
            };
            let doc = doc_of(&field.attrs);
            let (meaning, told) = doc.split_once(" Default: ").unwrap_or((&doc, ""));
            let told = told.trim_end_matches('.');
            if meaning.is_empty() || doc.contains("[`") || !doc.ends_with('.') {
                self.wrong.push(format!("{full}: `{doc}` is no sentence without links"));
            }
            let default = match (default, told) {
                _ if is_required => "required".to_owned(),
                (Some(default), "") => format!("`{default}`"),
                (None, told) if told.parse::<f64>().is_ok() => format!("`{told}`"),
                (None, told) => told.to_owned(),
                (Some(default), told) => {
                    self.wrong.push(format!("{full}: is {default}, and the comment says {told}"));
                    String::new()
                }
            };
            let row = self.row(&full, kind.as_deref(), of, &said, default, meaning);
            sections[place].rows.push(row);
        }
        structs_of_kinds.iter().try_for_each(|own| self.walk(key, own, "", sections))
    }

    fn row(
        &self,
        key: &str,
        kind: Option<&str>,
        of: &Type,
        said: &BTreeMap<String, String>,
        default: String,
        meaning: &str,
    ) -> Row {
        let [called, _] = self.types.called(of);
        let reader = said.get("deserialize_with").or(said.get("with"));
        let called = match reader.map(String::as_str) {
            Some("one_or_many") => format!("text or {called}"),
            Some("amounts::by_head") => "table of rates or lists of rates".to_owned(),
            Some("auto") if called == "true or false" => "true, false or `\"auto\"`".to_owned(),
            Some("auto") => format!("{called} or `\"auto\"`"),
            _ => called,
        };
        let mut meaning = meaning.to_owned();
        if let Some(kinds) = self.kinds.get(key) {
            let _ = write!(meaning, " {kinds}");
        }
        let mut examples = vec![];
        if let Some((name, written)) = self.types.enum_in(of) {
            for form in self.types.forms(&name) {
                let _ = write!(meaning, "<br>`{}`: {}", form.value, form.meaning);
                let setting = format!("{key} = {}", written(&form.toml()));
                examples.push(match setting.strip_prefix("source.") {
                    Some(setting) => format!("[[source]]\n{setting}"),
                    None if key.starts_with("filters.") && key != "filters.NAME.kind" => {
                        format!("{setting}\nfilters.NAME.kind = '{}'", kind.unwrap_or("ids"))
                    }
                    None => setting,
                });
            }
        }
        let flags = self.flags.get(key).map(|flags| flags.join(", ")).unwrap_or_default();
        Row { key: key.to_owned(), called, default, flags, meaning, examples }
    }

    fn sections(&mut self) -> Result<[Vec<Section>; 2]> {
        let (mut run, mut mix) = (vec![], vec![]);
        self.walk("", "RunConfig", "", &mut run)?;
        let keys: BTreeSet<&str> =
            run.iter().flat_map(|section| &section.rows).map(|row| row.key.as_str()).collect();
        for key in self.flags.keys().filter(|key| !keys.contains(key.as_str())) {
            self.wrong.push(format!("a flag sets `{key}`, which is no key"));
        }
        // `polysift mix` has no flags that set keys.
        self.flags.clear();
        self.walk("", "MixConfig", "", &mut mix)?;
        assert!(self.wrong.is_empty(), "{:#?}", self.wrong);
        Ok([run, mix])
    }
}

/// The flags that set each key, from the help: it ends in `[section.key]`, and `[env: NAME=]` may follow.
fn flags() -> Result<BTreeMap<String, Vec<String>>> {
    let mut flags: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for command in ["run", "card"] {
        let output = polysift().args([command, "--help"]).output()?;
        let help = String::from_utf8(output.stdout)?;
        // A flag stands at the left, its help further right.
        let mut entries: Vec<String> = vec![];
        for line in help.lines() {
            let text = line.trim_start();
            if line.len() - text.len() < 10 && text.starts_with(['-', '[']) {
                entries.push(format!("{text} "));
            } else if let Some(entry) = entries.last_mut() {
                let _ = write!(entry, "{text} ");
            }
        }
        for entry in entries {
            let word = |text: &str| {
                (text.contains('.') || ["run_dir", "seed"].contains(&text))
                    && text.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c))
            };
            let brackets = |entry: &str| -> Vec<String> {
                entry
                    .split('[')
                    .skip(1)
                    .filter_map(|rest| Some(rest.split_once(']')?.0.to_owned()))
                    .collect()
            };
            let Some(key) = brackets(&entry).into_iter().find(|text| word(text)) else { continue };
            let name = entry.split(' ').find(|word| word.starts_with("--"));
            let name =
                name.map_or("INPUT", |name| name.split(['=', '[']).next().unwrap_or_default());
            let shown = match command {
                "run" => format!("`{name}`"),
                other => format!("`{other} {name}`"),
            };
            let own =
                flags.entry(key.replace("languages._default.", "languages.LANGUAGE.")).or_default();
            own.push(shown);
            for variable in brackets(&entry).iter().filter_map(|text| text.strip_prefix("env: ")) {
                own.extend(variable.split('=').next().map(|name| format!("`{name}`")));
            }
        }
    }
    Ok(flags)
}

/// The kinds that the keys of heads are for, by what the program says of a key of another kind.
fn kinds_of_heads(kinds: &[Form]) -> BTreeMap<String, String> {
    let mut by_key: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for Form { value: kind, .. } in kinds {
        let refused = |key: &str| {
            let text = format!("[heads.NAME]\nkind = '{kind}'\n{key}");
            let error = RunConfig::from_toml(&text, "").err()?.to_string();
            let keys = error.split_once("which take the keys ")?.1.split(';').next()?.to_owned();
            Some(keys)
        };
        let keys = ["score = 'a'", "path = 'a'"].into_iter().find_map(refused);
        for key in keys.unwrap_or_default().split(", ") {
            by_key.entry(format!("heads.NAME.{key}")).or_default().push(kind);
        }
    }
    by_key.retain(|_, own| own.len() < kinds.len());
    let quoted = |own: &[&str]| match own
        .iter()
        .map(|kind| format!("`{kind}`"))
        .collect::<Vec<_>>()
        .as_slice()
    {
        [one] => format!("kind {one}"),
        [first @ .., last] => format!("kinds {} and {last}", first.join(", ")),
        [] => String::new(),
    };
    let said = |own: Vec<&str>| {
        let others: Vec<&str> =
            kinds.iter().map(|kind| &*kind.value).filter(|kind| !own.contains(kind)).collect();
        if others.len() < own.len() {
            format!("Not for the {}.", quoted(&others))
        } else {
            format!("For the {}.", quoted(&own))
        }
    };
    by_key.into_iter().map(|(key, own)| (key, said(own))).collect()
}

/// The heading of a section: `[encoder]`, or `[[source]]` for an array.
fn heading(key: &str) -> String {
    match key.strip_suffix("[]") {
        Some(key) => format!("`[[{key}]]`"),
        None => format!("`[{key}]`"),
    }
}

fn anchor(key: &str) -> String {
    key.chars().filter(|c| c.is_alphanumeric() || *c == '_').collect::<String>().to_lowercase()
}

/// Breaks a paragraph into lines.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line =
            lines.last_mut().filter(|line| line.chars().count() + word.chars().count() < 115);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

fn render(section: &Section, title: &str, text: &mut String) -> TestResult {
    let mut introduction = section.introduction.clone();
    let key = section.key.trim_end_matches("[]");
    let page = PAGES.iter().find(|(own, _)| *own == key && section.kind.is_none());
    if let Some((_, pages)) = page {
        let verb = if pages.contains(" and ") && pages.matches('[').count() > 1 {
            "explain"
        } else {
            "explains"
        };
        write!(introduction, " {pages} {verb} more.")?;
    }
    writeln!(text, "\n## {title}\n\n{}\n", wrapped(&introduction))?;
    let has_flags = section.rows.iter().any(|row| !row.flags.is_empty());
    let flag = if has_flags { " flag, variable |" } else { "" };
    writeln!(
        text,
        "| key | type | default |{flag} meaning |\n|---|---|---|{}---|",
        if has_flags { "---|" } else { "" }
    )?;
    for Row { key, called, default, flags, meaning, .. } in &section.rows {
        let cells = [&format!("`{key}`"), called, default];
        let flags = has_flags.then_some(flags);
        let cells =
            cells.into_iter().chain(flags).chain([meaning]).map(|cell| cell.replace('|', "\\|"));
        writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "))?;
    }
    Ok(())
}

fn page(types: &Types, run: &[Section], mix: &[Section]) -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    writeln!(page, "\n| table | what it sets |\n|---|---|")?;
    writeln!(page, "| [top](#keys-at-the-top) | The run directory and the seed. |")?;
    for field in &types.structs["RunConfig"].fields {
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        let of = run.iter().filter(|section| section.kind.is_none());
        let of = of.filter(|section| section.key.split(['.', '[']).next() == Some(&name));
        let links: Vec<String> = of
            .map(|section| format!("[{}](#{})", heading(&section.key), anchor(&section.key)))
            .collect();
        if !links.is_empty() {
            writeln!(page, "| {} | {} |", links.join(", "), doc_of(&field.attrs))?;
        }
    }
    writeln!(page, "| [`mix.toml`](#mixtures) | The settings of `polysift mix`. |")?;
    for section in run {
        let title = match &section.kind {
            _ if section.key.is_empty() => "Keys at the top".to_owned(),
            Some(kind) => format!("{} of the kind `{kind}`", heading(&section.key)),
            None => heading(&section.key),
        };
        render(section, &title, &mut page)?;
    }
    for section in mix {
        let title =
            if section.key.is_empty() { "Mixtures".to_owned() } else { heading(&section.key) };
        render(section, &title, &mut page)?;
    }
    Ok(page)
}

#[test]
fn the_reference_of_settings_is_what_the_program_has() -> TestResult {
    let mut reference = Reference::read()?;
    let [run, mix] = reference.sections()?;
    let page = page(&reference.types, &run, &mix)?;
    let file = root().join("docs/settings.md");
    if std::env::var("POLYSIFT_UPDATE_DOCS").is_ok_and(|value| value == "1") {
        return Ok(std::fs::write(file, page)?);
    }
    let committed = std::fs::read_to_string(file)?;
    let differs = committed.lines().zip(page.lines()).find(|(there, made)| there != made);
    assert!(
        committed == page,
        "docs/settings.md is out of date (the head of tests/settings.rs says how to write it): {differs:#?}"
    );
    Ok(())
}

/// Reads each of the settings that `sections` name as an example; returns their number.
fn try_examples<T: DeserializeOwned>(sections: &[Section]) -> Result<usize> {
    let rows = sections.iter().flat_map(|section| &section.rows);
    let examples: Vec<&String> = rows.flat_map(|row| &row.examples).collect();
    for example in &examples {
        toml::from_str::<T>(example).map_err(|error| format!("{example}: {error}"))?;
    }
    Ok(examples.len())
}

#[test]
fn every_value_that_the_reference_names_can_be_set() -> TestResult {
    let [run, mix] = Reference::read()?.sections()?;
    let tried = try_examples::<RunConfig>(&run)? + try_examples::<MixConfig>(&mix)?;
    assert!(tried > 80, "{tried}");
    Ok(())
}
