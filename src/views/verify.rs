//! Verifies a run: no missing, changed or foreign files, consistent counts, recomputed thresholds.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::take;
use std::path::Path;

use rayon::prelude::*;

use polysift_base::error::{Error, Result};
use polysift_base::io::{is_url, stamp};
use polysift_corpus::languages::ALL_LANGUAGES;
use polysift_corpus::mixed::MixedScores;
use polysift_corpus::select::{select_language, stored_selections};
use polysift_corpus::verdicts::{REPORTS, deduplicated, has_reports};
use polysift_corpus::{Cascade, Context, Embedded, Heads, ScoreFiles};
use polysift_data::input::InputFile;
use polysift_remote::{self as remote, ObjectVersion};
use polysift_runs::run::{PartFile, Plan, RunDir, Shard, ShardMarker, Stage};

/// Result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verified {
    /// Number of files with a recomputed digest.
    pub files: u64,
    /// Number of rows that add up over the stages.
    pub rows: u64,
    /// Number of languages with recomputed thresholds.
    pub languages: u64,
    /// Descriptions of what is wrong; empty if all is well.
    pub problems: Vec<String>,
}

/// Verifies every stage of the run that was begun.
pub fn verify(context: Context<'_>) -> Result<Verified> {
    let run = context.run;
    let plan = run.plan()?;
    let mut checks = Checks {
        context,
        begun: Vec::new(),
        incomplete: BTreeSet::new(),
        verified: Verified::default(),
        files: Vec::new(),
    };
    checks.find_begun()?;
    // The input may be gone, but an input that exists has to be the planned one.
    checks.check_all(&plan.shards, |shard| match shard.input() {
        Ok(_) | Err(Error::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    })?;
    for shard in &plan.shards {
        checks.check_shard(shard);
    }
    for stage in [Stage::Train, Stage::Cascade] {
        for key in run.done_keys(stage)? {
            checks.read_marker(stage, &key);
        }
    }
    if let Some(cascade) = checks.note_failure(Cascade::of(context, &plan))?
        && context.config.cascade.is_some()
    {
        // As many documents have to be dropped as when the shard was embedded.
        let shards: Vec<(u64, &Shard)> = (0u64..).zip(&plan.shards).collect();
        checks.check_all(&shards, |&(place, shard)| {
            cascade.left_out_rows(context, place, shard).map(|_| None)
        })?;
    }
    if checks.begun.contains(&Stage::Filter) {
        checks.read_marker(Stage::Filter, REPORTS);
    }
    if checks.begun.contains(&Stage::Deduplicate) {
        let languages = checks.note_failure(Embedded::of(run))?;
        let languages = languages.map(|embedded| embedded.languages()).unwrap_or_default();
        for key in deduplicated(context.config, languages).into_iter().chain([REPORTS.to_owned()]) {
            checks.read_marker(Stage::Deduplicate, &key);
        }
    }
    if checks.begun.contains(&Stage::Export) && has_reports(context.config) {
        checks.read_marker(Stage::Export, REPORTS);
    }
    if checks.begun.contains(&Stage::Refine) {
        checks.check_rounds(&plan)?;
    }
    if checks.begun.contains(&Stage::Threshold) {
        for key in run.done_keys(Stage::Threshold)? {
            checks.read_marker(Stage::Threshold, &key);
        }
        let checked = checks.check_thresholds();
        if checks.note_failure(checked)?.is_none() {
            checks.incomplete.insert(Stage::Threshold);
        }
    }
    checks.find_foreign_files()?;
    let files = take(&mut checks.files);
    checks.verified.files = files.len() as u64;
    let export = &context.config.export;
    let is_sent = export.is_to_hub() && files.iter().any(|file| is_url(&file.path));
    let published =
        export.to.as_deref().filter(|_| is_sent).map(remote::list_published).transpose()?;
    checks.check_all(&files, |file| check_file(context, published.as_ref(), file))?;
    // Several checks may find that one file is missing.
    let mut told = HashSet::new();
    checks.verified.problems.retain(|problem| told.insert(problem.clone()));
    Ok(checks.verified)
}

struct Checks<'a> {
    context: Context<'a>,
    /// Stages with frozen settings; a stage that was begun has to be complete.
    begun: Vec<Stage>,
    /// Stages that may yet add files.
    incomplete: BTreeSet<Stage>,
    verified: Verified,
    files: Vec<PartFile>,
}

impl Checks<'_> {
    /// Finds the stages that were begun; all stages if their settings cannot be read.
    fn find_begun(&mut self) -> Result<()> {
        for stage in Stage::ALL {
            match self.context.run.frozen_settings(stage) {
                Ok(None) => {}
                Ok(Some(_)) => self.begun.push(stage),
                Err(error @ Error::Decode { .. }) => {
                    self.begun = Stage::ALL.to_vec();
                    self.note_problem(error.report());
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !self.begun.contains(&Stage::Embed) {
            self.note_problem("the settings of the embed stage are not there");
        }
        Ok(())
    }

    /// Reads the marker of `key` and adds its files to those to check. If there is none, that is a
    /// problem and the stage is incomplete.
    fn read_marker(&mut self, stage: Stage, key: &str) -> Option<ShardMarker> {
        let problem = match self.context.run.shard_marker(stage, key) {
            Ok(Some(marker)) => {
                self.files.extend(marker.files.iter().cloned());
                return Some(marker);
            }
            Ok(None) => format!("{}: {key} is not done", stage.name()),
            Err(error) => error.report(),
        };
        self.note_problem(problem);
        self.incomplete.insert(stage);
        None
    }

    /// Compares a shard's row counts of all stages with each other and with the exported files.
    fn check_shard(&mut self, shard: &Shard) {
        let context = self.context;
        let Some(embedded) = self.read_marker(Stage::Embed, &shard.name) else { return };
        self.verified.rows += embedded.rows;
        for stage in [Stage::Score, Stage::Refine, Stage::Filter, Stage::Export] {
            let of_head = |head: &String| format!("{head}/{}", shard.name);
            let keys = match stage {
                _ if !self.begun.contains(&stage) => Vec::new(),
                Stage::Score | Stage::Refine => context.config.heads.keys().map(of_head).collect(),
                _ => vec![shard.name.clone()],
            };
            for key in keys {
                let Some(marker) = self.read_marker(stage, &key) else { continue };
                let (stage_name, rows, all) = (stage.name(), marker.rows, embedded.rows);
                if rows != all {
                    self.note_problem(format!(
                        "{stage_name}: {key} accounts for {rows} rows, embed for {all}"
                    ));
                }
                if stage == Stage::Export {
                    self.check_exported_rows(&key, &marker);
                }
            }
        }
    }

    /// Compares the rows of the exported files with the counts of the marker.
    fn check_exported_rows(&mut self, shard: &str, marker: &ShardMarker) {
        let context = self.context;
        let place = context.config.export.place(context.run.root());
        let mut by_folder: BTreeMap<String, u64> = BTreeMap::new();
        for file in marker.files.iter().filter(|file| !file.path.starts_with("audit/")) {
            let path = context.run.located(file);
            let mut below = path.strip_prefix(&place).unwrap_or(&path).iter();
            let reason = match below.next() {
                Some(folder) if folder == "removed" => below.next().unwrap_or_default(),
                _ => "kept".as_ref(),
            };
            *by_folder.entry(reason.to_string_lossy().into_owned()).or_default() += file.rows;
        }
        for (reason, rows) in by_folder {
            let counted = marker.counts.get(&reason).copied().unwrap_or_default();
            if rows != counted {
                self.note_problem(format!(
                    "export: {shard}: {rows} rows of `{reason}` exported, {counted} counted"
                ));
            }
        }
    }

    /// Checks the rounds of the refine stage, the last of which found nothing, and its report.
    fn check_rounds(&mut self, plan: &Plan) -> Result<()> {
        let run = self.context.run;
        self.read_marker(Stage::Refine, ALL_LANGUAGES);
        for round in 0.. {
            let Some(whole) = self.read_marker(Stage::Refine, &RunDir::round_key(round)) else {
                break;
            };
            let mut rows = 0;
            for shard in &plan.shards {
                let key = RunDir::round_shard_key(round, shard);
                if let Some(marker) = run.shard_marker(Stage::Refine, &key)? {
                    rows += marker.rows;
                    self.files.extend(marker.files);
                }
            }
            if rows != whole.rows {
                let all = whole.rows;
                self.note_problem(format!("refine: round {round} scored {rows} rows of {all}"));
            }
            if whole.rows == 0 && round > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Reports files that no marker lists, but not of incomplete stages, which may yet add markers.
    fn find_foreign_files(&mut self) -> Result<()> {
        let run = self.context.run;
        let has_settings = self.note_failure(run.check_settings(None))?.is_some();
        let has_config = run.path("config.toml").exists();
        if !has_config {
            self.note_problem("config.toml: is gone, and with it the settings");
        }
        if !has_settings || !has_config {
            return Ok(()); // without settings, nobody can tell which files are foreign
        }
        let known: HashSet<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        let to = self.context.config.export.to.as_deref().filter(|to| !is_url(to));
        for stage in Stage::ALL.into_iter().filter(|stage| !self.incomplete.contains(stage)) {
            let mut found = self.context.run.stored_files(stage, None)?;
            if let Some(to) = to.filter(|_| stage == Stage::Export) {
                found.extend(self.context.run.stored_files(stage, Some(Path::new(to)))?);
            }
            let foreign = found.into_iter().filter(|path| !known.contains(path.as_str()));
            let problem = |path: String| format!("{path}: nothing of this run wrote it; remove it");
            self.verified.problems.extend(foreign.map(problem));
        }
        Ok(())
    }

    /// Recomputes the thresholds of every language and compares them with the stored ones.
    fn check_thresholds(&mut self) -> Result<()> {
        let (context, run) = (self.context, self.context.run);
        let embedded = Embedded::of(run)?;
        let stored = stored_selections(run, embedded.languages())?;
        let heads = Heads::load(context, &embedded)?;
        let made_with = run.frozen_settings(Stage::Score).ok().flatten();
        if made_with != Some(heads.settings()) {
            self.note_problem("the heads differ from the heads that computed the scores");
        }
        let files = ScoreFiles::selected(context)?;
        let mixed = MixedScores::groups(context, &embedded, files, None);
        for (language, stored) in stored {
            self.verified.languages += 1;
            let selected = mixed.with(&language).and_then(|mixed| {
                select_language(context, &embedded, &heads, &language, files, mixed.as_deref())
            });
            if self.note_failure(selected)?.is_some_and(|recomputed| recomputed != stored) {
                self.note_problem(format!(
                    "{language}: its thresholds do not follow from the scores"
                ));
            }
        }
        Ok(())
    }

    /// Returns what was found, or `None` after noting the error; fails only if the program stops.
    fn note_failure<T>(&mut self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Error::Stopped) => Err(Error::Stopped),
            Err(error) => {
                self.note_problem(error.report());
                Ok(None)
            }
        }
    }

    /// Notes the problems that `check` finds, in order; fails if a store does not answer.
    fn check_all<T: Sync>(
        &mut self,
        all: &[T],
        check: impl Fn(&T) -> Result<Option<String>> + Sync,
    ) -> Result<()> {
        let stop = self.context.stop;
        let of_one = |one: &T| match stop.check().and_then(|()| check(one)) {
            Err(error @ (Error::Stopped | Error::Service { .. })) => Err(error),
            Err(error) => Ok(Some(error.report())),
            found => found,
        };
        let found: Vec<Option<String>> = all.par_iter().map(of_one).collect::<Result<_>>()?;
        self.verified.problems.extend(found.into_iter().flatten());
        Ok(())
    }

    fn note_problem(&mut self, problem: impl Into<String>) {
        self.verified.problems.push(problem.into());
    }
}

/// Returns what is wrong with `file`, by its stamp, and with the rows of exported Parquet. Objects
/// are compared with their store or with the listing `published` of a hub.
fn check_file(
    context: Context<'_>,
    published: Option<&BTreeMap<String, ObjectVersion>>,
    file: &PartFile,
) -> Result<Option<String>> {
    let Context { config, run, .. } = context;
    let is_same = if is_url(&file.path) {
        let gone = || Error::missing(&file.path, "no such object");
        let version = match published {
            Some(published) => published.get(&file.path).cloned().ok_or_else(gone)?,
            None => remote::stat(&file.path)?,
        };
        // For stores without content tags, only the size is compared.
        let is_named_so = file.stamp.etag.is_none() || version.tag == file.stamp.etag;
        version.bytes == file.stamp.bytes && is_named_so
    } else {
        stamp(&run.path(&file.path))? == file.stamp
    };
    if !is_same {
        // Only `--redo cascade` makes a repair again, and the cascade's own check says so.
        let is_local = !is_url(&file.path) && !file.path.starts_with("cascade/repairs/");
        let remedy = if is_local { "; remove it, and `polysift run` makes it again" } else { "" };
        return Ok(Some(format!("{}: changed since it was written{remedy}", file.path)));
    }
    let (path, place) = (run.located(file), config.export.place(run.root()));
    // A hub names a file by its digest, which says more than its footer.
    let is_exported = published.is_none()
        && ["export", "removed"].iter().any(|folder| path.starts_with(place.join(folder)));
    if is_exported && file.path.ends_with(".parquet") {
        let rows = InputFile::at(&path, String::new(), None)?.num_rows()?;
        if rows != file.rows {
            return Ok(Some(format!("{}: holds {rows} rows, not {}", file.path, file.rows)));
        }
    }
    Ok(None)
}
