//! Requests as they leave and answers as they come, where the client would change them.

use futures_util::future::BoxFuture;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{ClientOptions, GetOptions, HeaderValue};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::key::{decoded, escaped_listing};
use super::location::{Location, Scheme};
use crate::io::with_secrets;

/// Connects clients of stores.
#[derive(Debug)]
pub(super) struct Connector;

/// The URL of a file of a web server, for the request that reads it.
#[derive(Clone)]
struct Exactly(String);

/// How to ask for the object at `location`.
pub(super) fn get_options(location: &Location) -> GetOptions {
    let mut options = GetOptions::default();
    if location.scheme == Scheme::Http {
        options.extensions.insert(Exactly(with_secrets(&location.url())));
    }
    options
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Wire(client)))
    }
}

#[derive(Debug)]
struct Wire(HttpClient);

impl HttpService for Wire {
    // As the trait has it, which is written with async-trait.
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
    async fn send(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_exact = address(&mut request)?;
        let query = request.uri().query().unwrap_or_default();
        let is_listing =
            !is_exact && query.split('&').any(|part| part == "list-type=2" || part == "comp=list");
        let answer = self.0.execute(request).await?;
        if !is_listing || !answer.status().is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        let body = body.bytes().await?;
        let body = match std::str::from_utf8(&body) {
            Ok(listing) => escaped_listing(listing).into(),
            Err(_) => body.into(), // which the client says
        };
        Ok(HttpResponse::from_parts(head, body))
    }
}

/// Sends `request` to the URL that was given, if one was, and a password of the URL in the header
/// for it. Returns whether one was given.
fn address(request: &mut HttpRequest) -> Result<bool, HttpError> {
    let exact = request.extensions_mut().remove::<Exactly>();
    let is_exact = exact.is_some();
    let text = exact.map_or_else(|| request.uri().to_string(), |Exactly(url)| url);
    let has_user = text.split('/').nth(2).is_some_and(|authority| authority.contains('@'));
    if !is_exact && !has_user {
        return Ok(false);
    }
    let wrong = |error: &str| {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, error.to_owned());
        HttpError::new(HttpErrorKind::Unknown, error)
    };
    let mut url = reqwest::Url::parse(&text).map_err(|e| wrong(&e.to_string()))?;
    let user = decoded(url.username());
    let password = url.password().map(decoded);
    if url.set_username("").is_err() || url.set_password(None).is_err() {
        return Err(wrong("the URL has no host"));
    }
    url.set_fragment(None);
    *request.uri_mut() = url.as_str().parse().map_err(|_| wrong("the URL cannot be asked for"))?;
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
