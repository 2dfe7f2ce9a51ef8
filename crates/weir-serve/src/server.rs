//! The process: made unprivileged before it takes the first connection. Connections are bounded in
//! number, in size and in how long a client may take to ask.

use std::collections::VecDeque;
use std::future::Future;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
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
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tower::ServiceExt;

use crate::account::{self, Account};
use crate::app::{App, Client, router};
use crate::gateways::Places;
use crate::token::{Holder, Token};

/// Connections at a time. One more takes the place of the oldest that showed no token yet: who
/// opens many keeps nobody out. Where all showed one, it waits.
const CONNECTIONS_MAX: usize = 256;

/// How long a client may take to say what it wants.
const HEADERS_WITHIN: Duration = Duration::from_secs(5);

/// Bytes of a request's headers, at most.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Bytes of memory that SQLite may take for all questions together.
const SQLITE_BYTES_MAX: u32 = 32 << 20;

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
    let other = account.filter(|it| it.user != 0);
    anyhow::ensure!(
        other.is_some() || !account::is_root(),
        "what speaks HTTP does not run as root: say --user USER[:GROUP] of another, where GROUP is \
         that of `[store] group`"
    );
    let listener =
        StdListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    listener.set_nonblocking(true)?;
    let token = Token::read_or_make(&token_file)?;
    let mut holders = tokens.as_deref().map(Holder::read).transpose()?.unwrap_or_default();
    holders.push(Holder::admin(token.clone()));
    if let Some(account) = other.filter(|_| account::is_root()) {
        account::become_account(account)?;
    }
    weir_store::sqlite::bound_memory(SQLITE_BYTES_MAX)?;
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
    let router = router(Arc::clone(&app));
    let connections = Connections::new();
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => {
                    let turn = connections.take().await;
                    tokio::spawn(connection(
                        stream,
                        client,
                        Arc::clone(&app),
                        router.clone(),
                        turn,
                    ));
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

/// The connections that are open, the oldest first.
struct Connections {
    places: Arc<Semaphore>,
    open: Mutex<VecDeque<Weak<Turn>>>,
}

/// A connection's place.
struct Turn {
    /// Whether it showed a token.
    is_let_in: AtomicBool,
    /// Told when it has to make room.
    leave: Notify,
    _place: OwnedSemaphorePermit,
}

impl Connections {
    fn new() -> Self {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { places, open: Mutex::default() }
    }

    /// A place, when there is one.
    async fn take(&self) -> Arc<Turn> {
        if self.places.available_permits() == 0 {
            self.make_room();
        }
        let place = Arc::clone(&self.places).acquire_owned().await.expect("it is never closed");
        let (is_let_in, leave) = (AtomicBool::new(false), Notify::new());
        let turn = Arc::new(Turn { is_let_in, leave, _place: place });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|it| it.strong_count() > 0);
        open.push_back(Arc::downgrade(&turn));
        turn
    }

    fn make_room(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut strangers = open.iter().filter_map(Weak::upgrade);
        if let Some(oldest) = strangers.find(|it| !it.is_let_in.load(Relaxed)) {
            oldest.leave.notify_one();
        }
    }
}

async fn connection(
    stream: TcpStream,
    client: SocketAddr,
    app: Arc<App>,
    router: Router,
    turn: Arc<Turn>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        if app.guard.holder(request.headers()).is_some() {
            turn.is_let_in.store(true, Relaxed);
        }
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Client(client.ip()));
        router.clone().oneshot(request)
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN);
    server.max_buf_size(HEADER_BYTES_MAX).half_close(false);
    tokio::select! {
        served = server.serve_connection(TokioIo::new(stream), service) => {
            if let Err(error) = served {
                tracing::debug!(%error, %client, "a connection ended early");
            }
        }
        () = turn.leave.notified() => tracing::debug!(%client, "a connection had to make room"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    async fn ask(stream: &mut TcpStream, path: &str) -> String {
        let said =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
        stream.write_all(said.as_bytes()).await.unwrap();
        let (mut answer, mut piece) = (String::new(), [0; 4096]);
        while !is_whole(&answer) {
            let length = stream.read(&mut piece).await.unwrap();
            assert!(length > 0, "cut off: {answer}");
            answer += &String::from_utf8_lossy(&piece[..length]);
        }
        answer
    }

    fn is_whole(answer: &str) -> bool {
        let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|it| it.strip_prefix("content-length: "));
        length.is_some_and(|it| it.parse() == Ok(body.len()))
    }

    #[tokio::test]
    async fn who_opens_connections_and_says_nothing_keeps_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = App::new(Places::default(), Token::new(TOKEN).unwrap());
        let server = tokio::spawn(serve(listener, app, std::future::pending()));
        let mut known = TcpStream::connect(address).await.unwrap();
        assert!(ask(&mut known, "/api/v1/status").await.starts_with("HTTP/1.1 200"));
        let mut silent = Vec::new();
        for _ in 1..CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut late = TcpStream::connect(address).await.unwrap();
        assert!(ask(&mut late, "/healthz").await.starts_with("HTTP/1.1 200"));
        // The oldest that said nothing made room, and it alone.
        assert_eq!(silent[0].read(&mut [0; 1]).await.unwrap(), 0);
        let second = silent[1].try_read(&mut [0; 1]).unwrap_err();
        assert_eq!(second.kind(), ErrorKind::WouldBlock);
        assert!(ask(&mut known, "/healthz").await.starts_with("HTTP/1.1 200"));
        server.abort();
    }
}
