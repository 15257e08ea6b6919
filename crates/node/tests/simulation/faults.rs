//! What goes wrong in a kind of run, what operators do meanwhile, and what is promised all the same.

use base::bucket::DurabilityLevel;

use crate::clients::Promise;

/// Chances are one in so many steps of the world; this is none.
pub(crate) const NEVER: u32 = u32::MAX;

/// When something may go wrong that is a loss: a node ends, or is out of reach where it may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Losses {
    /// Only once every copy holds, on disk, what was acknowledged before the last one.
    OneAtATime,
    /// The same for nodes that end. Others may be away at any time, and come back with what they had.
    OneBesideAway,
    /// At any time, several at once.
    AnyTime,
}

/// A kind of run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) losses: Losses,
    /// Of a hundred letters so many get lost, and so many come twice.
    pub(crate) loss: u32,
    /// Milliseconds that anything is on its way at most.
    pub(crate) delay_max: u64,
    /// Connections between nodes break.
    pub(crate) broken_link: u32,
    /// A node ends, in whatever way, and comes back.
    pub(crate) crash: u32,
    /// An active copy forgets what the other one of two has, and is back before that one, which is paused.
    pub(crate) forgotten: u32,
    /// A node of an older version ends, and comes back with a newer one.
    pub(crate) version: u32,
    /// Disks are among what may go with a node that ends.
    pub(crate) lost_disks: bool,
    /// A disk fails, of data or of metadata, until somebody does something about it.
    pub(crate) bad_disk: u32,
    /// Bits of what lies on a disk with data are not what was written, until somebody does something about it.
    pub(crate) rot: u32,
    /// The same of a disk with metadata; the node is started again, and is gone if it notices.
    pub(crate) rotten_log: u32,
    /// Syncs of a disk with metadata do nothing, until its machine loses power.
    pub(crate) lying_log: u32,
    /// Somebody stops a node and copies its disks, all of them. Or puts such a copy in their place, or that of the metadata only, or that of
    /// the data.
    pub(crate) old_image: u32,
    /// All disks of a node are gone, and the node with them.
    pub(crate) wipe: u32,
    /// Some cannot hear others for a while.
    pub(crate) cut: u32,
    /// A process does nothing for a while, for so many milliseconds at most.
    pub(crate) pause: u32,
    pub(crate) pause_max: u64,
    /// The disk with a node's metadata does nothing for a while.
    pub(crate) hung_log: u32,
    /// Somebody changes after how long nodes are failed over, or whether they are.
    pub(crate) timeouts: u32,
    /// A part of a process does nothing for a while, and the others go on.
    pub(crate) stall: u32,
    /// Everything between two nodes takes long for a while.
    pub(crate) slow_link: u32,
    /// A disk does hardly anything for a while.
    pub(crate) slow_disk: u32,
    /// A node's disks are full for a while.
    pub(crate) full_disk: u32,
    /// A node's idea of the date jumps.
    pub(crate) jump: u32,
    /// So many nodes are lost at once that the others can agree on nothing. An operator fails them over at any price, and they come back
    /// later.
    pub(crate) lost_majority: u32,
    /// A node is failed over by hand.
    pub(crate) failover: u32,
    /// Nodes are failed over without anybody asking after so many seconds.
    pub(crate) auto_failover_secs: Option<u32>,
    /// Nodes come, go, and are recovered.
    pub(crate) rebalance: u32,
    /// Some that go are failed over in good order, which leaves fewer copies than durable writes may need.
    pub(crate) graceful_failover: bool,
    /// Buckets come and go.
    pub(crate) bucket: u32,
    /// A bucket is flushed.
    pub(crate) flush: u32,
    /// A bucket is to have another number of copies.
    pub(crate) replicas: u32,
}

impl Faults {
    const CALM: Self = Self {
        losses: Losses::AnyTime,
        loss: 0,
        delay_max: 3,
        broken_link: NEVER,
        crash: NEVER,
        forgotten: NEVER,
        version: NEVER,
        lost_disks: false,
        bad_disk: NEVER,
        rot: NEVER,
        rotten_log: NEVER,
        lying_log: NEVER,
        old_image: NEVER,
        wipe: NEVER,
        cut: NEVER,
        pause: NEVER,
        pause_max: 6_000,
        stall: NEVER,
        hung_log: NEVER,
        timeouts: NEVER,
        slow_link: NEVER,
        slow_disk: NEVER,
        full_disk: NEVER,
        jump: NEVER,
        lost_majority: NEVER,
        failover: NEVER,
        auto_failover_secs: None,
        rebalance: NEVER,
        graceful_failover: true,
        bucket: NEVER,
        flush: NEVER,
        replicas: 2_000,
    };
    /// Nothing goes wrong; nodes come and go.
    pub(crate) const NONE: Self =
        Self { rebalance: 100, graceful_failover: false, replicas: 400, ..Self::CALM };
    /// Letters get lost, connections break, some cannot hear others, disks are slow; nobody is replaced.
    pub(crate) const DELAYS: Self = Self {
        loss: 5,
        delay_max: 20,
        broken_link: 300,
        cut: 500,
        pause: 500,
        slow_disk: 500,
        jump: 500,
        ..Self::CALM
    };
    /// One node after the other loses what it has not synced.
    pub(crate) const CRASHES: Self = Self {
        losses: Losses::OneAtATime,
        loss: 1,
        delay_max: 10,
        broken_link: 1_000,
        crash: 200,
        lost_disks: true,
        bad_disk: 600,
        slow_disk: 1_000,
        ..Self::CALM
    };
    /// Any number of nodes at any time.
    pub(crate) const BLACKOUTS: Self =
        Self { crash: 400, lost_disks: false, cut: 800, losses: Losses::AnyTime, ..Self::CRASHES };
    /// A node loses what it has not synced, of which a slow disk leaves much, while others are away. Nobody is replaced, nobody moves.
    /// In between all nodes are there for a while, and have something to lose again.
    pub(crate) const BESIDE: Self = Self {
        losses: Losses::OneBesideAway,
        loss: 1,
        delay_max: 10,
        broken_link: 1_000,
        crash: 500,
        forgotten: 50,
        cut: 1_500,
        pause: 1_500,
        pause_max: 8_000,
        slow_disk: 200,
        replicas: NEVER,
        ..Self::CALM
    };
    /// The same, and nodes that are away are failed over without anybody asking. They come back with a rebalance.
    pub(crate) const BESIDE_FAILOVERS: Self = Self {
        crash: 150,
        forgotten: NEVER,
        cut: 1_000,
        pause: 1_000,
        auto_failover_secs: Some(3),
        rebalance: 600,
        ..Self::BESIDE
    };
    /// Some cannot hear others, and are replaced, by hand or without.
    pub(crate) const FAILOVERS: Self = Self {
        loss: 2,
        delay_max: 10,
        broken_link: 1_000,
        cut: 400,
        pause: 600,
        failover: 1_500,
        auto_failover_secs: Some(3),
        timeouts: 2_000,
        rebalance: 600,
        replicas: 800,
        ..Self::CALM
    };
    /// Processes, and parts of them, do nothing for longer than it takes to replace them.
    pub(crate) const PAUSES: Self = Self {
        loss: 1,
        delay_max: 10,
        pause: 1_000,
        pause_max: 12_000,
        stall: 1_500,
        hung_log: 1_500,
        timeouts: 600,
        failover: 1_500,
        auto_failover_secs: Some(3),
        rebalance: 500,
        ..Self::CALM
    };
    /// The majority is lost, and the others form their group anew.
    pub(crate) const LOST_MAJORITIES: Self = Self {
        losses: Losses::OneAtATime,
        loss: 1,
        delay_max: 10,
        broken_link: 1_000,
        lost_disks: true,
        lost_majority: 100,
        auto_failover_secs: Some(3),
        rebalance: 300,
        ..Self::CALM
    };
    /// Nodes come and go while clients write.
    pub(crate) const REBALANCES: Self =
        Self { rebalance: 300, bucket: 1_500, replicas: 600, broken_link: 500, cut: 1_500, ..Self::DELAYS };
    /// Nodes of older versions are replaced by newer ones; others crash, one after the other, are failed over, come and go.
    pub(crate) const VERSIONS: Self = Self {
        losses: Losses::OneAtATime,
        loss: 2,
        delay_max: 10,
        broken_link: 1_000,
        crash: 1_000,
        version: 200,
        cut: 1_000,
        pause: 1_000,
        failover: 2_000,
        auto_failover_secs: Some(3),
        timeouts: 2_000,
        rebalance: 400,
        ..Self::CALM
    };
    /// Disks rot, or are gone with their node; nodes crash one after the other, are failed over, come and go.
    pub(crate) const DISKS: Self = Self {
        losses: Losses::OneAtATime,
        loss: 1,
        delay_max: 10,
        broken_link: 1_000,
        crash: 800,
        rot: 250,
        wipe: 800,
        failover: 3_000,
        auto_failover_secs: Some(3),
        rebalance: 400,
        ..Self::CALM
    };
    /// Disks with metadata rot, or lie about what is on them; otherwise the same.
    pub(crate) const ROTTEN_LOGS: Self =
        Self { rot: NEVER, wipe: NEVER, bad_disk: 800, rotten_log: 150, lying_log: 150, ..Self::DISKS };
    /// Disks come back as they were some time ago.
    pub(crate) const OLD_IMAGES: Self = Self { rot: NEVER, wipe: NEVER, old_image: 100, ..Self::DISKS };
    /// Disks are full for a while; nodes crash one after the other, come and go.
    pub(crate) const FULL_DISKS: Self = Self {
        losses: Losses::OneAtATime,
        loss: 1,
        delay_max: 10,
        full_disk: 300,
        crash: 600,
        rebalance: 600,
        replicas: 1_000,
        ..Self::DELAYS
    };
    /// Everything.
    pub(crate) const ALL: Self = Self {
        losses: Losses::OneAtATime,
        crash: 300,
        rebalance: 400,
        bucket: 1_500,
        slow_disk: 600,
        jump: 800,
        ..Self::FAILOVERS
    };
    /// Everything beside views: disks with indexes are lost, full and bad as those with data are.
    pub(crate) const VIEWS: Self = Self { lost_disks: true, bad_disk: 1_500, full_disk: 2_000, ..Self::ALL };
    /// Nodes are failed over where others lag behind, and come back. Or they lose what a slow disk has left. Then vBuckets move.
    pub(crate) const SET_BACK: Self = Self {
        losses: Losses::OneAtATime,
        loss: 1,
        delay_max: 10,
        broken_link: 1_000,
        crash: 400,
        cut: 400,
        slow_link: 300,
        slow_disk: 300,
        failover: 250,
        auto_failover_secs: Some(3),
        rebalance: 150,
        flush: 2_000,
        ..Self::CALM
    };
    /// And slow links, and full disks.
    pub(crate) const ALL_AND_MORE: Self = Self { slow_link: 600, full_disk: 2_000, ..Self::ALL };

    /// Whether nothing goes wrong, and there are always as many copies as there shall be.
    pub(crate) fn are_none(&self) -> bool {
        let mishaps = [
            self.broken_link,
            self.crash,
            self.forgotten,
            self.version,
            self.bad_disk,
            self.rot,
            self.rotten_log,
            self.lying_log,
            self.old_image,
            self.wipe,
            self.cut,
            self.pause,
            self.stall,
            self.hung_log,
            self.slow_link,
            self.slow_disk,
            self.full_disk,
            self.jump,
            self.lost_majority,
        ];
        let asked_for = [&self.failover, &self.bucket, &self.flush];
        let happen = mishaps.iter().chain(asked_for).any(|chance| *chance != NEVER);
        !happen && self.loss == 0 && self.auto_failover_secs.is_none() && !self.graceful_failover
    }

    /// Whether nodes have versions of their own.
    pub(crate) fn has_versions(&self) -> bool {
        self.version != NEVER
    }

    /// Whether nodes may be replaced that do not know.
    pub(crate) fn replaces(&self) -> bool {
        self.failover != NEVER || self.lost_majority != NEVER || self.auto_failover_secs.is_some()
    }

    /// What holds all the same.
    pub(crate) fn promise(&self) -> Promise {
        let crashes = self.crash != NEVER || self.forgotten != NEVER;
        let level = match self.losses {
            _ if !crashes && !self.replaces() => DurabilityLevel::None,
            Losses::AnyTime if crashes => DurabilityLevel::PersistToMajority,
            _ => DurabilityLevel::Majority,
        };
        Promise { level, counts_unleased: !self.replaces() }
    }
}
