//! An S3 server over a folder, and a line to it that breaks.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use assert_cmd::Command;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::runtime::Runtime;

type Failure = Box<dyn std::error::Error>;

/// The bucket of the server.
pub(super) const BUCKET: &str = "bucket";

const KEY: &str = "someone";
const SECRET: &str = "a-secret-that-is-known";

/// An S3 server; its bucket is a folder.
pub(super) struct S3 {
    folder: TempDir,
    address: SocketAddr,
    // Dropped, it ends the server.
    _runtime: Runtime,
}

impl S3 {
    pub(super) fn start() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join(BUCKET))?;
        let files = FileSystem::new(folder.path()).map_err(|e| format!("{e:?}"))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let service = builder.build();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        runtime.spawn(async move {
            let http = Builder::new(TokioExecutor::new());
            while let Ok((socket, _)) = listener.accept().await {
                let connection = http.serve_connection(TokioIo::new(socket), service.clone());
                tokio::spawn(connection.into_owned());
            }
        });
        Ok(Self { folder, address, _runtime: runtime })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The file that an object is.
    pub(super) fn object(&self, key: &str) -> PathBuf {
        self.folder.path().join(BUCKET).join(key)
    }

    /// Puts the file `from` into the bucket.
    pub(super) fn put(&self, from: &Path, key: &str) -> Result<(), Failure> {
        let to = self.object(key);
        std::fs::create_dir_all(to.parent().ok_or("no parent")?)?;
        std::fs::copy(from, to)?;
        Ok(())
    }

    /// Parts that the server keeps of uploads that were not completed. An upload whose first answer is
    /// lost has none: its client cannot know it.
    pub(super) fn unfinished(&self) -> Result<usize, Failure> {
        let names = std::fs::read_dir(self.folder.path())?;
        let names = names.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: Vec<String> = names.collect::<std::io::Result<_>>()?;
        Ok(names.iter().filter(|name| name.starts_with(".upload_id-")).count())
    }
}

/// Lets `command` use the S3 server at `address`.
pub(super) fn with_s3(command: &mut Command, address: SocketAddr) -> &mut Command {
    command
        .env("AWS_ENDPOINT_URL", format!("http://{address}"))
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("AWS_REGION", "us-east-1")
}

/// What a line does to the connections that go over it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    /// Every connection ends after so many bytes of answers.
    pub(super) cut_after: usize,
    /// One in so many connections is answered with 503 at once.
    pub(super) busy_every: usize,
}

/// A line to a server.
pub(super) struct Line {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
    cut: Arc<AtomicUsize>,
    busy: Arc<AtomicUsize>,
}

impl Line {
    pub(super) fn to(server: SocketAddr, faults: Faults) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (stopped, cut, busy) =
            <(Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let (end, cuts, refusals) = (Arc::clone(&stopped), Arc::clone(&cut), Arc::clone(&busy));
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let (cuts, refusals) = (Arc::clone(&cuts), Arc::clone(&refusals));
                std::thread::spawn(move || {
                    // A connection that fails is what the line is for.
                    let _ = if number % faults.busy_every == faults.busy_every - 1 {
                        refusals.fetch_add(1, Ordering::SeqCst);
                        refuse(client)
                    } else {
                        forward(&client, server, faults.cut_after, &cuts)
                    };
                });
            }
        });
        Ok(Self { address, stopped, cut, busy })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that were cut, and those that were refused.
    pub(super) fn faults(&self) -> (usize, usize) {
        (self.cut.load(Ordering::SeqCst), self.busy.load(Ordering::SeqCst))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // The thread sees it at the next connection.
        let _ = TcpStream::connect(self.address);
    }
}

/// The head of a request.
fn head(mut client: &TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte)? > 0 {
        head.extend_from_slice(&byte);
    }
    Ok(String::from_utf8_lossy(&head).to_ascii_lowercase())
}

/// A server whose answers claim many more bytes than come.
pub(super) fn liar() -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A client that hung up is seen at its own end.
            let _ = lie(&client);
        }
    });
    Ok(address)
}

/// A petabyte of which a range may be asked for, and a terabyte of anything else.
fn lie(mut client: &TcpStream) -> std::io::Result<()> {
    let head = head(client)?;
    let range = head.split_once("range: bytes=").and_then(|(_, range)| range.lines().next());
    let answer = match range {
        Some(range) => format!(
            "206 Partial Content\r\nETag: \"a\"\r\nContent-Range: bytes {range}/{}\r\nContent-Length: {}",
            1_u64 << 50,
            if range == "0-0" { 1 } else { 100_000 },
        ),
        None if head.contains("/refused") => {
            "403 Forbidden\r\nContent-Length: 1099511627776".into()
        }
        None => "200 OK\r\nContent-Length: 1099511627776".to_owned(),
    };
    client.write_all(format!("HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n{{").as_bytes())?;
    // In two pieces, since one alone is taken as it is.
    for _ in 0..usize::from(range != Some("0-0")) {
        std::thread::sleep(std::time::Duration::from_millis(50));
        client.write_all(b"{")?;
    }
    Ok(())
}

/// Answers 503 once the head of a request is there.
fn refuse(mut client: TcpStream) -> std::io::Result<()> {
    head(&client)?;
    client.write_all(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// Passes bytes both ways until so many came back.
fn forward(
    client: &TcpStream,
    server: SocketAddr,
    cut_after: usize,
    cuts: &AtomicUsize,
) -> std::io::Result<()> {
    let server = TcpStream::connect(server)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let up = std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
    let (mut from_server, mut to_client) = (&server, client);
    let (mut buffer, mut left) = (vec![0; 16 << 10], cut_after);
    while left > 0 {
        let most = buffer.len().min(left);
        let length = from_server.read(&mut buffer[..most])?;
        if length == 0 {
            break;
        }
        to_client.write_all(&buffer[..length])?;
        left -= length;
    }
    if left == 0 {
        cuts.fetch_add(1, Ordering::SeqCst);
    }
    client.shutdown(Shutdown::Both)?;
    server.shutdown(Shutdown::Both)?;
    // It ends with its sockets.
    let _ = up.join();
    Ok(())
}
