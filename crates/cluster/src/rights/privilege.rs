//! Single rights and sets of them.

macro_rules! privileges {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One right.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Privilege {
            $($(#[$doc])* $name,)*
        }

        impl Privilege {
            /// Every right.
            pub const ALL: &'static [Privilege] = &[$(Privilege::$name,)*];
        }
    };
}

privileges! {
    /// Read documents, their metadata included.
    Read,
    /// Create documents.
    Insert,
    /// Create and change documents.
    Upsert,
    /// Delete documents.
    Delete,
    /// Read metadata (`GET_META`); held by all that may read.
    MetaRead,
    /// Write with metadata given (`SET_WITH_META`).
    MetaWrite,
    /// Read system extended attributes.
    SystemXattrRead,
    /// Write system extended attributes.
    SystemXattrWrite,
    /// Scan key ranges.
    RangeScan,
    /// Stream changes out.
    DcpProducer,
    /// Stream changes in.
    DcpConsumer,
    /// See harmless statistics.
    SimpleStats,
    /// See all statistics.
    Stats,
    /// See a bucket's settings.
    BucketRead,
    /// Change a bucket's settings.
    BucketWrite,
    /// Drop a bucket.
    BucketDelete,
    /// Empty a bucket.
    BucketFlush,
    /// Compact a bucket.
    BucketCompact,
    /// See scopes and collections.
    CollectionsRead,
    /// Create, change and drop scopes (bucket-wide) and collections (in the scope).
    CollectionsWrite,
    /// Query views, and see their design documents.
    ViewsRead,
    /// Create, change and drop views.
    ViewsWrite,
    /// Compact indexes of views, and set how often they are brought up to date.
    ViewsCompact,
    /// Create buckets.
    BucketCreate,
    /// See the pool: nodes, services, configurations.
    PoolsRead,
    /// See the cluster's tasks and settings.
    ClusterRead,
    /// Change the cluster, its nodes and settings.
    ClusterAdmin,
    /// See users, groups and roles.
    UserRead,
    /// Change local users and groups that hold no administrative role.
    UserAdmin,
    /// Change external users that hold no administrative role.
    ExternalUserAdmin,
    /// Give administrative roles; change security settings and the audit log.
    SecurityAdmin,
    /// See security settings, certificates and the audit configuration.
    SecurityRead,
    /// See cluster-wide statistics (`/metrics`).
    ClusterStats,
    /// Tell nodes how long operations took at a client.
    AppTelemetry,
    /// Execute on behalf of another user.
    Impersonate,
    /// Trace, isolate and control nodes (`verbosity` and other supervision).
    NodeSupervisor,
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrivilegeSet(u64);

impl PrivilegeSet {
    /// No right.
    pub const NONE: PrivilegeSet = PrivilegeSet(0);
    /// Every right.
    pub const ALL: PrivilegeSet = PrivilegeSet::of(Privilege::ALL);
    /// Reading documents.
    pub const DATA_READ: PrivilegeSet = PrivilegeSet::of(&[
        Privilege::Read,
        Privilege::MetaRead,
        Privilege::RangeScan,
        Privilege::CollectionsRead,
    ]);
    /// Writing documents.
    pub const DATA_WRITE: PrivilegeSet = PrivilegeSet::of(&[
        Privilege::Insert,
        Privilege::Upsert,
        Privilege::Delete,
        Privilege::CollectionsRead,
    ]);
    /// Everything an application does with a bucket's documents, one by one.
    pub const BUCKET_DATA: PrivilegeSet = PrivilegeSet::of(&[
        Privilege::Read,
        Privilege::MetaRead,
        Privilege::RangeScan,
        Privilege::Insert,
        Privilege::Upsert,
        Privilege::Delete,
        Privilege::MetaWrite,
        Privilege::SystemXattrRead,
        Privilege::SystemXattrWrite,
        Privilege::DcpProducer,
        Privilege::SimpleStats,
        Privilege::Stats,
        Privilege::BucketRead,
        Privilege::CollectionsRead,
        Privilege::ViewsRead,
        Privilege::ViewsWrite,
    ]);
    /// The same, and emptying the bucket.
    pub const BUCKET_FULL_ACCESS: PrivilegeSet =
        PrivilegeSet::BUCKET_DATA.with(PrivilegeSet::of(&[Privilege::BucketFlush, Privilege::ViewsCompact]));

    /// Managing a bucket, without its documents.
    pub const BUCKET_ADMIN: PrivilegeSet = PrivilegeSet::of(&[
        Privilege::SimpleStats,
        Privilege::Stats,
        Privilege::BucketRead,
        Privilege::BucketWrite,
        Privilege::BucketDelete,
        Privilege::BucketFlush,
        Privilege::BucketCompact,
        Privilege::CollectionsRead,
        Privilege::CollectionsWrite,
    ]);
    /// Rights on a bucket that are used elsewhere than on KV: they do not make its collections visible there.
    const BUCKET_SETTINGS: PrivilegeSet = PrivilegeSet::of(&[
        Privilege::ViewsRead,
        Privilege::ViewsWrite,
        Privilege::ViewsCompact,
        Privilege::BucketRead,
        Privilege::BucketWrite,
        Privilege::BucketDelete,
        Privilege::BucketFlush,
        Privilege::BucketCompact,
    ]);

    /// The set of these rights.
    #[must_use]
    pub const fn of(privileges: &[Privilege]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < privileges.len() {
            bits |= 1 << privileges[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Whether `privilege` is in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, privilege: Privilege) -> bool {
        self.0 & (1 << privilege as u8) != 0
    }

    /// Whether some right is in both.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These rights and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These rights less those that are used elsewhere than on KV.
    pub(crate) const fn without_settings(self) -> Self {
        Self(self.0 & !Self::BUCKET_SETTINGS.0)
    }

    /// Whether the set has no right.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}
