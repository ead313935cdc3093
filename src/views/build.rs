//! Puts the scripts and the style of the report's page into it, and compresses the page.

use std::path::{Path, PathBuf};

const PARTS: [(&str, &str); 5] = [
    ("@@CSS@@", "report.css"),
    ("@@D3@@", "vendor/d3.min.js"),
    ("@@PLOT@@", "vendor/plot.umd.min.js"),
    ("@@JS@@", "report.js"),
    ("@@PARTS@@", "vendor/LICENSE-parts"),
];
const LEVEL: i32 = 19;

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=report/page");
    let read = |name: &str| std::fs::read_to_string(Path::new("report/page").join(name));
    let mut page = read("index.html")?;
    for (mark, part) in PARTS {
        page = page.replacen(mark, &read(part)?, 1);
    }
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    std::fs::write(out.join("page.html"), zstd::bulk::compress(page.as_bytes(), LEVEL)?)
}
