//! Setting up cluster and node: `/clusterInit`, `/nodeInit`, the older paths to the same, quotas, names, the full
//! administrator. What a running node cannot change (its ports, its folders, its services) is refused unless it is
//! already so.

use axum::http::{Method, StatusCode};
use cluster::{Admin, ClusterError, Command, FieldErrors, Initialize, QuotaChange};
use serde_json::json;

use super::{membership::own, password, unsupported, verifiers::hashed};
use crate::request::Call;
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, json_ok},
};

/// Parameters of `/nodeInit` and of its older form that choose folders.
const NODE_FOLDERS: &[&str] = &[
    "dataPath",
    "indexPath",
    "eventingPath",
    "analyticsPath",
    "javaHome",
    "path",
    "index_path",
    "cbas_path",
    "eventing_path",
    "java_home",
];
const MIB: u64 = 1024 * 1024;
/// Quotas of services that are not here: recorded, because scripts set them beside the one that counts.
const OTHER_QUOTAS: &[&str] =
    &["indexMemoryQuota", "ftsMemoryQuota", "cbasMemoryQuota", "eventingMemoryQuota", "queryMemoryQuota"];

pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    if call.method != Method::POST {
        return unsupported::path(call, path);
    }
    match path {
        ["clusterInit"] => cluster_init(call).await,
        ["nodeInit"] | ["nodes", "self", "controller", "settings"] => node_init(call).await,
        ["node", "controller", "setupServices"] => setup_services(call),
        ["node", "controller", "rename"] => rename(call).await,
        ["node", "controller", "setupNetConfig"] => {
            let form = call.form()?;
            let encryption = check_network(call, &form)?;
            set_encryption(call, encryption).await?;
            Ok(reply::empty_ok())
        }
        // A node listens for both at all times, so there is nothing to begin and nothing to end.
        ["node", "controller", "enableExternalListener" | "disableUnusedExternalListeners"] => {
            check_network(call, &call.form()?).map(|_| reply::empty_ok())
        }
        _ => unsupported::path(call, path),
    }
}

async fn cluster_init(call: &Call) -> Outcome {
    if call.meta.initialized {
        return Err(ClusterError::AlreadyInitialized.into());
    }
    let form = call.form()?;
    let mut errors = FieldErrors::new();
    let name = username(&form, &mut errors);
    let password = password::wanted(&call.meta, &form, &mut errors);
    if form.get("password").is_none() {
        errors.insert("password".into(), "The value must be supplied".into());
    }
    if let Some(services) = form.get("services") {
        check_services(services, &mut errors);
    }
    check_port(call, &form, &mut errors);
    let quotas = quotas(call, &form, &mut errors);
    let encryption = check_network(call, &form)?;
    ClusterError::unless_empty(errors)?;
    let (Some(name), Some(password)) = (name, password) else {
        return Err(reply::bad_request("username and password must be given"));
    };
    let credentials = hashed(password.to_owned()).await?;
    let initialize = Initialize {
        admin: Admin { name, credentials },
        cluster_name: form.get("clusterName").map(str::to_owned),
        quotas,
    };
    if let Some(host) = form.get("hostname") {
        set_host(call, host).await?;
    }
    set_encryption(call, encryption).await?;
    call.change(Command::Initialize(initialize), AuditKind::ClusterChanged, "cluster", "initialized").await?;
    Ok(new_base_uri(call))
}

fn new_base_uri(call: &Call) -> reply::Reply {
    let this = call.api.control.this_node();
    let node = call.meta.node(&this);
    let address = node.map_or_else(|| call.from.local.to_string(), |node| super::nodes::hostname(call, node));
    json_ok(&json!({ "newBaseUri": format!("http://{address}/") }))
}

fn username(form: &Form, errors: &mut FieldErrors) -> Option<String> {
    let name = form.get("username").unwrap_or_default();
    match username_objection(name) {
        None => Some(name.to_owned()),
        Some(text) => {
            errors.insert("username".into(), text.into());
            None
        }
    }
}

/// Why a name will not do for an administrator; `None` when it will.
fn username_objection(name: &str) -> Option<&'static str> {
    let forbidden = |c: char| c.is_control() || c == ' ' || "()<>@,;:\\\"/[]?={}".contains(c);
    if name.is_empty() {
        Some("The value must be supplied")
    } else if name.chars().count() > 128 || name.chars().any(forbidden) {
        Some(
            "The username must not contain spaces, control or any of ()<>@,;:\\\"/[]?={} characters and must be at most \
             128 characters long",
        )
    } else {
        None
    }
}

/// Why a node cannot be initialised with this administrator, by the rules of `POST /clusterInit`; `None` when it can.
#[must_use]
pub fn administrator_objection(meta: &cluster::Metadata, name: &str, password: &str) -> Option<String> {
    username_objection(name).map(str::to_owned).or_else(|| password::objection(meta, password))
}

/// Why buckets cannot have `asked` MiB on a machine with `memory_mb` MiB, by the rule of `POST /pools/default`. `None` when
/// they can, or when the machine does not say what it has.
#[must_use]
pub fn quota_objection(asked: u64, memory_mb: u64) -> Option<String> {
    let most = quota_max_mb(memory_mb);
    (memory_mb > 0 && asked > most)
        .then(|| format!("Total quota ({asked}MB) exceeds the maximum allowed quota ({most}MB)"))
}

fn check_services(services: &str, errors: &mut FieldErrors) {
    let asked: Vec<&str> = services.split(',').map(str::trim).filter(|service| !service.is_empty()).collect();
    let absent: Vec<&str> =
        asked.iter().filter(|service| !["kv", "data"].contains(service)).copied().collect();
    if !absent.is_empty() {
        let text = format!("Settee has the data service only; not supported: {}", absent.join(", "));
        errors.insert("services".into(), text);
    } else if asked.is_empty() {
        errors.insert("services".into(), "cannot setup first cluster node without kv service".into());
    }
}

fn check_port(call: &Call, form: &Form, errors: &mut FieldErrors) {
    let this = call.api.control.this_node();
    let port = call.meta.node(&this).map(|node| node.ports.mgmt.to_string());
    if form.get("port").is_some_and(|asked| asked != "SAME" && Some(asked) != port.as_deref()) {
        let text = "The port of a running node cannot be changed; start it with another one.";
        errors.insert("port".into(), text.into());
    }
}

fn quotas(call: &Call, form: &Form, errors: &mut FieldErrors) -> QuotaChange {
    let mut change = QuotaChange { data_mb: form.integer("memoryQuota", errors), ..QuotaChange::default() };
    for &name in OTHER_QUOTAS {
        if let Some(megabytes) = form.integer(name, errors) {
            change.others_mb.insert(name.to_owned(), megabytes);
        }
    }
    if let Some(asked) = change.data_mb
        && let Some(text) = quota_too_high(call, asked)
    {
        errors.insert("_".into(), text);
    }
    change
}

/// What buckets may take of a machine's memory: Couchbase leaves a fifth, or a GiB where there is much, to everything else
/// on it.
pub(super) fn quota_max_mb(memory_mb: u64) -> u64 {
    memory_mb.saturating_sub((memory_mb / 5).min(1024))
}

/// The first node that a quota does not fit on.
fn quota_too_high(call: &Call, asked: u64) -> Option<String> {
    call.figures.nodes().find_map(|(id, figures)| {
        let memory_mb = figures.system.memory_total / MIB;
        let text = quota_objection(asked, memory_mb)?;
        let name = super::nodes::otp_node(call, call.meta.node_by_id(id)?);
        Some(format!("{text} on node '{name}'"))
    })
}

/// Network settings a node has anyway are accepted, others are refused: it does not rebind while running. What can be chosen is
/// returned: whether other nodes speak to this one under TLS, if the form says so.
fn check_network(call: &Call, form: &Form) -> Result<Option<bool>, Refusal> {
    let mut errors = FieldErrors::new();
    let six = own(call)?.host.contains(':');
    if form.get("afamily").is_some_and(|family| (family == "ipv6") != six) {
        let text = "The address family of a running node cannot be changed; start it on another address.";
        errors.insert("afamily".into(), text.into());
    }
    let encryption = match form.get("nodeEncryption") {
        None => None,
        Some("on") => Some(true),
        Some("off") => Some(false),
        Some(_) => {
            let text = "The value must be one of the following: [on,off]";
            errors.insert("nodeEncryption".into(), text.into());
            None
        }
    };
    ClusterError::unless_empty(errors)?;
    Ok(encryption)
}

/// Has other nodes speak to this one under TLS from now on, or not.
async fn set_encryption(call: &Call, wanted: Option<bool>) -> Result<(), Refusal> {
    let node = own(call)?;
    let Some(on) = wanted.filter(|on| *on != node.encrypted) else { return Ok(()) };
    if on && !call.meta.can_encrypt() {
        // Others would speak to it as to a node that can prove who it is, and never be answered. So this node itself has to know, and
        // not only the cluster.
        return Err(reply::bad_request("The cluster has no certificate authority yet. Try again."));
    }
    let word = if on { "on" } else { "off" };
    let command = Command::SetNodeEncryption { node: node.id, on };
    call.change(command, AuditKind::NodeChanged, "self", format!("nodeEncryption {word}")).await?;
    Ok(())
}

/// `POST /nodeInit` and the older `/nodes/self/controller/settings`: folders stay, the host name can be set.
async fn node_init(call: &Call) -> Outcome {
    let form = call.form()?;
    let mut errors = FieldErrors::new();
    for &path in NODE_FOLDERS {
        // An empty value and `default` ask for nothing.
        if form.get(path).is_some_and(|value| !value.is_empty() && value != "default") {
            tracing::warn!(path, "nodeInit asked for a folder; the data directory is chosen at start");
            errors.insert(path.into(), "Folders are chosen when the node starts (--data-dir).".into());
        }
    }
    let encryption = check_network(call, &form)?;
    ClusterError::unless_empty(errors)?;
    if let Some(host) = form.get("hostname") {
        set_host(call, host).await?;
    }
    set_encryption(call, encryption).await?;
    call.audit(AuditKind::NodeChanged, "self", "nodeInit");
    Ok(reply::empty_ok())
}

async fn rename(call: &Call) -> Outcome {
    let form = call.form()?;
    let host =
        form.get("hostname").ok_or_else(|| reply::invalid_field("hostname", "The value must be supplied"))?;
    set_host(call, host).await?;
    Ok(reply::empty_ok())
}

/// Whether a text can be a name or an address of a machine.
pub(super) fn is_host(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-:_%".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(allowed)
}

async fn set_host(call: &Call, host: &str) -> Result<(), Refusal> {
    let node = own(call)?;
    let host = host.trim().trim_start_matches('[').trim_end_matches(']');
    if !is_host(host) {
        return Err(reply::invalid_field("hostname", "Invalid hostname"));
    }
    if host == node.host {
        return Ok(());
    }
    let command = Command::RenameNode { node: node.id, host: host.to_owned() };
    call.change(command, AuditKind::NodeChanged, "self", format!("host {host}")).await?;
    Ok(())
}

/// `POST /node/controller/setupServices`.
fn setup_services(call: &Call) -> Outcome {
    let form = call.form()?;
    let mut errors = FieldErrors::new();
    match form.get("services") {
        Some(services) => check_services(services, &mut errors),
        None => {
            errors.insert("services".into(), "The value must be supplied".into());
        }
    }
    match errors.remove("services") {
        None => Ok(reply::empty_ok()),
        Some(text) => Err(reply::bad_request(&text)),
    }
}

/// `POST /pools/default`: quotas and the cluster's name.
pub(super) async fn pool_settings(call: &Call) -> Outcome {
    if call.method != Method::POST {
        return Ok(reply::method_not_allowed());
    }
    let form = call.form()?;
    let mut errors = FieldErrors::new();
    let known = |name: &str| OTHER_QUOTAS.contains(&name) || ["memoryQuota", "clusterName"].contains(&name);
    for (name, _) in form.fields().iter().filter(|(name, _)| !known(name)) {
        errors.insert(name.clone(), "Unsupported key".into());
    }
    let change = quotas(call, &form, &mut errors);
    ClusterError::unless_empty(errors)?;
    if change != QuotaChange::default() {
        call.change(Command::SetQuota(change), AuditKind::ClusterChanged, "cluster", "quotas").await?;
    }
    if let Some(name) = form.get("clusterName") {
        let command = Command::SetClusterName(name.to_owned());
        call.change(command, AuditKind::ClusterChanged, "cluster", "name").await?;
    }
    Ok(reply::empty_ok())
}

/// `/settings/web`: the full administrator. On a fresh node this initialises the cluster, as the oldest scripts do.
pub(super) async fn settings_web(call: &Call) -> Outcome {
    if call.method == Method::GET {
        let this = call.api.control.this_node();
        let port = call.meta.node(&this).map_or(0, |node| node.ports.mgmt);
        let username = call.meta.admin.as_ref().map_or("", |admin| admin.name.as_str());
        return Ok(json_ok(&json!({ "port": port, "username": username })));
    }
    if call.method != Method::POST {
        return Ok(reply::method_not_allowed());
    }
    let form = call.form()?;
    let mut errors = FieldErrors::new();
    check_port(call, &form, &mut errors);
    // `couchbase-cli` sends the port alone when only that shall change.
    let current = call.meta.admin.as_ref();
    let name = match (form.get("username"), current) {
        (None, Some(admin)) => Some(admin.name.clone()),
        _ => username(&form, &mut errors),
    };
    let password = password::wanted(&call.meta, &form, &mut errors);
    if password.is_none() && current.is_none() {
        errors.entry("password".into()).or_insert_with(|| "The value must be supplied".into());
    }
    ClusterError::unless_empty(errors)?;
    if form.is_on("just_validate") || call.query.is_on("just_validate") {
        return Ok(reply::with_status(StatusCode::OK, &json!({ "errors": {} })));
    }
    let credentials = match (password, current) {
        (Some(password), _) => hashed(password.to_owned()).await?,
        // The password that is known here may have been changed at another node meanwhile, and must not come back.
        (None, Some(admin)) if name.as_ref() == Some(&admin.name) => return Ok(new_base_uri(call)),
        (None, Some(admin)) => admin.credentials.clone(),
        (None, None) => return Err(reply::bad_request("username and password must be given")),
    };
    let admin = Admin { name: name.unwrap_or_default(), credentials };
    let command = if call.meta.initialized {
        Command::SetAdmin(admin)
    } else {
        Command::Initialize(Initialize { admin, cluster_name: None, quotas: QuotaChange::default() })
    };
    call.change(command, AuditKind::PasswordChanged, "administrator", "").await?;
    Ok(new_base_uri(call))
}
