//! The wires between the nodes of a cluster, which a test can cut.
//!
//! Each node has an address of loopback of its own by which the others know it. A forwarder listens there and passes everything on
//! to the node, which listens on 127.0.0.1. So a test reaches a node that is cut off from the others.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
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
    open: Vec<Wire>,
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

    /// From now on everything passes again.
    pub(crate) fn mend(&self) {
        self.0.lock().unwrap().cut = None;
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
    let twins = || Ok::<_, io::Error>([near.try_clone()?, far.try_clone()?]);
    {
        let mut state = state.lock().unwrap();
        if state.cut.is_some_and(|cut| to == cut || from == Some(cut)) {
            return;
        }
        state.open.push(Wire { from, to, ends: twins().unwrap() });
    }
    let [near_too, far_too] = twins().unwrap();
    let back = thread::spawn(move || copy(far_too, near_too));
    copy(near, far);
    let _ = back.join();
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    // However it ends, it is over.
    let _ = io::copy(&mut from, &mut to);
    [from, to].iter().for_each(close);
}
