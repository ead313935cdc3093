//! Adjusts requests and answers where the client would change them.

use std::time::Duration;

use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, GetOptions, HeaderValue};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::explain::generic_error;
use super::key::{decode, escape_listing};
use crate::location::{Location, Scheme};
use polysift_base::io::with_secrets;

/// Connects clients of object stores.
#[derive(Debug)]
pub(super) struct Connector;

/// The exact URL of a file on a web server, for the request that reads it.
#[derive(Clone)]
struct Exactly(String);

/// Returns the options of a read: on a web server the exact URL, with its secrets.
pub(super) fn get_options(location: &Location) -> GetOptions {
    let mut options = GetOptions::default();
    if location.scheme == Scheme::Http {
        options.extensions.insert(Exactly(with_secrets(&location.url())));
    }
    options
}

/// Connects clients of a web server or the hub; only the hub gets the token.
#[derive(Debug)]
pub(super) struct WebConnector {
    pub(super) allows_http: bool,
    pub(super) token: Option<HeaderValue>,
}

/// Headers with which the hub describes a file; after a redirect they may be absent.
pub(super) const COMMIT: &str = "x-repo-commit";
pub(super) const LINKED_ETAG: &str = "x-linked-etag";
const MAX_REDIRECTS: usize = 10;
/// A connection attempt fails after this time and is retried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer fails and is retried if the server sends nothing for this time.
pub(super) const READ_TIMEOUT: Duration = Duration::from_mins(1);

impl HttpConnector for WebConnector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = bare_client(self.allows_http).read_timeout(READ_TIMEOUT).build();
        let client = HttpClient::new(client.map_err(generic_error)?);
        Ok(HttpClient::new(Wire { client, follows: true, token: self.token.clone() }))
    }
}

/// Describes a client that neither follows redirects nor sends a token.
pub(super) fn bare_client(allows_http: bool) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .https_only(!allows_http)
        .connect_timeout(CONNECT_TIMEOUT)
        .http1_only()
        .user_agent(concat!("polysift/", env!("CARGO_PKG_VERSION")))
}

fn wrong(error: &str) -> HttpError {
    let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, error.to_owned());
    HttpError::new(HttpErrorKind::Unknown, error)
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Wire { client, follows: false, token: None }))
    }
}

#[derive(Debug)]
struct Wire {
    client: HttpClient,
    /// Whether redirects are followed here, because `client` does not.
    follows: bool,
    token: Option<HeaderValue>,
}

impl HttpService for Wire {
    // The trait is written with async-trait, which expands to this signature.
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> BoxFuture<'async_trait, Result<HttpResponse, HttpError>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(self.send(request))
    }
}

impl Wire {
    /// Sends `request` to its exact URL, if it has one, and prepares the answer for the client.
    async fn send(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_exact = set_address(&mut request)?;
        let query = request.uri().query().unwrap_or_default();
        let is_listing =
            !is_exact && query.split('&').any(|part| part == "list-type=2" || part == "comp=list");
        let answer = self.execute(request).await?;
        // Mapping frames hides the length: the client would allocate as much as the server claims.
        let answer =
            answer.map(|body| HttpResponseBody::new(body.map_frame(std::convert::identity)));
        if !is_listing || !answer.status().is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        let body = body.bytes().await?;
        let body = match std::str::from_utf8(&body) {
            Ok(listing) => escape_listing(listing).into(),
            Err(_) => body.into(), // the client reports this
        };
        Ok(HttpResponse::from_parts(head, body))
    }

    /// Sends `request` and, if [`Self::follows`], follows redirects. reqwest 0.13.5 removes a
    /// password only for the first request to another host; a second redirect would reveal it.
    async fn execute(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !self.follows {
            return self.client.execute(request).await;
        }
        let (mut head, body) = request.into_parts();
        if let Some(token) = &self.token {
            head.headers.entry("authorization").or_insert_with(|| token.clone());
        }
        let mut described = Vec::new();
        for _ in 0..=MAX_REDIRECTS {
            let request = HttpRequest::from_parts(head.clone(), body.clone());
            let mut answer = self.client.execute(request).await?;
            for name in [COMMIT, LINKED_ETAG] {
                described.extend(answer.headers().get(name).map(|value| (name, value.clone())));
            }
            // The first server's description takes precedence.
            for (name, value) in described.iter().rev() {
                answer.headers_mut().insert(*name, value.clone());
            }
            let location =
                answer.headers().get("location").filter(|_| answer.status().is_redirection());
            let Some(location) = location else { return Ok(answer) };
            let location = location.to_str().map_err(|_| wrong("redirects to no valid URL"))?;
            let from = head.uri.to_string();
            let from = reqwest::Url::parse(&from).map_err(|e| wrong(&e.to_string()))?;
            let to =
                from.join(location).map_err(|e| wrong(&format!("redirects to no URL: {e}")))?;
            if to.origin() != from.origin() {
                head.headers.remove("authorization");
            }
            head.uri = to.as_str().parse().map_err(|_| wrong("redirects to an unusable URL"))?;
        }
        Err(wrong(&format!("redirects more than {MAX_REDIRECTS} times")))
    }
}

/// Gives `request` its exact URL, and returns whether it has one; moves a password to the header.
fn set_address(request: &mut HttpRequest) -> Result<bool, HttpError> {
    let exact = request.extensions_mut().remove::<Exactly>();
    let is_exact = exact.is_some();
    let text = exact.map_or_else(|| request.uri().to_string(), |Exactly(url)| url);
    let has_user = text.split('/').nth(2).is_some_and(|authority| authority.contains('@'));
    if !is_exact && !has_user {
        return Ok(false);
    }
    let mut url = reqwest::Url::parse(&text).map_err(|e| wrong(&e.to_string()))?;
    let user = decode(url.username());
    let password = url.password().map(decode);
    if url.set_username("").is_err() || url.set_password(None).is_err() {
        return Err(wrong("the URL has no host"));
    }
    url.set_fragment(None);
    *request.uri_mut() = url.as_str().parse().map_err(|_| wrong("the URL cannot be requested"))?;
    let is_signed = request.headers().contains_key("authorization");
    if !is_signed && (!user.is_empty() || password.is_some()) {
        let both = STANDARD.encode(format!("{user}:{}", password.unwrap_or_default()));
        if let Ok(mut value) = HeaderValue::from_str(&format!("Basic {both}")) {
            value.set_sensitive(true);
            request.headers_mut().insert("authorization", value);
        }
    }
    Ok(is_exact)
}
