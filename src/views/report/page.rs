//! Builds the page: one self-contained file with the template, its style, scripts and data.

use std::io::{Result, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

const TEMPLATE: &str = include_str!("page/index.html");
/// Marks in the template, and what takes their place.
const PARTS: [(&str, &str); 5] = [
    ("@@CSS@@", include_str!("page/report.css")),
    ("@@D3@@", include_str!("page/vendor/d3.min.js")),
    ("@@PLOT@@", include_str!("page/vendor/plot.umd.min.js")),
    ("@@JS@@", include_str!("page/report.js")),
    ("@@PARTS@@", include_str!("page/vendor/LICENSE-parts")),
];
/// Mark of the data: the gzipped report in Base64, in which nothing can end the enclosing script.
const DATA: &str = "@@DATA@@";

/// Builds the page that shows the report `json`.
pub(super) fn build_page(json: &str) -> Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(json.as_bytes())?;
    let data = STANDARD.encode(encoder.finish()?);
    let put_in = |page: String, (mark, part): &(&str, &str)| page.replacen(mark, part, 1);
    Ok(PARTS.iter().fold(TEMPLATE.to_owned(), put_in).replacen(DATA, &data, 1))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn the_page_holds_the_report_and_no_mark() -> TestResult {
        let hostile = r#"{"text": "</script><!-- @@JS@@ @@DATA@@ "}"#;
        let page = build_page(hostile)?;
        let (_, rest) = page.split_once("id=\"data\">").ok_or("no data")?;
        let (data, _) = rest.split_once("</script>").ok_or("no end")?;
        let mut json = String::new();
        GzDecoder::new(&STANDARD.decode(data)?[..]).read_to_string(&mut json)?;
        assert_eq!(json, hostile);
        assert!(!page.contains("@@"));
        Ok(())
    }
}
