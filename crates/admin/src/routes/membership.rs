//! Nodes that come and go: `/controller/addNode`, `/node/controller/doJoinCluster`, `/controller/ejectNode`, and what
//! the nodes say to each other for it below `/_settee/`.
//!
//! Adding: the node that was asked learns from the new one who it is, and has it made a member by the cluster. Then it tells the new one
//! to join, under TLS. Every step can be repeated: a node that was added and never joined is just not there, and is removed again.
//! What makes a node take part, and what becomes of its earlier life, is the server's ([`NodeControl::join`]).
//!
//! [`NodeControl::join`]: crate::NodeControl::join

use axum::http::StatusCode;
use cluster::{ClusterError, Command, Membership, Metadata, NodeInfo};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{nodes, setup};
use crate::{
    node::control::{Callee, JoinOffer, NodeCall},
    request::Call,
};
use http::{
    AuditKind,
    form::{self, Form},
    reply::{self, Outcome, Refusal, json_ok},
};

const MIB: u64 = 1024 * 1024;
const STANDARD_PORT: u16 = 8091;
const STANDARD_TLS_PORT: u16 = 18091;

/// What a node that is to be added says about itself.
#[derive(Serialize, Deserialize)]
pub(super) struct Introduction {
    node: NodeInfo,
    cluster_uuid: String,
    /// How many nodes its present cluster has.
    members: usize,
    memory_mb: u64,
    /// The highest level of metadata that it understands.
    #[serde(default)]
    level: u32,
}

/// Where a node is that somebody named: `[http[s]://]host[:port]`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    tls: bool,
    host: String,
    port: u16,
}

impl Address {
    /// `encrypted`: nodes of the cluster speak TLS to one another, so a request that says nothing else means that.
    fn parse(text: &str, encrypted: bool) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("Hostname is required.".into());
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let malformed = || format!("Malformed URL {text}; if using IPv6, enclose in square brackets");
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "" => None,
            "http" => Some(false),
            "https" => Some(true),
            other => return Err(format!("Unsupported protocol {other}")),
        };
        let (host, port) = host_and_port(rest.trim_end_matches('/')).ok_or_else(malformed)?;
        let tls = tls.unwrap_or(port == Some(STANDARD_TLS_PORT) || (encrypted && port.is_none()));
        let port = port.unwrap_or(if tls { STANDARD_TLS_PORT } else { STANDARD_PORT });
        if port <= 1023 {
            return Err("The port number must be greater than 1023 and less than 65536.".into());
        }
        setup::is_host(&host).then_some(Self { tls, host, port }).ok_or_else(malformed)
    }

    fn callee(&self) -> Callee {
        Callee::Stranger { host: self.host.clone(), port: self.port, tls: self.tls }
    }

    /// The node's port for TLS, where the cluster gives it its secret. A reader of that message could pass for a node, so
    /// the port is the one for TLS whatever address the user named.
    fn confidential(&self, node: &NodeInfo) -> Self {
        let port = node.ports.mgmt_tls;
        if self.tls || port == 0 { self.clone() } else { Self { tls: true, host: self.host.clone(), port } }
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        Some(port) => Some(port.parse().ok()?),
        None => None,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// `POST /controller/addNode`, and the same below a server group.
pub(super) async fn add_node(call: &Call, group: Option<&str>) -> Outcome {
    let group = chosen_group(call, group)?;
    let form = call.form()?;
    let encrypted = call.meta.encrypts_new_nodes();
    let address = wanted(&form, false, encrypted)?;
    if encrypted && !address.tls {
        // What the new node is told makes it a member, and a process that reads along would be one.
        let text = "Encryption between nodes is on: name the node's REST port for TLS (https://HOST:18091).";
        return Err(reply::bad_request(text));
    }
    refuse_unless_addable(call)?;
    let login = login(&form)?;
    let introduction = introduce(call, &address, login.clone()).await?;
    check(&call.meta, &introduction)?;
    check_memory(call, &introduction)?;
    let invited_at = address.confidential(&introduction.node);
    let node = NodeInfo {
        host: address.host.clone(),
        id: base::NodeId(call.meta.next_node),
        membership: Membership::InactiveAdded,
        group,
        recovery: None,
        excluded: None,
        // Members of a lower level do not know what that is. The node tells its key once they do.
        key: introduction.node.key.filter(|_| call.meta.has_node_keys()),
        ..introduction.node
    };
    add(call, node, &invited_at, login).await
}

/// Makes a node a member, and has it take part. Where it does not, it is no member either. It is a member on paper meanwhile: the client may
/// leave, and the request goes on.
async fn add(call: &Call, node: NodeInfo, invited_at: &Address, login: Option<(String, String)>) -> Outcome {
    let joined = match call.api.control.submit(Command::AddNode(node.clone())).await {
        Ok(_) => invite(call, invited_at, login, &node).await,
        // The cluster may have agreed on it all the same.
        Err(error @ ClusterError::Failed(_)) => {
            let host = format!("added {}", node.host);
            call.audit_end(&Err::<(), _>(error.clone()), AuditKind::ClusterChanged, "cluster", host);
            Err(error.into())
        }
        Err(error) => return Err(error.into()),
    };
    if let Err(refusal) = joined {
        remove_again(call, &node).await;
        return Err(refusal);
    }
    let fresh = Call { meta: call.api.control.metadata(), ..call.clone() };
    let name = nodes::otp_node(&fresh, &node);
    call.audit(AuditKind::ClusterChanged, "cluster", format!("added {name}"));
    Ok(json_ok(&json!({ "otpNode": name })))
}

/// Takes away a member on paper. Should this fail as well, the node is shown as not there, and can be removed.
async fn remove_again(call: &Call, node: &NodeInfo) {
    let control = &call.api.control;
    control.catch_up().await;
    let is_on_paper =
        |known: &NodeInfo| known.uuid == node.uuid && known.membership == Membership::InactiveAdded;
    if !control.metadata().node_by_id(node.id).is_some_and(is_on_paper) {
        return;
    }
    if let Err(error) = control.submit(Command::RemoveNode { node: node.id }).await {
        tracing::warn!(%error, node = node.host, "a node that did not join is still a member");
    }
}

/// The group's uuid; without one the first group there is.
fn chosen_group(call: &Call, wanted: Option<&str>) -> Result<String, Refusal> {
    let groups = &call.meta.server_groups;
    let group = match wanted {
        Some(uuid) => groups.iter().find(|group| group.uuid == uuid),
        None => groups.first(),
    };
    group.map(|group| group.uuid.clone()).ok_or_else(|| {
        let text = format!("Could not find group with uuid: {}", wanted.unwrap_or_default());
        reply::with_status(StatusCode::NOT_FOUND, &json!([text])).into()
    })
}

/// The node that parameters name; every fault is told at once, as ns_server does.
fn wanted(form: &Form, joins: bool, encrypted: bool) -> Result<Address, Refusal> {
    let mut faults = Vec::new();
    let missing = ["user", "password"].into_iter().filter(|name| form.get(name).is_none());
    faults.extend(missing.map(|name| format!("{name} is missing")));
    let older = || Some(format!("{}:{}", form.get("clusterMemberHostIp")?, form.get("clusterMemberPort")?));
    let host = form.get("hostname").map(str::to_owned).or_else(|| older().filter(|_| joins));
    let address = Address::parse(host.as_deref().unwrap_or_default(), encrypted);
    if let Err(fault) = &address {
        faults.push(fault.clone());
    }
    let known = ["hostname", "user", "password", "services", "clientCertAuth"];
    let unknown: Vec<&str> =
        form.fields().iter().map(|(name, _)| name.as_str()).filter(|name| !known.contains(name)).collect();
    if !joins && !unknown.is_empty() {
        faults.push(format!("Got unknown parameters: {}", unknown.join(", ")));
    }
    if form.is_on("clientCertAuth") {
        faults.push("Adding a node by client certificate is not supported yet.".into());
    }
    let services = form.get("services").unwrap_or("kv").split(',').map(str::trim);
    let absent: Vec<&str> = services.filter(|service| !["kv", "data"].contains(service)).collect();
    if !absent.is_empty() {
        faults.push(format!("Settee has the data service only; not supported: {}", absent.join(", ")));
    }
    match address {
        Ok(address) if faults.is_empty() => Ok(address),
        _ => Err(reply::with_status(StatusCode::BAD_REQUEST, &json!(faults)).into()),
    }
}

/// The login on the other node, if it has one.
fn login(form: &Form) -> Result<Option<(String, String)>, Refusal> {
    let (user, password) = (form.get("user").unwrap_or_default(), form.get("password").unwrap_or_default());
    match (user.is_empty(), password.is_empty()) {
        (true, true) => Ok(None),
        (false, false) => Ok(Some((user.to_owned(), password.to_owned()))),
        (true, false) => {
            Err(reply::bad_request("If a username is not specified, a password must not be supplied."))
        }
        (false, true) => Err(reply::bad_request("A password must be supplied.")),
    }
}

fn refuse_unless_addable(call: &Call) -> Result<(), Refusal> {
    if !call.meta.initialized {
        return Err(reply::bad_request("Adding nodes to not provisioned nodes is not allowed."));
    }
    if call.meta.rebalance.is_some() {
        return Err(reply::bad_request("Node addition is disallowed while rebalance is in progress"));
    }
    Ok(())
}

fn check(meta: &Metadata, introduction: &Introduction) -> Result<(), Refusal> {
    if meta.node(&introduction.node.uuid).is_some() {
        let host = &introduction.node.host;
        return Err(reply::bad_request(&format!("Node already exists in cluster: ns_1@{host}")));
    }
    // It stands in what nodes sign when they log in, and in headers.
    let uuid = introduction.node.uuid.as_bytes();
    if uuid.is_empty() || !uuid.iter().all(u8::is_ascii_hexdigit) {
        return Err(reply::bad_request("Prepare join failed. The node has no proper uuid."));
    }
    meta.admits_level(introduction.level)?;
    if introduction.members > 1 {
        return Err(reply::bad_request("Prepare join failed. Node is already part of cluster."));
    }
    Ok(())
}

/// Every node has the cluster's quota, so it has to fit everywhere.
fn check_memory(call: &Call, introduction: &Introduction) -> Result<(), Refusal> {
    let asked = call.meta.quotas.data_mb;
    let most = setup::quota_max_mb(introduction.memory_mb);
    if introduction.memory_mb == 0 || asked <= most {
        return Ok(());
    }
    let host = &introduction.node.host;
    Err(reply::bad_request(&format!(
        "This server does not have sufficient memory to support requested memory quota. Total quota is {asked}MB \
         (services: kv), maximum allowed quota for the node 'ns_1@{host}' is {most}MB."
    )))
}

/// Asks a node who it is.
async fn introduce(
    call: &Call,
    address: &Address,
    login: Option<(String, String)>,
) -> Result<Introduction, Refusal> {
    let body = tell(call, address, login, "/_settee/introduce", Vec::new()).await?;
    serde_json::from_slice(&body)
        .map_err(|_| reply::bad_request("Cluster join prepare call returned invalid json."))
}

/// Tells a node that it is a member now.
async fn invite(
    call: &Call,
    address: &Address,
    login: Option<(String, String)>,
    node: &NodeInfo,
) -> Result<(), Refusal> {
    let offer = call.api.control.offer(&node.uuid)?;
    let offer = serde_json::to_vec(&offer).map_err(|error| reply::bad_request(&error.to_string()))?;
    tell(call, address, login, "/_settee/join", offer).await.map(|_| ())
}

async fn tell(
    call: &Call,
    to: &Address,
    credentials: Option<(String, String)>,
    path: &str,
    body: Vec<u8>,
) -> Result<Vec<u8>, Refusal> {
    let question = NodeCall {
        to: to.callee(),
        method: "POST".into(),
        path: path.into(),
        credentials,
        content_type: "application/json".into(),
        body,
    };
    let (status, answer) = call.api.control.call_node(question).await.map_err(|error| {
        reply::bad_request(&format!("Failed to reach node {}:{}. {error}", to.host, to.port))
    })?;
    match status {
        200 => Ok(answer),
        401 => Err(reply::bad_request(
            "Prepare join failed. Authentication failed. Verify username and password. Got HTTP status 401.",
        )),
        other => Err(reply::bad_request(&format!("Prepare join failed. {}", reasons(other, &answer)))),
    }
}

/// What a refusal of another node says.
fn reasons(status: u16, body: &[u8]) -> String {
    let json: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let text = match &json {
        Value::Array(texts) => texts.first().and_then(Value::as_str),
        Value::Object(_) => json["message"].as_str().or_else(|| json["errors"]["_"].as_str()),
        _ => None,
    };
    text.map_or_else(|| format!("Got HTTP status {status} from the node."), str::to_owned)
}

/// `POST /node/controller/doJoinCluster`: this node asks a cluster to add it. The cluster calls back; a password for that
/// one time proves to us that it was this request.
pub(super) async fn join_cluster(call: &Call) -> Outcome {
    if call.meta.initialized {
        let text = "Node is already provisioned. To join use controller/addNode api of the cluster";
        return Err(reply::bad_request(text));
    }
    let form = call.form()?;
    let cluster = wanted(&form, true, false)?;
    let this = own(call)?;
    let host = form.get("newNodeHostname").map(str::trim).filter(|host| !host.is_empty());
    let host = host.unwrap_or(&this.host);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    // The cluster calls back as it was called.
    let port = if cluster.tls { this.ports.mgmt_tls } else { this.ports.mgmt };
    let hostname = format!("{}://{host}:{port}", cluster.scheme());
    let pass = call.api.passes.issue(crate::request::Api::new_uuid()?);
    let body = form::encode(&[
        ("hostname", hostname.as_str()),
        ("user", http::passes::USER),
        ("password", &pass),
        ("services", "kv"),
    ]);
    let question = NodeCall {
        to: cluster.callee(),
        method: "POST".into(),
        path: "/controller/addNode".into(),
        credentials: login(&form)?,
        content_type: "application/x-www-form-urlencoded".into(),
        body: body.into_bytes(),
    };
    let answer = call.api.control.call_node(question).await;
    call.api.passes.revoke(&pass);
    let (status, answer) = answer.map_err(|error| {
        let Address { host, port, .. } = &cluster;
        reply::bad_request(&format!("Failed to connect to {}://{host}:{port}. {error}", cluster.scheme()))
    })?;
    match status {
        200 => Ok(reply::empty_ok()),
        401 => Err(reply::bad_request("Invalid credentials. Verify username and password.")),
        other => Err(reply::bad_request(&reasons(other, &answer))),
    }
}

/// The node that answers.
pub(super) fn own(call: &Call) -> Result<&NodeInfo, Refusal> {
    let this = call.api.control.this_node();
    call.meta.node(&this).ok_or_else(|| reply::bad_request("This node is not part of the cluster"))
}

/// `POST /_settee/introduce`: who this node is, for a cluster that wants to add it.
pub(super) fn introduction(call: &Call) -> Outcome {
    let introduction = Introduction {
        node: own(call)?.clone(),
        cluster_uuid: call.meta.cluster_uuid.clone(),
        members: call.meta.nodes.len(),
        memory_mb: call.api.control.system().memory_total / MIB,
        level: cluster::level::LEVEL,
    };
    let value = serde_json::to_value(introduction).map_err(|error| reply::bad_request(&error.to_string()))?;
    Ok(json_ok(&value))
}

/// `POST /_settee/join`: this node becomes a member of the cluster that says so.
pub(super) async fn join(call: &Call) -> Outcome {
    if call.meta.nodes.len() > 1 {
        return Err(reply::bad_request("Node is already part of cluster."));
    }
    let offer: JoinOffer =
        serde_json::from_slice(&call.body).map_err(|_| reply::bad_request("Malformed offer to join"))?;
    call.audit(AuditKind::ClusterChanged, "cluster", format!("joins {}", offer.cluster_uuid));
    call.api.control.join(offer).await?;
    Ok(json_ok(&json!({})))
}

/// `POST /controller/ejectNode`: a node that holds no data goes at once; an active one needs a rebalance.
pub(super) async fn eject(call: &Call) -> Outcome {
    let form = call.form()?;
    let text = |status, text: &str| Ok(reply::text(status, text));
    let Some(name) = form.get("otpNode") else { return text(StatusCode::BAD_REQUEST, "Bad Request\n") };
    let node = if name == "Self" {
        call.meta.node(&call.api.control.this_node())
    } else {
        nodes::by_otp(call, name)
    };
    let Some(node) = node else { return text(StatusCode::BAD_REQUEST, "Server does not exist.\n") };
    if node.membership == Membership::Active {
        return text(StatusCode::BAD_REQUEST, "Cannot remove active server.\n");
    }
    call.change(
        Command::RemoveNode { node: node.id },
        AuditKind::ClusterChanged,
        "cluster",
        format!("removed {name}"),
    )
    .await?;
    Ok(reply::empty_ok())
}

/// `POST /controller/hardResetNode`: the node that is asked becomes new. For one that its cluster cannot tell that it was
/// removed; one that still belongs to a cluster is lost to it.
pub(super) async fn reset(call: &Call) -> Outcome {
    // What only full administrators have.
    call.audit(AuditKind::ClusterChanged, "cluster", "this node is reset");
    call.api.control.reset().await?;
    Ok(reply::empty_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_ns_server_reads_them() {
        let parsed =
            |text: &str| Address::parse(text, false).map(|address| (address.tls, address.host, address.port));
        for (text, tls, host, port) in [
            (" \thttp://host:1025\n", false, "host", 1025),
            ("hTTp://host:8000", false, "host", 8000),
            ("http://host", false, "host", 8091),
            ("https://host", true, "host", 18091),
            ("host:18091", true, "host", 18091),
            ("127.0.0.2:8091", false, "127.0.0.2", 8091),
            ("host", false, "host", 8091),
            ("[::1]", false, "::1", 8091),
            ("http://[::1]:10000/", false, "::1", 10000),
        ] {
            assert_eq!(parsed(text), Ok((tls, host.to_owned(), port)), "{text}");
        }
        for (text, part) in [
            ("http://host:100", "greater than 1023"),
            ("http://host:100000", "Malformed"),
            ("ftp://host:600", "Unsupported protocol ftp"),
            ("host:port", "Malformed"),
            ("aaa:bb:cc", "Malformed"),
            ("http://::1:10000", "Malformed"),
            ("http://h/../x", "Malformed"),
            (" ", "required"),
        ] {
            assert!(parsed(text).is_err_and(|error| error.contains(part)), "{text}: {:?}", parsed(text));
        }
    }

    #[test]
    fn where_nodes_speak_tls_a_bare_name_means_the_port_for_it() {
        for (text, tls, port) in
            [("host", true, 18091), ("host:8091", false, 8091), ("http://host", false, 8091)]
        {
            let address = Address::parse(text, true).unwrap();
            assert_eq!((address.tls, address.port), (tls, port), "{text}");
        }
    }
}
