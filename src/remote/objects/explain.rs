//! Turns a store's errors into short messages without secrets.

use polysift_base::error::{Error, Source};
use polysift_base::io::{is_web, redacted};

/// Beginnings of the client's reasons for a failure; the causes above them name the request.
const BEGINNINGS: [&str; 4] =
    [ANSWER, "Server returned error response", "HTTP error", "Received redirect"];

/// The client's prefix of a refusal; the status and the server's message follow.
pub(super) const ANSWER: &str = "Server returned non-2xx status code: ";
const HINT: &str =
    "check the credentials (AWS_*, GOOGLE_*, AZURE_* or HF_TOKEN in the environment)";

const WEB_HINT: &str = "a password and a query are not kept: give the URL with them again, as INPUT or \
                        in POLYSIFT_SIGNED_URLS";

const MAX_SAID: usize = 300;

/// Returns a client's error of no particular kind; [`is_final`] judges it by its text.
pub(super) fn generic_error(source: impl Into<Source>) -> object_store::Error {
    object_store::Error::Generic { store: "", source: source.into() }
}

/// Returns [`Error::Service`] without secrets.
pub(super) fn store_error(url: &str, reason: &str) -> Error {
    Error::Service { name: redacted(url), reason: redacted(reason) }
}

pub(super) fn changed_error(url: &str) -> Error {
    Error::corrupt(url.as_ref(), "the object changed since the run was planned")
}

/// Translates the client's `error` for `url`: what is missing, changed, refused or failed.
pub(super) fn explain(url: &str, error: &object_store::Error) -> Error {
    use object_store::Error as E;
    let answer = Answer::parse(error);
    match (error, answer.as_ref().map(|answer| answer.status)) {
        (E::NotFound { .. }, _) | (_, Some(404)) => {
            let code = answer.as_ref().and_then(|answer| answer.element("Code"));
            let is_of_bucket = matches!(code, Some("NoSuchBucket" | "ContainerNotFound"))
                // Empty buckets have empty listings; a 404 for one means that there is no bucket.
                || !matches!(error, E::NotFound { .. });
            let reason = match url.split('/').nth(2).unwrap_or_default() {
                _ if !is_of_bucket => "no such object".to_owned(),
                _ if url.starts_with("hf://") => "there is no such data set or branch".to_owned(),
                bucket => format!("there is no bucket `{bucket}`"),
            };
            Error::Missing { path: redacted(url), reason }
        }
        (E::PermissionDenied { .. } | E::Unauthenticated { .. }, _) | (_, Some(401 | 403)) => {
            let hint = if is_web(url) { WEB_HINT } else { HINT };
            store_error(url, &format!("access is refused: {}; {hint}", message(error)))
        }
        (E::Precondition { .. } | E::NotModified { .. }, _) => changed_error(url),
        (E::NotSupported { .. }, _) => {
            store_error(url, "the server does not answer requests for ranges")
        }
        _ => store_error(url, &message(error)),
    }
}

/// Returns the HTTP status that a server answered; `None` if no answer is the cause.
pub(super) fn status(error: &object_store::Error) -> Option<u16> {
    Answer::parse(error).map(|answer| answer.status)
}

/// Returns true if a retry cannot help: the server has refused, or the fault is on this side.
pub(super) fn is_final(error: &object_store::Error) -> bool {
    if !matches!(error, object_store::Error::Generic { .. }) {
        return true;
    }
    // These statuses mean timeouts, too many requests, and servers that are busy or restarting.
    Answer::parse(error).is_some_and(|a| ![408, 429, 500, 502, 503, 504].contains(&a.status))
}

/// Returns the message of `error` without the request.
pub(super) fn message(error: &object_store::Error) -> String {
    if let Some(answer) = Answer::parse(error) {
        return answer.describe();
    }
    let causes = cause_messages(error);
    let from = causes.iter().position(|text| BEGINNINGS.iter().any(|b| text.starts_with(b)));
    let mut parts: Vec<String> = Vec::new();
    for cause in causes.into_iter().skip(from.unwrap_or(0)) {
        // Many errors repeat their cause at the end.
        parts.retain(|part| !part.ends_with(&cause) || part == &cause);
        if parts.last().is_none_or(|last| !last.ends_with(&cause)) {
            parts.push(cause);
        }
    }
    redacted(&parts.join(": "))
}

/// Returns the message of `error` and those of its causes, the outermost first.
fn cause_messages(error: &object_store::Error) -> Vec<String> {
    let first = Some(error as &dyn std::error::Error);
    std::iter::successors(first, |&e| e.source()).map(ToString::to_string).collect()
}

/// A server's answer to a request that failed.
struct Answer {
    status: u16,
    /// The status in words, and the server's message.
    text: String,
}

impl Answer {
    /// Parses the messages of `error`, the only place where the client has a listing's status.
    fn parse(error: &object_store::Error) -> Option<Self> {
        let causes = cause_messages(error);
        let text = causes.iter().find_map(|text| text.strip_prefix(ANSWER))?;
        let status = text.get(..3)?.parse().ok()?;
        Some(Self { status, text: text.to_owned() })
    }

    /// Returns the text of the XML element `name`, up to its first inner element.
    fn element(&self, name: &str) -> Option<&str> {
        let (_, after) = self.text.split_once(&format!("<{name}>"))?;
        after.split_once('<').map(|(text, _)| text)
    }

    /// Names the status and up to [`MAX_SAID`] characters of the server's own message.
    fn describe(&self) -> String {
        let (status, body) = self.text.split_once(": ").unwrap_or((&self.text, ""));
        // Whole bodies repeat the signed request, or are long HTML pages.
        let known = ["Code", "Message"].into_iter().filter_map(|name| self.element(name));
        let mut said = known.collect::<Vec<_>>().join(": ");
        if said.is_empty() && !body.trim_start().starts_with('<') {
            body.trim().clone_into(&mut said);
        }
        let said: String = redacted(&said).chars().take(MAX_SAID).collect();
        let said = if said.is_empty() { said } else { format!(" ({said})") };
        format!("the server answers {status}{said}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn refusals_are_final_and_short() {
        let refused = "Server returned non-2xx status code: 403 Forbidden: <?xml?><Error>\
                       <Code>SignatureDoesNotMatch</Code><Message>Check your key</Message>\
                       <StringToSign>X-Amz-Signature=hidden</StringToSign></Error>";
        assert!(is_final(&generic(refused)));
        let said = explain("s3://b/k", &generic(refused)).to_string();
        let expected = "access is refused: the server answers 403 Forbidden \
                        (SignatureDoesNotMatch: Check your key)";
        assert!(said.contains(expected) && !said.contains("hidden"), "{said}");
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        for text in [
            "Server returned non-2xx status code: 503 Slow Down: ",
            "Server returned non-2xx status code: 429 Too Many Requests: ",
            "HTTP error: error sending request",
        ] {
            assert!(!is_final(&generic(text)), "{text}");
        }
        for status in [400, 401, 403, 404] {
            let text = format!("Server returned non-2xx status code: {status} X: ");
            assert!(is_final(&generic(&text)), "{text}");
        }
    }

    #[test]
    fn a_missing_bucket_is_told_from_a_missing_object() {
        let not_found = |body: &str| object_store::Error::NotFound {
            path: "k".into(),
            source: format!("Server returned non-2xx status code: 404 Not Found: {body}").into(),
        };
        let said = |body| explain("s3://b/k", &not_found(body)).to_string();
        assert_eq!(said("<Code>NoSuchBucket</Code>"), "s3://b/k: there is no bucket `b`");
        assert_eq!(said("<Code>NoSuchKey</Code>"), "s3://b/k: no such object");
        assert_eq!(said(""), "s3://b/k: no such object");
    }
}
