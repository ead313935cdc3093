//! The page: a template with its style, its scripts and the data inside, so that one file is all that is needed.

const TEMPLATE: &str = include_str!("page/index.html");

/// What takes the place of the template's marks, but for the data.
const PARTS: [(&str, &str); 4] = [
    ("@@PLOT@@", include_str!("page/vendor/plot.umd.min.js")),
    ("@@D3@@", include_str!("page/vendor/d3.min.js")),
    ("@@CSS@@", include_str!("page/report.css")),
    ("@@JS@@", include_str!("page/report.js")),
];
/// Mark of the data.
const DATA: &str = "@@DATA@@";

/// The page of the report `json`.
pub(super) fn page(json: &str) -> String {
    let data = escaped(json);
    let parts = || PARTS.into_iter().chain([(DATA, data.as_str())]);
    let (mut page, mut rest) = (String::with_capacity(data.len() + (1 << 20)), TEMPLATE);
    // What a mark stands for is never looked at for marks.
    while let Some((at, mark, part)) =
        parts().filter_map(|(mark, part)| Some((rest.find(mark)?, mark, part))).min()
    {
        page += &rest[..at];
        page += part;
        rest = &rest[at + mark.len()..];
    }
    page + rest
}

/// JSON that may stand in a script of a page: nothing in it ends the script, or a line.
fn escaped(json: &str) -> String {
    let json = json.replace('<', "\\u003c");
    json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_can_neither_end_the_script_nor_name_another_mark() {
        let hostile = r#"{"text": "</script><!-- @@JS@@ @@DATA@@ \u2028"}"#;
        let page = page(hostile);
        assert_eq!(escaped("<\u{2028}>"), "\\u003c\\u2028>");
        assert!(page.contains(r"\u003c/script>\u003c!-- @@JS@@ @@DATA@@"));
        let markers = TEMPLATE.matches("@@").count();
        assert_eq!((markers, page.matches("@@DATA@@").count()), (10, 1));
    }
}
