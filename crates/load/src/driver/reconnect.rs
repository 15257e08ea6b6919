//! Makes connections while a run goes on: broken ones again, and those to nodes that have joined. Handshakes block, and
//! the loop must not. A node that is dead or stopped must not keep the others' waiting, so each has a thread of its
//! own.

use crate::target::{LoadError, Target};
use client::ClientError;
use std::collections::{HashMap, VecDeque};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

/// Between two attempts at a node that accepts no connections: cheap, and a node that starts should be found at once.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two attempts at a node that accepts and refuses: it is no member yet or any more, and hashes passwords.
const PAUSE_REFUSED: Duration = Duration::from_millis(500);

/// Which connection.
type Made = (usize, TcpStream);

/// Its threads start with the first order for their node and end with this.
pub(super) struct Reconnector {
    target: Arc<Target>,
    threads: HashMap<usize, Sender<usize>>,
    outbox: Sender<Made>,
    made: Receiver<Made>,
}

impl Reconnector {
    pub(super) fn new(target: Arc<Target>) -> Reconnector {
        let (outbox, made) = channel();
        Reconnector { target, threads: HashMap::new(), outbox, made }
    }

    /// Asks for connection `id` to `node` at `address`; attempts go on until one succeeds.
    pub(super) fn make(&mut self, id: usize, node: usize, address: &str) {
        let orders = self.threads.entry(node).or_insert_with(|| {
            let (orders, inbox) = channel();
            let (target, outbox, address) = (self.target.clone(), self.outbox.clone(), address.to_owned());
            std::thread::spawn(move || work(&target, &address, &inbox, &outbox));
            orders
        });
        // The thread ends only when this sender does.
        let _ = orders.send(id);
    }

    /// A connection that is back.
    pub(super) fn made(&self) -> Option<Made> {
        self.made.try_recv().ok()
    }
}

fn work(target: &Target, address: &str, inbox: &Receiver<usize>, outbox: &Sender<Made>) {
    let mut open = VecDeque::new();
    loop {
        if open.is_empty() {
            match inbox.recv() {
                Ok(id) => open.push_back(id),
                Err(_) => return,
            }
        }
        loop {
            match inbox.try_recv() {
                Ok(id) => open.push_back(id),
                Err(TryRecvError::Empty) => break,
                // Nobody waits for them any more.
                Err(TryRecvError::Disconnected) => return,
            }
        }
        match target.connect(address) {
            Ok(stream) => {
                if open.pop_front().is_some_and(|id| outbox.send((id, stream)).is_err()) {
                    return;
                }
            }
            Err(LoadError::Client(ClientError::Connect { .. })) => std::thread::sleep(PAUSE),
            Err(_) => std::thread::sleep(PAUSE_REFUSED),
        }
    }
}
