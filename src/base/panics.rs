//! Catches panics of third-party code on malformed input, and locks mutexes that a panic poisoned.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{LockResult, Mutex, MutexGuard, Once, PoisonError};

thread_local! {
    /// True while [`catch_panic`] reports this thread's panics as errors, so they are not printed.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`; a panic is not printed, and its message is the error. Half-done work is unusable.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static QUIET_HOOK: Once = Once::new();
    QUIET_HOOK.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            if !CAUGHT.get() {
                hook(panic);
            }
        }));
    });
    CAUGHT.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CAUGHT.set(false);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        // The message of an assertion spans several lines.
        let text = text.unwrap_or("no reason given").split_whitespace().collect::<Vec<_>>();
        text.join(" ")
    })
}

/// Locks `mutex` even if it is poisoned. Its data must be consistent wherever a thread can panic.
/// The panic of a thread is reported where that thread is joined, not as a second panic here.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// Returns the value of a lock result even if the lock is poisoned, as [`lock`] does.
pub fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}
