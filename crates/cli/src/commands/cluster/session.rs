//! How the cluster commands reach a cluster: which node, as whom, and how nodes are found by the names people use.

use clap::Args;
use client::{ClientError, Rest, rest::MGMT_PORT};
use serde_json::Value;

use crate::commands::Failure;

/// Where the cluster is, and as whom to talk to it.
#[derive(Args, Clone)]
pub(in crate::commands) struct Access {
    /// REST addresses of nodes; the first that answers is used
    #[arg(
        long,
        default_value = "127.0.0.1:8091",
        value_delimiter = ',',
        value_name = "HOST:PORT",
        env = "SETTEE_HOST"
    )]
    host: Vec<String>,

    /// Administrator
    #[arg(long, short, default_value = "Administrator", value_name = "NAME", env = "SETTEE_USERNAME")]
    username: String,

    /// The administrator's password; the environment keeps it out of the process list
    #[arg(long, short, env = "SETTEE_PASSWORD", hide_env_values = true, default_value = "")]
    password: String,
}

/// A cluster that answers.
pub(in crate::commands) struct Session {
    pub(in crate::commands) rest: Rest,
    access: Access,
    address: String,
}

/// Why a cluster does not show something.
pub(in crate::commands) struct Unshown {
    pub(in crate::commands) failure: Failure,
    /// It answers, and the login is wrong or has not the right.
    pub(in crate::commands) is_refused: bool,
}

impl Unshown {
    fn by(doing: impl std::fmt::Display, error: ClientError) -> Self {
        let is_refused = matches!(error, ClientError::Rest { code: 401 | 403, .. });
        Self { failure: failed(doing, error), is_refused }
    }
}

/// A node as REST shows it.
#[derive(Clone)]
pub(in crate::commands) struct Node(pub(in crate::commands) Value);

impl Access {
    /// With the login of a cluster that was just made.
    pub(in crate::commands) fn to(host: String, username: &str, password: &str) -> Self {
        Self { host: vec![host], username: username.into(), password: password.into() }
    }

    /// Finds a node that answers.
    pub(in crate::commands) fn open(&self) -> Result<Session, Failure> {
        self.find().map_err(|unshown| unshown.failure)
    }

    /// The same, for a caller that tells a cluster that is not there from one that does not let it in.
    pub(in crate::commands) fn find(&self) -> Result<Session, Unshown> {
        let (rest, _) = self.look("its cluster", |rest| rest.get("/pools/default"))?;
        let address = rest.address.clone();
        Ok(Session { rest, access: self.clone(), address })
    }

    /// The first node that shows what is asked for, and what it shows. `what` is that in words.
    pub(in crate::commands) fn first<T>(
        &self,
        what: impl std::fmt::Display,
        ask: impl Fn(&Rest) -> client::Result<T>,
    ) -> Result<(Rest, T), Failure> {
        self.look(what, ask).map_err(|unshown| unshown.failure)
    }

    fn look<T>(
        &self,
        what: impl std::fmt::Display,
        ask: impl Fn(&Rest) -> client::Result<T>,
    ) -> Result<(Rest, T), Unshown> {
        let mut last = None;
        for host in &self.host {
            let rest = self.rest(&with_port(host));
            match ask(&rest) {
                Ok(shown) => return Ok((rest, shown)),
                Err(error) => last = Some(Unshown::by(format_args!("{host} does not show {what}"), error)),
            }
        }
        let nowhere = || Unshown { failure: Failure("--host names no node".into()), is_refused: false };
        Err(last.unwrap_or_else(nowhere))
    }

    /// An HTTP port of a node, to be talked to with this login.
    pub(in crate::commands) fn rest(&self, address: &str) -> Rest {
        Rest::new(address, Some((&self.username, &self.password)))
    }

    /// The login.
    pub(in crate::commands) fn login(&self) -> (&str, &str) {
        (&self.username, &self.password)
    }
}

impl Session {
    /// The login, to be passed on to nodes that are added.
    pub(in crate::commands) fn login(&self) -> (&str, &str) {
        self.access.login()
    }

    /// The REST address of the node that answers.
    pub(in crate::commands) fn address(&self) -> &str {
        &self.address
    }

    /// `/pools/default`.
    pub(in crate::commands) fn pool(&self) -> Result<Value, Failure> {
        self.get("/pools/default")
    }

    pub(in crate::commands) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.show(path).map_err(|unshown| unshown.failure)
    }

    /// What is at that path.
    pub(in crate::commands) fn show(&self, path: &str) -> Result<Value, Unshown> {
        self.rest.get_json(path).map_err(|error| Unshown::by(format_args!("cannot read {path}"), error))
    }

    pub(in crate::commands) fn post(
        &self,
        path: &str,
        form: &[(&str, &str)],
        doing: &str,
    ) -> Result<Vec<u8>, Failure> {
        self.rest.post(path, form).map_err(|error| failed(doing, error))
    }

    /// Every node, members of all kinds.
    pub(in crate::commands) fn nodes(&self) -> Result<Vec<Node>, Failure> {
        Ok(nodes_of(&self.pool()?))
    }
}

/// The nodes in an answer that lists them.
pub(in crate::commands) fn nodes_of(pool: &Value) -> Vec<Node> {
    pool["nodes"].as_array().into_iter().flatten().cloned().map(Node).collect()
}

impl Node {
    /// `host:port`, as REST names it.
    pub(in crate::commands) fn hostname(&self) -> &str {
        self.text("hostname")
    }

    /// The name REST's changes take.
    pub(in crate::commands) fn otp(&self) -> &str {
        self.text("otpNode")
    }

    pub(in crate::commands) fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }

    /// Whether people mean this node by `name`: its host, its host and port, its internal name, or its uuid.
    fn is_called(&self, name: &str) -> bool {
        let name = name.rsplit("//").next().unwrap_or(name).trim_end_matches('/');
        let same =
            |known: &str| known == name || known.rsplit_once(':').is_some_and(|(host, _)| host == name);
        same(self.hostname())
            || same(self.text("configuredHostname"))
            || [self.otp(), self.text("nodeUUID")].contains(&name)
    }
}

/// The nodes people mean by `names`, in that order; a name that fits none or several is refused.
pub(in crate::commands) fn find(nodes: &[Node], names: &[String]) -> Result<Vec<Node>, Failure> {
    names.iter().map(|name| find_one(nodes, name)).collect()
}

fn find_one(nodes: &[Node], name: &str) -> Result<Node, Failure> {
    let mut fitting = nodes.iter().filter(|node| node.is_called(name));
    let known = || nodes.iter().map(Node::hostname).collect::<Vec<_>>().join(", ");
    match (fitting.next(), fitting.next()) {
        (Some(node), None) => Ok(node.clone()),
        (None, _) => Err(Failure(format!("{name} is no node of this cluster; its nodes are {}", known()))),
        (Some(_), Some(_)) => Err(Failure(format!("{name} fits several nodes; say HOST:PORT: {}", known()))),
    }
}

/// Node names joined as REST's lists of nodes want them.
pub(in crate::commands) fn otp_list(nodes: &[Node]) -> String {
    nodes.iter().map(Node::otp).collect::<Vec<_>>().join(",")
}

/// An address without its scheme, and with the standard REST port where it names none.
pub(in crate::commands) fn with_port(host: &str) -> String {
    let host = host.strip_prefix("http://").unwrap_or(host).trim_end_matches('/');
    client::with_port(host, MGMT_PORT)
}

/// What was being done, and the reason in the server's own words where it gave one.
pub(in crate::commands) fn failed(doing: impl std::fmt::Display, error: ClientError) -> Failure {
    match &error {
        ClientError::Rest { code: 401, .. } => {
            Failure::doing(doing, "wrong user or password (--username, SETTEE_PASSWORD)")
        }
        _ => match error.reasons() {
            Some(reasons) => Failure::doing(doing, reasons),
            None => Failure::doing(doing, error),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_found_by_any_of_their_names_but_never_guessed() {
        let node = |host: &str, port: u16, uuid: &str| {
            let (hostname, otp) = (format!("{host}:{port}"), format!("ns_1@{host}:{port}"));
            Node(
                json!({ "hostname": hostname, "configuredHostname": hostname, "otpNode": otp, "nodeUUID": uuid }),
            )
        };
        let nodes =
            [node("127.0.0.1", 8091, "a"), node("127.0.0.2", 8091, "b"), node("127.0.0.2", 9000, "c")];
        let found =
            |name: &str| find(&nodes, &[name.to_owned()]).map(|found| found[0].text("nodeUUID").to_owned());
        for (name, uuid) in [
            ("127.0.0.1", "a"),
            ("127.0.0.1:8091", "a"),
            ("http://127.0.0.2:9000/", "c"),
            ("ns_1@127.0.0.2:8091", "b"),
            ("b", "b"),
        ] {
            assert_eq!(found(name).ok().as_deref(), Some(uuid), "{name}");
        }
        assert!(found("127.0.0.2").is_err(), "two nodes fit");
        assert!(found("127.0.0.3").is_err());
    }

    #[test]
    fn addresses_get_the_standard_port() {
        for (given, full) in [
            ("10.0.0.1", "10.0.0.1:8091"),
            ("http://10.0.0.1:9000/", "10.0.0.1:9000"),
            ("::1", "[::1]:8091"),
            ("[::1]", "[::1]:8091"),
            ("[::1]:9000", "[::1]:9000"),
            ("node", "node:8091"),
        ] {
            assert_eq!(with_port(given), full);
        }
    }
}
