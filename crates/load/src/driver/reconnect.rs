//! Makes broken connections again, in a thread of its own: handshakes block, and the loop must not.

use crate::target::Target;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Between two attempts at the same connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Which connection, to which node.
type Order = (usize, usize);
/// Which connection.
type Made = (usize, TcpStream);

/// Starts its thread with the first broken connection; the thread ends with this.
pub(super) struct Reconnector {
    target: Arc<Target>,
    thread: Option<(Sender<Order>, Receiver<Made>)>,
}

impl Reconnector {
    pub(super) fn new(target: Arc<Target>) -> Reconnector {
        Reconnector { target, thread: None }
    }

    /// Asks for connection `id` to `node`; attempts go on until one succeeds.
    pub(super) fn make(&mut self, id: usize, node: usize) {
        let target = &self.target;
        let (orders, _) = self.thread.get_or_insert_with(|| {
            let (orders, inbox) = channel();
            let (outbox, made) = channel();
            let target = target.clone();
            std::thread::spawn(move || work(&target, &inbox, &outbox));
            (orders, made)
        });
        // The thread ends only when this sender does.
        let _ = orders.send((id, node));
    }

    /// A connection that is back.
    pub(super) fn made(&self) -> Option<(usize, TcpStream)> {
        self.thread.as_ref()?.1.try_recv().ok()
    }
}

fn work(target: &Target, inbox: &Receiver<Order>, outbox: &Sender<Made>) {
    let mut open = Vec::new();
    loop {
        if open.is_empty() {
            match inbox.recv() {
                Ok(order) => open.push(order),
                Err(_) => return,
            }
        }
        while let Ok(order) = inbox.try_recv() {
            open.push(order);
        }
        let mut failed = Vec::new();
        for (id, node) in open.drain(..) {
            match target.connect(node) {
                Ok(stream) => {
                    if outbox.send((id, stream)).is_err() {
                        return;
                    }
                }
                Err(_) => failed.push((id, node)),
            }
        }
        if !failed.is_empty() {
            std::thread::sleep(PAUSE);
        }
        open = failed;
    }
}
