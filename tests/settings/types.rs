//! The types of settings, read from the sources.

use std::collections::BTreeMap;
use std::path::PathBuf;

use syn::{Attribute, Expr, GenericArgument, Item, ItemEnum, ItemStruct, PathArguments, Type};

use super::Result;
use crate::util::root;

/// Files outside of src/config with types that settings have.
const OTHER_FILES: [&str; 6] = [
    "src/mix/config.rs",
    "src/suffix/lib.rs",
    "src/text/pii/options.rs",
    "src/text/pii/span.rs",
    "src/text/robots/mod.rs",
    "src/text/rules/license.rs",
];

/// Writes a value as it stands in a setting.
pub(super) type Writer = fn(&str) -> String;

/// The types of settings by name.
#[derive(Default)]
pub(super) struct Types {
    pub(super) structs: BTreeMap<String, ItemStruct>,
    pub(super) enums: BTreeMap<String, ItemEnum>,
}

impl Types {
    pub(super) fn read() -> Result<Self> {
        let mut types = Self::default();
        let mut files: Vec<PathBuf> = OTHER_FILES.map(|file| root().join(file)).to_vec();
        for entry in std::fs::read_dir(root().join("src/config"))? {
            files.push(entry?.path());
        }
        for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs")) {
            for item in syn::parse_file(&std::fs::read_to_string(file)?)?.items {
                match item {
                    Item::Struct(item) => drop(types.structs.insert(item.ident.to_string(), item)),
                    Item::Enum(item) => drop(types.enums.insert(item.ident.to_string(), item)),
                    _ => {}
                }
            }
        }
        Ok(types)
    }
}

/// Returns the values of `#[serde(...)]` by key; flags have an empty value.
pub(super) fn serde_of(attributes: &[Attribute]) -> BTreeMap<String, String> {
    let mut said = BTreeMap::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        let parsed = attribute.parse_nested_meta(|meta| {
            let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            let value = match meta.value() {
                Ok(value) => value.parse::<syn::LitStr>()?.value(),
                Err(_) => String::new(),
            };
            said.insert(key, value);
            Ok(())
        });
        assert!(parsed.is_ok(), "{parsed:?}");
    }
    said
}

/// The first paragraph of a doc comment, in one line.
pub(super) fn doc_of(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let lines = lines.map(|line| line.trim().to_owned()).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

pub(super) fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("doc")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "hidden")
    })
}

/// The name of a type and its arguments: `("BTreeMap", [String, Rate])`.
pub(super) fn parts_of(of: &Type) -> (String, Vec<&Type>) {
    let Type::Path(path) = of else { return Default::default() };
    let Some(last) = path.path.segments.last() else { return Default::default() };
    let arguments = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments.args.iter(),
        _ => return (last.ident.to_string(), vec![]),
    };
    let types = arguments.filter_map(|argument| match argument {
        GenericArgument::Type(of) => Some(of),
        _ => None,
    });
    (last.ident.to_string(), types.collect())
}

/// The type `T` of `Option<T>`, else the type itself.
pub(super) fn without_option(of: &Type) -> &Type {
    match parts_of(of) {
        (name, arguments) if name == "Option" => arguments[0],
        _ => of,
    }
}

/// A value of a type of several forms.
pub(super) struct Form {
    pub(super) value: String,
    pub(super) meaning: String,
    /// Whether serde knows the value by this name, rather than that it stands in front of the meaning.
    pub(super) is_name: bool,
}

impl Form {
    /// The value as TOML, with an example in place of what stands for a number.
    pub(super) fn toml(&self) -> String {
        if self.is_name || !self.value.starts_with(['"', '[', '{', '0']) {
            format!("\"{}\"", self.value.replace(":N", ":64").replace(":K", ":1"))
        } else {
            self.value.clone()
        }
    }
}

impl Types {
    /// The values of the enum `name`; one that serde has no name for stands in front of its meaning, before a colon.
    pub(super) fn forms(&self, name: &str) -> Vec<Form> {
        let of = &self.enums[name];
        let all = serde_of(&of.attrs);
        let is_derived = !all.contains_key("untagged") && !all.contains_key("try_from");
        let variants = of.variants.iter().filter(|variant| !is_hidden(&variant.attrs));
        let form = |variant: &syn::Variant| {
            let (own, doc) = (serde_of(&variant.attrs), doc_of(&variant.attrs));
            assert!(!doc.is_empty(), "{name}::{} has no doc comment", variant.ident);
            let value = doc.strip_prefix('`').and_then(|rest| rest.split_once("`: "));
            if let Some((value, meaning)) = value {
                let first: String = meaning.chars().take(1).collect();
                let meaning = first.to_uppercase() + &meaning[first.len()..];
                return Some(Form { value: value.to_owned(), meaning, is_name: false });
            }
            let ident = variant.ident.to_string();
            let value = own
                .get("rename")
                .cloned()
                .or_else(|| Some(renamed(&ident, all.get("rename_all")?)));
            let value = value.filter(|_| is_derived && !own.contains_key("untagged"))?;
            Some(Form { value, meaning: doc, is_name: true })
        };
        variants.filter_map(form).collect()
    }

    /// Returns the name of the type, in the singular and the plural.
    pub(super) fn called(&self, of: &Type) -> [String; 2] {
        if let Type::Array(array) = of {
            let [_, items] = self.called(&array.elem);
            return ["list", "lists"].map(|list| format!("{list} of {items}"));
        }
        let (name, arguments) = parts_of(of);
        let both = |one: &str| [one.to_owned(), format!("{one}s")];
        match name.as_str() {
            "String" => both("text"),
            "bool" => ["true or false".to_owned(), "true or false".to_owned()],
            "u8" | "u16" | "u32" | "u64" | "usize" | "i32" => both("whole number"),
            "f64" | "Epochs" => both("number"),
            "Rate" => both("rate"),
            "Budget" => both("amount"),
            "Vec" => {
                ["list", "lists"].map(|list| format!("{list} of {}", self.called(arguments[0])[1]))
            }
            "BTreeMap" => ["table", "tables"]
                .map(|table| format!("{table} of {}", self.called(arguments[1])[1])),
            name => {
                let kind = |form: Form| match form.value.as_bytes().first() {
                    _ if form.is_name => "choice",
                    Some(b'[') => "list",
                    Some(b'{') => "table",
                    Some(b'0'..=b'9') => "number",
                    _ => "text",
                };
                let mut kinds: Vec<&str> = self.forms(name).into_iter().map(kind).collect();
                kinds.dedup();
                assert!(!kinds.is_empty(), "{name} has no values");
                ["", "s"].map(|end| {
                    kinds.iter().map(|kind| format!("{kind}{end}")).collect::<Vec<_>>().join(" or ")
                })
            }
        }
    }

    /// The enum in a type, if any, and how a value of it is written where the type is.
    pub(super) fn enum_in(&self, of: &Type) -> Option<(String, Writer)> {
        let (name, arguments) = parts_of(of);
        match name.as_str() {
            "Vec" => Some((self.enum_in(arguments[0])?.0, |value| format!("[{value}]"))),
            "BTreeMap" => {
                Some((self.enum_in(arguments[1])?.0, |value| format!("{{ NAME = {value} }}")))
            }
            name => {
                self.enums.contains_key(name).then(|| (name.to_owned(), str::to_owned as Writer))
            }
        }
    }

    /// The struct in a type that is a section of its own, and what its name adds to that of the key.
    pub(super) fn section_in(&self, key: &str, of: &Type) -> Option<(String, &'static str)> {
        let (name, arguments) = parts_of(of);
        let is_section = |name: &str| {
            self.structs.contains_key(name) && !["Rate", "Budget", "Epochs"].contains(&name)
        };
        let (inner, added) = match name.as_str() {
            "Vec" => (parts_of(arguments[0]).0, "[]"),
            "BTreeMap" if key == "languages" => (parts_of(arguments[1]).0, ".LANGUAGE"),
            "BTreeMap" => (parts_of(arguments[1]).0, ".NAME"),
            _ => (name, ""),
        };
        is_section(&inner).then_some((inner, added))
    }
}

/// A variant's name as `rename_all` has it.
pub(super) fn renamed(ident: &str, rule: &str) -> String {
    let mut name = String::new();
    for (i, c) in ident.char_indices() {
        if i > 0 && c.is_uppercase() && rule == "kebab-case" {
            name.push('-');
        }
        name.extend(c.to_lowercase());
    }
    name
}
