//! Binding the node's ports, and reporting which ones they became.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::setup::options::{PortOptions, PortsInUse};

/// Connections that may wait to be accepted; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A port that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address} ({what}): {source}; choose another address with --listen or another port with {flag} \
     (0 takes any free one)"
)]
pub struct ListenError {
    address: SocketAddr,
    what: &'static str,
    flag: &'static str,
    source: io::Error,
}

/// Every listener of the node, bound but not yet served.
pub(crate) struct Listeners {
    pub(crate) mgmt: TcpListener,
    pub(crate) mgmt_tls: TcpListener,
    pub(crate) kv: TcpListener,
    pub(crate) kv_tls: TcpListener,
    pub(crate) memcached: Option<TcpListener>,
    /// Those of services, by [`service::Port::name`].
    pub(crate) services: Vec<(&'static str, TcpListener)>,
}

impl Listeners {
    pub(crate) fn bind(ip: IpAddr, ports: &PortOptions) -> Result<Self, ListenError> {
        let bind = |port, what, flag| {
            let address = SocketAddr::new(ip, port);
            listen(address).map_err(|source| ListenError { address, what, flag, source })
        };
        Ok(Self {
            mgmt: bind(ports.mgmt, "REST", "--port-mgmt")?,
            mgmt_tls: bind(ports.mgmt_tls, "REST over TLS", "--port-mgmt-tls")?,
            kv: bind(ports.kv, "documents", "--port-kv")?,
            kv_tls: bind(ports.kv_tls, "documents over TLS", "--port-kv-tls")?,
            memcached: ports
                .memcached
                .map(|port| bind(port, "plain memcached", "--port-memcached"))
                .transpose()?,
            services: vec![
                ("capi", bind(ports.capi, "views", "--port-capi")?),
                ("capi_tls", bind(ports.capi_tls, "views over TLS", "--port-capi-tls")?),
            ],
        })
    }

    pub(crate) fn ports(&self) -> io::Result<PortsInUse> {
        let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        let of_service = |wanted: &str| {
            let found = self.services.iter().find(|(name, _)| *name == wanted);
            found.map_or(Ok(0), |(_, listener)| port(listener))
        };
        Ok(PortsInUse {
            mgmt: port(&self.mgmt)?,
            mgmt_tls: port(&self.mgmt_tls)?,
            kv: port(&self.kv)?,
            kv_tls: port(&self.kv_tls)?,
            capi: of_service("capi")?,
            capi_tls: of_service("capi_tls")?,
            memcached: self.memcached.as_ref().map_or(Ok(0), port)?,
        })
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted node must get its ports back while old connections linger in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// One line of JSON for the program that started the process: address, ports and process id.
pub(crate) fn report(listen: IpAddr, ports: &PortsInUse) -> String {
    let mut report = serde_json::json!(ports);
    report["listen"] = listen.to_string().into();
    report["pid"] = std::process::id().into();
    report.to_string()
}

/// Writes the report where a waiting script finds it whole or not at all.
pub(crate) fn write_ports_file(path: &Path, report: &str) -> io::Result<()> {
    let aside = path.with_extension("new");
    std::fs::write(&aside, format!("{report}\n"))?;
    // It holds no secret, and the script that waits for it may be another user's.
    std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o644))?;
    std::fs::rename(aside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: PortOptions =
        PortOptions { mgmt: 0, mgmt_tls: 0, kv: 0, kv_tls: 0, capi: 0, capi_tls: 0, memcached: None };

    #[test]
    fn free_ports_are_found_and_reported() {
        let ip: IpAddr = "127.0.0.1".parse().unwrap();
        let ports = Listeners::bind(ip, &ANY).unwrap().ports().unwrap();
        assert_ne!(ports.kv, 0);
        assert_eq!(ports.memcached, 0);
        let report: serde_json::Value = serde_json::from_str(&report(ip, &ports)).unwrap();
        assert_eq!(report["kv"], ports.kv);
        assert_eq!(report["pid"], std::process::id());
    }

    #[test]
    fn a_taken_port_is_named_with_the_flag_that_changes_it() {
        let ip: IpAddr = "127.0.0.1".parse().unwrap();
        let first = Listeners::bind(ip, &ANY).unwrap();
        let taken = PortOptions { kv: first.ports().unwrap().kv, ..ANY };
        let error = Listeners::bind(ip, &taken).err().unwrap().to_string();
        assert!(error.contains("--port-kv"), "{error}");
    }
}
