//! Sums over the DCP connections of a bucket: those on which it sends, and the links by which it follows other nodes.

use std::sync::atomic::{AtomicU64, Ordering};

use replication::{LinkName, producer::stats::ProducerStats};

use crate::state::link::LinkView;

/// Separates a connection's kind from the rest of its name, unless the question says otherwise.
pub(crate) const SEPARATOR: &str = ":";

/// Sums over connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// Connections on which this node sends changes.
    pub producers: u64,
    /// Connections by which this node follows another one.
    pub consumers: u64,
    pub(crate) streams: u64,
    /// Changes sent.
    pub items_sent: u64,
    /// Changes yet to be sent.
    pub items_remaining: u64,
    /// Bytes of the changes sent.
    pub bytes_sent: u64,
    /// What those would be without compression.
    pub inflated_bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) pauses: u64,
    pub(crate) from_disk: u64,
    /// How often replicas here had no room.
    pub(crate) backoffs: u64,
}

/// A bucket's connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// All of them.
    pub all: Sums,
    /// Those between nodes.
    pub replication: Sums,
    /// By kind, in the order of [`Kind`].
    kinds: [Sums; Kind::COUNT],
}

/// What a connection is for, as far as its name says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Replication,
    Xdcr,
    Indexes,
    Search,
    Analytics,
    Eventing,
    Views,
    Other,
}

impl Kind {
    const COUNT: usize = Self::Other as usize + 1;

    fn of(name: &str) -> Self {
        match name.split(SEPARATOR).next() {
            _ if LinkName::parse(name).is_some() => Self::Replication,
            Some("replication") => Self::Replication,
            Some("xdcr") => Self::Xdcr,
            Some("secidx") => Self::Indexes,
            Some("fts") => Self::Search,
            Some("cbas") => Self::Analytics,
            Some("eventing") => Self::Eventing,
            Some("mapreduce_view" | "spatial_view") => Self::Views,
            _ => Self::Other,
        }
    }
}

impl Totals {
    /// Connections of one kind together.
    pub(crate) fn of(&self, kind: Kind) -> Sums {
        self.kinds.get(kind as usize).copied().unwrap_or_default()
    }

    /// A connection that sent changes has ended: what it counted stays, what it was is gone.
    pub(crate) fn add_ended_producer(&mut self, stats: &ProducerStats) {
        self.add(&stats.name, &Sums { producers: 0, ..counted(stats) });
    }

    /// A link to a node that was followed is not wished for any more.
    pub(crate) fn add_ended_link(&mut self, link: &LinkView) {
        self.add(&link.name, &Sums { consumers: 0, ..sum_of_link(link) });
    }

    pub(crate) fn add(&mut self, name: &str, sums: &Sums) {
        self.all.add(sums);
        if let Some(kind) = self.kinds.get_mut(Kind::of(name) as usize) {
            kind.add(sums);
        }
        if LinkName::parse(name).is_some() {
            self.replication.add(sums);
        }
    }
}

impl Sums {
    pub(crate) fn add(&mut self, other: &Self) {
        self.producers += other.producers;
        self.consumers += other.consumers;
        self.streams += other.streams;
        self.items_sent += other.items_sent;
        self.items_remaining += other.items_remaining;
        self.bytes_sent += other.bytes_sent;
        self.inflated_bytes_sent += other.inflated_bytes_sent;
        self.bytes_received += other.bytes_received;
        self.pauses += other.pauses;
        self.from_disk += other.from_disk;
        self.backoffs += other.backoffs;
    }
}

/// A counter's figure.
pub(crate) fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// What a connection has counted.
pub(crate) fn counted(stats: &ProducerStats) -> Sums {
    Sums {
        producers: 1,
        items_sent: load(&stats.items_sent),
        bytes_sent: load(&stats.bytes_sent),
        inflated_bytes_sent: load(&stats.inflated_bytes_sent),
        pauses: load(&stats.pauses),
        ..Sums::default()
    }
}

/// What a link has counted.
pub(crate) fn sum_of_link(link: &LinkView) -> Sums {
    Sums {
        consumers: 1,
        bytes_received: load(&link.stats.bytes),
        backoffs: load(&link.stats.pauses),
        ..Sums::default()
    }
}
