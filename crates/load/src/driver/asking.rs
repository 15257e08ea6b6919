//! Queries of views in a mix: what threads beside the loop ask by HTTP, while an operation's place on a connection waits for them.
//!
//! A query takes a place on a connection as any operation does. So a closed loop has no more operations under way than it says, and an
//! open one is late where queries are. Nothing of a query goes over that connection.

use crate::queries::Queries;
use client::Session;
use mio::Waker;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Queries of one thread of the load that are under way at once.
const THREADS_MAX: usize = 64;
/// In front of what an answer says that it lacks. Within rows there is no such line: texts in JSON have no line ends.
const ERRORS: &[u8] = b"\n\"errors\":";

/// A query on its way: the connection whose place it has, the operation, and its path.
type Asked<J> = (usize, J, String);
/// What came of one: bytes, or why there are none.
type Told<J> = (usize, J, Result<u64, String>);

/// Threads that ask. They end with this.
pub(super) struct Askers<J> {
    orders: Sender<Asked<J>>,
    told: Receiver<Told<J>>,
}

impl<J: Send + 'static> Askers<J> {
    /// So many threads, which wake the loop when they have an answer.
    pub(super) fn new(queries: &Arc<Queries>, places: usize, waker: &Arc<Waker>) -> Self {
        let (orders, inbox) = channel();
        let (outbox, told) = channel();
        let inbox = Arc::new(Mutex::new(inbox));
        for thread in 0..places.clamp(1, THREADS_MAX) {
            let (queries, inbox) = (Arc::clone(queries), Arc::clone(&inbox));
            let (outbox, waker) = (outbox.clone(), Arc::clone(waker));
            std::thread::spawn(move || work(&queries, thread, &inbox, &outbox, &waker));
        }
        Self { orders, told }
    }

    /// An answer that has come.
    pub(super) fn told(&self) -> Option<Told<J>> {
        self.told.try_recv().ok()
    }

    /// Has something asked; gives it back where nobody asks any more.
    pub(super) fn ask(&self, asked: Asked<J>) -> Result<(), Asked<J>> {
        self.orders.send(asked).map_err(|refused| refused.0)
    }
}

fn work<J>(
    queries: &Queries,
    thread: usize,
    inbox: &Mutex<Receiver<Asked<J>>>,
    outbox: &Sender<Told<J>>,
    waker: &Waker,
) {
    let mut node = thread;
    let mut session = None;
    loop {
        let asked = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((connection, job, path)) = asked else { return };
        let answer = ask(queries, &mut session, node, &path);
        if answer.is_err() {
            // Another node may answer.
            (session, node) = (None, node + 1);
        }
        if outbox.send((connection, job, answer)).is_err() {
            return;
        }
        // The loop looks up by itself soon, too.
        let _ = waker.wake();
    }
}

/// The length of a whole answer, or what is wrong with the one that came.
fn ask(queries: &Queries, session: &mut Option<Session>, node: usize, path: &str) -> Result<u64, String> {
    let failed = |error: client::ClientError| format!("query: {error}");
    let open = match session {
        Some(open) => open,
        None => {
            let rest =
                queries.nodes.get(node % queries.nodes.len().max(1)).ok_or("query: no node has views")?;
            session.insert(Session::new(rest.clone()).map_err(failed)?)
        }
    };
    let answer = open.get(path).map_err(failed)?;
    if answer.code != 200 {
        return Err(format!("query: the node answered {}", answer.code));
    }
    if answer.body.windows(ERRORS.len()).any(|part| part == ERRORS) {
        return Err("query: the answer lacks rows".to_owned());
    }
    Ok(answer.body.len() as u64)
}
