//! A user's identity, and what the user may do.
//!
//! Passwords are kept as SCRAM verifiers ([`Credentials`]). These serve SCRAM logins directly, and plain passwords by
//! hashing them the same way. A [`PasswordCache`] remembers successes, so that Basic authentication on every REST
//! request stays cheap. What an [`Identity`] may do is computed once per connection and bucket ([`Privileges`]) and is
//! a bit test after that. Comparisons of secrets take the same time wherever they differ.

mod attempts;
mod judgement;
mod node_key;
mod password_cache;

use base::{CollectionId, ScopeId, places::Holder};
use serde::{Deserialize, Serialize};

pub use attempts::{LoginAttempts, TooManyAttempts};
pub use judgement::Judgement;
pub use node_key::{CHALLENGE_BYTES, LoginPort, NodeKey, NodeProof, SEED_BYTES, member, number_of};
pub use password_cache::PasswordCache;

pub use crate::rights::{
    Credentials, Privilege, PrivilegeSet, SALT_BYTES, SCRAM_ITERATIONS, ScramHash, ScramVerifier,
    cram_md5_digest, same_secret,
};

use crate::{
    metadata::{LegacyAccess, Metadata, User, UserDomain},
    rights::roles::{RoleGrant, Target},
};

/// The name of nodes to one another. No user can have the name. A node proves that it is one by its key
/// ([`NodeProof`]); where some node has none yet, by the password [`Metadata::secret`].
pub const INTERNAL_USER: &str = "@settee";

/// Which list an identity's name is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// The full administrator made by initialisation.
    Admin,
    /// A user with a password kept here.
    Local,
    /// A user of an outside directory.
    External,
    /// A bucket's own name and password.
    Bucket,
    /// None: another node of the cluster.
    Internal,
    /// Nobody: a connection that did not authenticate.
    Anonymous,
}

impl Domain {
    /// As REST shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Local => "local",
            Self::External => "external",
            Self::Bucket => "bucket",
            Self::Internal => "internal",
            Self::Anonymous => "anonymous",
        }
    }
}

/// Somebody.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Empty for nobody.
    pub name: String,
    /// Which list the name is from.
    pub domain: Domain,
    /// Tells the credentials that were shown from those that come later; 0 where none were. It says nothing about them.
    #[serde(skip)]
    shown: u64,
}

impl Identity {
    /// For whom its connections take places. The lists of names are kept apart; clients without a login count as one user.
    #[must_use]
    pub fn holder(&self) -> Holder {
        match self.domain {
            Domain::Internal => Holder::Member,
            domain => Holder::User {
                name: format!("{}:{}", domain.name(), self.name),
                is_administrator: domain == Domain::Admin,
            },
        }
    }

    /// The same on a port that takes nodes which do not count. Such a node was failed over, or has yet to hear that it was removed. It
    /// has places as an administrator has, and not those of members, whose number nothing limits.
    #[must_use]
    pub fn holder_by(&self, meta: &Metadata) -> Holder {
        match self.holder() {
            Holder::Member if !is_current(meta, self) => {
                Holder::User { name: format!("node:{:x}", self.shown), is_administrator: true }
            }
            holder => holder,
        }
    }

    /// Somebody who did not say who he is.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self { name: String::new(), domain: Domain::Anonymous, shown: 0 }
    }

    /// Somebody by name alone, who has shown nothing that could become invalid.
    #[must_use]
    pub fn unproved(name: &str, domain: Domain) -> Self {
        Self { name: name.to_owned(), domain, shown: 0 }
    }

    /// Whether it is another node of the cluster.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.domain == Domain::Internal
    }
}

/// Another node of the cluster, if that is its password, and nodes have no keys yet. A secret of 128 bits needs no slow hashing.
fn check_internal(meta: &Metadata, name: &str, password: &str) -> Option<Identity> {
    let is_right = name == INTERNAL_USER
        && meta.accepts_secret()
        && same_secret(meta.secret.as_bytes(), password.as_bytes());
    is_right.then(|| Identity { shown: secret_mark(meta), ..Identity::unproved(name, Domain::Internal) })
}

/// A number for credentials: others have another, as the salts of their passwords are random. Never 0.
fn mark(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().copied().flatten();
    // FNV-1a: nobody can choose what goes in.
    bytes
        .fold(0xcbf2_9ce4_8422_2325, |mark: u64, byte| {
            (mark ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        })
        .max(1)
}

fn secret_mark(meta: &Metadata) -> u64 {
    mark(&[meta.secret.as_bytes()])
}

/// Of a user. A user who is created again under the same name is another one.
fn user_mark(user: &User) -> Option<u64> {
    let credentials = user.credentials.as_ref().filter(|_| !user.locked)?;
    Some(mark(&[user.uuid.as_bytes(), &credentials.sha512.stored_key]))
}

fn bucket_mark(legacy: &LegacyAccess) -> Option<u64> {
    let stored = legacy.credentials.as_ref().map(|credentials| credentials.sha512.stored_key.as_slice());
    stored.or(legacy.sasl_password.as_deref().map(str::as_bytes)).map(|secret| mark(&[secret]))
}

/// Whether the credentials that somebody has logged in with are good still. The user must not be locked, removed or
/// replaced, and must have the password that was shown. Cheap, but not for every request: ask when the metadata has changed.
#[must_use]
pub fn is_current(meta: &Metadata, identity: &Identity) -> bool {
    let name = &identity.name;
    let current = match identity.domain {
        _ if identity.shown == 0 => return true,
        Domain::Admin => {
            let admin = meta.admin.as_ref().filter(|admin| admin.name == *name);
            admin.map(|admin| mark(&[&admin.credentials.sha512.stored_key]))
        }
        Domain::Local => meta.users.get(name).and_then(user_mark),
        Domain::Bucket => meta.buckets.get(name).and_then(|bucket| bucket_mark(&bucket.legacy)),
        Domain::Internal if node_key::is_of_member(meta, identity.shown) => return true,
        Domain::Internal => meta.accepts_secret().then(|| secret_mark(meta)),
        Domain::External | Domain::Anonymous => None,
    };
    current == Some(identity.shown)
}

/// The verifiers for that login name, with the identity a successful login has: none if the user is locked. The administrator
/// comes first, then local users, then buckets with a password of their own.
fn stored<'a>(meta: &'a Metadata, name: &str) -> Option<(Option<Identity>, &'a Credentials)> {
    let identity = |domain, shown| Identity { shown, ..Identity::unproved(name, domain) };
    if let Some(admin) = meta.admin.as_ref().filter(|admin| admin.name == name) {
        let shown = mark(&[&admin.credentials.sha512.stored_key]);
        return Some((Some(identity(Domain::Admin, shown)), &admin.credentials));
    }
    if let Some(user) = meta.users.get(name) {
        let identity = user_mark(user).map(|shown| identity(Domain::Local, shown));
        return Some((identity, user.credentials.as_ref()?));
    }
    let legacy = &meta.buckets.get(name)?.legacy;
    let identity = bucket_mark(legacy).map(|shown| identity(Domain::Bucket, shown));
    Some((identity, legacy.credentials.as_ref()?))
}

/// The verifiers for that login name, with the identity a successful login has.
#[must_use]
pub fn credentials<'a>(meta: &'a Metadata, name: &str) -> Option<(Identity, &'a Credentials)> {
    let (identity, credentials) = stored(meta, name)?;
    Some((identity?, credentials))
}

/// The user whom a client's certificate names, if there is one of that name and nobody has locked him.
#[must_use]
pub fn certified(meta: &Metadata, name: &str) -> Option<Identity> {
    // Nobody who manages these users takes the administrator's place, or another user's.
    let is_admin = meta.admin.as_ref().is_some_and(|admin| admin.name == name);
    if let Some(user) = meta.external_users.get(name).filter(|_| !is_admin && !meta.users.contains_key(name))
    {
        return (!user.locked).then(|| Identity::unproved(name, Domain::External));
    }
    // A bucket's own name and password are for clients that are older than certificates.
    stored(meta, name)?.0.filter(|identity| matches!(identity.domain, Domain::Admin | Domain::Local))
}

/// What a SCRAM exchange in that name is judged by, and who it is if the proof holds. A name that nobody has gets a verifier
/// too: every node makes the same one, from the cluster's secret, and takes as long over it.
#[must_use]
pub fn scram_verifier(meta: &Metadata, hash: ScramHash, name: &str) -> (Option<Identity>, ScramVerifier) {
    let decoy = ScramVerifier::decoy(hash, meta.secret.as_bytes(), name);
    match stored(meta, name) {
        Some((identity, credentials)) => (identity, credentials.verifier(hash).clone()),
        None => (None, decoy),
    }
}

/// The identity, if the password is right. Costs a few milliseconds; [`PasswordCache`] avoids repeating it.
#[must_use]
pub fn check_password(meta: &Metadata, name: &str, password: &str) -> Option<Identity> {
    if name == INTERNAL_USER {
        return check_internal(meta, name, password);
    }
    match credentials(meta, name) {
        Some((identity, credentials)) => credentials.sha512.check_password(password).then_some(identity),
        None => {
            // The same work as for a known name, so that answering time does not tell which names exist.
            let decoy = ScramVerifier::decoy(ScramHash::Sha512, meta.secret.as_bytes(), name);
            let _ = decoy.check_password(password);
            None
        }
    }
}

/// The identity that answered a CRAM-MD5 challenge: only buckets with a password of their own can (`digest` is hexadecimal).
#[must_use]
pub fn check_cram_md5(meta: &Metadata, name: &str, challenge: &[u8], digest: &str) -> Option<Identity> {
    let legacy = meta.buckets.get(name).map(|bucket| &bucket.legacy);
    let password = legacy.and_then(|legacy| legacy.sasl_password.as_deref());
    // The same work for a name that is no bucket's.
    let expected = cram_md5_digest(password.unwrap_or_default().as_bytes(), challenge);
    let is_right =
        same_secret(expected.as_bytes(), digest.to_ascii_lowercase().as_bytes()) && password.is_some();
    let shown = bucket_mark(legacy?).filter(|_| is_right)?;
    Some(Identity { shown, ..Identity::unproved(name, Domain::Bucket) })
}

/// What an identity may do: everywhere, in one bucket, and in single scopes and collections of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    bucket: PrivilegeSet,
    scopes: Vec<(ScopeId, PrivilegeSet)>,
    collections: Vec<(CollectionId, PrivilegeSet)>,
}

impl Privileges {
    /// Whether `privilege` is held in the whole bucket (or on the whole cluster, when no bucket was given).
    #[inline]
    #[must_use]
    pub const fn has(&self, privilege: Privilege) -> bool {
        self.bucket.contains(privilege)
    }

    /// Whether `privilege` is held in that collection.
    #[inline]
    #[must_use]
    pub fn has_in(&self, scope: ScopeId, collection: CollectionId, privilege: Privilege) -> bool {
        self.has(privilege) || self.within(scope, collection).contains(privilege)
    }

    /// Whether `privilege` is held in that whole scope.
    #[must_use]
    pub fn has_in_scope(&self, scope: ScopeId, privilege: Privilege) -> bool {
        let scopes = self.scopes.iter().filter(|(id, _)| *id == scope);
        self.has(privilege)
            || scopes.fold(PrivilegeSet::NONE, |all, (_, set)| all.with(*set)).contains(privilege)
    }

    /// Whether `privilege` is held anywhere in the bucket.
    #[must_use]
    pub fn has_somewhere(&self, privilege: Privilege) -> bool {
        let scopes = self.scopes.iter().map(|(_, set)| set);
        let collections = self.collections.iter().map(|(_, set)| set);
        self.has(privilege) || scopes.chain(collections).any(|set| set.contains(privilege))
    }

    /// Whether anything at all is allowed in that collection; if not, it must look as if it did not exist.
    #[must_use]
    pub fn sees(&self, scope: ScopeId, collection: CollectionId) -> bool {
        !self.bucket.without_settings().is_empty() || !self.within(scope, collection).is_empty()
    }

    /// Whether something is allowed in that whole scope, be there collections in it or not.
    #[must_use]
    pub fn sees_scope(&self, scope: ScopeId) -> bool {
        let mut scopes = self.scopes.iter().filter(|(id, _)| *id == scope);
        !self.bucket.without_settings().is_empty() || scopes.any(|(_, set)| !set.is_empty())
    }

    /// Whether nothing is allowed anywhere: the bucket cannot be selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let scopes = self.scopes.iter().map(|(_, set)| *set);
        let collections = self.collections.iter().map(|(_, set)| *set);
        scopes.chain(collections).fold(self.bucket, PrivilegeSet::with).is_empty()
    }

    /// Whether rights differ between collections, so that [`Privileges::has`] alone does not decide.
    #[must_use]
    pub fn is_scoped(&self) -> bool {
        !self.scopes.is_empty() || !self.collections.is_empty()
    }

    fn within(&self, scope: ScopeId, collection: CollectionId) -> PrivilegeSet {
        let scopes = self.scopes.iter().filter(|(id, _)| *id == scope).map(|(_, set)| *set);
        let collections = self.collections.iter().filter(|(id, _)| *id == collection).map(|(_, set)| *set);
        scopes.chain(collections).fold(PrivilegeSet::NONE, PrivilegeSet::with)
    }
}

/// What `identity` may do in `bucket`, or on the cluster when no bucket is given: nothing once its login [`is_current`] no more.
#[must_use]
pub fn privileges(meta: &Metadata, identity: &Identity, bucket: Option<&str>) -> Privileges {
    match identity.domain {
        _ if !is_current(meta, identity) => Privileges::default(),
        // Before there is an administrator REST stands in for one; an administrator replaced is nobody any more.
        Domain::Admin if meta.admin.as_ref().is_none_or(|admin| admin.name == identity.name) => {
            Privileges { bucket: PrivilegeSet::ALL, ..Privileges::default() }
        }
        Domain::Internal => Privileges { bucket: PrivilegeSet::ALL, ..Privileges::default() },
        Domain::Local => user_privileges(meta, UserDomain::Local, &identity.name, bucket),
        Domain::External => match meta.external_users.get(&identity.name) {
            Some(user) if user.locked => Privileges::default(),
            _ => user_privileges(meta, UserDomain::External, &identity.name, bucket),
        },
        // The switch may have been turned off since somebody came by the plain memcached port.
        Domain::Bucket if bucket == Some(&identity.name) => {
            legacy_privileges(meta, bucket, |legacy| identity.shown != 0 || legacy.memcached_port)
        }
        Domain::Anonymous => legacy_privileges(meta, bucket, |legacy| legacy.passwordless),
        Domain::Admin | Domain::Bucket => Privileges::default(),
    }
}

/// What a bucket gives to clients older than users where it is open to them: its data and its statistics, as
/// `bucket_full_access` does.
fn legacy_privileges(
    meta: &Metadata,
    bucket: Option<&str>,
    is_open: impl FnOnce(&LegacyAccess) -> bool,
) -> Privileges {
    let bucket = bucket.and_then(|name| meta.buckets.get(name));
    if bucket.is_some_and(|bucket| is_open(&bucket.legacy)) {
        Privileges { bucket: PrivilegeSet::BUCKET_FULL_ACCESS, ..Privileges::default() }
    } else {
        Privileges::default()
    }
}

fn user_privileges(meta: &Metadata, domain: UserDomain, name: &str, bucket: Option<&str>) -> Privileges {
    let mut privileges = Privileges::default();
    for (grant, _) in effective_grants(meta, domain, name) {
        add(&mut privileges, meta, grant, bucket);
    }
    privileges
}

/// Every grant a user has, with the group it comes from (`None`: granted directly).
#[must_use]
pub fn effective_grants<'a>(
    meta: &'a Metadata,
    domain: UserDomain,
    name: &str,
) -> Vec<(&'a RoleGrant, Option<&'a str>)> {
    let Some(user) = meta.users_of(domain).get(name) else { return Vec::new() };
    let own = user.roles.iter().map(|grant| (grant, None));
    let groups = user.groups.iter().filter_map(|group| meta.groups.get_key_value(group));
    let inherited =
        groups.flat_map(|(name, group)| group.roles.iter().map(move |g| (g, Some(name.as_str()))));
    own.chain(inherited).collect()
}

fn add(privileges: &mut Privileges, meta: &Metadata, grant: &RoleGrant, bucket: Option<&str>) {
    let Some(role) = grant.definition() else { return };
    let Some(bucket) = bucket else {
        privileges.bucket = privileges.bucket.with(role.cluster);
        return;
    };
    match &grant.target {
        Target::Everything | Target::AnyBucket => {
            privileges.bucket = privileges.bucket.with(role.bucket).with(role.scoped)
        }
        Target::Bucket { bucket: granted, scope, collection } if granted == bucket => {
            let Some(info) = meta.buckets.get(bucket) else { return };
            privileges.bucket = privileges.bucket.with(role.bucket);
            match (scope, collection) {
                (None, _) => privileges.bucket = privileges.bucket.with(role.scoped),
                (Some(scope), None) => {
                    if let Some(scope) = info.manifest.scope(scope) {
                        privileges.scopes.push((scope.id, role.scoped));
                    }
                }
                (Some(scope), Some(collection)) => {
                    let scope = info.manifest.scope(scope);
                    let mut all = scope.into_iter().flat_map(|scope| &scope.collections);
                    if let Some(collection) = all.find(|known| known.name == *collection) {
                        privileges.collections.push((collection.id, role.scoped));
                    }
                }
            }
        }
        Target::Bucket { .. } => {}
    }
}
