//! Groups of languages that share shards, with data that is read for a whole group.
//!
//! Languages are done one by one. If each of 1,000 languages read the shards that hold all of them,
//! these would be read 1,000 times, so they are read once for as many languages as fit in memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::Embedded;
use crate::embedded::grouped;
use polysift_base::error::Result;
use polysift_base::panics::lock;

/// Reads the data of a group of sorted languages.
type ReadGroup<'a, T> = dyn Fn(&[&str]) -> Result<T> + Sync + 'a;

/// Groups of the languages in shards with several languages; the data `T` of one is in memory.
pub struct LanguageGroups<'a, T> {
    groups: Vec<Vec<&'a str>>,
    read: Box<ReadGroup<'a, T>>,
    held: Mutex<Option<(usize, Arc<T>)>>,
}

impl<'a, T> LanguageGroups<'a, T> {
    /// Makes groups of at most `most` documents, for which `read` reads the data. Languages with
    /// more documents are in no group, nor are those that share no shard.
    pub fn new(
        embedded: &'a Embedded,
        most: u64,
        read: impl Fn(&[&str]) -> Result<T> + Sync + 'a,
    ) -> Self {
        let mixed = embedded.summaries.iter().filter(|summary| summary.counts.len() > 1);
        let mixed: BTreeSet<&str> =
            mixed.flat_map(|summary| summary.counts.keys()).map(String::as_str).collect();
        let counts = embedded.num_documents().into_iter();
        let counts = counts.filter(|(language, count)| *count <= most && mixed.contains(language));
        let groups = grouped(counts, most);
        Self { groups, read: Box::new(read), held: Mutex::default() }
    }

    /// Returns true if there are no groups.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the data of the group of `language`, if it is in one, and reads them if another
    /// group is in memory. Threads of a pool must not call this at once: one that waits would keep
    /// `read` from the pool.
    pub fn with(&self, language: &str) -> Result<Option<Arc<T>>> {
        let Some(at) = self.groups.iter().position(|group| group.contains(&language)) else {
            return Ok(None);
        };
        let mut held = lock(&self.held);
        if let Some((_, data)) = held.as_ref().filter(|(group, _)| *group == at) {
            return Ok(Some(Arc::clone(data)));
        }
        *held = None; // frees the memory first
        let data = Arc::new((self.read)(&self.groups[at])?);
        *held = Some((at, Arc::clone(&data)));
        Ok(Some(data))
    }
}
