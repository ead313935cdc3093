//! Corpora, the program, and what several tests ask of a run directory.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Result of a test; `?` carries any failure out.
pub(crate) type TestResult = Result<(), Box<dyn Error>>;

/// The folder of the sources, or the one that `POLYSIFT_ROOT` names where the tests were carried to
/// another machine (`benches/gpu/bundle.sh`).
pub(crate) fn root() -> PathBuf {
    std::env::var_os("POLYSIFT_ROOT").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), Into::into)
}

/// The program on the CPU, with nothing of the caller's environment that could change what it does.
pub(crate) fn polysift() -> Command {
    let carried =
        std::env::var_os("POLYSIFT_ROOT").map(|root| PathBuf::from(root).join("bin/polysift"));
    let mut command =
        Command::new(carried.unwrap_or_else(|| env!("CARGO_BIN_EXE_polysift").into()));
    for name in [
        "RUST_LOG",
        "POLYSIFT_RUN",
        "POLYSIFT_THREADS",
        "POLYSIFT_TASK",
        "POLYSIFT_NUM_TASKS",
        "SLURM_JOB_ID",
        "SLURM_ARRAY_TASK_ID",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
    ] {
        command.env_remove(name);
    }
    command.env("POLYSIFT_DEVICE", "cpu");
    command
}

/// A part of a URL with every `%` and its two digits replaced by their byte.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Numbers that look random and are the same at every run (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % n.max(1) as u64) as usize
    }
}

/// Words of two kinds of text, so that a head has something to learn.
const KNOWLEDGE: [&str; 8] =
    ["theorem", "energy", "cell", "century", "equation", "river", "empire", "molecule"];
const WEB: [&str; 8] = ["buy", "cheap", "click", "shipping", "login", "sale", "cookies", "price"];

/// Document `i` of a made-up corpus: knowledge-rich for multiples of three, web-like otherwise.
pub(crate) fn text(i: usize) -> String {
    let words = if i.is_multiple_of(3) { KNOWLEDGE } else { WEB };
    let chosen: Vec<&str> = (0..6 + i % 5).map(|j| words[(i * 7 + j * 3) % words.len()]).collect();
    format!("{} {i}", chosen.join(" "))
}

/// A folder with a corpus in two languages, labelled samples and `run.toml`.
pub(crate) struct Workspace {
    pub(crate) dir: TempDir,
}

/// Settings of [`Workspace::with_near_duplicates`].
pub(crate) const NEAR_SETTINGS: &str = "
[input]
files = ['near/{lang}.jsonl']
embeddings = 'vectors'
max_shard_bytes = 20000
[parts]
rows = 16
[heads.quality]
kind = 'column'
score = 'grade'
[languages._default]
retention = { quality = 1 }
[export]
keep_removed = true
[filters.requests]
kind = 'ids'
lists = ['near/removed.txt']
[filters.near]
kind = 'embeddings'
similarity = 0.94
";

impl Workspace {
    /// With an encoder whose embeddings mean little, and which is loaded in a thirtieth of the bundled one's time.
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let model = root().join("tests/golden/encoder/head16-prefixed");
        Self::with_settings(&format!("[encoder]\nmodel = '{}'\n", model.display()))
    }

    /// For tests in which embeddings have to mean something, or to take time.
    pub(crate) fn with_bundled_encoder() -> Result<Self, Box<dyn Error>> {
        Self::with_settings("")
    }

    /// Two languages with embeddings and near duplicates, of tests/golden/near.py.
    pub(crate) fn with_near_duplicates() -> Result<Self, Box<dyn Error>> {
        let work = Self::new()?;
        let golden = root().join("tests/golden/near");
        for name in ["deu_Latn.jsonl", "fra_Latn.jsonl", "removed.txt"] {
            work.write(&format!("near/{name}"), std::fs::read(golden.join(name))?)?;
        }
        work.write("run.toml", NEAR_SETTINGS)?;
        Ok(work)
    }

    fn with_settings(encoder: &str) -> Result<Self, Box<dyn Error>> {
        let workspace = Self { dir: tempfile::tempdir()? };
        for (language, documents) in [("fra_Latn", 40), ("deu_Latn", 25)] {
            let rows = (0..documents).map(|i| match i {
                7 => json!({"id": format!("{language}-{i}"), "text": null, "n": i}),
                8 => json!({"id": format!("{language}-{i}"), "text": "  \n", "n": i}),
                _ => json!({"id": format!("{language}-{i}"), "text": text(i), "n": i}),
            });
            workspace.write_lines(&format!("corpus/{language}/a.jsonl"), rows)?;
            let samples = (100..160).map(|i| {
                let label = if i % 3 == 0 { "positive" } else { "negative" };
                json!({"id": format!("s{i}"), "text": text(i), "label": label})
            });
            workspace.write_lines(&format!("samples/{language}.jsonl"), samples)?;
        }
        workspace.write(
            "run.toml",
            format!(
                "{encoder}[input]\nfiles = ['corpus/{{lang}}/*.jsonl']\n\
                 [parts]\nrows = 16\n\
                 [heads.quality]\ntrain = ['samples/{{lang}}.jsonl']\n\
                 [heads.quality.training]\nbatch_size = 16\nepochs = 6\nweight_decay = 0.01\n\
                 [languages._default]\nretention = {{ quality = [0.1, 0.33] }}\n"
            ),
        )?;
        Ok(workspace)
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    pub(crate) fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> TestResult {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().ok_or("no parent")?)?;
        Ok(std::fs::write(path, content)?)
    }

    pub(crate) fn write_lines(
        &self,
        relative: &str,
        rows: impl Iterator<Item = Value>,
    ) -> TestResult {
        let lines: Vec<String> = rows.map(|row| row.to_string()).chain([String::new()]).collect();
        self.write(relative, lines.join("\n"))
    }

    /// Labelled samples of toxicity, for French only, in `toxic/{lang}.jsonl`; the settings know only how long to
    /// learn from them, not that a head does.
    pub(crate) fn write_toxicity_samples(&self) -> TestResult {
        let settings = std::fs::read_to_string(self.path("run.toml"))?;
        let training = "[heads.toxicity.training]\nbatch_size = 16\nepochs = 6\n";
        let languages = "[languages._default]";
        let settings = settings.replace(languages, &format!("{training}{languages}"));
        self.write("run.toml", settings)?;
        let samples = (100..160).map(|i| {
            let label = if i % 2 == 0 { "toxic" } else { "nontoxic" };
            json!({"id": format!("t{i}"), "text": text(i), "label": label})
        });
        self.write_lines("toxic/fra_Latn.jsonl", samples)
    }

    /// The filters of [`Workspace::add_filters`], and one for near duplicates.
    pub(crate) fn add_all_filters(&self) -> TestResult {
        self.add_filters()?;
        let settings = std::fs::read_to_string(self.path("run.toml"))?;
        let near = "[filters.near]\nkind = 'embeddings'\nsimilarity = 0.99\nhead = 'quality'\n";
        self.write("run.toml", settings + near)
    }

    /// A filter before the thresholds, one after them, and one that flags.
    pub(crate) fn add_filters(&self) -> TestResult {
        let requests = "# withdrawn\nfra_Latn-3\nfra_Latn-7\ndeu_Latn-12\n";
        self.write("lists/requests.txt", requests)?;
        let kept = (0..40).filter(|i| i % 4 > 0).map(|i| json!({"id": format!("fra_Latn-{i}")}));
        self.write_lines("lists/fra_Latn.jsonl", kept)?;
        let settings = std::fs::read_to_string(self.path("run.toml"))?;
        let filters = "[filters.requests]\nkind = 'ids'\nlists = ['lists/requests.txt']\n\
                       [filters.known]\nkind = 'ids'\nlists = ['lists/{lang}.jsonl']\nmode = 'include'\n\
                       when = 'after'\nlanguages = ['fra_Latn']\n\
                       [filters.noted]\nkind = 'ids'\nlists = ['lists/requests.txt']\naction = 'flag'\n\
                       mode = 'include'\n";
        self.write("run.toml", settings + filters)
    }

    /// `polysift COMMAND -c run.toml --run RUN`, in the workspace.
    pub(crate) fn command(&self, command: &str, run: &str) -> Command {
        let mut polysift = polysift();
        polysift.current_dir(self.dir.path()).args([command, "-c", "run.toml", "--run", run]);
        polysift
    }

    /// What `run` was frozen with, by stage.
    pub(crate) fn frozen(&self, run: &str) -> Result<Value, Box<dyn Error>> {
        let mut frozen = json!({});
        for entry in std::fs::read_dir(self.path(run).join("frozen"))? {
            let path = entry?.path();
            let stage = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            frozen[stage] = serde_json::from_slice(&std::fs::read(&path)?)?;
        }
        Ok(frozen)
    }

    /// Lets it look as if `run` was frozen with `settings`.
    pub(crate) fn freeze(&self, run: &str, settings: &Value) -> TestResult {
        for (stage, settings) in settings.as_object().ok_or("no stages")? {
            self.write(&format!("{run}/frozen/{stage}.json"), settings.to_string())?;
        }
        Ok(())
    }

    /// What Chromium makes of the page that `polysift report` wrote into `folder`, in a state such as
    /// `#quality=0.2`; `None` without Chromium, which is said.
    #[expect(clippy::print_stderr, reason = "a skipped test says so")]
    pub(crate) fn page(&self, folder: &str, state: &str) -> Option<String> {
        let page = format!("file://{}/index.html{state}", self.path(folder).display());
        let profile = format!("--user-data-dir={}", self.path("chromium").display());
        let output = std::process::Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
            .args(["--virtual-time-budget=20000", &profile, &page])
            .output();
        if output.is_err() {
            eprintln!("chromium is not installed: the page is not opened");
        }
        output.ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub(crate) fn json(&self, relative: &str) -> Result<Value, Box<dyn Error>> {
        Ok(serde_json::from_slice(&std::fs::read(self.path(relative))?)?)
    }
}

/// How the page of a report shows that exactly so many documents of a language stay.
pub(crate) fn page_cell(language: &str, documents: u64) -> String {
    format!(
        "data-language=\"{language}\" data-quantity=\"documents\" data-exact=\"true\" data-value=\"{documents}\""
    )
}

/// Digest of every file below `root` by relative path, but of the note that tasks share a run, which is no result.
pub(crate) fn digests(root: &Path) -> Result<BTreeMap<String, String>, Box<dyn Error>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root)?.display().to_string();
                if name == "state/tasks" {
                    continue;
                }
                found.insert(name, blake3::hash(&std::fs::read(&path)?).to_hex().to_string());
            }
        }
    }
    Ok(found)
}

/// All rows of a Parquet file as one batch.
pub(crate) fn read_parquet(
    path: &Path,
) -> Result<arrow::record_batch::RecordBatch, Box<dyn Error>> {
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    let file = std::fs::File::open(path)?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)?;
    let schema = builder.schema().clone();
    let batches = builder.build()?.collect::<Result<Vec<_>, _>>()?;
    Ok(arrow::compute::concat_batches(&schema, &batches)?)
}
