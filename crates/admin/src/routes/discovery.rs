//! `/prometheus_sd_config`: the nodes of the cluster as targets, for Prometheus' discovery by HTTP or by file.

use axum::http::{HeaderValue, header};
use cluster::{NodeInfo, config};
use serde_json::{Map, Value, json};

use http::reply::{self, Outcome, Refusal, json_ok};

use crate::request::Call;

/// Shows the nodes that are members. The parameters:
/// - `port` is `secure` (also without the parameter) or `insecure`.
/// - `type` is `json` or `yaml`.
/// - `network` is `default` or `external`.
/// - `disposition` is `inline` or `attachment`.
/// - `clusterLabels` is `none`, `uuidOnly` or `uuidAndName`.
pub(super) fn show(call: &Call) -> Outcome {
    let is_secure = choice(call, "port", ["secure", "insecure"])? == 0;
    let is_json = choice(call, "type", ["json", "yaml"])? == 0;
    let is_external = choice(call, "network", ["default", "external"])? == 1;
    let is_attached = choice(call, "disposition", ["inline", "attachment"])? == 1;
    let labels = labels(call, choice(call, "clusterLabels", ["none", "uuidOnly", "uuidAndName"])?);
    let nodes = config::shown_nodes(&call.meta);
    let targets: Vec<_> =
        nodes.into_iter().filter_map(|node| target(call, node, is_secure, is_external)).collect();
    let mut answer = if is_json {
        let mut group = json!({ "targets": targets });
        if !labels.is_empty() {
            group["labels"] = labels
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect::<Map<_, Value>>()
                .into();
        }
        json_ok(&json!([group]))
    } else {
        reply::with_body(axum::http::StatusCode::OK, "application/yaml", yaml(&targets, &labels).into())
    };
    if is_attached {
        let name = if is_json { "prometheus_sd_config.json" } else { "prometheus_sd_config.yaml" };
        let value = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
        answer.headers_mut().extend(value.ok().map(|value| (header::CONTENT_DISPOSITION, value)));
    }
    Ok(answer)
}

/// Which of the values a parameter has; the first if it is not there.
fn choice<const N: usize>(call: &Call, name: &str, values: [&str; N]) -> Result<usize, Refusal> {
    let Some(asked) = call.query.get(name) else { return Ok(0) };
    values.iter().position(|value| *value == asked).ok_or_else(|| {
        let text = format!("The value must be one of the following: [{}]", values.join(","));
        reply::with_status(axum::http::StatusCode::BAD_REQUEST, &json!({ "errors": { name: text } })).into()
    })
}

fn labels(call: &Call, asked: usize) -> Vec<(&'static str, String)> {
    let uuid = (asked > 0).then(|| ("cluster_uuid", call.meta.cluster_uuid.clone()));
    let name = (asked > 1).then(|| ("cluster_name", call.meta.cluster_name.clone()));
    uuid.into_iter().chain(name).collect()
}

/// Where a node shows its metrics; nothing where it has no such port, or no other address if that is asked for.
fn target(call: &Call, node: &NodeInfo, is_secure: bool, is_external: bool) -> Option<String> {
    let own = if is_secure { node.ports.mgmt_tls } else { node.ports.mgmt };
    let (host, port) = if is_external {
        let address = node.alternate.as_ref()?;
        let service = if is_secure { "mgmtSSL" } else { "mgmt" };
        // Without ports clients take the node's own ones.
        let port = if address.ports.is_empty() { Some(own) } else { address.ports.get(service).copied() };
        let host = &address.hostname;
        (if host.contains(':') { format!("[{host}]") } else { host.clone() }, port?)
    } else {
        (call.host_of(node), own)
    };
    (port != 0).then(|| format!("{host}:{port}"))
}

/// Strings are quoted as in JSON, which is YAML as well.
fn yaml(targets: &[String], labels: &[(&str, String)]) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let targets: String = targets.iter().map(|target| format!("    - {}\n", quoted(target))).collect();
    let labels: String =
        labels.iter().map(|(name, value)| format!("    {name}: {}\n", quoted(value))).collect();
    let labels = if labels.is_empty() { labels } else { format!("  labels:\n{labels}") };
    format!("- targets:\n{targets}{labels}")
}
