//! Passwords and signatures in URLs: what they open is read, and they are told and kept nowhere.

use std::path::Path;

use super::web::{Demand, Web};
use super::{Failure, planned, run, with_s3};
use crate::util::{TestResult, Workspace, polysift};

const SECRET: &str = "a-hidden-word";

/// Whether the secret is in a file below `folder`.
fn is_kept(folder: &Path) -> Result<bool, Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_here = if path.is_dir() {
            is_kept(&path)?
        } else {
            let bytes = std::fs::read(&path)?;
            bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
        };
        if is_here || path.to_string_lossy().contains(SECRET) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs `command` with all log lines there are; its exit code and what it said, without the secret.
fn said(command: &mut assert_cmd::Command) -> Result<(i32, String), Failure> {
    let output = command.env("RUST_LOG", "trace").output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(!text.contains(SECRET), "{}", text.lines().find(|l| l.contains(SECRET)).unwrap_or(""));
    Ok((output.status.code().unwrap_or(-1), text))
}

const LANGUAGE: [&str; 4] =
    ["--language", "fra_Latn", "--set", "heads.quality.train=['samples/fra_Latn.jsonl']"];

/// A run over the file of a server that demands something; `whole` has it, `open` has not.
fn reads_what_is_given_again(demand: Demand, whole: &str, open: &str) -> TestResult {
    let work = Workspace::new()?;
    let web = Web::serve(work.path("corpus"), true, demand)?;
    let place = web.url("");
    let server = place.trim_start_matches("http://").trim_end_matches('/');
    let [whole, open] = [whole, open].map(|url| url.replace("SERVER", server));
    let (code, text) = said(polysift().args(["inspect", whole.as_str()]))?;
    assert!(code == 0 && text.contains(&open), "{code} {text}");
    let (code, text) = said(run(&work, &whole, "out").args(LANGUAGE))?;
    assert_eq!(code, 0, "{text}");
    assert_eq!(planned(&work, "out")?[0].1, open);
    assert!(!is_kept(&work.path("out"))?);

    // Without it the file cannot be read again, and it is said what to do; with it, it can.
    let again = |arguments: &[&str], variable: &str| {
        for left in ["state/export", "export"] {
            // Gone, where the last try could not write it.
            let _ = std::fs::remove_dir_all(work.path("out").join(left));
        }
        let mut command = polysift();
        command.current_dir(work.dir.path()).args(["export", "--run", "out"]).args(arguments);
        said(command.env("POLYSIFT_SIGNED_URLS", variable))
    };
    let (code, text) = again(&[], "")?;
    assert!(code != 0 && text.contains("give the URL with them again"), "{code} {text}");
    let (code, text) = again(&["--set", &format!("input.files=['{whole}']")], "")?;
    assert_eq!(code, 0, "{text}");
    let both = format!("http://other/a?sig=1 {whole}");
    let (code, text) = again(&[], &both)?;
    assert_eq!(code, 0, "{text}");
    let mut verify = polysift();
    verify.arg("verify").arg(work.path("out")).env("POLYSIFT_SIGNED_URLS", both);
    assert_eq!(said(&mut verify)?.0, 0);
    assert!(!is_kept(&work.path("out"))?);
    Ok(())
}

#[test]
fn a_signed_url_is_read_and_not_kept() -> TestResult {
    let whole = format!("http://SERVER/fra_Latn/a.jsonl?versionId=3&X-Amz-Signature={SECRET}");
    let open = "http://SERVER/fra_Latn/a.jsonl?versionId=3";
    reads_what_is_given_again(Demand::Query("&X-Amz-Signature=a-hidden-word"), &whole, open)
}

#[test]
fn a_password_in_a_url_is_used_and_not_kept() -> TestResult {
    // printf 'some/one:a-hidden-word' | base64
    let header = Demand::Header("Basic c29tZS9vbmU6YS1oaWRkZW4td29yZA==");
    let whole = format!("http://some%2Fone:{SECRET}@SERVER/fra_Latn/a.jsonl");
    reads_what_is_given_again(header, &whole, "http://SERVER/fra_Latn/a.jsonl")
}

#[test]
fn what_cannot_be_read_is_named_without_its_secrets() -> TestResult {
    let work = Workspace::new()?;
    let web = Web::serve(work.path("corpus"), true, Demand::Query("&never"))?;
    let signed = |path: &str, query: &str| format!("{}?{query}={SECRET}", web.url(path));
    for input in [
        signed("fra_Latn/a.jsonl", "sig"),
        signed("fra_Latn/none.jsonl", "token"),
        signed("fra_Latn/*.jsonl", "sig"),
        signed("fra_Latn/a.txt", "sig"),
        format!("http://me:{SECRET}@127.0.0.1:9/a.jsonl"),
        format!("http://me:{SECRET}/x@127.0.0.1:9/a.jsonl"),
        format!("s3://me:{SECRET}@bucket/a.jsonl"),
        format!("ftp://me:{SECRET}@host/a.jsonl"),
    ] {
        let mut command = run(&work, &input, "none");
        command.args(LANGUAGE).env("POLYSIFT_STORE_RETRY_SECS", "1");
        let (code, text) = said(&mut command)?;
        assert!([2, 66, 69].contains(&code), "{code} {text}");
    }
    let [one, two] = ["one", "two"].map(|end| signed("a.jsonl", "sig") + end);
    let mut command = run(&work, &one, "none");
    let (code, text) = said(command.arg(&two).args(LANGUAGE))?;
    assert!(code == 2 && text.contains("given twice"), "{code} {text}");
    // A settings file that is wrong is told with its lines.
    work.write("wrong.toml", format!("[input]\nfile = ['http://h/a.jsonl?sig={SECRET}']\n"))?;
    let mut command = polysift();
    command.current_dir(work.dir.path()).args(["run", "-c", "wrong.toml", "--run", "none"]);
    assert_eq!(said(&mut command)?.0, 2);
    assert!(!work.path("none").exists());
    Ok(())
}

#[test]
fn a_password_in_an_endpoint_is_not_told() -> TestResult {
    let (work, s3) = super::corpus()?;
    let endpoint = |place: &str| format!("http://me:{SECRET}@{place}");
    let go = |place: &str, out: &str| {
        let mut command = run(&work, "s3://bucket/data/v1/{lang}/*", out);
        with_s3(command.args(["--export-to", "s3://bucket/out"]), s3.address());
        command.env("AWS_ENDPOINT_URL", endpoint(place)).env("POLYSIFT_STORE_RETRY_SECS", "1");
        said(&mut command)
    };
    let (code, text) = go(&s3.address().to_string(), "out")?;
    assert_eq!(code, 0, "{text}");
    assert!(!is_kept(&work.path("out"))?);
    for (place, expected) in [("127.0.0.1:9", 69), ("a host", 2), ("127.0.0.1:port", 2)] {
        let (code, text) = go(place, "none")?;
        assert_eq!(code, expected, "{text}");
        assert!(text.contains("s3://bucket"), "{text}");
    }
    let mut hub = run(&work, "hf://datasets/o/n/*.jsonl", "none");
    hub.env("HF_ENDPOINT", endpoint("127.0.0.1:9")).env("HF_HOME", work.path("home"));
    assert_eq!(said(&mut hub)?.0, 69);
    Ok(())
}
