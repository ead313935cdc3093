//! What cargo does not check: crates use only crates below them in the table of
//! CONTRIBUTING.md, neither files nor folders of a crate use each other in a circle, no stage uses
//! another, and a shared type has a name of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree, Visibility};

use crate::util::{TestResult, root};

/// Where an item stands: `["select", "rank"]` is src/select/rank.rs, `[]` is the root of the crate.
type Module = Vec<String>;

/// Uses, by who uses: what is used and the names taken from it.
type Uses<M> = BTreeMap<M, BTreeMap<M, BTreeSet<String>>>;

/// What a file defines, re-exports and uses outside its tests.
#[derive(Default)]
struct File {
    defined: BTreeSet<String>,
    /// The types among them that other files can use.
    shared_types: Vec<String>,
    /// Paths of `pub use`, with the name they have here.
    exported: Vec<(String, Module)>,
    /// Paths of private `use`, and of two and more segments in the code.
    used: Vec<Module>,
}

impl<'a> Visit<'a> for File {
    fn visit_item(&mut self, item: &'a Item) {
        if is_test(attributes(item)) {
            return;
        }
        match item {
            Item::Use(item) => self.take_use(item),
            Item::Mod(item) if item.content.is_none() => {}
            item => {
                self.defined.extend(name(item));
                self.shared_types.extend(shared_type(item));
                visit::visit_item(self, item);
            }
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 {
            self.used.push(path.segments.iter().map(|part| part.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

impl File {
    fn take_use(&mut self, item: &ItemUse) {
        let mut paths = Vec::new();
        expand(&item.tree, &mut Vec::new(), &mut paths);
        match item.vis {
            Visibility::Inherited => self.used.extend(paths.into_iter().map(|(_, path)| path)),
            _ => self.exported.extend(paths),
        }
    }
}

/// Every path of a tree of `use`, with its name behind `as`.
fn expand(tree: &UseTree, before: &mut Module, paths: &mut Vec<(String, Module)>) {
    let mut take = |name: &syn::Ident, last: String| {
        paths.push((name.to_string(), [before.as_slice(), &[last]].concat()));
    };
    match tree {
        UseTree::Name(tree) => take(&tree.ident, tree.ident.to_string()),
        UseTree::Rename(tree) => take(&tree.rename, tree.ident.to_string()),
        UseTree::Glob(_) => paths.push(("*".into(), [before.as_slice(), &["*".into()]].concat())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| expand(tree, before, paths)),
        UseTree::Path(tree) => {
            before.push(tree.ident.to_string());
            expand(&tree.tree, before, paths);
            before.pop();
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

/// The name of a type that can be used outside its file.
fn shared_type(item: &Item) -> Option<String> {
    let (visibility, name) = match item {
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    (!matches!(visibility, Visibility::Inherited)).then(|| name.to_string())
}

/// The files of a crate by module.
struct Crate(BTreeMap<Module, File>);

impl Crate {
    fn read(root: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let path = entry?.path();
                let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                // `no_*` stands for a module that a feature leaves out.
                let is_stand_in = stem.starts_with("no_");
                if stem == "tests" || stem.ends_with("_tests") || stem == "build" || is_stand_in {
                    continue;
                }
                if path.is_dir() {
                    // A folder with a manifest is a crate of its own.
                    if !path.join("Cargo.toml").exists() {
                        folders.push(path);
                    }
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let folder = folder.strip_prefix(root)?.components();
                    let mut module: Module =
                        folder.map(|part| part.as_os_str().to_string_lossy().into()).collect();
                    if stem != "mod" && stem != "lib" {
                        module.push(stem);
                    }
                    let mut file = File::default();
                    file.visit_file(&syn::parse_file(&std::fs::read_to_string(&path)?)?);
                    files.insert(module, file);
                }
            }
        }
        Ok(Self(files))
    }

    /// The file that defines what `path` names in `module`; nothing for what other crates define.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        let mut place = module.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                place.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    place.pop();
                    rest = &rest[1..];
                }
            }
            first if self.0.contains_key(&[module.as_slice(), &[first.into()]].concat()) => {}
            _ => return None,
        }
        while let [next, others @ ..] = rest {
            let inner = [place.as_slice(), std::slice::from_ref(next)].concat();
            if !self.0.contains_key(&inner) {
                break;
            }
            (place, rest) = (inner, others);
        }
        let file = self.0.get(&place)?;
        let Some(name) = rest.first().filter(|name| *name != "*" && *name != "self") else {
            return Some(place);
        };
        if file.defined.contains(name) || depth > 8 {
            return Some(place);
        }
        let follow = |path: &[String]| self.resolve(&place, path, depth + 1);
        let mut exports = file.exported.iter().filter(|(export, _)| export == name);
        if let Some((_, path)) = exports.next() {
            return follow(path);
        }
        let globs = file.exported.iter().filter(|(export, _)| export == "*");
        let mut found = globs.filter_map(|(_, path)| {
            let path = [&path[..path.len() - 1], std::slice::from_ref(name)].concat();
            let module = follow(&path)?;
            self.0[&module].defined.contains(name).then_some(module)
        });
        if let Some(module) = found.next() {
            return Some(module);
        }
        let mut imports = file.used.iter().filter(|path| path.last() == Some(name));
        imports.find_map(|path| follow(path)).or(Some(place))
    }

    fn uses(&self) -> Uses<Module> {
        let mut uses = Uses::new();
        for (module, file) in &self.0 {
            for path in &file.used {
                match self.resolve(module, path, 0) {
                    Some(used) if used != *module => {
                        let names = uses.entry(module.clone()).or_default().entry(used);
                        names.or_default().extend(path.last().cloned());
                    }
                    _ => {}
                }
            }
        }
        uses
    }
}

/// What each of `uses` uses in the end, by itself or through others, where that comes back to itself.
fn circles<M: Ord + Clone>(uses: &Uses<M>) -> Vec<BTreeSet<M>> {
    let reached = |start: &M| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(next) = open.pop() {
            open.extend(
                uses.get(next)
                    .into_iter()
                    .flat_map(|used| used.keys())
                    .filter(|used| seen.insert((*used).clone())),
            );
        }
        seen
    };
    let all: BTreeMap<&M, BTreeSet<M>> = uses.keys().map(|from| (from, reached(from))).collect();
    let mut circles: Vec<BTreeSet<M>> = Vec::new();
    for (from, seen) in all.iter().filter(|(from, seen)| seen.contains(**from)) {
        let back = |other: &M| all.get(other).is_some_and(|seen| seen.contains(*from));
        let circle: BTreeSet<M> = seen.iter().filter(|other| back(other)).cloned().collect();
        if !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// One line for each use inside one of the circles.
fn describe<M: Ord + Clone>(uses: &Uses<M>, shown: impl Fn(&M) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    for circle in circles(uses) {
        for (from, used) in uses.iter().filter(|(from, _)| circle.contains(*from)) {
            for (to, names) in used.iter().filter(|(to, _)| circle.contains(*to)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                lines.push(format!("{} uses {} ({})", shown(from), shown(to), names.join(", ")));
            }
        }
    }
    lines
}

/// The uses between the first `depth` names of modules.
fn between_folders(uses: &Uses<Module>) -> Uses<Module> {
    let mut folders = Uses::new();
    for (from, used) in uses {
        for (to, names) in used {
            // The innermost folders that hold the one and not the other.
            let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            if from.len() > common && to.len() > common {
                let names_of =
                    folders.entry(from[..=common].to_vec()).or_insert_with(BTreeMap::new);
                names_of.entry(to[..=common].to_vec()).or_default().extend(names.clone());
            }
        }
    }
    folders
}

/// The folders of all crates.
fn crates() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let mut folders = vec!["kernels/src".to_owned(), "src".to_owned()];
    for entry in std::fs::read_dir(root().join("src"))? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").exists() {
            folders.push(format!("src/{}", entry.file_name().to_string_lossy()));
        }
    }
    Ok(folders)
}

#[test]
fn neither_files_nor_folders_use_each_other_in_a_circle() -> TestResult {
    for folder in crates()? {
        let uses = Crate::read(&root().join(&folder))?.uses();
        let lines = describe(&uses, |module| module.join("::"));
        assert!(
            lines.is_empty(),
            "{folder}: {} uses in circles of files:\n{}",
            lines.len(),
            lines.join("\n")
        );
        let lines = describe(&between_folders(&uses), |module| module.join("::"));
        assert!(lines.is_empty(), "{folder}: in circles of folders:\n{}", lines.join("\n"));
    }
    Ok(())
}

/// The row of each crate in the table of CONTRIBUTING.md, whose first column has `src/<crate>`.
fn rows_of_contributing(text: &str) -> BTreeMap<String, usize> {
    let rows = text.lines().filter(|line| line.starts_with("| `src"));
    let names = rows.map(|row| row.split('|').nth(1).unwrap_or_default());
    let mut rows = BTreeMap::new();
    for (row, cell) in names.enumerate() {
        rows.extend(cell.split(", ").map(|name| (name.trim().replace('`', ""), row)));
    }
    rows.insert("cli".into(), rows["src"]);
    rows.remove("src");
    rows.into_iter().map(|(name, row)| (name.replace("src/", ""), row)).collect()
}

/// The crates of ours that the manifest `text` depends on, but for kernels and tests.
fn dependencies(text: &str) -> Vec<String> {
    let normal = text.split("\n[dependencies]").nth(1).unwrap_or_default();
    let lines = normal.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.strip_prefix("polysift-")?.split(['.', ' ']).next());
    names.filter(|name| *name != "kernels").map(str::to_owned).collect()
}

#[test]
fn crates_use_only_crates_below_them_in_the_table() -> TestResult {
    let manifest = |name: &str| {
        let folder = if name == "cli" { root() } else { root().join("src").join(name) };
        std::fs::read_to_string(folder.join("Cargo.toml"))
    };
    let folders =
        crates()?.into_iter().filter_map(|folder| Some(folder.strip_prefix("src/")?.to_owned()));
    let all: BTreeSet<String> = folders.chain(["cli".to_owned()]).collect();
    let rows = rows_of_contributing(&std::fs::read_to_string(root().join("CONTRIBUTING.md"))?);
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), all);
    for name in &all {
        for used in dependencies(&manifest(name)?) {
            assert!(rows[name] < rows[&used], "{name} stands beside or below {used}");
        }
    }
    Ok(())
}

#[test]
fn no_stage_uses_another_stage() -> TestResult {
    let found = Crate::read(&root().join("src/stages"))?;
    let stages = ["cascade", "embed", "train", "score", "filter", "refine", "threshold", "export"];
    let is_stage =
        |module: &Module| module.first().is_some_and(|name| stages.contains(&name.as_str()));
    let mut wrong = Vec::new();
    for (from, used) in found.uses().iter().filter(|(from, _)| is_stage(from)) {
        for (to, names) in used.iter().filter(|(to, _)| is_stage(to) && to[0] != from[0]) {
            wrong.push(format!("{} uses {} ({names:?})", from.join("::"), to.join("::")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_type_that_is_shared_has_a_name_of_its_own() -> TestResult {
    let (kernels, own): (Vec<_>, Vec<_>) =
        crates()?.into_iter().partition(|folder| folder == "kernels/src");
    for folders in [kernels, own] {
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for folder in folders {
            for (module, file) in Crate::read(&root().join(&folder))?.0 {
                for name in file.shared_types {
                    places
                        .entry(name)
                        .or_default()
                        .push(format!("{folder}: {}", module.join("::")));
                }
            }
        }
        // Each crate has its own alias `Result`.
        places.retain(|name, places| places.len() > 1 && name != "Result");
        assert!(places.is_empty(), "{places:#?}");
    }
    Ok(())
}
