//! Reads ranges of an object ahead of their use.
//!
//! A reader of several columns has several streams, each of which goes through ranges of the object
//! in its own order. Ranges are split into windows. For each stream, the current window and the
//! next one are in memory or being fetched. Adjacent windows of different streams share a request.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::{LARGEST_WINDOW, Object, Transfer};
use polysift_base::error::Result;

/// Maximum bytes of all windows of an object together.
pub(super) const AHEAD_BYTES: u64 = 32 << 20;
/// Minimum bytes of a window, which applies if there are more streams than fit.
const SMALLEST_WINDOW: u64 = 64 << 10;
/// Maximum number of windows: 512 GiB of one range. What lies beyond is read by exact requests.
const MAX_WINDOWS: usize = 1 << 16;
/// Maximum gap in bytes between two windows that is fetched and discarded to save a request.
const GAP_BYTES: u64 = 128 << 10;

#[derive(Debug)]
pub(super) struct Windows {
    pub(super) object: Object,
    /// The windows of each stream, in the order of their use, stream by stream.
    all: Vec<ReadWindow>,
    /// Indices of the windows by their start in the object.
    by_start: Vec<usize>,
    /// The current window of each stream; earlier ones are no longer needed.
    current: Vec<usize>,
    fetches: Vec<Fetch>,
}

#[derive(Debug)]
struct ReadWindow {
    range: Range<u64>,
    stream: usize,
    fetch: usize,
}

/// A request for one or more windows.
#[derive(Debug)]
struct Fetch {
    range: Range<u64>,
    /// Number of windows that may still be used.
    pending: usize,
    state: FetchState,
}

#[derive(Debug)]
enum FetchState {
    Idle,
    Running(Transfer<Bytes>),
    Here(Bytes),
    Gone,
}

impl Windows {
    /// Lays out windows for the ranges in `streams`, as far as the object has them.
    pub(super) fn new(object: Object, streams: &[Vec<Range<u64>>]) -> Self {
        let window_bytes = AHEAD_BYTES / (2 * streams.len().max(1)) as u64;
        let window_bytes = window_bytes.clamp(SMALLEST_WINDOW, LARGEST_WINDOW);
        let (mut all, mut current) = (Vec::new(), Vec::new());
        for (stream, ranges) in streams.iter().enumerate() {
            current.push(all.len());
            for range in ranges {
                let room = (MAX_WINDOWS - all.len()) as u64 * window_bytes;
                let end = range.end.min(object.size()).min(range.start.saturating_add(room));
                for start in (range.start..end).step_by(window_bytes as usize) {
                    let range = start..end.min(start + window_bytes);
                    all.push(ReadWindow { range, stream, fetch: 0 });
                }
            }
        }
        let mut by_start: Vec<usize> = (0..all.len()).collect();
        by_start.sort_by_key(|&window| all[window].range.start);
        let fetches = plan_fetches(&mut all, &by_start, window_bytes);
        Self { object, all, by_start, current, fetches }
    }

    /// Returns the bytes that are in memory or being fetched.
    #[cfg(all(test, feature = "remote"))]
    pub(super) fn held(&self) -> u64 {
        let is_held =
            |fetch: &&Fetch| matches!(fetch.state, FetchState::Running(_) | FetchState::Here(_));
        self.fetches.iter().filter(is_held).map(|fetch| fetch.range.end - fetch.range.start).sum()
    }

    /// Returns `length` bytes at `offset`, which must lie in the object.
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

    /// Returns 1 to `most` bytes at `offset`; outside announced ranges, it requests exactly these.
    pub(super) fn some_bytes(&mut self, offset: u64, most: usize) -> Result<Bytes> {
        let end = self.object.size().min(offset.saturating_add(most as u64));
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
        let Fetch { range, state, .. } = &mut self.fetches[fetch];
        *state = match std::mem::replace(state, FetchState::Idle) {
            FetchState::Running(transfer) => FetchState::Here(transfer.wait()?),
            other => other,
        };
        match state {
            FetchState::Here(bytes) => {
                Ok(bytes.slice((offset - range.start) as usize..(end - range.start) as usize))
            }
            // A window that was discarded is read again.
            _ => self.object.read(offset..end),
        }
    }

    /// Moves a stream to `window`: discards earlier windows, and fetches this one and the next.
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
                *state = FetchState::Running(self.object.start_read(range.clone())?);
            }
        }
        Ok(())
    }
}

/// Groups `windows`, in the order of `by_start`, into requests of up to `most` bytes; sets `fetch`.
fn plan_fetches(windows: &mut [ReadWindow], by_start: &[usize], most: u64) -> Vec<Fetch> {
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
