//! Compresses the files of the bundled model, which the program embeds.

use std::path::{Path, PathBuf};

/// The weights are as dense as they get at any level.
const FILES: [(&str, i32); 2] = [("model.safetensors", 1), ("tokenizer.json", 19)];

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    for (name, level) in FILES {
        let path = Path::new("../../models/polysift-mini").join(name);
        println!("cargo:rerun-if-changed={}", path.display());
        std::fs::write(out.join(name), zstd::bulk::compress(&std::fs::read(path)?, level)?)?;
    }
    Ok(())
}
