//! OpenAssistant-2: trees of messages, from which conversations are taken leaf by leaf.
//!
//! A conversation is a leaf with all messages above it, joined by spaces from the root down. A leaf
//! is a message without replies in the language; a root is one whose parent is not in the language.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use super::files::{Columns, Place, Rejected, Source};
use crate::dataset::key::{Ranks, key_of};
use crate::dataset::{Sample, SourceCard};
use crate::error::{Error, Result};
use crate::input::{TableFile, TableRow};

/// Most conversations of one root.
const PER_ROOT: usize = 2;

struct Message {
    id: String,
    parent: Option<String>,
    tree: Option<String>,
    text: String,
    path: PathBuf,
    row: u64,
}

/// Conversations of every tree, as positives; `ranks` chooses those of a tree.
pub(super) fn load(
    source: &Source<'_>,
    ranks: &Ranks,
    card: &mut SourceCard,
    sink: &mut dyn FnMut(Sample),
) -> Result<()> {
    let (messages, rejected) = messages(source, card)?;
    let by_id: HashMap<&str, usize> =
        messages.iter().enumerate().map(|(at, message)| (message.id.as_str(), at)).collect();
    let parent_of = |at: usize| -> Option<usize> {
        messages[at].parent.as_deref().and_then(|parent| by_id.get(parent).copied())
    };
    let parents: Vec<Option<usize>> = (0..messages.len()).map(parent_of).collect();
    let walks = walks(&parents);
    set_aside(source, &messages, &walks, &rejected, card)?;
    let has_root = |at: &usize| matches!(walks[*at], Walk::Root(_));
    let answered: HashSet<usize> = parents.iter().flatten().copied().filter(has_root).collect();
    let mut leaves: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, walk) in walks.iter().enumerate().filter(|(at, _)| !answered.contains(at)) {
        if let Walk::Root(root) = walk {
            leaves.entry(&messages[*root].id).or_default().push(at);
        }
    }
    for (root, mut leaves) in leaves {
        leaves.sort_by_key(|&at| ranks.of(key_of("conversation", &[&messages[at].id])));
        card.drop_rows("leaf beyond two of a tree", leaves.len().saturating_sub(PER_ROOT) as u64);
        for at in leaves.into_iter().take(PER_ROOT) {
            let path = std::iter::successors(Some(at), |&at| parents[at]);
            let mut texts: Vec<&str> = path.map(|at| messages[at].text.as_str()).collect();
            texts.reverse();
            let Message { id, tree, .. } = &messages[at];
            let group = key_of("tree", &[tree.as_deref().unwrap_or(root)]);
            sink(source.sample(format!("{}/{id}", source.kind.name), texts.join(" "), group));
        }
    }
    card.drop_rows("message inside a conversation", answered.len() as u64);
    Ok(())
}

/// All messages of the language, and the rows of each file that were rejected.
fn messages(source: &Source<'_>, card: &mut SourceCard) -> Result<(Vec<Message>, Rejected)> {
    let mut messages: Vec<Message> = Vec::new();
    let mut known = HashSet::new();
    // A message at the root may lack its parent altogether.
    let columns = |_: &TableFile| {
        let optional = vec!["parent_id", "message_tree_id"];
        Ok(Some(Columns { required: vec!["message_id", "text"], optional }))
    };
    let rejected =
        source.read(card, &columns, &mut |_, place: Place<'_>, mut row: TableRow<'_>| {
            let id = row.required_text("message_id")?;
            let text = row.required_text("text")?;
            let parent = row.text("parent_id")?;
            let tree = row.text("message_tree_id")?;
            if !known.insert(id.clone()) {
                return Err(format!("the message {id:.60?} is there twice"));
            }
            let (path, row) = place.file_and_row();
            messages.push(Message { id, parent, tree, text, path: path.to_owned(), row });
            Ok(())
        })?;
    Ok((messages, rejected))
}

/// Where the way up from a message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    /// At this message, which has no parent.
    Root(usize),
    /// Nowhere: the message is its own ancestor.
    Cycle,
    /// In a cycle above the message.
    BelowCycle,
}

/// Walks up from every message.
fn walks(parents: &[Option<usize>]) -> Vec<Walk> {
    let mut walks: Vec<Option<Walk>> = vec![None; parents.len()];
    let mut walked_from = vec![usize::MAX; parents.len()];
    for start in 0..parents.len() {
        let mut path = Vec::new();
        let mut at = start;
        let end = loop {
            if let Some(walk) = walks[at] {
                break if walk == Walk::Cycle { Walk::BelowCycle } else { walk };
            }
            if walked_from[at] == start {
                let begin = path.iter().position(|&member| member == at).unwrap_or_default();
                for member in path.drain(begin..) {
                    walks[member] = Some(Walk::Cycle);
                }
                break Walk::BelowCycle;
            }
            walked_from[at] = start;
            path.push(at);
            match parents[at] {
                Some(parent) => at = parent,
                None => break Walk::Root(at),
            }
        };
        for at in path {
            walks[at] = Some(end);
        }
    }
    walks.into_iter().flatten().collect()
}

/// Sets aside the trees with a cycle: its messages are rejected rows of their files, what hangs below
/// is left out with them.
///
/// # Errors
/// [`Error::Row`] for a file that has more of them, with its `rejected` rows, than are allowed.
fn set_aside(
    source: &Source<'_>,
    messages: &[Message],
    walks: &[Walk],
    rejected: &Rejected,
    card: &mut SourceCard,
) -> Result<()> {
    let of = |wanted: Walk| messages.iter().zip(walks).filter(move |(_, walk)| **walk == wanted);
    let mut by_file: BTreeMap<&PathBuf, Vec<&Message>> = BTreeMap::new();
    for (message, _) in of(Walk::Cycle) {
        by_file.entry(&message.path).or_default().push(message);
    }
    for (path, members) in &by_file {
        let others = rejected.get(*path).copied().unwrap_or_default();
        let first = members.iter().min_by_key(|message| message.row);
        if let Some(first) = first
            && members.len() as u64 + others > source.max_rejects
        {
            return Err(Error::Row {
                path: (*path).clone(),
                row: first.row,
                reason: format!("the message {:.60?} is its own ancestor", first.id),
                count: members.len() as u64,
            });
        }
    }
    card.drop_rows("message that is its own ancestor", of(Walk::Cycle).count() as u64);
    card.drop_rows("message below such a one", of(Walk::BelowCycle).count() as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_told_from_what_hangs_below_it() {
        use Walk::{BelowCycle, Cycle, Root};
        // 0 is a root with 1 below; 2, 3 and 4 are a cycle with 5 and, below that, 6; 7 is its own parent.
        let parents = [None, Some(0), Some(4), Some(2), Some(3), Some(3), Some(5), Some(7)];
        let expected = [Root(0), Root(0), Cycle, Cycle, Cycle, BelowCycle, BelowCycle, Cycle];
        assert_eq!(walks(&parents), expected);
        // The same whatever comes first: 0 hangs below the cycle of 1 and 2.
        assert_eq!(walks(&[Some(1), Some(2), Some(1)]), [BelowCycle, Cycle, Cycle]);
    }
}
