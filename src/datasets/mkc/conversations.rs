//! OpenAssistant-2: trees of messages, with one conversation for each chosen leaf.
//! A conversation is a leaf with all messages above it, joined by spaces from the root down. A leaf
//! is a message without replies in the language; the parent of a root is not in the language.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use super::reader::{MkcReader, RowPlace, required_columns};
use crate::SourceCard;
use crate::write::DatasetSample;
use polysift_base::error::{Error, Result};
use polysift_base::sample::{Ranks, key_of};
use polysift_data::input::{ColumnKind, ColumnRequest, InputFile, shown};

const PER_ROOT: usize = 2;

struct Message {
    id: String,
    parent: Option<String>,
    tree: Option<String>,
    text: String,
    path: PathBuf,
    row: u64,
}

/// Reads conversations of each tree as positives; `ranks` chooses two leaves of a tree. Fails with
/// [`Error::Row`] for messages that are their own ancestors.
pub(super) fn load(
    source: &MkcReader<'_>,
    ranks: &Ranks,
    sink: &mut dyn FnMut(DatasetSample),
) -> Result<SourceCard> {
    let (messages, mut card) = read_messages(source)?;
    let by_id: HashMap<&str, usize> =
        messages.iter().enumerate().map(|(at, message)| (message.id.as_str(), at)).collect();
    let parent_of = |message: &Message| by_id.get(message.parent.as_deref()?).copied();
    let parents: Vec<Option<usize>> = messages.iter().map(parent_of).collect();
    let own = find_cycles(&parents).into_iter().map(|at| &messages[at]);
    if let Some(first) = own.clone().min_by_key(|message| (&message.path, message.row)) {
        return Err(Error::Row {
            path: first.path.clone(),
            row: first.row,
            reason: format!("the message {} is its own ancestor", shown(&first.id)),
            count: own.filter(|message| message.path == first.path).count() as u64,
        });
    }
    let answered: HashSet<usize> = parents.iter().flatten().copied().collect();
    let mut leaves: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for at in (0..messages.len()).filter(|at| !answered.contains(at)) {
        if let Some(root) = std::iter::successors(Some(at), |&at| parents[at]).last() {
            leaves.entry(&messages[root].id).or_default().push(at);
        }
    }
    for (root, mut leaves) in leaves {
        leaves.sort_by_key(|&at| ranks.rank_of(key_of("conversation", &[&messages[at].id])));
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
    Ok(card)
}

/// Reads all messages of the language; a repeated id is an error.
fn read_messages(source: &MkcReader<'_>) -> Result<(Vec<Message>, SourceCard)> {
    let mut messages: Vec<Message> = Vec::new();
    let mut known = HashSet::new();
    // A root message may have no column for its parent.
    let optional = |name| ColumnRequest::new(name, ColumnKind::Scalar, false);
    let columns = |_: &InputFile| {
        let optional = ["parent_id", "message_tree_id"].map(optional);
        Ok(Some([required_columns(&["message_id", "text"]), optional.into()].concat()))
    };
    let card = source.read(&columns, &mut |_, place: RowPlace<'_>, row| {
        let id = row.required_text("message_id")?.to_owned();
        let text = row.required_text("text")?.to_owned();
        let [parent, tree] =
            ["parent_id", "message_tree_id"].map(|name| row.text(name).map(ToOwned::to_owned));
        if !known.insert(id.clone()) {
            return Err(format!("the message {} is there twice", shown(&id)));
        }
        let (path, row) = (place.file.path.clone(), place.row + 1);
        messages.push(Message { id, parent, tree, text, path, row });
        Ok(())
    })?;
    Ok((messages, card))
}

/// Returns the messages that are their own ancestors: those that are left when messages without
/// replies are taken away until there is none.
fn find_cycles(parents: &[Option<usize>]) -> Vec<usize> {
    let mut is_taken = vec![false; parents.len()];
    let mut num_replies = vec![0; parents.len()];
    for &parent in parents.iter().flatten() {
        num_replies[parent] += 1;
    }
    for leaf in 0..parents.len() {
        let mut next = Some(leaf);
        while let Some(at) = next.filter(|&at| num_replies[at] == 0 && !is_taken[at]) {
            is_taken[at] = true;
            next = parents[at];
            if let Some(parent) = next {
                num_replies[parent] -= 1;
            }
        }
    }
    (0..parents.len()).filter(|&at| !is_taken[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_told_from_what_hangs_below_it() {
        // 1 is below the root 0; 2, 3, 4 are a cycle with 5 and then 6 below; 7 is its own parent.
        let parents = [None, Some(0), Some(4), Some(2), Some(3), Some(3), Some(5), Some(7)];
        assert_eq!(find_cycles(&parents), [2, 3, 4, 7]);
    }
}
