//! Carries errors of stores through decoders and encoders, which return only their own errors.

use std::io;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::panics::lock;

/// The first error of a store while a file is processed; all clones share it.
#[derive(Debug, Clone, Default)]
pub struct FirstError(Arc<Mutex<Option<Error>>>);

impl FirstError {
    /// Keeps the error of `result` if it is the first, and returns it as a `std::io` error.
    pub fn keep<T>(&self, result: Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let io_error = io::Error::other(error.to_string());
            lock(&self.0).get_or_insert(error);
            io_error
        })
    }

    /// Returns the kept error and forgets it, or returns `error` if none was kept.
    pub fn take_or(&self, error: Error) -> Error {
        lock(&self.0).take().unwrap_or(error)
    }

    /// Replaces the error of a failed `result` with the kept error, if there is one.
    pub fn replace_error<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.take_or(error))
    }
}
