//! Creates one client per store and process and the shared runtime, and retries requests.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::{ClientOptions, HeaderValue, ObjectStore, RetryConfig};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::explain::{explain, is_final, message, store_error};
use super::wire::{Connector, WebConnector};
use crate::location::{Location, Scheme};
use polysift_base::error::{Error, Result};
use polysift_base::hub::HubSettings;
use polysift_base::io::redacted;
use polysift_base::panics::lock;
use polysift_base::progress::{STOP_POLL, Stop};

/// Threads of the runtime, which only move bytes: they do not digest or decode.
const WORKERS: usize = 2;
/// Environment variable with the seconds that a request is retried after its first passing error.
pub(super) const RETRY_SECS: &str = "POLYSIFT_STORE_RETRY_SECS";
const DEFAULT_RETRY: Duration = Duration::from_mins(3);

/// Repeats `request` while it fails for a passing reason; returns the last error for `url`.
pub(super) async fn retry<T, F: Future<Output = object_store::Result<T>>>(
    url: &str,
    request: impl Fn() -> F,
) -> Result<T> {
    let mut retries = Retries::default();
    loop {
        match request().await {
            Ok(done) => return Ok(done),
            Err(error) if retries.allow(&error, Duration::ZERO).await => {}
            Err(error) => return Err(explain(url, &error)),
        }
    }
}

/// A store that writes objects in parts and lists them page by page.
pub(super) trait Bucket: ObjectStore + MultipartStore + PaginatedListStore {}

impl<S: ObjectStore + MultipartStore + PaginatedListStore> Bucket for S {}

#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) store: Arc<dyn ObjectStore>,
    /// The store; `None` for one that is only read and cannot be searched.
    bucket: Option<Arc<dyn Bucket>>,
}

impl Client {
    /// Wraps a store that is read, written and listed.
    fn of_bucket(store: impl Bucket) -> Self {
        let store = Arc::new(store);
        Self { store: store.clone(), bucket: Some(store) }
    }

    /// Returns the store for writing and listing; an error if it can only be read.
    pub(super) fn bucket(self) -> Result<Arc<dyn Bucket>> {
        self.bucket.ok_or_else(|| store_error(&self.store.to_string(), "is only read"))
    }
}

/// A running transfer, which is aborted on drop.
#[derive(Debug)]
pub(crate) struct Transfer<T>(JoinHandle<Result<T>>);

impl<T: Send + 'static> Transfer<T> {
    pub(super) fn spawn(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<Self> {
        Ok(Self(runtime()?.spawn(work)))
    }

    /// Waits for the result; a stop aborts the transfer and returns [`Error::Stopped`].
    pub(crate) fn wait(mut self) -> Result<T> {
        wait(async { (&mut self.0).await.map_err(|e| store_error("transfers", &e.to_string()))? })
    }
}

impl<T> Drop for Transfer<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The hub of `hf://` URLs, once [`set_hub`] or the environment has set it.
static HUB: OnceLock<HubSettings> = OnceLock::new();

/// Sets the hub of `hf://` URLs unless it is set already. Otherwise the environment sets it.
pub fn set_hub(settings: &HubSettings) {
    // The command sets it first; later calls have no effect.
    let _ = HUB.set(settings.clone());
}

/// Returns the settings of [`set_hub`], or else reads them from the environment, once.
pub(super) fn hub_settings() -> &'static HubSettings {
    HUB.get_or_init(|| HubSettings::from_env(|name| std::env::var(name).ok()))
}

/// Runs `work` to its end; a stop drops it and returns [`Error::Stopped`].
pub(super) fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let stop = pin!(async {
        while !Stop::of_process().is_asked() {
            tokio::time::sleep(STOP_POLL).await;
        }
    });
    let work = pin!(work);
    match runtime()?.block_on(select(work, stop)) {
        Either::Left((done, _)) => done,
        Either::Right(_) => Err(Error::Stopped),
    }
}

/// Returns the shared runtime; the first call starts its threads and sets the provider of TLS.
pub(super) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("transfer")
            .enable_all()
            .build()
    });
    made.as_ref().map_err(|error| store_error("transfers", &format!("cannot be started: {error}")))
}

/// Returns the client for the store of `location`, made from the environment by the first call.
pub(super) fn client_for(location: &Location) -> Result<Client> {
    static CLIENTS: Mutex<BTreeMap<String, Client>> = Mutex::new(BTreeMap::new());
    runtime()?;
    let is_on_hub = location.scheme == Scheme::Hub;
    let key = if is_on_hub { &hub_settings().endpoint } else { &location.root };
    Ok(match lock(&CLIENTS).entry(key.clone()) {
        Entry::Occupied(known) => known.get().clone(),
        Entry::Vacant(new) => new.insert(create_client(location)?).clone(),
    })
}

/// Creates a client; wrong settings in the environment are [`Error::Config`].
fn create_client(location: &Location) -> Result<Client> {
    let (root, retry_timeout) = (location.root.as_str(), retry_time()?);
    // The time alone ends retries.
    let retry = RetryConfig { max_retries: usize::MAX, retry_timeout, ..RetryConfig::default() };
    let made = match location.scheme {
        Scheme::S3 => {
            let builder = AmazonS3Builder::from_env().with_url(root).with_retry(retry);
            let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
            check_endpoint(root, endpoint.as_deref())?;
            builder.with_http_connector(Connector).build().map(Client::of_bucket)
        }
        Scheme::Gcs => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(root).with_retry(retry);
            builder.with_http_connector(Connector).build().map(Client::of_bucket)
        }
        Scheme::Azure => {
            let builder = MicrosoftAzureBuilder::from_env().with_url(root).with_retry(retry);
            check_endpoint(root, builder.get_config_value(&AzureConfigKey::Endpoint).as_deref())?;
            builder.with_http_connector(Connector).build().map(Client::of_bucket)
        }
        Scheme::Http => {
            let allows_http = root.starts_with("http://");
            web_client(root, WebConnector { allows_http, token: None }, retry)
        }
        Scheme::Hub => web_client(&hub_settings().endpoint, hub_connector(hub_settings())?, retry),
    };
    // No request was sent yet, so a setting in the environment is wrong.
    made.map_err(|error| Error::config(root, redacted(&error.to_string())))
}

/// Refuses an endpoint that is not a URL, because the client would panic.
fn check_endpoint(name: &str, endpoint: Option<&str>) -> Result<()> {
    let Some(Err(error)) = endpoint.map(reqwest::Url::parse) else { return Ok(()) };
    Err(Error::config(name, format!("the endpoint in the environment is no URL: {error}")))
}

/// Creates the client of a web server or hub at `root`, which is only read.
fn web_client(
    root: &str,
    connector: WebConnector,
    retry: RetryConfig,
) -> object_store::Result<Client> {
    let options = ClientOptions::new().with_allow_http(connector.allows_http);
    let builder = HttpBuilder::new().with_url(root).with_client_options(options).with_retry(retry);
    let store = builder.with_http_connector(connector).build()?;
    Ok(Client { store: Arc::new(store), bucket: None })
}

/// Returns a connector that sends the token of `hub`.
pub(super) fn hub_connector(hub: &HubSettings) -> Result<WebConnector> {
    check_endpoint("HF_ENDPOINT", Some(&hub.endpoint))?;
    retry_time()?;
    let token = hub.token.as_ref().and_then(|token| {
        // A token that does not fit in a header is ignored.
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    });
    Ok(WebConnector { allows_http: hub.endpoint.starts_with("http://"), token })
}

/// Reads [`RETRY_SECS`], or returns the default; [`Error::Config`] if it is no whole number.
fn retry_time() -> Result<Duration> {
    let Ok(text) = std::env::var(RETRY_SECS) else { return Ok(DEFAULT_RETRY) };
    let wrong = |_| Error::config(RETRY_SECS, format!("`{text}` is not a number of seconds"));
    text.trim().parse().map(Duration::from_secs).map_err(wrong)
}

/// Limits retries of requests that the client does not retry, such as interrupted answers.
#[derive(Default)]
pub(super) struct Retries {
    /// Time of the first failure: a long transfer may break off late.
    since: Option<Instant>,
    tries: usize,
}

impl Retries {
    /// Waits, at least as long as `asked`, and returns true if a retry after `error` is allowed.
    pub(super) async fn allow(&mut self, error: &object_store::Error, asked: Duration) -> bool {
        let wait = Duration::from_millis(100 << self.tries.min(7)).max(asked);
        let since = self.since.get_or_insert_with(Instant::now);
        let is_late = retry_time().is_ok_and(|time| since.elapsed().saturating_add(asked) > time);
        if is_final(error) || is_late {
            return false;
        }
        tracing::info!(reason = message(error), secs = wait.as_secs_f32(), "trying again");
        tokio::time::sleep(wait).await;
        self.tries += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_asks_for_an_endless_wait_is_not_asked_again() {
        let error = object_store::Error::Generic { store: "", source: "busy".into() };
        let allowed = wait(async { Ok(Retries::default().allow(&error, Duration::MAX).await) });
        assert!(matches!(allowed, Ok(false)));
    }
}
