//! What a connection has negotiated and proved: features, identity, bucket, and what follows from them.
//!
//! The bucket and the rights in it are cached, and looked up again when the snapshot they were taken from has
//! been replaced. A right withdrawn or a bucket dropped takes effect with the next request. So does the end of a login: a
//! connection whose user is locked, has another password or is gone is closed. Noticing costs one comparison per turn.

use std::{net::SocketAddr, sync::Arc};

use base::{CollectionId, DocKey, HashedKey, Status, bucket::BucketKind, hash};
use cluster::auth::{self, Domain, Identity, Privilege, Privileges};
use protocol::hello::{Feature, FeatureSet};

use crate::{
    figures::{hot, meter::BucketMeter, phases::Phase},
    net::{
        client_certificate::{self, ClientCertificate},
        listener::ListenerKind,
        transport::Transport,
    },
    request::{ahead::Ahead, context::Context, dcp::DcpLink, exchange::Exchange, stage::Stop},
    state::shared::{BucketEntry, ConfigDocument, ConfigVersion, Snapshot},
};

/// The bucket that connections belong to before they say otherwise, where it needs no password.
const DEFAULT_BUCKET: &str = "default";

/// Rests of pushes end on such steps.
const REST_STEP_MILLIS: u64 = 100;

/// What a node's probe calls itself.
pub const PROBE_AGENT: &str = "settee probe";

/// See the module.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) kind: ListenerKind,
    pub(crate) features: FeatureSet,
    pub(crate) identity: Identity,
    bucket: Option<Arc<BucketEntry>>,
    access: Privileges,
    /// Another node, or this one, tries how fast operations are.
    is_probe: bool,
    /// See [`Session::places_by_key`].
    by_key: bool,
    /// The snapshot that `bucket` and `access` were taken from.
    generation: u64,
    /// The newest cluster map this client has received in full since it last selected a bucket.
    pub(crate) seen: Option<ConfigVersion>,
    /// The newest version that was pushed, in full or in brief.
    pub(crate) pushed: Option<ConfigVersion>,
    /// Until when it is told of no newer map, because it has not asked for the one that it was told of. In tenths of a second of the
    /// monotonic clock, which keep an idle connection small.
    pushes_rest_until: u32,
    /// A newer map waits for that, and the connection is woken then.
    pub(crate) push_waits: bool,
    /// A SASL exchange that has begun.
    pub(crate) exchange: Option<Exchange>,
    /// Present once the connection was opened for DCP.
    pub(crate) dcp: Option<Box<DcpLink>>,
    /// Answers of other nodes to what is next on the plain memcached port.
    pub(crate) ahead: Ahead,
    /// It ends after the next answer.
    pub(crate) quitting: bool,
    /// What the client has shown of itself under TLS.
    pub(crate) certificate: ClientCertificate,
    /// Logins that failed on it.
    pub(crate) failed_logins: u32,
    /// What the client calls itself.
    pub(crate) agent: Option<Box<str>>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
}

/// Whether a session can go on after the node's state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionStatus {
    Good,
    /// Another bucket is in the place of its own, which was emptied: the plain memcached port has to go on.
    BucketReplaced,
    /// Its bucket has been dropped: the connection is closed, as clients expect.
    BucketGone,
    /// What its user logged in with is not good any more, or its bucket is not open to everybody any more. The connection is closed,
    /// and the client has to log in anew.
    LoginEnded,
}

impl Session {
    pub(crate) fn new(kind: ListenerKind, transport: Option<&Transport>, snapshot: &Snapshot) -> Self {
        let mut session = Self::bare(kind, transport, snapshot);
        session.certificate =
            transport.map(|shown| client_certificate::of(shown, &snapshot.metadata)).unwrap_or_default();
        session.attach_unasked(snapshot);
        if let Some(identity) = session.certificate.user.clone() {
            session.log_in(identity, snapshot);
        }
        session
    }

    /// Of a connection that we opened: nobody asks for anything on it.
    pub(crate) fn of_link(transport: &Transport, snapshot: &Snapshot) -> Self {
        Self::bare(ListenerKind::Kv, Some(transport), snapshot)
    }

    fn bare(kind: ListenerKind, transport: Option<&Transport>, snapshot: &Snapshot) -> Self {
        let socket = transport.map(Transport::socket);
        Self {
            kind,
            features: FeatureSet::default(),
            identity: Identity::anonymous(),
            bucket: None,
            access: Privileges::default(),
            is_probe: false,
            by_key: kind == ListenerKind::Memcached,
            generation: snapshot.generation(),
            seen: None,
            pushed: None,
            pushes_rest_until: 0,
            push_waits: false,
            exchange: None,
            dcp: None,
            ahead: Ahead::default(),
            quitting: false,
            certificate: ClientCertificate::default(),
            failed_logins: 0,
            agent: None,
            peer: socket.and_then(|socket| socket.peer_addr().ok()),
            local: socket.and_then(|socket| socket.local_addr().ok()),
        }
    }

    /// Whether certificates are mandatory and the connection shows none. It asked for a name that nodes dial then, and so may any client.
    fn has_to_log_in(&self) -> bool {
        self.certificate.is_only_way && self.certificate.user.is_none()
    }

    /// Connections that never log in belong to the bucket that is open to them, if there is one.
    fn attach_unasked(&mut self, snapshot: &Snapshot) {
        if self.has_to_log_in() {
            return;
        }
        let bucket = match self.kind {
            ListenerKind::Memcached => snapshot.memcached_bucket(),
            _ => snapshot.buckets.get(DEFAULT_BUCKET).filter(|bucket| bucket.legacy.passwordless),
        };
        if let Some(bucket) = bucket.cloned() {
            if self.kind == ListenerKind::Memcached {
                // A client that can reach the port may use its bucket, as its owner decided.
                self.identity = Identity::unproved(&bucket.name, Domain::Bucket);
            }
            self.attach(Some(bucket), snapshot);
        }
    }

    /// Follows a replaced snapshot.
    #[inline]
    pub(crate) fn refresh(&mut self, snapshot: &Snapshot) -> SessionStatus {
        if self.generation == snapshot.generation() { SessionStatus::Good } else { self.follow(snapshot) }
    }

    fn follow(&mut self, snapshot: &Snapshot) -> SessionStatus {
        self.generation = snapshot.generation();
        let no_more = self.certificate.follow(&snapshot.metadata);
        if no_more.is_some_and(|user| user == self.identity)
            || !auth::is_current(&snapshot.metadata, &self.identity)
        {
            return SessionStatus::LoginEnded;
        }
        let Some(old) = self.bucket.take() else {
            if !self.is_logged_in() {
                self.attach_unasked(snapshot);
            } else {
                self.access = auth::privileges(&snapshot.metadata, &self.identity, None);
            }
            return SessionStatus::Good;
        };
        let is_plain = self.kind == ListenerKind::Memcached;
        let still = |new: &&Arc<BucketEntry>| {
            if is_plain { new.legacy.memcached_port } else { new.uuid == old.uuid }
        };
        let Some(new) = snapshot.buckets.get(&*old.name).filter(still) else {
            // What waits for its turn there is taken out when the connection ends.
            self.bucket = Some(old);
            return SessionStatus::BucketGone;
        };
        self.bucket = Some(Arc::clone(new));
        self.access = auth::privileges(&snapshot.metadata, &self.identity, Some(&old.name));
        let is_legacy = matches!(self.identity.domain, Domain::Bucket | Domain::Anonymous);
        if is_legacy && self.access.is_empty() {
            // Legacy access was switched off. A write that waits may still be carried out, so that no answer is right.
            return SessionStatus::LoginEnded;
        }
        if new.uuid == old.uuid {
            return SessionStatus::Good;
        }
        self.ahead.clear();
        SessionStatus::BucketReplaced
    }

    /// Whether it is still at a bucket that was dropped, or opened anew: it has not followed the snapshot yet.
    pub(crate) fn is_at_gone_bucket(&self, snapshot: &Snapshot) -> bool {
        let Some(at) = &self.bucket else { return false };
        let now = snapshot.buckets.get(&*at.name);
        now.is_none_or(|now| !Arc::ptr_eq(&now.engine, &at.engine))
    }

    fn attach(&mut self, bucket: Option<Arc<BucketEntry>>, snapshot: &Snapshot) {
        let name = bucket.as_ref().map(|bucket| &*bucket.name);
        self.access = auth::privileges(&snapshot.metadata, &self.identity, name);
        let is_cache = bucket.as_ref().is_some_and(|bucket| bucket.engine.kind() == BucketKind::Memcached);
        self.by_key = is_cache || self.kind == ListenerKind::Memcached;
        // Nobody else is taken for one: what it does is not counted among the operations of clients.
        self.is_probe = self.identity.is_internal() && self.agent.as_deref() == Some(PROBE_AGENT);
        self.bucket = bucket;
        self.seen = None;
        self.pushed = None;
        self.rest_pushes_until(0);
    }

    /// It is told of no newer map until then, unless it asks.
    pub(crate) fn rest_pushes_until(&mut self, mono_millis: u64) {
        self.pushes_rest_until = u32::try_from(mono_millis / REST_STEP_MILLIS).unwrap_or(u32::MAX);
        self.push_waits = false;
    }

    /// Until when it is told of no newer map (monotonic milliseconds).
    pub(crate) fn pushes_rest_until(&self) -> u64 {
        u64::from(self.pushes_rest_until) * REST_STEP_MILLIS
    }

    /// SELECT_BUCKET.
    ///
    /// # Errors
    /// `NoAccess` where nothing may be done, or where no such bucket exists: the two must look alike. `KeyNotFound`
    /// while a bucket that exists is not open yet.
    pub(crate) fn select(&mut self, name: &str, snapshot: &Snapshot) -> Result<(), Status> {
        if self.has_to_log_in() && !self.is_logged_in() {
            return Err(Status::NoAccess);
        }
        let rights = auth::privileges(&snapshot.metadata, &self.identity, Some(name));
        if rights.is_empty() || !snapshot.metadata.buckets.contains_key(name) {
            return Err(Status::NoAccess);
        }
        let bucket = snapshot.buckets.get(name).ok_or(Status::KeyNotFound)?;
        self.attach(Some(Arc::clone(bucket)), snapshot);
        Ok(())
    }

    /// Belongs to no bucket from now on.
    pub(crate) fn deselect(&mut self, snapshot: &Snapshot) {
        self.attach(None, snapshot);
    }

    /// Is somebody from now on, with the credentials that [`auth::is_current`] is asked about whenever something has changed. A
    /// bucket's own name brings its bucket with it.
    pub(crate) fn log_in(&mut self, identity: Identity, snapshot: &Snapshot) {
        let own = (identity.domain == Domain::Bucket).then(|| snapshot.buckets.get(&identity.name).cloned());
        self.identity = identity;
        self.attach(own.flatten(), snapshot);
    }

    /// Is nobody from now on: a new login has begun.
    pub(crate) fn log_out(&mut self, snapshot: &Snapshot) {
        self.identity = Identity::anonymous();
        self.attach(None, snapshot);
    }

    /// Whether somebody has said who they are.
    pub(crate) fn is_logged_in(&self) -> bool {
        self.identity.domain != Domain::Anonymous
    }

    /// Whether somebody has logged in, or no login is needed for its bucket.
    pub(crate) fn is_known(&self) -> bool {
        self.is_logged_in() || self.attached().is_some()
    }

    #[inline]
    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.features.contains(feature)
    }

    /// Has a DCP connection follow what has changed around it; false if it has to be closed.
    pub(crate) fn follow_dcp(&mut self, context: &Context) -> bool {
        match self.dcp_with_rights() {
            Some((dcp, access, bucket)) => {
                !dcp.is_superseded() && dcp.follow_rights(access, &bucket.engine, context)
            }
            None => self.dcp.is_none(),
        }
    }

    /// The DCP connection, with whose rights it streams and from where.
    pub(crate) fn dcp_with_rights(&mut self) -> Option<(&mut DcpLink, &Privileges, &BucketEntry)> {
        Some((self.dcp.as_deref_mut()?, &self.access, self.bucket.as_deref()?))
    }

    /// What counts the operations of the session; those of a probe are not counted.
    #[inline]
    pub(crate) fn meter(&self) -> Option<&BucketMeter> {
        self.attached().filter(|_| !self.is_probe).map(|bucket| &*bucket.meter)
    }

    /// Counts a durable write that had reached its level before it could wait: objectives count those of the phase.
    pub(crate) fn note_durable_at_once(&self, context: &Context) {
        if let Some(meter) = self.meter() {
            meter.record_phase(context.worker, Phase::Durability, 1, 0);
        }
    }

    /// Lets an operation on a document take part in the lot for hot keys and clients.
    #[inline]
    pub(crate) fn draw(&self, key: HashedKey<'_>, context: &mut Context) {
        if context.is_drawn() {
            self.sample(key, context);
        }
    }

    #[cold]
    fn sample(&self, key: HashedKey<'_>, context: &mut Context) {
        context.draw_next();
        if !key.key.encoded().is_empty()
            && let Some(row) = self.meter().and_then(|meter| meter.hot_row(context.worker))
        {
            row.note(context.now.mono_millis, key, hot::address_of(self.peer));
        }
    }

    /// The bucket, if one was selected.
    pub(crate) fn attached(&self) -> Option<&Arc<BucketEntry>> {
        self.bucket.as_ref()
    }

    /// The bucket that documents are in.
    ///
    /// # Errors
    /// `NoBucket`.
    #[inline]
    pub(crate) fn bucket(&self) -> Result<&BucketEntry, Stop> {
        self.bucket.as_deref().ok_or(Stop::Status(Status::NoBucket))
    }

    /// The cluster map that this client is told of: its bucket's, or the cluster's while it has none.
    pub(crate) fn told_config<'a>(&'a self, context: &'a Context) -> Option<&'a ConfigDocument> {
        match &self.bucket {
            Some(bucket) => Some(bucket.maps.told()),
            None => context.snapshot.cluster_config.as_deref(),
        }
    }

    /// The same for one that asks.
    pub(crate) fn newest_config<'a>(&'a self, context: &'a Context) -> Option<&'a ConfigDocument> {
        match &self.bucket {
            Some(bucket) => Some(bucket.maps.newest()),
            None => context.snapshot.cluster_config.as_deref(),
        }
    }

    /// What the identity may do in the bucket, or on the cluster while none is selected.
    pub(crate) fn access(&self) -> &Privileges {
        &self.access
    }

    /// Checks one right for one document.
    ///
    /// # Errors
    /// `NoAccess`; `UnknownCollection` for collections that this identity must not know of.
    #[inline]
    pub(crate) fn require(&self, privilege: Privilege, key: DocKey<'_>) -> Result<(), Stop> {
        if self.access.has(privilege) { Ok(()) } else { self.require_in(privilege, key.collection()) }
    }

    /// Whether any mutation that may grow a document is allowed.
    pub(crate) fn may_grow(&self, key: DocKey<'_>) -> bool {
        let privileges = [Privilege::Upsert, Privilege::Insert, Privilege::MetaWrite];
        privileges.into_iter().any(|privilege| self.require(privilege, key).is_ok())
    }

    /// As [`Self::require`], for a collection.
    ///
    /// # Errors
    /// As [`Self::require`].
    #[cold]
    pub(crate) fn require_in(&self, privilege: Privilege, collection: CollectionId) -> Result<(), Stop> {
        if self.access.has(privilege) {
            return Ok(());
        }
        let manifest = self.bucket()?.engine.manifest();
        let (scope, _) = manifest.collection(collection).ok_or(Stop::Status(Status::UnknownCollection))?;
        if self.access.has_in(scope.id, collection, privilege) {
            Ok(())
        } else if self.access.sees(scope.id, collection) {
            Err(Stop::Refused(Status::NoAccess, "The privilege for this operation is missing"))
        } else {
            Err(Stop::Status(Status::UnknownCollection))
        }
    }

    /// Checks one right for the whole bucket or cluster.
    ///
    /// # Errors
    /// `NoAccess`.
    pub(crate) fn require_everywhere(&self, privilege: Privilege) -> Result<(), Stop> {
        if self.access.has(privilege) { Ok(()) } else { Err(Stop::Status(Status::NoAccess)) }
    }

    /// Whether a document's vBucket follows from its key, whatever the request says. Clients of the plain memcached
    /// port know of none, and those of a cache-only bucket choose a node by the key and name vBucket 0.
    #[inline]
    pub(crate) fn places_by_key(&self) -> bool {
        self.by_key
    }

    /// The vBucket where a session [`places_by_key`](Self::places_by_key).
    pub(crate) fn vbucket_of(&self, logical_key: &[u8]) -> base::VbId {
        let count = self.bucket.as_ref().map_or(1, |bucket| bucket.engine.vbuckets().max(1));
        hash::vbucket_of(logical_key, count)
    }
}
