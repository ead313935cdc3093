//! README and guide: every command runs, every setting parses, every link leads somewhere.
//!
//! What the info string of a fenced block says:
//!
//! - `sh`: runs, block after block, in a copy of the folder that the README's blocks leave behind;
//! - `sh no_run`, `console` (lines that begin with `$ `): needs another machine, or other files. Its
//!   shell syntax, its flags and the targets of its `make` are checked;
//! - `toml`: is checked as settings, those of a mixture where it has a `[[source]]`; with `file=NAME` it
//!   is written before the blocks after it run;
//! - `text output`: lines that the `sh` block before it prints. A figure of three decimals or more stands for those
//!   within 0.01, one of fewer, such as a time, for any such figure, and `...` for anything.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use polysift::config::RunConfig;
use polysift::mix::MixConfig;

use crate::util::root;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A fenced block.
struct Block {
    /// `PAGE:LINE` of its fence.
    place: String,
    /// What stands behind the fence, word by word.
    info: Vec<String>,
    text: String,
}

impl Block {
    fn is(&self, language: &str, attribute: Option<&str>) -> bool {
        let mut info = self.info.iter().map(String::as_str);
        info.next() == Some(language) && info.next() == attribute
    }
}

/// A page: its blocks, and its text without them.
struct Page {
    name: String,
    blocks: Vec<Block>,
    prose: String,
}

impl Page {
    fn read(name: &str) -> Result<Self> {
        let (mut blocks, mut prose) = (Vec::<Block>::new(), String::new());
        let mut inside = false;
        for (i, line) in std::fs::read_to_string(root().join(name))?.lines().enumerate() {
            if let Some(info) = line.strip_prefix("```") {
                inside = !inside;
                if inside {
                    let info = info.split_whitespace().map(str::to_owned).collect();
                    let place = format!("{name}:{}", i + 1);
                    blocks.push(Block { place, info, text: String::new() });
                }
            } else if let Some(block) = blocks.last_mut().filter(|_| inside) {
                writeln!(block.text, "{line}")?;
            } else {
                writeln!(prose, "{line}")?;
            }
        }
        if inside {
            return Err(format!("{name}: a fence is not closed").into());
        }
        Ok(Self { name: name.to_owned(), blocks, prose })
    }

    /// The guide, the README first.
    fn guide() -> Result<Vec<Self>> {
        let mut names = vec![];
        for entry in std::fs::read_dir(root().join("docs"))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push(format!("docs/{}", entry.file_name().to_string_lossy()));
            }
        }
        names.sort();
        let first = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned);
        first.iter().chain(&names).map(|name| Self::read(name)).collect()
    }
}

/// The anchors of the headings of a page, as they are made where Markdown is shown.
fn anchors(prose: &str) -> Vec<String> {
    let mut seen = HashMap::<String, usize>::new();
    let headings = prose.lines().filter_map(|line| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len() && text.starts_with(' ')).then(|| text.trim().to_lowercase())
    });
    let anchor = |heading: String| {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let anchor: String = heading.chars().filter(kept).collect::<String>().replace(' ', "-");
        let before = seen.entry(anchor.clone()).or_default();
        *before += 1;
        if *before == 1 { anchor } else { format!("{anchor}-{}", *before - 1) }
    };
    headings.map(anchor).collect()
}

/// Files of the repository that `prose` names as code, such as `src/lib.rs`.
fn files(prose: &str) -> impl Iterator<Item = &str> {
    let folders = ["src/", "kernels/", "tests/", "benches/", "models/", "docs/"];
    prose.split('`').skip(1).step_by(2).filter(move |code| {
        folders.iter().any(|folder| code.starts_with(folder))
            && !code.contains(['<', '*', '{', ' '])
    })
}

/// What `[text](target)` leads to in `prose`.
fn links(prose: &str) -> impl Iterator<Item = &str> {
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.starts_with("http"))
}

#[test]
fn every_link_and_path_leads_to_a_file_or_a_heading() -> Result<()> {
    let mut pages = Page::guide()?;
    for name in ["CHANGELOG.md", "benches/README.md", "tests/sample/README.md"] {
        pages.push(Page::read(name)?);
    }
    let mut broken = vec![];
    for page in &pages {
        for file in files(&page.prose).filter(|file| !root().join(file).exists()) {
            broken.push(format!("{}: {file}", page.name));
        }
        for link in links(&page.prose) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&page.name).parent().unwrap_or(Path::new(""));
            let target = match file {
                "" => root().join(&page.name),
                _ => root().join(folder).join(file),
            };
            let found = if anchor.is_empty() {
                target.exists()
            } else {
                let prose = Page::read(&target.to_string_lossy()).map(|page| page.prose);
                prose.is_ok_and(|prose| anchors(&prose).iter().any(|a| a == anchor))
            };
            if !found {
                broken.push(format!("{}: {link}", page.name));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    Ok(())
}

#[test]
fn every_block_says_what_it_is_and_settings_are_settings() -> Result<()> {
    for page in Page::guide()? {
        for block in &page.blocks {
            let info = block.info.join(" ");
            match block.info.first().map_or("", String::as_str) {
                "toml" if block.text.contains("[[source]]") => {
                    drop(MixConfig::from_toml(&block.text, &block.place)?);
                }
                "toml" => drop(RunConfig::from_toml(&block.text, &block.place)?),
                "python" | "console" => assert_eq!(block.info.len(), 1, "{}", block.place),
                "text" => assert!(["text", "text output"].contains(&&*info), "{}", block.place),
                "sh" => assert!(["sh", "sh no_run"].contains(&&*info), "{}", block.place),
                other => return Err(format!("{}: a block of `{other}`", block.place).into()),
            }
        }
    }
    Ok(())
}

/// Writes a script that can be run as `name` in `folder`.
fn script(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    Ok(std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?)
}

/// `bash` on `text` in `folder`, with nothing of this process's environment but the CPU as device.
fn bash(folder: &Path, path: &str, text: &str) -> Result<(bool, String)> {
    let text = format!("exec 2>&1; set -euo pipefail\n{text}");
    let output = Command::new("/bin/bash")
        .args(["-c", &text])
        .current_dir(folder)
        .env_clear()
        .envs([("PATH", path), ("HF_HUB_OFFLINE", "1"), ("POLYSIFT_DEVICE", "cpu")])
        .env("HOME", folder)
        .output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

#[test]
fn commands_for_other_machines_have_the_right_flags() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin)?;
    // Every argument is parsed before `--help` takes effect. Commands that are not there succeed.
    let wrong = folder.path().join("wrong");
    let note = format!(r#"|| echo "$0 $*" >>'{}'"#, wrong.display());
    let program = env!("CARGO_BIN_EXE_polysift");
    script(
        &bin,
        "polysift",
        &format!(
            "#!/bin/bash\ngiven=(\"$@\")\nwhile (($#)) && [ \"$1\" != -- ]; do a+=(\"$1\"); shift; done\n\
             set -- \"${{given[@]}}\"\n'{program}' \"${{a[@]}}\" --help >/dev/null {note}\n"
        ),
    )?;
    let make = format!("#!/bin/bash\n/usr/bin/make -qf '{}/Makefile' \"$@\"", root().display());
    script(&bin, "make", &format!("{make} >/dev/null 2>&1; (($? < 2)) {note}\n"))?;
    for page in Page::guide()? {
        for block in &page.blocks {
            let text = if block.is("console", None) {
                block
                    .text
                    .lines()
                    .filter_map(|line| line.strip_prefix("$ "))
                    .fold(String::new(), |text, line| text + line + "\n")
            } else if block.is("sh", Some("no_run")) {
                block.text.clone()
            } else {
                continue;
            };
            let text = format!("command_not_found_handle() {{ return 0; }}\n{text}");
            let (ended, output) = bash(folder.path(), &bin.to_string_lossy(), &text)?;
            assert!(ended, "{}: {output}", block.place);
            let wrong = std::fs::read_to_string(&wrong).unwrap_or_default();
            assert!(wrong.is_empty(), "{}: {wrong}{output}", block.place);
        }
    }
    let (_, output) = bash(folder.path(), &bin.to_string_lossy(), "polysift run --nonsense")?;
    assert!(output.contains("--nonsense") && wrong.exists(), "{output}");
    Ok(())
}

/// Whether `word` is a decimal fraction, which depends on the machine.
fn is_figure(word: &str) -> bool {
    word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || ".:,".contains(c))
}

/// Whether the figures `word` and `pattern` say the same: those of three decimals and more differ between processors by
/// what rounding does.
fn are_alike(word: &str, pattern: &str) -> bool {
    let decimals = pattern.rsplit('.').next().map_or(0, str::len);
    match (word.parse::<f64>(), pattern.parse::<f64>()) {
        (Ok(word), Ok(pattern)) if decimals > 2 => (word - pattern).abs() <= 0.01,
        _ => true,
    }
}

/// Whether `line` has the words that are `expected`, see the head of this file.
fn has_words(line: &[&str], expected: &[&str]) -> bool {
    match (line, expected) {
        ([], []) | (_, ["..."]) => true,
        (_, ["...", rest @ ..]) => (0..=line.len()).any(|skip| has_words(&line[skip..], rest)),
        ([word, line @ ..], [pattern, expected @ ..]) => {
            let alike = word == pattern
                || is_figure(word) && is_figure(pattern) && are_alike(word, pattern)
                || pattern.strip_prefix("...").is_some_and(|end| word.ends_with(end))
                || pattern.strip_suffix("...:").is_some_and(|start| word.starts_with(start));
            alike && has_words(line, expected)
        }
        _ => false,
    }
}

/// Runs the blocks of `page` in `folder`.
fn run(page: &Page, folder: &Path, path: &str) -> Result<()> {
    let mut printed = String::new();
    for block in &page.blocks {
        let file = block.info.iter().find_map(|word| word.strip_prefix("file="));
        if let Some(file) = file {
            std::fs::write(folder.join(file), &block.text)?;
        } else if block.is("sh", None) {
            let (ended, output) = bash(folder, path, &block.text)?;
            if !ended {
                return Err(format!("{}: {output}", block.place).into());
            }
            printed = output;
        } else if block.is("text", Some("output")) {
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
            let lines: Vec<Vec<String>> = printed.lines().map(words).collect();
            for expected in block.text.lines().filter(|line| !line.is_empty()) {
                let expected: Vec<&str> = expected.split_whitespace().collect();
                let found = lines.iter().any(|line| {
                    has_words(&line.iter().map(String::as_str).collect::<Vec<_>>(), &expected)
                });
                if !found {
                    return Err(
                        format!("{}: {expected:?} is not in\n{printed}", block.place).into()
                    );
                }
            }
        }
    }
    Ok(())
}

/// Copies a folder, with links to what its links lead to.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let (path, to) = (entry?.path(), to.to_owned());
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&path)?, to)?;
        } else if path.is_dir() {
            copy(&path, &to)?;
        } else {
            std::fs::copy(&path, to)?;
        }
    }
    Ok(())
}

#[test]
fn commands_of_the_guide_run_and_print_what_it_says() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin)?;
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_polysift"), bin.join("polysift"))?;
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let first = folder.path().join("readme");
    std::fs::create_dir(&first)?;
    std::os::unix::fs::symlink(root().join("tests"), first.join("tests"))?;

    let pages = Page::guide()?;
    let (readme, others) = pages.split_first().ok_or("no pages")?;
    run(readme, &first, &path)?;
    // As many pages at once as there are cores: each embeds little.
    let next = std::sync::Mutex::new(others.iter());
    let take = || next.lock().ok()?.next();
    let work = || -> Result<()> {
        while let Some(page) = take() {
            let own: PathBuf = folder.path().join(page.name.replace('/', "-"));
            copy(&first, &own)?;
            run(page, &own, &path)?;
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism()?.get();
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a panic")?)
    })?;
    Ok(())
}
