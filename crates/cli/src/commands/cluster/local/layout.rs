//! Which address and which ports each node of a local cluster gets. What was chosen once for a data directory is written
//! down in it: the nodes know each other by these addresses.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, TcpListener},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::commands::Failure;

/// The ports of a node, by the name of their flag.
const STANDARD: [(&str, u16); 6] = [
    ("mgmt", 8091),
    ("mgmt-tls", 18091),
    ("kv", 11210),
    ("kv-tls", 11207),
    ("capi", 8092),
    ("memcached", 11211),
];
/// Where the ports of the first node begin when all nodes share an address, and how far the next node's are from it.
const SHARED: [(u16, u16); 6] = [(9000, 1), (19000, 1), (12000, 4), (12001, 4), (9500, 1), (12002, 4)];
/// How far the port of views over TLS is from the plain one, as in Couchbase. It is not written down: directories of earlier
/// versions do not know it.
const VIEWS_TLS: (&str, u16) = ("capi-tls", 10_000);
/// How often other ports are tried, a hundred further each time.
const ATTEMPTS: u16 = 20;
/// The file that remembers.
const FILE: &str = "nodes.json";

/// Where the nodes listen.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    /// One for each node.
    pub(super) places: Vec<Place>,
}

/// Where one node listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) ip: IpAddr,
    /// In the order of [`STANDARD`].
    ports: [u16; 6],
}

impl Place {
    pub(super) fn rest(&self) -> String {
        self.address(0)
    }

    pub(super) fn kv(&self) -> String {
        self.address(2)
    }

    pub(super) fn views(&self) -> String {
        self.address(4)
    }

    pub(super) fn memcached(&self) -> String {
        self.address(5)
    }

    fn address(&self, port: usize) -> String {
        format!("{}:{}", self.ip, self.ports[port])
    }

    /// The ports as flags of `settee serve`.
    pub(super) fn flags(&self) -> impl Iterator<Item = (String, String)> {
        let names = STANDARD.iter().map(|(name, _)| *name).chain([VIEWS_TLS.0]);
        names.zip(self.all_ports()).map(|(name, port)| (format!("--port-{name}"), port.to_string()))
    }

    /// In the order of [`STANDARD`], and then that of views over TLS.
    fn all_ports(&self) -> impl Iterator<Item = u16> {
        self.ports.into_iter().chain([self.ports[4].saturating_add(VIEWS_TLS.1)])
    }

    fn is_free(&self) -> bool {
        self.all_ports().all(|port| TcpListener::bind((self.ip, port)).is_ok())
    }
}

impl Layout {
    /// What the directory remembers, or else free places for so many nodes.
    pub(super) fn find(directory: &Path, nodes: u16, one_address: bool) -> Result<Self, Failure> {
        let file = directory.join(FILE);
        let doing = |what: &str| format!("cannot {what} {}", file.display());
        if let Ok(text) = fs::read(&file) {
            let known: Self =
                serde_json::from_slice(&text).map_err(|error| Failure::doing(doing("read"), error))?;
            return known.with_room_for(nodes, directory);
        }
        let layout = Self::free(nodes, one_address)?;
        let text =
            serde_json::to_vec_pretty(&layout).map_err(|error| Failure::doing(doing("write"), error))?;
        fs::write(&file, text).map_err(|error| Failure::doing(doing("write"), error))?;
        Ok(layout)
    }

    fn with_room_for(self, nodes: u16, directory: &Path) -> Result<Self, Failure> {
        let known = self.places.len();
        if known != usize::from(nodes) {
            return Err(Failure(format!(
                "{} holds a cluster of {known} nodes, not {nodes}",
                directory.display()
            )));
        }
        match self.places.iter().find(|place| !place.is_free()) {
            Some(taken) => Err(Failure(format!("the ports of the node at {} are taken", taken.rest()))),
            None => Ok(self),
        }
    }

    fn free(nodes: u16, one_address: bool) -> Result<Self, Failure> {
        let shifts = (0..ATTEMPTS).map(|attempt| attempt * 100);
        let apart = (!one_address).then(|| Self::apart(nodes));
        let mut candidates = apart.into_iter().chain(shifts.map(|shift| Self::together(nodes, shift)));
        candidates
            .find(|layout| layout.places.iter().all(Place::is_free))
            .ok_or_else(|| Failure(format!("there are no free ports for {nodes} nodes on loopback")))
    }

    /// An address for each node, the standard ports on all.
    fn apart(nodes: u16) -> Self {
        let ports = STANDARD.map(|(_, port)| port);
        let ip = |number: u16| {
            let [high, low] = number.to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(127, 0, high, low))
        };
        Self { places: (1..=nodes).map(|number| Place { ip: ip(number), ports }).collect() }
    }

    /// One address for all, ports for each node.
    fn together(nodes: u16, shift: u16) -> Self {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let ports = |node: u16| SHARED.map(|(first, step)| first + shift + node * step);
        Self { places: (0..nodes).map(|node| Place { ip, ports: ports(node) }).collect() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_nodes_share_a_port_however_many_there_are() {
        for layout in [Layout::apart(50), Layout::together(50, 0), Layout::together(50, 1900)] {
            let all: Vec<_> = layout
                .places
                .iter()
                .flat_map(|place| place.all_ports().map(|port| (place.ip, port)))
                .collect();
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 50 * 7, "{layout:?}");
        }
    }

    #[test]
    fn a_directory_remembers_where_its_nodes_listen() {
        let directory = std::env::temp_dir().join(format!("settee-layout-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let first = Layout::find(&directory, 2, true).unwrap();
        assert_eq!(Layout::find(&directory, 2, false).unwrap(), first);
        assert!(Layout::find(&directory, 3, true).is_err(), "it holds two");
        let taken = TcpListener::bind((first.places[1].ip, first.places[1].ports[0])).unwrap();
        assert!(Layout::find(&directory, 2, true).is_err(), "a port is taken");
        drop(taken);
        fs::remove_dir_all(&directory).unwrap();
    }
}
