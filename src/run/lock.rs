//! One process at a time on a run directory: an advisory lock that the system drops with the process.

use std::fs::File;

use super::RunDir;
use crate::error::{Error, Result};

/// Held while a command writes into a run directory.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl RunDir {
    /// Takes the directory for writing; another live process that holds it is an error.
    pub fn lock(&self) -> Result<RunLock> {
        let path = self.path(".lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(Error::io(&path, "create"))?;
        match file.try_lock() {
            Ok(()) => Ok(RunLock { _file: file }),
            Err(std::fs::TryLockError::WouldBlock) => {
                Err(Error::Busy { path: self.root().to_owned() })
            }
            Err(std::fs::TryLockError::Error(source)) => Err(Error::io(&path, "lock")(source)),
        }
    }
}
