//! Queries of views: any node takes them, has every vBucket answered for by the node that serves it, and merges the answers.
//!
//! - An answer has each row once: each vBucket is of one node's answer, and a node answers for what it serves.
//! - At `stale=false` an answer has everything that was acknowledged before the request, or says what it lacks.
//! - Nothing is lacking silently. What changes before the first byte is sent is asked again; what is lacking after that is told behind
//!   the rows.

mod answers;
mod asked;
mod definitions;
#[cfg(test)]
pub(crate) mod fixture;
mod gather;
pub(crate) mod here;
mod homes;
mod places;
mod plan;
mod reducers;
mod shares;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{body::Bytes, http::StatusCode};
use base::{BucketUuid, NodeId};
use cluster::{
    BucketInfo, Metadata,
    auth::{Identity, Privilege, privileges},
};
use http::{Gate, reply::Reply};
use service::{Answers, Context};
use tokio::task::spawn_blocking;
use views::{
    design::is_development,
    index::{Definition, Reducing, VbSet, wire::Question},
    query::Query,
    refusal::Refusal,
    response::Response,
};

pub(crate) use self::{answers::Homes, asked::timeout, here::Local, homes::OfNode};
use self::{
    answers::{Desk, ToNodes},
    definitions::Definitions,
    gather::{Asking, Gathered, Reach},
    reducers::Reducers,
    shares::Shares,
};
use crate::{
    answer::{self, JsonType},
    path::DESIGN,
    streaming::{self, NodeAnswer},
    wanted::{HasLeft, Wanted},
};

/// See the module.
pub(crate) struct Queries {
    gate: Arc<dyn Gate>,
    reach: Reach,
    desk: Desk,
    reducers: Arc<Reducers>,
    shares: Shares,
    definitions: Definitions,
}

/// A request for the rows of a view.
pub(crate) struct Request<'a> {
    pub(crate) user: &'a Identity,
    /// The address by which the client reached this node.
    pub(crate) local: SocketAddr,
    pub(crate) kind: JsonType,
    pub(crate) bucket: &'a str,
    /// Without `_design/`.
    pub(crate) design: &'a str,
    pub(crate) view: &'a str,
    pub(crate) parts: &'a axum::http::request::Parts,
    pub(crate) body: Bytes,
    /// Whether a client can be sent to another node.
    pub(crate) may_redirect: bool,
}

/// What became of a query that is not refused.
enum Begun {
    /// Another node is to be asked, there.
    Elsewhere(String),
    /// It is answered.
    Rows(Box<Rows>),
}

/// Answers of nodes, and what they are answers to.
struct Rows {
    query: Arc<Query>,
    definition: Arc<Definition>,
    reducing: Option<Reducing>,
    gathered: Gathered,
}

impl Queries {
    pub(crate) fn new(context: &Context, homes: Arc<dyn Homes>) -> Self {
        Self {
            gate: Arc::clone(&context.gate),
            reach: Reach::new(context),
            desk: Desk::new(homes),
            reducers: Reducers::new(Arc::clone(&context.functions)),
            shares: Shares::new(),
            definitions: Definitions::default(),
        }
    }

    /// What answers other nodes.
    pub(crate) fn answers(&self) -> Arc<dyn Answers> {
        Arc::new(ToNodes { desk: self.desk.clone(), reducers: Arc::clone(&self.reducers) })
    }

    /// Ends what runs.
    pub(crate) fn stop(&self) {
        self.reducers.stop();
    }

    /// Answers one. `info`: its bucket, as it was when the request was admitted.
    ///
    /// # Errors
    /// It cannot be answered, for reasons in Couchbase's texts.
    pub(crate) async fn answer(&self, info: &BucketInfo, request: Request<'_>) -> Result<Reply, Refusal> {
        let definition = self.definitions.of(info, request.design)?;
        definition.view(request.view).ok_or_else(|| no_view(info, &request))?;
        // What waits holds its body alone: keys take many times the bytes of their text.
        let turn = self.shares.place(request.user, request.body.len()).await?;
        let wanted = Wanted::default();
        let (began, mut spent) = (Instant::now(), Duration::ZERO);
        let begun = loop {
            let meta = self.gate.metadata();
            let info = judged_again(&meta, &request, &info.uuid)?;
            if let Some(begun) = self.begin((&meta, info), &request, (spent, wanted.has_left())).await? {
                break begun;
            }
            spent = began.elapsed();
        };
        let Rows { query, definition, reducing, gathered } = match begun {
            Begun::Elsewhere(location) => return Ok(answer::no_vbuckets(request.kind, &location)),
            Begun::Rows(rows) => *rows,
        };
        let response = response(&query, &definition, gathered);
        let functions = self.reducers.of(definition, wanted.has_left());
        let pieces = Arc::clone(self.desk.pieces(reducing));
        Ok(answer::with_text(
            request.kind,
            StatusCode::OK,
            streaming::body(response, functions, pieces, (wanted, turn)),
        ))
    }

    /// Begins its answer by these metadata. Nothing where the design document was replaced meanwhile. `spent`: the time that the query took
    /// before, until its design document was replaced. `has_left`: whether the client has.
    async fn begin(
        &self,
        (meta, info): (&Metadata, &BucketInfo),
        request: &Request<'_>,
        (spent, has_left): (Duration, HasLeft),
    ) -> Result<Option<Begun>, Refusal> {
        let definition = self.definitions.of(info, request.design)?;
        let place = definition.view(request.view).ok_or_else(|| no_view(info, request))?;
        let mut query = asked::query(request.parts, &request.body, place.reduction.is_some()).await?;
        query.connection_timeout = left(query.connection_timeout, spent)?;
        let mut query = Arc::new(query);
        let reducing = query.grouping.and_then(|_| definition.reducing(place));
        let own = meta.nodes.iter().find(|node| node.uuid == self.gate.this_node_uuid());
        let served = own.map(|node| plan::served_by(info, node.id)).unwrap_or_default();
        if request.may_redirect
            && served.is_empty()
            && let Some(location) = self.elsewhere(meta, info, request)
        {
            return Ok(Some(Begun::Elsewhere(location)));
        }
        let wanted = self.wanted(info, request.design, &query, &served);
        let asking = Asking {
            reach: &self.reach,
            desk: &self.desk,
            definitions: &self.definitions,
            user: request.user,
            bucket: request.bucket,
            question: Question {
                bucket: info.uuid.clone(),
                design: request.design.to_owned(),
                signature: definition.signature(),
                view: request.view.to_owned(),
                vbs: VbSet::default(),
                query: Arc::clone(&query),
            },
            reducing,
        };
        let Some(mut gathered) = asking.gather(wanted).await? else { return Ok(None) };
        // The questions to nodes shared the query, which has no other owner from here on.
        drop(asking);
        gathered.answers = match <[_; 1]>::try_from(gathered.answers) {
            Ok([(name, NodeAnswer::Here(local))]) => {
                let local =
                    self.alone(local, Arc::make_mut(&mut query), (&definition, reducing), has_left).await?;
                vec![(name, NodeAnswer::Here(local))]
            }
            Ok(other) => other.into(),
            Err(several) => several,
        };
        Ok(Some(Begun::Rows(Box::new(Rows { query, definition, reducing, gathered }))))
    }

    /// The only answer. It skips by itself, which it can do without looking at each row. An error before its first row is the answer.
    async fn alone(
        &self,
        mut local: Box<Local>,
        query: &mut Query,
        (definition, reducing): (&Arc<Definition>, Option<Reducing>),
        has_left: HasLeft,
    ) -> Result<Box<Local>, Refusal> {
        query.skip = local.skip(query.skip);
        let mut functions = self.reducers.of(Arc::clone(definition), has_left);
        let place = Arc::clone(self.desk.pieces(reducing)).acquire_owned().await;
        let place = place.map_err(|error| answer::failed(error.to_string()))?;
        let begun = spawn_blocking(move || {
            let _until_it_has_begun = place;
            local.begin(&mut functions).map(|()| local)
        });
        let begun = begun.await.unwrap_or_else(|error| Err(error.to_string()));
        begun.map_err(answer::failed)
    }

    /// The vBuckets that are asked for: all, or one where a development view would have to look at many documents.
    fn wanted(&self, info: &BucketInfo, design: &str, query: &Query, served: &VbSet) -> VbSet {
        let all = plan::all(info);
        if !is_development(design) || query.full_set {
            return all;
        }
        let Some(home) = self.desk.home(&info.uuid) else { return all };
        plan::of_development(info, served, home.documents())
    }

    /// The same request on a node that serves some of the bucket.
    fn elsewhere(&self, meta: &Metadata, info: &BucketInfo, request: &Request<'_>) -> Option<String> {
        let own = meta.nodes.iter().find(|node| node.uuid == self.gate.this_node_uuid());
        let serving: Vec<NodeId> = plan::Plan::of(info, &plan::all(info)).nodes.into_keys().collect();
        let mut lot = [0; 4];
        getrandom::fill(&mut lot).ok()?;
        let lot = u32::from_be_bytes(lot) as usize;
        let node = *serving.get(lot.checked_rem(serving.len())?)?;
        let node = meta.nodes.iter().find(|known| known.id == node)?;
        let is_tls = own.is_some_and(|own| own.ports.capi_tls == request.local.port());
        let (scheme, port) = if is_tls { ("https", node.ports.capi_tls) } else { ("http", node.ports.capi) };
        let host = match cluster::config::named_host(meta, node) {
            Some(host) => host.to_owned(),
            None => request.local.ip().to_canonical().to_string(),
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let path = request.parts.uri.path_and_query()?;
        Some(format!("{scheme}://{host}:{port}{path}"))
    }
}

/// A query may have waited for long: the sender has lost the right since, or there is another bucket of that name.
fn judged_again<'m>(
    meta: &'m Metadata,
    request: &Request<'_>,
    uuid: &BucketUuid,
) -> Result<&'m BucketInfo, Refusal> {
    if !privileges(meta, request.user, Some(request.bucket)).has(Privilege::ViewsRead) {
        return Err(answer::right_was_taken());
    }
    let info = meta.buckets.get(request.bucket).filter(|info| info.uuid == *uuid);
    info.ok_or_else(|| answer::not_found("missing"))
}

/// How many milliseconds a query has that has spent some time already.
fn left(millis: Option<u64>, spent: Duration) -> Result<Option<u64>, Refusal> {
    if spent.is_zero() {
        return Ok(millis);
    }
    match answers::timeout(millis).saturating_sub(spent).as_millis().try_into() {
        Ok(0) | Err(_) => {
            let reason = "The design document was replaced while the query waited for an index.";
            Err(answer::failed(reason.to_owned()))
        }
        Ok(left) => Ok(Some(left)),
    }
}

/// Couchbase says it in one way where it asks one node, and in another where it asks several.
fn no_view(info: &BucketInfo, request: &Request<'_>) -> Refusal {
    let (bucket, design, view) = (request.bucket, request.design, request.view);
    let nodes = plan::Plan::of(info, &plan::all(info)).nodes.len();
    answer::not_found(match nodes {
        0 | 1 => format!(
            "Error opening view `{view}`, from set `{bucket}`, design document `{DESIGN}{design}`: \
             {{not_found,missing_named_view}}"
        ),
        _ => format!("View `{view}` not defined in local design document `{DESIGN}{design}`."),
    })
}

/// The merge of the answers.
fn response(query: &Query, definition: &Definition, gathered: Gathered) -> Response<NodeAnswer> {
    let debug_info = query.debug.then(|| debug_info(definition, &gathered));
    Response::new(query, gathered.answers, debug_info)
}

/// Which vBuckets each node answers for.
fn debug_info(definition: &Definition, gathered: &Gathered) -> String {
    let signature = definition.signature().to_string();
    let of = |vbs: &VbSet| {
        let vbs: Vec<u16> = vbs.iter().map(|vb| vb.get()).collect();
        serde_json::json!({ "main_group": { "active_partitions": vbs, "signature": signature } })
    };
    let mut told = serde_json::Map::new();
    for (name, vbs) in &gathered.asked {
        let name = if name == here::HERE { name.clone() } else { format!("http://{name}/_view_merge/") };
        told.insert(name, of(vbs));
    }
    serde_json::Value::Object(told).to_string()
}
