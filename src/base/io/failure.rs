//! Errors of stores on their way through decoders and encoders, which know only their own.

use std::io;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::panics::lock;

/// The first error of a store that a file met; its clones see the same one.
#[derive(Debug, Clone, Default)]
pub struct FirstError(Arc<Mutex<Option<Error>>>);

impl FirstError {
    /// Keeps the error of `result`, and gives it in the terms of `std::io`.
    pub fn keep<T>(&self, result: Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let io_error = io::Error::other(error.to_string());
            lock(&self.0).get_or_insert(error);
            io_error
        })
    }

    /// `error`, or the error that was kept, which is forgotten then.
    pub fn or(&self, error: Error) -> Error {
        lock(&self.0).take().unwrap_or(error)
    }

    /// `result` with the error that was kept, where it failed.
    pub fn on<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.or(error))
    }
}
