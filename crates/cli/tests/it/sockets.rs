//! The connections between processes, as the kernel has them.

use std::{collections::BTreeSet, fs};

/// An established connection has this state in the kernel's list.
const ESTABLISHED: &str = "01";

/// The ports of 127.0.0.1 that a process has connections to: each as often as it has one.
pub(crate) fn dialled_by(pid: u32) -> Vec<u16> {
    connections_of(pid).into_iter().map(|(_, remote)| remote).collect()
}

/// Whether a process has a connection from this port of its own.
pub(crate) fn is_dialled_from(pid: u32, port: u16) -> bool {
    connections_of(pid).iter().any(|&(own, _)| own == port)
}

/// The ports of a process's connections: its own and the other one.
fn connections_of(pid: u32) -> Vec<(u16, u16)> {
    let own = sockets_of(pid);
    let list = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    let connections = list.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (state, inode) = (*fields.get(3)?, *fields.get(9)?);
        (state == ESTABLISHED && own.contains(inode)).then_some(())?;
        Some((port(fields.get(1)?)?, port(fields.get(2)?)?))
    });
    connections.collect()
}

/// The inodes of a process's sockets.
fn sockets_of(pid: u32) -> BTreeSet<String> {
    // A process that has ended has none.
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeSet::new() };
    let targets = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets
        .filter_map(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect()
}
