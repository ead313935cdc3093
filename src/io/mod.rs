//! Files that appear whole or not at all, their digests, and URLs as texts. No network.
//!
//! ```
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("a.json");
//! polysift::io::write_atomic(&path, b"{}")?; // there whole, or not at all
//! assert_eq!(std::fs::read(&path)?, b"{}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod atomic;
mod url;

pub use atomic::{AtomicFile, FileStamp, remove_temporaries, stamp, write_atomic, write_new};
pub(crate) use atomic::{boundary, is_temporary, remove_temporaries_of};
pub use url::{chain, is_url, without_secrets};
pub(crate) use url::{file_name, is_web, redacted, with_secrets, without_query};
