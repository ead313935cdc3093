//! TLS with a certificate of one's own, and servers that send their clients elsewhere.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use predicates::str::contains;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tiny_http::{Response, Server};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::bucket::header;
use super::web::{Demand, Web};
use super::{Failure, RESULTS, assert_same, run};
use crate::util::{TestResult, Workspace, root};

/// What speaks TLS with the clients of a server that does not.
struct Tls {
    port: u16,
    _runtime: tokio::runtime::Runtime,
}

impl Tls {
    fn before(server: SocketAddr) -> Result<Self, Failure> {
        let _ = rustls::crypto::ring::default_provider().install_default(); // another test did
        let folder = root().join("tests/golden/tls");
        let certificate = CertificateDer::from_pem_file(folder.join("certificate.pem"))?;
        let key = PrivateKeyDer::from_pem_file(folder.join("key.pem"))?;
        let config = ServerConfig::builder().with_no_client_auth();
        let acceptor =
            TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key)?));
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that does not trust the certificate hangs up.
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Ok(Self { port, _runtime: runtime })
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/{path}", self.port)
    }
}

/// A server that answers everything with one place to go to, and the headers `Authorization` that it was sent.
struct Signpost {
    server: Arc<Server>,
    thread: Option<std::thread::JoinHandle<()>>,
    passwords: Arc<Mutex<Vec<String>>>,
}

impl Signpost {
    /// To the place that `to` makes of the address of the server itself.
    fn start(to: impl FnOnce(&str) -> String) -> Result<Self, Failure> {
        let server = Arc::new(Server::http("127.0.0.1:0").map_err(|e| e.to_string())?);
        let location = to(&server.server_addr().to_string());
        let (listener, passwords) = (Arc::clone(&server), Arc::default());
        let seen: Arc<Mutex<Vec<String>>> = Arc::clone(&passwords);
        let thread = std::thread::spawn(move || {
            for request in listener.incoming_requests() {
                let sent = request.headers().iter().filter(|h| h.field.equiv("Authorization"));
                if let Ok(mut seen) = seen.lock() {
                    seen.extend(sent.map(|header| header.value.to_string()));
                }
                let Ok(location) = header("Location", location.clone()) else { return };
                let _ = request.respond(Response::empty(302).with_header(location));
            }
        });
        Ok(Self { server, thread: Some(thread), passwords })
    }

    fn address(&self) -> String {
        self.server.server_addr().to_string()
    }
}

impl Drop for Signpost {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// `polysift run` over the French file at `url`.
fn french(work: &Workspace, url: &str, out: &str) -> assert_cmd::Command {
    let mut command = run(work, url, out);
    command.args(["--language", "fra_Latn"]);
    command.args(["--set", "heads.quality.train=['samples/fra_Latn.jsonl']"]);
    command.env("POLYSIFT_STORE_RETRY_SECS", "3");
    command
}

fn certificate() -> std::path::PathBuf {
    root().join("tests/golden/tls/certificate.pem")
}

fn address(web: &Web) -> Result<SocketAddr, Failure> {
    Ok(web.url("").trim_start_matches("http://").trim_end_matches('/').parse()?)
}

#[test]
fn a_certificate_is_trusted_where_ssl_cert_file_names_it_and_nowhere_else() -> TestResult {
    let work = Workspace::new()?;
    let web = Web::serve(work.path("corpus"), true, Demand::Nothing)?;
    let tls = Tls::before(address(&web)?)?;
    let url = tls.url("fra_Latn/a.jsonl");
    french(&work, &url, "refused").assert().code(69).stderr(contains("certificate"));
    french(&work, &url, "secure").env("SSL_CERT_FILE", certificate()).assert().success();
    french(&work, &web.url("fra_Latn/a.jsonl"), "plain").assert().success();
    assert_same(&work, "secure", "plain", &RESULTS[..4])?;
    // The name has to be that of the certificate.
    let other = url.replace("localhost", "127.0.0.1");
    let mut command = french(&work, &other, "other");
    command.env("SSL_CERT_FILE", certificate()).assert().code(69).stderr(contains("certificate"));
    Ok(())
}

#[test]
fn a_redirect_is_followed_without_the_password_and_not_for_ever() -> TestResult {
    let work = Workspace::new()?;
    let web = Web::serve(work.path("corpus"), true, Demand::Nothing)?;
    let (target, elsewhere) =
        (web.url("fra_Latn/a.jsonl"), Signpost::start(|own| format!("http://{own}/"))?);
    let signpost = Signpost::start(|_| target.clone())?;
    let url = format!("http://me:word@{}/moved.jsonl", signpost.address());
    french(&work, &url, "moved").assert().success();
    french(&work, &target, "plain").assert().success();
    assert_same(&work, "moved", "plain", &RESULTS[3..4])?;
    assert!(signpost.passwords.lock().is_ok_and(|sent| !sent.is_empty()));
    // To another host: what was sent to the first is not sent on.
    let to_elsewhere = Signpost::start(|_| format!("http://{}/x", elsewhere.address()))?;
    let url = format!("http://me:word@{}/x.jsonl", to_elsewhere.address());
    french(&work, &url, "lost").assert().code(69).stderr(contains("redirect"));
    assert!(elsewhere.passwords.lock().is_ok_and(|sent| sent.is_empty()));
    Ok(())
}

#[test]
fn what_is_asked_for_by_tls_is_not_fetched_without_it() -> TestResult {
    let work = Workspace::new()?;
    let web = Web::serve(work.path("corpus"), true, Demand::Nothing)?;
    let signpost = Signpost::start(|_| web.url("fra_Latn/a.jsonl"))?;
    let tls = Tls::before(signpost.address().parse()?)?;
    let mut command = french(&work, &tls.url("a.jsonl"), "downgraded");
    command.env("SSL_CERT_FILE", certificate()).assert().code(69);
    assert!(!Path::new(&work.path("downgraded/embeddings")).exists());
    Ok(())
}
