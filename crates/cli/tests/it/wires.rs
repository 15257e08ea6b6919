//! The wires between the nodes of a cluster, which a test can cut or slow down.
//!
//! Each node has an address of loopback of its own by which the others know it. A forwarder listens there and passes everything on
//! to the node, which listens on 127.0.0.1. So a test reaches a node that is cut off from the others.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::{node::Node, sockets};

/// The ports by which nodes reach one another.
const PORTS: [&str; 4] = ["mgmt", "mgmt_tls", "kv", "kv_tls"];

/// See the module header.
pub(crate) struct Wires(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The processes of the nodes.
    pids: Vec<u32>,
    cut: Option<usize>,
    /// The node whose wires are slow, and how long everything is on its way over one of them.
    slow: Option<(usize, Duration)>,
    open: Vec<Wire>,
}

impl State {
    /// How long bytes are on their way between two nodes. A node reaches itself at once.
    fn travel(&self, from: Option<usize>, to: usize) -> Duration {
        let is_slow = |node| (from == Some(node)) != (to == node);
        self.slow.filter(|(node, _)| is_slow(*node)).map_or(Duration::ZERO, |(_, travel)| travel)
    }
}

/// A connection that is forwarded.
struct Wire {
    /// The node that dialled, if it is one.
    from: Option<usize>,
    to: usize,
    ends: [TcpStream; 2],
}

/// The address by which others know a node.
pub(crate) fn host(node: usize) -> String {
    format!("127.0.0.{}", node + 2)
}

impl Wires {
    /// Forwards to these nodes from now on.
    pub(crate) fn lay(nodes: &[Node]) -> Self {
        let pids = nodes.iter().map(Node::pid).collect();
        let state = Arc::new(Mutex::new(State { pids, ..State::default() }));
        for (to, node) in nodes.iter().enumerate() {
            for port in PORTS.map(|name| node.port(name)) {
                let (listener, state) = (TcpListener::bind((host(to), port)).unwrap(), Arc::clone(&state));
                thread::spawn(move || {
                    for near in listener.incoming().map_while(Result::ok) {
                        let state = Arc::clone(&state);
                        thread::spawn(move || forward(near, to, port, &state));
                    }
                });
            }
        }
        Self(state)
    }

    /// From now on nothing passes between this node and the others.
    pub(crate) fn cut(&self, node: usize) {
        let mut state = self.0.lock().unwrap();
        state.cut = Some(node);
        for wire in state.open.iter().filter(|wire| wire.from == Some(node) || wire.to == node) {
            wire.ends.iter().for_each(close);
        }
    }

    /// From now on everything is on its way for so long between this node and the others, in either direction.
    pub(crate) fn slow(&self, node: usize, travel: Duration) {
        self.0.lock().unwrap().slow = Some((node, travel));
    }

    /// From now on everything passes again, and at once.
    pub(crate) fn mend(&self) {
        let mut state = self.0.lock().unwrap();
        (state.cut, state.slow) = (None, None);
    }
}

fn close(end: &TcpStream) {
    // It may be closed already.
    let _ = end.shutdown(Shutdown::Both);
}

/// Passes on what comes over a connection to a node, until it ends or is cut.
fn forward(near: TcpStream, to: usize, port: u16, state: &Mutex<State>) {
    let dialled = near.peer_addr().map(|address| address.port()).unwrap();
    let pids = state.lock().unwrap().pids.clone();
    let from = pids.iter().position(|&pid| sockets::is_dialled_from(pid, dialled));
    let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { return };
    for end in [&near, &far] {
        // The end of the connection may come first.
        let _ = end.set_nodelay(true);
    }
    let Ok(ends) = near.try_clone().and_then(|near| Ok([near, far.try_clone()?])) else { return };
    {
        let mut state = state.lock().unwrap();
        if state.cut.is_some_and(|cut| to == cut || from == Some(cut)) {
            return;
        }
        state.open.push(Wire { from, to, ends });
    }
    let travel = || state.lock().unwrap().travel(from, to);
    thread::scope(|scope| {
        scope.spawn(|| carry(&far, &near, travel));
        carry(&near, &far, travel);
    });
}

/// Carries bytes from one end to the other, each of which arrives so long after it was sent.
fn carry(from: &TcpStream, to: &TcpStream, travel: impl Fn() -> Duration) {
    let (sent, arriving) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut to = to;
            for (due, bytes) in arriving {
                wait_until(due);
                if to.write_all(&bytes).is_err() {
                    break;
                }
            }
            close(to);
        });
        let (mut from, mut bytes) = (from, vec![0; 64 << 10]);
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if sent.send((Instant::now() + travel(), bytes[..length].to_vec())).is_err() {
                break;
            }
        }
        drop(sent);
        // However it ends, it is over.
        close(from);
    });
}

fn wait_until(due: Instant) {
    while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}
