//! Local files that appear whole or not at all, their digests, and URLs as text. Uses no network.

mod atomic;
mod confined;
mod failure;
mod impostor;
mod url;

pub use atomic::{AtomicFile, FileStamp, NewFile, boundary, final_name, remove_temporaries};
pub use atomic::{remove_temporaries_of, stamp, write_atomic, write_json, write_new};
pub use confined::{
    check_confined, check_entries, confine, link, list, open, remove, remove_while, rename, unlink,
};
pub use confined::{create_folder, if_there, read, read_json, read_text, without_byte_order_mark};
pub use failure::FirstError;
pub use url::{file_name, is_url, is_web, redacted, with_secrets, without_query, without_secrets};
