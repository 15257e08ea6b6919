//! Where views are: a bucket of a cluster, and the ports of views of its nodes.

use clap::Args;
use client::{ClientError, Rest, rest::percent};
use serde_json::Value;

use crate::commands::{
    Failure,
    cluster::{Access, failed},
};

/// The port of views of a node that does not name it.
const VIEWS_PORT: u16 = 8092;

/// The bucket, where its cluster is, and as whom to talk to it.
#[derive(Args, Clone)]
pub(in crate::commands) struct Place {
    /// The bucket
    #[arg(long, short, default_value = "default", value_name = "NAME", env = "SETTEE_BUCKET")]
    pub(in crate::commands) bucket: String,

    #[command(flatten)]
    pub(in crate::commands) access: Access,
}

/// A bucket, as a node has shown its cluster.
pub(in crate::commands) struct Bucket {
    pub(in crate::commands) rest: Rest,
    place: Place,
    /// The nodes, the one that was asked first.
    nodes: Vec<Node>,
}

/// Where a node can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    is_asked: bool,
    /// Its port of views, `host:port`, and what paths on it begin with.
    views: Option<(String, String)>,
    /// Its port of documents.
    documents: Option<String>,
}

/// What a port of views has answered.
pub(super) struct Told {
    pub(super) code: u16,
    pub(super) body: String,
}

impl Place {
    /// Finds a node that shows the bucket. A user who may see views and nothing else is shown the cluster's ports.
    pub(in crate::commands) fn open(&self) -> Result<Bucket, Failure> {
        let path = format!("/pools/default/buckets/{}", percent(&self.bucket));
        let what = format!("bucket {} (-b names another one)", self.bucket);
        let (rest, mut nodes) = self.access.first(what, |rest| match rest.get_json(&path) {
            Ok(shown) => Ok(of_bucket(&shown, host_of(&rest.address))),
            Err(ClientError::Rest { code: 403, .. }) => {
                let shown = rest.get_json("/pools/default/nodeServices")?;
                Ok(of_services(&shown, host_of(&rest.address), &self.bucket))
            }
            Err(error) => Err(error),
        })?;
        nodes.sort_by_key(|node| !node.is_asked);
        Ok(Bucket { rest, place: self.clone(), nodes })
    }
}

/// The host of `host:port`.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// The nodes of a bucket, as REST shows it to users who may see it.
fn of_bucket(shown: &Value, asked: &str) -> Vec<Node> {
    let node = |node: &Value| {
        let base =
            node["couchApiBase"].as_str().and_then(|base| base.strip_prefix("http://")?.split_once('/'));
        let host = node["hostname"].as_str().map_or(asked, host_of);
        Node {
            is_asked: node["thisNode"] == true,
            views: base.map(|(address, bucket)| (address.to_owned(), format!("/{bucket}"))),
            documents: node["ports"]["direct"].as_u64().map(|port| format!("{host}:{port}")),
        }
    };
    shown["nodes"].as_array().into_iter().flatten().map(node).collect()
}

/// All nodes with their ports.
fn of_services(shown: &Value, asked: &str, bucket: &str) -> Vec<Node> {
    let node = |node: &Value| {
        let host = node["hostname"].as_str().unwrap_or(asked);
        let address = |service: &str| node["services"][service].as_u64().map(|port| format!("{host}:{port}"));
        Node {
            is_asked: node["thisNode"] == true,
            views: Some((
                address("capi").unwrap_or_else(|| format!("{host}:{VIEWS_PORT}")),
                format!("/{}", percent(bucket)),
            )),
            documents: address("kv"),
        }
    };
    shown["nodesExt"].as_array().into_iter().flatten().map(node).collect()
}

/// What is behind `_design/` in the name of a design document, however it was given.
pub(super) fn document_name(name: &str) -> &str {
    name.strip_prefix("_design/").unwrap_or(name)
}

/// The parts of `DESIGN-DOCUMENT/VIEW`.
pub(super) fn view_name(name: &str) -> Result<(&str, &str), Failure> {
    let parts = document_name(name)
        .rsplit_once('/')
        .filter(|(document, view)| !document.is_empty() && !view.is_empty());
    parts.ok_or_else(|| {
        Failure(format!(
            "{name} is no view: write DESIGN-DOCUMENT/VIEW; `settee view list` shows those of a bucket"
        ))
    })
}

impl Bucket {
    pub(in crate::commands) fn name(&self) -> &str {
        &self.place.bucket
    }

    pub(in crate::commands) fn access(&self) -> &Access {
        &self.place.access
    }

    /// Where documents of the bucket are asked for.
    pub(in crate::commands) fn documents(&self) -> Result<&str, Failure> {
        let address = self.nodes.iter().find_map(|node| node.documents.as_deref());
        address.ok_or_else(|| {
            Failure("no node shows where it serves documents; name another one (--host)".into())
        })
    }

    /// The ports of views of its nodes, each with what paths on it begin with.
    pub(super) fn ports(&self) -> Result<Vec<(Rest, &str)>, Failure> {
        let ports = self.nodes.iter().filter_map(|node| node.views.as_ref());
        let ports: Vec<_> =
            ports.map(|(address, base)| (self.access().rest(address), base.as_str())).collect();
        if ports.is_empty() {
            let text = "has no views: only buckets of type couchbase have them";
            return Err(Failure(format!("bucket {} {text}", self.name())));
        }
        Ok(ports)
    }

    /// Asks the ports of views one after the other, until one answers for itself. A node without a part of the bucket sends
    /// its clients on. `late` says what to do where no answer comes in time.
    pub(super) fn ask<T>(
        &self,
        doing: &str,
        late: &str,
        ask: impl Fn(&Rest, &str) -> client::Result<T>,
        sends_on: impl Fn(&T) -> bool,
    ) -> Result<T, Failure> {
        let mut last = Failure::doing(doing, "no node answered for itself; try again");
        for (rest, base) in self.ports()? {
            match ask(&rest, base) {
                Ok(answer) if sends_on(&answer) => {}
                Ok(answer) => return Ok(answer),
                Err(error @ ClientError::Connect { .. }) => last = failed(doing, error),
                Err(error) if error.is_timeout() => return Err(Failure::doing(doing, late)),
                Err(error) => return Err(failed(doing, error)),
            }
        }
        Err(last)
    }

    /// Sends a request that is about a design document.
    pub(super) fn request(
        &self,
        method: &str,
        document: &str,
        body: Option<&str>,
        doing: &str,
    ) -> Result<Told, Failure> {
        let path = format!("/_design/{}", percent(document));
        let answer = self.ask(
            doing,
            "no answer came in time; try again",
            |rest, base| rest.ask_json(method, &format!("{base}{path}"), body),
            |answer| answer.code == 302,
        )?;
        Ok(Told { code: answer.code, body: String::from_utf8_lossy(&answer.body).into_owned() })
    }

    /// The text of a design document, or `None` where the bucket has none of that name.
    pub(super) fn document(&self, name: &str) -> Result<Option<String>, Failure> {
        let doing = format!("cannot read _design/{name}");
        let told = self.request("GET", name, None, &doing)?;
        match told.code {
            200 => Ok(Some(told.body)),
            404 => Ok(None),
            _ => Err(told.refused(&doing)),
        }
    }

    /// The same, where the document has to be there.
    pub(super) fn known_document(&self, name: &str) -> Result<String, Failure> {
        self.document(name)?.ok_or_else(|| self.unknown(name))
    }

    pub(super) fn unknown(&self, document: &str) -> Failure {
        let bucket = self.name();
        Failure(format!(
            "bucket {bucket} has no design document _design/{document}: `settee view list -b {bucket}` shows those it has"
        ))
    }

    /// Stores a design document.
    pub(super) fn store(&self, name: &str, text: &str, doing: &str) -> Result<(), Failure> {
        let told = self.request("PUT", name, Some(text), doing)?;
        if told.code == 201 { Ok(()) } else { Err(told.refused(doing)) }
    }
}

impl Told {
    /// Why it is no answer, in the server's words.
    pub(super) fn refused(&self, doing: &str) -> Failure {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let needed = body["permissions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let needed: Vec<&str> = needed.collect();
        let why = match (self.code, body["reason"].as_str(), body["message"].as_str()) {
            (401, ..) => "wrong user or password (--username, SETTEE_PASSWORD)".to_owned(),
            (403, ..) if !needed.is_empty() => {
                format!("the user lacks the right {}; the role views_admin brings it", needed.join(", "))
            }
            (_, Some(reason), _) | (_, None, Some(reason)) => reason.to_owned(),
            (code, None, None) => {
                let reasons = client::reasons(&self.body).unwrap_or_else(|| "nothing else".into());
                format!("the node answered {code}: {reasons}")
            }
        };
        Failure::doing(doing, why)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_view_is_what_is_behind_the_last_slash() {
        assert_eq!(view_name("tags/electronic").ok(), Some(("tags", "electronic")));
        assert_eq!(view_name("_design/dev_a/b/v").ok(), Some(("dev_a/b", "v")));
        for name in ["tags", "/v", "tags/", "_design/tags"] {
            assert!(view_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn nodes_are_found_by_the_bucket_or_by_their_ports() {
        let bucket = json!({"nodes": [
            {"hostname": "10.0.0.1:8091", "couchApiBase": "http://10.0.0.1:8092/a%2Buuid", "ports": {"direct": 11210}},
            {"hostname": "[::1]:8091", "thisNode": true, "ports": {"direct": 1}},
        ]});
        let node = |is_asked: bool, views: Option<(&str, &str)>, documents: &str| Node {
            is_asked,
            views: views.map(|(address, base)| (address.to_owned(), base.to_owned())),
            documents: Some(documents.to_owned()),
        };
        let first = node(false, Some(("10.0.0.1:8092", "/a%2Buuid")), "10.0.0.1:11210");
        assert_eq!(of_bucket(&bucket, "h"), [first, node(true, None, "[::1]:1")]);
        let services = json!({"nodesExt": [{"thisNode": true, "services": {"kv": 1, "capi": 2}}]});
        assert_eq!(of_services(&services, "h", "a b"), [node(true, Some(("h:2", "/a%20b")), "h:1")]);
    }

    #[test]
    fn refusals_say_what_is_missing() {
        let refused = |code, body: &str| Told { code, body: body.to_owned() }.refused("cannot x").to_string();
        let needs = r#"{"message":"Forbidden. User needs the following permissions","permissions":["cluster.bucket[a].views!write"]}"#;
        assert!(refused(403, needs).contains("cluster.bucket[a].views!write"));
        assert_eq!(refused(400, r#"{"error":"e","reason":"r"}"#), "cannot x: r");
        assert_eq!(refused(500, "broken\n"), "cannot x: the node answered 500: broken");
    }
}
