//! Calls of foreign code that panics on odd input, and locks that a panic leaves usable.
//!
//! ```
//! let counts = std::sync::Mutex::new(vec![1]);
//! polysift_base::panics::lock(&counts).push(2); // also where another thread panicked
//! assert_eq!(*polysift_base::panics::lock(&counts), [1, 2]);
//! ```

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{LockResult, Mutex, MutexGuard, Once, PoisonError};

thread_local! {
    /// Whether a panic of this thread will be caught and reported as an error, so that it is not printed.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Calls `work`; a panic becomes its message. Nothing that `work` left half done may be used again.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
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
        // An assertion's text runs over several lines.
        let text = text.unwrap_or("no reason given").split_whitespace().collect::<Vec<_>>();
        text.join(" ")
    })
}

/// Locks `mutex`. What it protects has to be whole at every point where a thread can panic: the panic of
/// one thread is reported where it is joined, not as a second one here.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// What a lock protects, as [`lock`] gives it.
pub fn unpoisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}
