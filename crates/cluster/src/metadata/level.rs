//! The level of the metadata: what every member of the cluster understands of changes, of their formats, and of how they are carried
//! out.
//!
//! A node says the highest level that it understands when it joins, and in every report. The leader raises the cluster's level once
//! every member has said so. A change that needs more than the cluster's level is refused before it is proposed. Should it be proposed
//! all the same, every node refuses it alike. The level never sinks, so a node that understands less takes no part any more.
//!
//! Invariants: nothing above the cluster's level is in its log, but for the change that raises it. How a change is carried out depends
//! on nothing but the change and the metadata, the level among them.
//!
//! | level | since then |
//! |---|---|
//! | 0 | versions that say nothing of levels |
//! | 1 | automatic failover is armed by the version of its settings ([`Command::ArmAutoFailoverSince`]); nodes have alternate addresses |
//! | 2 | a proposal says which of its proposer's have not ended ([`crate::consensus::Place`]), and how they ended is remembered by that |
//! | 3 | nodes tell hashes of what they have agreed on ([`crate::orchestrator::divergence`]) |
//! | 4 | a rebalance that recovers a node serves what it holds of vBuckets that are given up meanwhile; nodes tell what they hold of those |
//! | 5 | nodes have keys of their own ([`crate::auth::NodeKey`]); a node without one is not added |
//! | 6 | buckets have design documents ([`crate::changes::design_documents`]) |
//! | 7 | what nodes held when they were failed over is remembered until it is decided which node serves it. That holds through any number of failovers and stopped recoveries. A copy that is being built is no other copy. The next failover of a node waits for an earlier lease of it |
//! | 8 | buckets have objectives ([`crate::changes::objectives`]) |
//! | 9 | a failover while a chain changes has the remaining nodes of the chain before asked as well. A flush ends no election. Where no node has a vBucket, every recovered node is asked, also if more nodes held it than it is to have copies |
//! | 10 | a node that was failed over gracefully is remembered until the copies that are left are known to hold what it holds |
//! | 11 | configurations of clients change with the setting that has nodes ask SDKs for telemetry ([`crate::AppTelemetry`]). Nodes show no password of a mail server. A silence may be for one node. A change of a design document may say which revision it replaces |
//! | 12 | while nodes are failed over gracefully, durable writes of their vBuckets go to disk. The failover ends once the nodes that are left have on disk what was acknowledged before |
//! | 13 | hashes of what nodes have agreed on leave out the words of refusals. An unsafe failover may name nodes that were only added, which are not waited for then |
//! | 14 | settings have revisions, and a change of one may say which revision it replaces |
//! | 15 | a change of a bucket names the uuid of the one that is meant, and the end of a rebalance the rebalance. Settings of automatic failover that a change does not name stay. No rebalance removes a node that is to be recovered, and no node is recovered that one removes |
//!
//! A new version may carry out a known change in another way, for instance with another order of nodes among ties. It takes the next
//! level for that, and keeps the former way below it.

/// The highest level that this version understands; that of every cluster that it founds.
pub const LEVEL: u32 = 15;
/// From here on automatic failover is armed by the version of its settings.
pub(crate) const ARMED_BY_VERSION: u32 = 1;
/// From here on proposals have a [`crate::consensus::Place`].
pub(crate) const PROPOSALS_PLACED: u32 = 2;
/// From here on nodes tell hashes of their state.
pub(crate) const STATES_TOLD: u32 = 3;
/// From here on a rebalance that recovers a node serves what it holds of vBuckets that are given up meanwhile.
pub(crate) const GIVEN_UP_RECOVERED: u32 = 4;
/// From here on nodes have keys of their own.
pub(crate) const NODE_KEYS: u32 = 5;
/// From here on buckets have design documents.
pub(crate) const DESIGN_DOCUMENTS: u32 = 6;
/// From here on a second failover, and a recovery that is stopped, forget nothing that is still needed.
pub(crate) const FAILOVERS_REMEMBERED: u32 = 7;
/// From here on buckets have objectives.
pub(crate) const OBJECTIVES: u32 = 8;
/// From here on all nodes that are left and may know more are asked. They are those of the chain before one that changes, and those
/// that held what nobody has. No flush ends an election.
pub(crate) const LIVING_ASKED: u32 = 9;
/// From here on nodes that were failed over gracefully are remembered until the others are known to hold what these hold.
pub(crate) const LEAVERS_KEPT: u32 = 10;
/// From here on configurations change with the setting of telemetry.
pub(crate) const TELEMETRY: u32 = 11;
/// From here on a change of a design document may say which revision it replaces.
pub(crate) const DESIGN_DOCUMENTS_OVER: u32 = 11;
/// From here on durable writes go to disk beside nodes that leave gracefully.
pub(crate) const LEAVERS_SYNCED: u32 = 12;
/// From here on an unsafe failover may name nodes that were only added.
pub(crate) const ADDED_ARE_NAMED: u32 = 13;
/// From here on hashes of states leave out the words of refusals.
pub(crate) const STATES_WITHOUT_WORDS: u32 = 13;
/// From here on settings have revisions, and a change may say which one it replaces.
pub(crate) const SETTINGS_REPLACED: u32 = 14;
/// From here on changes may name the bucket, the rebalance or the settings that are meant.
pub(crate) const MEANT_NAMED: u32 = 15;
/// From here on no rebalance removes a node that is to be recovered.
pub(crate) const RECOVERIES_KEPT: u32 = 15;
/// From here on nodes have alternate addresses.
pub(crate) const ALTERNATE_ADDRESSES: u32 = 1;
