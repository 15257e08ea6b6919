//! Who is connected to whom, as the kernel has it.

use std::{collections::BTreeSet, fs};

/// An established connection has this state in the kernel's list.
const ESTABLISHED: &str = "01";

/// The ports of 127.0.0.1 that a process has connections to: each as often as it has one.
pub(crate) fn dialled_by(pid: u32) -> Vec<u16> {
    let own = sockets_of(pid);
    let list = fs::read_to_string("/proc/net/tcp").unwrap();
    let connections = list.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (remote, state, inode) = (*fields.get(2)?, *fields.get(3)?, *fields.get(9)?);
        (state == ESTABLISHED && own.contains(inode)).then_some(())?;
        u16::from_str_radix(remote.rsplit_once(':')?.1, 16).ok()
    });
    connections.collect()
}

/// The inodes of a process's sockets.
fn sockets_of(pid: u32) -> BTreeSet<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets
        .filter_map(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect()
}
