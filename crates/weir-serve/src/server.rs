//! The process: made unprivileged before it takes the first connection. Connections are bounded in
//! number, in size and in how long a client may take to ask.

use std::future::Future;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt;

use crate::account::{self, Account};
use crate::app::{App, Client, router};
use crate::gateways::Places;
use crate::token::{Holder, Token};

/// Connections at a time; others wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 256;

/// How long a client may take to say what it wants.
const HEADERS_WITHIN: Duration = Duration::from_secs(5);

/// Bytes of a request's headers, at most.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Threads: most of the work is waiting.
const WORKERS: usize = 2;

/// Threads for questions to stores, and two to spare.
const BLOCKING_MAX: usize = 6;

/// After an `accept` that failed: the process is out of files.
const BREATH: Duration = Duration::from_millis(100);

/// How to serve.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0: any.
    pub address: SocketAddr,
    /// Whether `address` may be another than loopback: the token goes over the network in clear.
    pub beyond_loopback: bool,
    /// Where gateways are.
    pub places: Places,
    /// The token; made where there is none.
    pub token_file: PathBuf,
    /// Who else may look or do something; absent: nobody.
    pub tokens: Option<PathBuf>,
    /// Who to be, when started as root.
    pub account: Option<Account>,
}

/// Serves until SIGINT or SIGTERM. `ready` is told the link that lets a browser in.
///
/// Call it while the process has one thread: it gives up its privileges first.
///
/// # Errors
/// The address is taken or not allowed, the token cannot be had, or the process is root and is not
/// told whom to become.
pub fn run(options: Options, ready: impl FnOnce(&str)) -> anyhow::Result<()> {
    let Options { address, beyond_loopback, places, token_file, tokens, account } = options;
    anyhow::ensure!(
        address.ip().is_loopback() || beyond_loopback,
        "{address} is not loopback, and the token would cross the network in clear: put a TLS \
         proxy in front, or say --danger-beyond-loopback"
    );
    let token = Token::read_or_make(&token_file)?;
    let mut holders = tokens.as_deref().map(Holder::read).transpose()?.unwrap_or_default();
    holders.push(Holder::admin(token.clone()));
    let listener =
        StdListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    listener.set_nonblocking(true)?;
    match account {
        Some(account) if account::is_root() => account::become_account(account)?,
        None if account::is_root() => anyhow::bail!(
            "what speaks HTTP does not run as root: add --user USER[:GROUP], where GROUP is that \
             of `[store] group`"
        ),
        _ => {}
    }
    let link = format!("http://{}/#token={}", listener.local_addr()?, token.reveal());
    let app = App::with_holders(places, holders);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_MAX)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let listener = TcpListener::from_std(listener)?;
        ready(&link);
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        serve(listener, app, stop).await;
        Ok(())
    })
}

/// Serves `app` on `listener`, and watches its gateways, until `stop` comes.
async fn serve(listener: TcpListener, app: Arc<App>, stop: impl Future<Output = ()>) {
    let watching = {
        let app = Arc::clone(&app);
        tokio::spawn(async move { app.board.watch(&app.places).await })
    };
    let router = router(app);
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let accept = async {
        loop {
            let Ok(turn) = Arc::clone(&connections).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, client)) => {
                    tokio::spawn(connection(stream, client, router.clone(), turn));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = stop => {}
    }
    watching.abort();
}

async fn connection(
    stream: TcpStream,
    client: SocketAddr,
    router: Router,
    _turn: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Client(client.ip()));
        router.clone().oneshot(request)
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN);
    server.max_buf_size(HEADER_BYTES_MAX).half_close(false);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, %client, "a connection ended early");
    }
}
