//! Builds the page: one self-contained file with the template, its style, scripts and data.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

const TEMPLATE: &str = include_str!("page/index.html");

const PARTS: [(&str, &str); 4] = [
    ("@@PLOT@@", include_str!("page/vendor/plot.umd.min.js")),
    ("@@D3@@", include_str!("page/vendor/d3.min.js")),
    ("@@CSS@@", include_str!("page/report.css")),
    ("@@JS@@", include_str!("page/report.js")),
];
/// Mark of the data: the gzipped report in Base64, in which nothing can end the enclosing script.
const DATA: &str = "@@DATA@@";

pub(super) fn page(json: &str) -> std::io::Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(json.as_bytes())?;
    let data = STANDARD.encode(encoder.finish()?);
    let parts = || PARTS.into_iter().chain([(DATA, data.as_str())]);
    let (mut page, mut rest) = (String::with_capacity(data.len() + (1 << 20)), TEMPLATE);
    // Inserted text is never searched for marks.
    while let Some((at, mark, part)) =
        parts().filter_map(|(mark, part)| Some((rest.find(mark)?, mark, part))).min()
    {
        page += &rest[..at];
        page += part;
        rest = &rest[at + mark.len()..];
    }
    Ok(page + rest)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    type Result = std::result::Result<(), Box<dyn std::error::Error>>;

    #[test]
    fn the_page_holds_the_report_and_no_mark() -> Result {
        let hostile = r#"{"text": "</script><!-- @@JS@@ @@DATA@@ "}"#;
        let page = page(hostile)?;
        let (_, rest) = page.split_once("id=\"data\">").ok_or("no data")?;
        let (data, _) = rest.split_once("</script>").ok_or("no end")?;
        let mut json = String::new();
        GzDecoder::new(&STANDARD.decode(data)?[..]).read_to_string(&mut json)?;
        assert_eq!(json, hostile);
        assert_eq!((TEMPLATE.matches("@@").count(), page.matches("@@DATA@@").count()), (10, 0));
        Ok(())
    }
}
