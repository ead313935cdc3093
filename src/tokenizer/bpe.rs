//! Byte-pair encoding of text that is not split into words, as in Gemma.
//!
//! A merge joins two adjacent symbols, so the last character of its left part and the first
//! character of its right part are adjacent in the text. A place between two characters that no
//! merge joins like this is a **seam**: no merge ever crosses it. Merges are applied by rank, then
//! from left to right, and those on one side of a seam never see the other side. So the ids of a
//! text are the ids of its stretches between seams, one after the other. Most stretches are words
//! or parts of words, and occur again.
//!
//! This holds where every symbol stands for its own text. The byte symbols of characters missing in
//! the vocabulary stand for other text, so a model that merges them is refused. A model without
//! byte symbols is refused too, because adjacent characters may become one unknown token.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foldhash::fast::FixedState;
use serde::Deserialize;
use tokenizers::models::bpe::BPE;

use super::charmap::{META, TABLE_LEN};

/// Id of no symbol, and rank of no merge.
const NONE: u32 = u32::MAX;
/// log2 of the number of bits that say which characters may be joined: 128 KiB.
const PAIR_BITS: u32 = 20;
/// Unused ids that are allowed besides one per token.
const MOST_GAPS: usize = 1 << 16;
/// Maximum symbols in a stretch whose next merge is found by scanning all of them.
const SHORT: usize = if cfg!(test) { 6 } else { 32 };

pub(super) struct Bpe {
    /// Symbols of the characters of the Basic Multilingual Plane; [`NONE`] without one.
    table: Vec<u32>,
    /// Symbols of all other characters.
    beyond: HashMap<char, u32>,
    /// Symbols of the bytes, which stand for characters without a symbol.
    bytes: [u32; 256],
    /// Set of hashed pairs of characters that some merge joins. A pair that shares a bit with one
    /// counts as a member, which makes a stretch longer and changes no id.
    pairs: Vec<u64>,
    merges: HashMap<(u32, u32), Merge, FixedState>,
}

/// The merges by rank, as the crate serializes them.
#[derive(Deserialize)]
struct RankedMerges {
    merges: Vec<(String, String)>,
}

impl Bpe {
    /// Converts `model`, or says why the engine does not support it.
    pub(crate) fn from_crate(model: &BPE) -> Result<Self, &'static str> {
        let is_set = |part: &Option<String>| part.as_deref().is_some_and(|text| !text.is_empty());
        if model.dropout.is_some_and(|share| share > 0.0) || model.ignore_merges {
            return Err("it is BPE that drops or ignores merges");
        }
        if is_set(&model.continuing_subword_prefix) || is_set(&model.end_of_word_suffix) {
            return Err("it is BPE that marks parts of words");
        }
        let vocabulary = model.get_vocab();
        let mut ids: Vec<u32> = vocabulary.values().copied().collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) || ids.last() == Some(&NONE) {
            return Err("it is BPE with two tokens of one id");
        }
        // The crate serializes as many entries as its largest id.
        if ids.last().is_some_and(|&last| last as usize >= MOST_GAPS + 2 * ids.len()) {
            return Err("it is BPE with ids far apart");
        }
        let id = |text: &str| vocabulary.get(text).copied();
        let bytes = std::array::from_fn(|byte| id(&format!("<{byte:#04X}>")).unwrap_or(NONE));
        let is_missing = |byte: u8| {
            let is_character =
                byte.is_ascii() && id(char::from(byte).encode_utf8(&mut [0; 4])).is_some();
            bytes[usize::from(byte)] == NONE && !is_character
        };
        if !model.byte_fallback || (0..=u8::MAX).any(is_missing) {
            return Err("it is BPE without tokens for bytes");
        }
        let json = serde_json::to_vec(model).map_err(|_| "its merges cannot be read")?;
        let ranked: RankedMerges =
            serde_json::from_slice(&json).map_err(|_| "its merges cannot be read")?;
        drop(json);
        let mut bpe = Self {
            table: vec![NONE; TABLE_LEN as usize],
            beyond: HashMap::new(),
            bytes,
            pairs: vec![0; 1 << (PAIR_BITS - u64::BITS.ilog2())],
            merges: HashMap::with_capacity_and_hasher(ranked.merges.len(), FixedState::default()),
        };
        for (text, &id) in &vocabulary {
            let mut chars = text.chars();
            let (Some(c), None) = (chars.next(), chars.next()) else { continue };
            match bpe.table.get_mut(c as usize) {
                Some(entry) => *entry = id,
                None => {
                    bpe.beyond.insert(c, id);
                }
            }
        }
        let is_byte = |text: &str, id: u32| text.starts_with("<0x") && bytes.contains(&id);
        for (rank, (left, right)) in ranked.merges.iter().enumerate() {
            let whole = [left.as_str(), right].concat();
            let (Some(a), Some(b), Some(whole)) = (id(left), id(right), id(&whole)) else {
                return Err("its merges cannot be read");
            };
            let (Some(last), Some(first)) = (left.chars().last(), right.chars().next()) else {
                return Err("it is BPE that merges nothing with something");
            };
            if is_byte(left, a) || is_byte(right, b) {
                return Err("it is BPE that merges bytes");
            }
            let bit = pair_bit(last, first);
            bpe.pairs[bit / 64] |= 1 << (bit % 64);
            bpe.merges.insert((a, b), Merge { rank: rank as u32, whole });
        }
        Ok(bpe)
    }

    /// Returns true if a merge may join symbols that end with `last` and begin with `first`.
    #[inline]
    pub(super) fn may_join(&self, last: char, first: char) -> bool {
        let bit = pair_bit(last, first);
        self.pairs[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Returns the merge of two adjacent symbols; [`NO_MERGE`] if there is none.
    #[inline]
    fn find_merge(&self, left: u32, right: u32) -> Merge {
        self.merges.get(&(left, right)).copied().unwrap_or(NO_MERGE)
    }

    /// Passes the symbols of a character to `take`: one, or those of its bytes.
    #[inline]
    pub(super) fn pass_symbols(&self, c: char, mut take: impl FnMut(u32)) {
        let id = match self.table.get(c as usize) {
            Some(&id) => id,
            None => self.beyond.get(&c).copied().unwrap_or(NONE),
        };
        if id == NONE {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| take(self.bytes[usize::from(byte)]));
        } else {
            take(id);
        }
    }
}

/// Returns the character as the model gets it: [`META`] for a space.
#[inline]
pub(super) fn space_to_meta(c: char) -> char {
    if c == ' ' { META } else { c }
}

/// Returns the index of the bit in [`Bpe::pairs`] that a pair of characters hashes to.
#[inline]
fn pair_bit(last: char, first: char) -> usize {
    let pair = u64::from(u32::from(last)) << 32 | u64::from(u32::from(first));
    (pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - PAIR_BITS)) as usize
}

/// The result and the rank of a merge; the lowest rank is applied first.
#[derive(Debug, Clone, Copy)]
struct Merge {
    rank: u32,
    whole: u32,
}

const NO_MERGE: Merge = Merge { rank: NONE, whole: NONE };

#[derive(Debug, Clone, Copy)]
struct Symbol {
    id: u32,
    /// Merge with the next symbol.
    merge: Merge,
    /// Neighbours; [`NONE`] at the ends.
    previous: u32,
    next: u32,
}

const GONE: Symbol = Symbol { id: NONE, merge: NO_MERGE, previous: NONE, next: NONE };

/// The symbols of a stretch while they are merged.
#[derive(Default)]
pub(super) struct Symbols {
    list: Vec<Symbol>,
    /// Ranks of merges and the places of their left symbols.
    queue: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Symbols {
    /// Frees the memory that an unusually long stretch used.
    pub(super) fn shrink_to(&mut self, kept: usize) {
        self.list.clear();
        self.queue.clear();
        self.list.shrink_to(kept);
        self.queue.shrink_to(kept);
    }

    /// Appends the ids of `stretch` to `ids`; earlier symbols are forgotten.
    pub(super) fn encode(&mut self, stretch: &str, model: &Bpe, ids: &mut Vec<u32>) {
        self.list.clear();
        let mut take = |id| {
            let previous = (self.list.len() as u32).wrapping_sub(1);
            if let Some(last) = self.list.last_mut() {
                last.merge = model.find_merge(last.id, id);
                last.next = previous.wrapping_add(1);
            }
            self.list.push(Symbol { id, previous, ..GONE });
        };
        stretch.chars().for_each(|c| model.pass_symbols(space_to_meta(c), &mut take));
        self.apply_merges(model);
        ids.extend(self.list.iter().map(|symbol| symbol.id).filter(|&id| id != NONE));
    }

    /// Applies merges until none is left. Symbols that became part of the one before them are
    /// [`GONE`]. The next merge comes from a queue, or from a scan of all symbols if they are few.
    fn apply_merges(&mut self, model: &Bpe) {
        let Self { list, queue } = self;
        let is_short = list.len() <= SHORT;
        queue.clear();
        if !is_short {
            let ranked = list.iter().map(|symbol| symbol.merge.rank).zip(0..);
            queue.extend(ranked.filter(|merge| merge.0 != NONE).map(Reverse));
        }
        loop {
            let first = if is_short {
                list.iter().map(|symbol| symbol.merge.rank).zip(0..).min()
            } else {
                queue.pop().map(|Reverse(merge)| merge)
            };
            let Some((rank, place)) = first.filter(|merge| merge.0 != NONE) else { return };
            let left = list[place as usize];
            // A pair has one rank, so another rank belongs to a pair that was here before.
            if left.merge.rank != rank {
                continue;
            }
            let next = std::mem::replace(&mut list[left.next as usize], GONE).next;
            list[place as usize] = Symbol { id: left.merge.whole, next, ..left };
            if let Some(following) = list.get_mut(next as usize) {
                following.previous = place;
            }
            for (a, b) in [(left.previous, place), (place, next)] {
                if a == NONE {
                    continue;
                }
                let id = list.get(b as usize).map_or(NONE, |symbol| symbol.id);
                let merge = model.find_merge(list[a as usize].id, id);
                list[a as usize].merge = merge;
                if !is_short && merge.rank != NONE {
                    queue.push(Reverse((merge.rank, a)));
                }
            }
        }
    }
}
