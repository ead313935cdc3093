//! Compresses the files of the bundled model, which the program embeds.

use std::path::{Path, PathBuf};

/// Below it the tokenizer grows, and above it a build takes seconds longer.
const LEVEL: i32 = 15;

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    for name in ["model.safetensors", "tokenizer.json"] {
        let path = Path::new("../../models/polysift-mini").join(name);
        println!("cargo:rerun-if-changed={}", path.display());
        std::fs::write(out.join(name), zstd::bulk::compress(&std::fs::read(path)?, LEVEL)?)?;
    }
    Ok(())
}
