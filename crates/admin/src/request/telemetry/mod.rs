//! `/_appTelemetry`: asks SDKs again and again how long operations took at their clients, as Couchbase 8 does. A client opens a WebSocket
//! with its login. The node sends the byte 0 when a report is due; the client answers with the byte 0 and Prometheus' text.
//!
//! Invariants, whatever a client sends:
//! - A report has [`REPORT_BYTES_MAX`] bytes at most and comes within [`ANSWER`]. [`REPORTS_MAX`] are on their way at a time.
//! - Between two questions a connection keeps buffers of about [`KEPT_BYTES_MAX`] bytes at most: those of a larger report go with it.
//! - A client that is not asked may send [`IDLE_BYTES_MAX`] bytes between two questions: pings. Anything else ends its connection.
//! - A client that loses its right, its place or its account is asked no more. So is every client once the setting is off.

mod allowance;
mod handshake;

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::http::{HeaderValue, StatusCode, header, request::Parts};
use cluster::AppTelemetry;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{
    Afterwards, BoxFuture,
    reply::{self, Outcome},
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::{
    sync::{Semaphore, SemaphorePermit, watch as flags},
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::protocol::{Message, Role, WebSocketConfig},
};

use self::allowance::{Allowance, Metered};

/// Longest report.
const REPORT_BYTES_MAX: usize = 1024 * 1024;
/// Longest report whose buffers stay with its connection, which otherwise keeps them for life.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// Most clients of a node, whatever the setting allows: the other connections of its port are for REST.
const CLIENTS_MAX: u32 = 250;
/// Most reports that are awaited or read at a time.
const REPORTS_MAX: usize = 8;
/// How long a client may take to answer, as in Couchbase.
const ANSWER: Duration = Duration::from_secs(1);
/// What a client may send between two questions.
const IDLE_BYTES_MAX: usize = 16 * 1024;
/// How long a client may take to hear that its connection ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// Asks for a report; the first byte of an answer that is one.
const REPORT: u8 = 0;

type Socket = WebSocketStream<Metered<TokioIo<Upgraded>>>;

/// A client as the node sees it while it is asked.
pub(crate) trait Client: Send + Sync + 'static {
    /// How clients are asked by now, or why this one is not any more.
    fn still_asked(&mut self) -> Result<AppTelemetry, &'static str>;
    /// Takes what the client has told. False: it was no report.
    fn told(&self, answer: Vec<u8>) -> BoxFuture<'static, bool>;
    /// Tells of changes of the settings.
    fn changes(&self) -> flags::Receiver<i64>;
    /// Turns true when the node stops.
    fn closing(&self) -> flags::Receiver<bool>;
}

/// The clients of a node that are asked.
pub(crate) struct Telemetry {
    seats: Mutex<Seats>,
    reports: Semaphore,
    /// Is told how many there are.
    counted: Box<dyn Fn(usize) + Send + Sync>,
}

#[derive(Default)]
struct Seats {
    next: u64,
    taken: BTreeSet<u64>,
}

impl Telemetry {
    pub(crate) fn new(counted: impl Fn(usize) + Send + Sync + 'static) -> Arc<Self> {
        let reports = Semaphore::new(REPORTS_MAX);
        Arc::new(Self { seats: Mutex::default(), reports, counted: Box::new(counted) })
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's place among those that are asked; dropping it gives it back.
struct Seat {
    all: Arc<Telemetry>,
    number: u64,
}

impl Seat {
    /// None: there are as many as there may be.
    fn take(all: &Arc<Telemetry>, clients_max: u32) -> Option<Self> {
        let mut seats = all.seats();
        if seats.taken.len() >= clients_max.min(CLIENTS_MAX) as usize {
            return None;
        }
        let number = seats.next;
        seats.next += 1;
        seats.taken.insert(number);
        (all.counted)(seats.taken.len());
        Some(Self { all: Arc::clone(all), number })
    }

    /// Whether it is within what is allowed by now.
    fn is_allowed(&self, clients_max: u32) -> bool {
        self.all.seats().taken.range(..self.number).count() < clients_max.min(CLIENTS_MAX) as usize
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.all.seats();
        seats.taken.remove(&self.number);
        (self.all.counted)(seats.taken.len());
    }
}

/// Begins to ask the sender of a request, who has the right to tell. What follows on the connection is put into `afterwards`.
pub(crate) fn open(
    all: &Arc<Telemetry>,
    mut client: impl Client,
    parts: &mut Parts,
    afterwards: &Afterwards,
) -> Outcome {
    let Ok(AppTelemetry { clients_max, .. }) = client.still_asked() else {
        return Ok(reply::not_found());
    };
    let accepted = handshake::accept(&parts.method, &parts.headers)?;
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let upgrade = upgrade.ok_or_else(|| reply::bad_request("This connection stays with HTTP."))?;
    let Some(seat) = Seat::take(all, clients_max) else {
        return Ok(reply::text(StatusCode::TOO_MANY_REQUESTS, ""));
    };
    afterwards.follow(Box::pin(async move {
        match upgrade.await {
            Ok(upgraded) => converse(client, &seat, TokioIo::new(upgraded)).await,
            Err(error) => tracing::debug!(%error, "a client's telemetry did not begin"),
        }
    }));
    let mut reply = reply::text(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = reply.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    Ok(reply)
}

async fn converse(mut client: impl Client, seat: &Seat, stream: TokioIo<Upgraded>) {
    let allowance = Arc::new(Allowance::new(IDLE_BYTES_MAX));
    let mut socket = socket(Metered::new(stream, Arc::clone(&allowance))).await;
    let mut asked = Instant::now();
    let reason = loop {
        match ask_on(&mut client, seat, &mut socket, &allowance, &mut asked).await {
            Ok(()) => socket = self::socket(socket.into_inner()).await,
            Err(reason) => break reason,
        }
    };
    tracing::debug!(reason, "a client is asked no more for telemetry");
    let _ = timeout(FAREWELL, socket.close(None)).await;
}

/// A connection with buffers that have nothing in them.
async fn socket(stream: Metered<TokioIo<Upgraded>>) -> Socket {
    let config = WebSocketConfig::default()
        .read_buffer_size(4 * 1024)
        .write_buffer_size(0)
        .max_write_buffer_size(IDLE_BYTES_MAX)
        .max_message_size(Some(REPORT_BYTES_MAX))
        .max_frame_size(Some(REPORT_BYTES_MAX));
    WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await
}

/// Asks until there is a reason to stop, and returns that; or until a report was so large that the socket's buffers are to go.
async fn ask_on(
    client: &mut impl Client,
    seat: &Seat,
    socket: &mut Socket,
    allowance: &Allowance,
    asked: &mut Instant,
) -> Result<(), &'static str> {
    loop {
        let turn = turn(client, seat, socket, *asked).await?;
        // It may have lost its right while it waited for its turn.
        still_asked(client, seat)?;
        *asked = Instant::now();
        allowance.allow(REPORT_BYTES_MAX + IDLE_BYTES_MAX);
        let answer = timeout(ANSWER, ask(socket)).await;
        allowance.allow(IDLE_BYTES_MAX);
        let answer = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err("its connection is broken"),
            Err(_) => return Err("it does not answer in time"),
        };
        let is_large = answer.len() > KEPT_BYTES_MAX;
        if !client.told(answer).await {
            return Err("its answer is no report");
        }
        drop(turn);
        if is_large {
            return Ok(());
        }
    }
}

/// Waits until a report is due and there is room for it, or returns why the client is asked no more.
async fn turn<'a>(
    client: &mut impl Client,
    seat: &'a Seat,
    socket: &mut Socket,
    asked: Instant,
) -> Result<SemaphorePermit<'a>, &'static str> {
    let (mut changes, mut closing) = (client.changes(), client.closing());
    // Outlives what happens meanwhile: a request that waits keeps its place.
    let mut turn = pin!(seat.all.reports.acquire());
    let mut is_due = false;
    loop {
        let interval = still_asked(client, seat)?;
        let due = async {
            if !is_due {
                sleep_until(asked + interval).await;
                is_due = true;
            }
            turn.as_mut().await
        };
        tokio::select! {
            _ = closing.wait_for(|closing| *closing) => return Err("the node stops"),
            changed = changes.changed() => changed.map_err(|_| "the node stops")?,
            said = socket.next() => match said {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_))) | None => return Err("it has left"),
                Some(Ok(_)) => return Err("it was not asked"),
                Some(Err(_)) => return Err("its connection is broken"),
            },
            turn = due => return turn.map_err(|_| "the node stops"),
        }
    }
}

/// How long it is from one question to the next, or why the client is asked no more.
fn still_asked(client: &mut impl Client, seat: &Seat) -> Result<Duration, &'static str> {
    let settings = client.still_asked()?;
    if !seat.is_allowed(settings.clients_max) {
        return Err("fewer clients are asked");
    }
    Ok(Duration::from_secs(settings.interval_secs.into()))
}

/// None: the connection has ended.
async fn ask(socket: &mut Socket) -> Option<Vec<u8>> {
    socket.send(Message::Binary(vec![REPORT].into())).await.ok()?;
    loop {
        match socket.next().await?.ok()? {
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Binary(answer) => return Some(answer.into()),
            _ => return None,
        }
    }
}

/// The text of an answer that is a report.
pub(super) fn report(answer: &[u8]) -> Option<&str> {
    let (&first, text) = answer.split_first()?;
    (first == REPORT).then(|| std::str::from_utf8(text).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_most_connections_of_the_port_to_others() {
        let all = Telemetry::new(|_| {});
        let seats: Vec<_> = (0..2_000).map_while(|_| Seat::take(&all, 1_024)).collect();
        assert_eq!(seats.len(), CLIENTS_MAX as usize);
        assert!(seats.iter().all(|seat| seat.is_allowed(1_024)));
        assert_eq!(seats.iter().filter(|seat| seat.is_allowed(2)).count(), 2);
        drop(seats);
        assert!(Seat::take(&all, 1).is_some());
    }
}
