//! What is read of an object ahead of its use.
//!
//! A reader of several columns is several streams: each goes through ranges of the object in its own
//! order. They are cut into windows; of every stream the window in use and the next one are in
//! memory or on their way. Windows of different streams that lie close together come in one request.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::object::{LARGEST_WINDOW, Object, Transfer};
use polysift_base::error::Result;

/// Bytes of one object that all windows may take together.
pub(super) const AHEAD_BYTES: u64 = 32 << 20;

/// Smallest window in bytes, which counts with more streams than fit.
const SMALLEST_WINDOW: u64 = 64 << 10;

/// Most windows that are laid out at once, whatever size is claimed: 512 GiB of one range.
const MAX_WINDOWS: usize = 1 << 16;

/// Bytes between two windows that are fetched and thrown away to save a request.
const GAP_BYTES: u64 = 128 << 10;

/// The windows of an object.
#[derive(Debug)]
pub(super) struct Windows {
    object: Object,
    /// Stream after stream, each in the order of its use.
    all: Vec<ReadWindow>,
    /// Their places, by where they begin in the object.
    by_start: Vec<usize>,
    /// By stream: the window in use; those before it are not needed any more.
    current: Vec<usize>,
    fetches: Vec<Fetch>,
    /// Most windows that are laid out at once.
    limit: usize,
    /// What of the ranges was not laid out.
    rest: Range<u64>,
}

#[derive(Debug)]
struct ReadWindow {
    range: Range<u64>,
    stream: usize,
    fetch: usize,
}

/// One request.
#[derive(Debug)]
struct Fetch {
    range: Range<u64>,
    /// Windows that may still be used.
    pending: usize,
    state: FetchState,
}

#[derive(Debug)]
enum FetchState {
    Idle,
    Running(Transfer),
    Here(Bytes),
    Gone,
}

impl Windows {
    /// The windows of `streams` of ranges; what lies outside the object is left out.
    pub(super) fn new(object: Object, streams: &[Vec<Range<u64>>]) -> Self {
        Self::limited(object, streams, MAX_WINDOWS)
    }

    /// The first `limit` windows of them.
    pub(super) fn limited(object: Object, streams: &[Vec<Range<u64>>], limit: usize) -> Self {
        let window_bytes = AHEAD_BYTES / (2 * streams.len().max(1)) as u64;
        let window_bytes = window_bytes.clamp(SMALLEST_WINDOW, LARGEST_WINDOW);
        let (mut all, mut current, mut rest) = (Vec::new(), Vec::new(), 0..0);
        for (stream, ranges) in streams.iter().enumerate() {
            current.push(all.len());
            for range in ranges {
                let end = range.end.min(object.len());
                let room = (limit - all.len()) as u64 * window_bytes;
                let laid_out = end.min(range.start.saturating_add(room));
                for start in (range.start..laid_out).step_by(window_bytes as usize) {
                    let range = start..laid_out.min(start + window_bytes);
                    all.push(ReadWindow { range, stream, fetch: 0 });
                }
                if laid_out < end {
                    rest = laid_out..end;
                }
            }
        }
        let mut by_start: Vec<usize> = (0..all.len()).collect();
        by_start.sort_by_key(|&window| all[window].range.start);
        let fetches = fetches(&mut all, &by_start, window_bytes);
        Self { object, all, by_start, current, fetches, limit, rest }
    }

    /// The object.
    pub(super) fn object(&self) -> &Object {
        &self.object
    }

    /// The `length` bytes at `offset`, which lie in the object.
    pub(super) fn bytes(&mut self, offset: u64, length: usize) -> Result<Bytes> {
        let first = self.some_bytes(offset, length)?;
        if first.len() == length {
            return Ok(first);
        }
        let mut all = BytesMut::with_capacity(length.min(LARGEST_WINDOW as usize));
        all.extend_from_slice(&first);
        while all.len() < length {
            let more = self.some_bytes(offset + all.len() as u64, length - all.len())?;
            all.extend_from_slice(&more);
        }
        Ok(all.freeze())
    }

    /// At least one and at most `most` bytes at `offset`; where nothing was announced, only so many
    /// are asked for.
    pub(super) fn some_bytes(&mut self, offset: u64, most: usize) -> Result<Bytes> {
        if self.rest.contains(&offset) {
            let rest = offset..self.rest.end;
            *self = Self::limited(self.object.clone(), &[vec![rest]], self.limit);
        }
        let end = self.object.len().min(offset.saturating_add(most as u64));
        let next = self.by_start.partition_point(|&i| self.all[i].range.start <= offset);
        let window = next.checked_sub(1).map(|last| self.by_start[last]);
        let Some(window) = window.filter(|&i| offset < self.all[i].range.end) else {
            let after = self.by_start.get(next);
            let end = after.map_or(end, |&after| end.min(self.all[after].range.start));
            return self.object.read(offset..end);
        };
        self.enter(window)?;
        let ReadWindow { range, fetch, .. } = &self.all[window];
        let (end, fetch) = (end.min(range.end), *fetch);
        match self.arrived(fetch)? {
            Some((start, bytes)) => {
                Ok(bytes.slice((offset - start) as usize..(end - start) as usize))
            }
            // Read again after it was given up.
            None => self.object.read(offset..end),
        }
    }

    /// Its stream is at `window`: those before are given up, this one and the next are begun.
    fn enter(&mut self, window: usize) -> Result<()> {
        let ReadWindow { stream, fetch, .. } = self.all[window];
        for passed in self.current[stream]..window {
            let fetch = &mut self.fetches[self.all[passed].fetch];
            fetch.pending -= 1;
            if fetch.pending == 0 {
                fetch.state = FetchState::Gone;
            }
        }
        self.current[stream] = self.current[stream].max(window);
        let next = self.all.get(window + 1).filter(|next| next.stream == stream);
        let next = next.map(|next| next.fetch);
        for fetch in [Some(fetch), next].into_iter().flatten() {
            let Fetch { range, state, .. } = &mut self.fetches[fetch];
            if matches!(state, FetchState::Idle) {
                *state = FetchState::Running(self.object.begin(range.clone())?);
            }
        }
        Ok(())
    }

    /// Where `fetch` begins, and its bytes; `None` where it was given up.
    fn arrived(&mut self, fetch: usize) -> Result<Option<(u64, Bytes)>> {
        let Fetch { range, state, .. } = &mut self.fetches[fetch];
        if let FetchState::Running(_) = state {
            let FetchState::Running(transfer) = std::mem::replace(state, FetchState::Idle) else {
                return Ok(None);
            };
            *state = FetchState::Here(transfer.wait()?);
        }
        Ok(match state {
            FetchState::Here(bytes) => Some((range.start, bytes.clone())),
            _ => None,
        })
    }
}

/// The requests that bring the `windows`, which begin one after another in the order of `by_start`; none
/// of more than `most` bytes.
fn fetches(windows: &mut [ReadWindow], by_start: &[usize], most: u64) -> Vec<Fetch> {
    let mut fetches: Vec<Fetch> = Vec::new();
    for &window in by_start {
        let window = &mut windows[window];
        let Range { start, end } = window.range;
        match fetches.last_mut() {
            Some(Fetch { range, pending, .. })
                if start <= range.end.saturating_add(GAP_BYTES)
                    && end.max(range.end) - range.start <= most =>
            {
                range.end = range.end.max(end);
                *pending += 1;
            }
            _ => fetches.push(Fetch { range: start..end, pending: 1, state: FetchState::Idle }),
        }
        window.fetch = fetches.len() - 1;
    }
    fetches
}
