//! Every settings object below `/settings/`: which parameters it has, what they may be, and what they are until somebody
//! changes them.
//!
//! `Effect` says what keeping a value does. Objects that would mislead if they were only recorded (encryption,
//! outside directories) accept nothing but what is true already.

use cluster::{TELEMETRY_CLIENTS_MAX, TELEMETRY_INTERVAL_SECS, TELEMETRY_SETTING};

/// What a parameter's values are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `true`/`false` or `1`/`0`.
    Bool(bool),
    /// A number from..=to and its default.
    Int(i64, i64, i64),
    /// Any text and its default.
    Text(&'static str),
    /// One of these; the first is the default.
    OneOf(&'static [&'static str]),
    /// A comma-separated list; empty by default.
    List,
}

/// What recording a setting does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It is obeyed.
    Obeyed,
    /// It is kept and shown; nothing acts upon it. Answers say so.
    RecordedOnly,
}

/// One settings object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The path below `/settings/`.
    pub(super) path: &'static str,
    pub(super) effect: Effect,
    /// Parameters; `a[b]` is member `b` of object `a`.
    pub(super) fields: &'static [(&'static str, Kind)],
    /// Whether a POST answers with the object, as Couchbase does for some, or with nothing.
    pub(super) answers: bool,
}

const fn admin(path: &'static str, fields: &'static [(&'static str, Kind)]) -> Settings {
    Settings { path, effect: Effect::RecordedOnly, fields, answers: false }
}

const fn security(path: &'static str, effect: Effect, fields: &'static [(&'static str, Kind)]) -> Settings {
    Settings { path, effect, fields, answers: false }
}

const YES_NO: Kind = Kind::Bool(false);

/// Every settings object.
pub(super) const SETTINGS: &[Settings] = &[
    admin(
        "autoFailover",
        &[
            ("failoverOnDataDiskIssues[enabled]", YES_NO),
            ("failoverOnDataDiskIssues[timePeriod]", Kind::Int(5, 3600, 120)),
            ("failoverOnDataDiskNonResponsiveness[enabled]", YES_NO),
            ("failoverOnDataDiskNonResponsiveness[timePeriod]", Kind::Int(5, 3600, 120)),
            ("failoverPreserveDurabilityMajority", YES_NO),
            ("canAbortRebalance", Kind::Bool(true)),
            ("allowFailoverEphemeralNoReplicas", YES_NO),
        ],
    ),
    admin("autoReprovision", &[("enabled", Kind::Bool(true)), ("maxNodes", Kind::Int(1, 100, 1))]),
    admin("stats", &[("sendStats", YES_NO)]),
    Settings {
        answers: true,
        effect: Effect::Obeyed,
        ..admin(
            TELEMETRY_SETTING,
            &[
                ("enabled", YES_NO),
                (
                    "maxScrapeClientsPerNode",
                    Kind::Int(1, TELEMETRY_CLIENTS_MAX as i64, TELEMETRY_CLIENTS_MAX as i64),
                ),
                ("scrapeIntervalSeconds", Kind::Int(60, 600, TELEMETRY_INTERVAL_SECS as i64)),
            ],
        )
    },
    Settings {
        answers: true,
        ..admin(
            "indexes",
            &[
                ("redistributeIndexes", YES_NO),
                ("numReplica", Kind::Int(0, 16, 0)),
                ("enablePageBloomFilter", YES_NO),
                ("indexerThreads", Kind::Int(0, 1024, 0)),
                ("memorySnapshotInterval", Kind::Int(1, i64::MAX, 200)),
                ("stableSnapshotInterval", Kind::Int(1, i64::MAX, 5000)),
                ("maxRollbackPoints", Kind::Int(1, i64::MAX, 2)),
                (
                    "logLevel",
                    Kind::OneOf(&[
                        "info", "silent", "fatal", "error", "warn", "verbose", "timing", "debug", "trace",
                    ]),
                ),
                ("storageMode", Kind::OneOf(&["", "plasma", "memory_optimized", "forestdb"])),
            ],
        )
    },
    admin(
        "autoCompaction",
        &[
            ("databaseFragmentationThreshold[percentage]", Kind::Int(2, 100, 30)),
            ("databaseFragmentationThreshold[size]", Kind::Int(1, i64::MAX, i64::MAX)),
            ("viewFragmentationThreshold[percentage]", Kind::Int(2, 100, 30)),
            ("viewFragmentationThreshold[size]", Kind::Int(1, i64::MAX, i64::MAX)),
            ("magmaFragmentationPercentage", Kind::Int(10, 100, 50)),
            ("parallelDBAndViewCompaction", YES_NO),
            ("purgeInterval", Kind::Text("3")),
            ("allowedTimePeriod[fromHour]", Kind::Int(0, 23, 0)),
            ("allowedTimePeriod[fromMinute]", Kind::Int(0, 59, 0)),
            ("allowedTimePeriod[toHour]", Kind::Int(0, 23, 0)),
            ("allowedTimePeriod[toMinute]", Kind::Int(0, 59, 0)),
            ("allowedTimePeriod[abortOutside]", YES_NO),
            ("indexCompactionMode", Kind::OneOf(&["circular", "full"])),
            ("indexFragmentationThreshold[percentage]", Kind::Int(2, 100, 30)),
            ("indexCircularCompaction[daysOfWeek]", Kind::Text("")),
            ("indexCircularCompaction[interval][fromHour]", Kind::Int(0, 23, 0)),
            ("indexCircularCompaction[interval][fromMinute]", Kind::Int(0, 59, 0)),
            ("indexCircularCompaction[interval][toHour]", Kind::Int(0, 23, 0)),
            ("indexCircularCompaction[interval][toMinute]", Kind::Int(0, 59, 0)),
            ("indexCircularCompaction[interval][abortOutside]", YES_NO),
        ],
    ),
    Settings {
        answers: true,
        effect: Effect::Obeyed,
        ..admin("rebalance", &[("rebalanceMovesPerNode", Kind::Int(1, 64, 4))])
    },
    Settings {
        answers: true,
        ..admin(
            "retryRebalance",
            &[
                ("enabled", YES_NO),
                ("afterTimePeriod", Kind::Int(5, 3600, 300)),
                ("maxAttempts", Kind::Int(1, 3, 1)),
            ],
        )
    },
    Settings {
        effect: Effect::Obeyed,
        ..admin("logRedaction", &[("logRedactionLevel", Kind::OneOf(&["none", "partial"]))])
    },
    admin("maxParallelIndexers", &[("globalValue", Kind::Int(1, 1024, 4))]),
    Settings {
        answers: true,
        ..admin(
            "viewUpdateDaemon",
            &[
                ("updateInterval", Kind::Int(0, i64::MAX, 5000)),
                ("updateMinChanges", Kind::Int(0, i64::MAX, 5000)),
                ("replicaUpdateMinChanges", Kind::Int(0, i64::MAX, 5000)),
            ],
        )
    },
    admin("failover", &[("preserveDurabilityMajority", YES_NO)]),
    // Developer preview and query settings have nothing here that could be switched on.
    admin("developerPreview", &[("enabled", Kind::OneOf(&["false"]))]),
    security(
        "audit",
        Effect::Obeyed,
        &[
            ("auditdEnabled", Kind::Bool(true)),
            ("logPath", Kind::Text("")),
            ("rotateInterval", Kind::Int(900, 604_800, 86_400)),
            ("rotateSize", Kind::Int(0, 524_288_000, 20_971_520)),
            ("pruneAge", Kind::Int(0, 35_791_394, 0)),
            ("disabled", Kind::List),
            ("disabledUsers", Kind::List),
        ],
    ),
    Settings {
        answers: true,
        ..security(
            "security",
            Effect::Obeyed,
            &[
                ("disableUIOverHttp", YES_NO),
                ("disableUIOverHttps", YES_NO),
                ("disableWWWAuthenticate", Kind::OneOf(&["false"])),
                ("tlsMinVersion", Kind::OneOf(&["tlsv1.2", "tlsv1.3"])),
                ("honorCipherOrder", Kind::OneOf(&["true"])),
                ("cipherSuites", Kind::OneOf(&["[]"])),
                ("clusterEncryptionLevel", Kind::OneOf(&["control", "all"])),
            ],
        )
    },
    security(
        "passwordPolicy",
        Effect::Obeyed,
        &[
            ("minLength", Kind::Int(0, 100, 6)),
            ("enforceUppercase", YES_NO),
            ("enforceLowercase", YES_NO),
            ("enforceDigits", YES_NO),
            ("enforceSpecialChars", YES_NO),
        ],
    ),
    security(
        "ldap",
        Effect::Obeyed,
        &[
            ("authenticationEnabled", Kind::OneOf(&["false"])),
            ("authorizationEnabled", Kind::OneOf(&["false"])),
            ("hosts", Kind::OneOf(&[""])),
            ("port", Kind::OneOf(&["389"])),
            ("encryption", Kind::OneOf(&["None"])),
        ],
    ),
    security("saslauthdAuth", Effect::Obeyed, &[("enabled", Kind::OneOf(&["false"]))]),
];
