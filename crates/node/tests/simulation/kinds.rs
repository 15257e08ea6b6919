//! The kinds of runs: their parts, what goes wrong with them, and for how long.

use crate::{faults::Faults, setting::Setting};

/// See the module. Each has a test of its own, which has its name.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) setting: Setting,
    pub(crate) faults: Faults,
    /// How long things go wrong.
    pub(crate) millis: u64,
}

pub(crate) const DELAYS: Kind =
    Kind { name: "delays_cost_time_only", setting: Setting::PLAIN, faults: Faults::DELAYS, millis: 15_000 };

pub(crate) const CRASHES: Kind = Kind {
    name: "what_a_majority_has_survives_one_node_after_the_other",
    setting: Setting::PLAIN,
    faults: Faults::CRASHES,
    millis: 20_000,
};

pub(crate) const BESIDE: Kind = Kind {
    name: "what_a_majority_has_survives_the_loss_of_one_beside_another_that_is_away",
    setting: Setting::BESIDE,
    faults: Faults::BESIDE,
    millis: 20_000,
};

pub(crate) const FORGETTING: Kind = Kind {
    name: "what_a_majority_has_survives_a_loss_of_memory_beside_another_that_is_failed_over",
    setting: Setting::FORGETTING,
    faults: Faults::BESIDE_FAILOVERS,
    millis: 30_000,
};

pub(crate) const BLACKOUTS: Kind = Kind {
    name: "what_a_majority_has_on_disk_survives_everything",
    setting: Setting::PLAIN,
    faults: Faults::BLACKOUTS,
    millis: 20_000,
};

pub(crate) const FAILOVERS: Kind = Kind {
    name: "whoever_is_replaced_is_so_without_a_loss",
    setting: Setting::PLAIN,
    faults: Faults::FAILOVERS,
    millis: 20_000,
};

pub(crate) const PAUSES: Kind = Kind {
    name: "whoever_sleeps_through_its_replacement_serves_nothing_when_it_wakes",
    setting: Setting::PLAIN,
    faults: Faults::PAUSES,
    millis: 40_000,
};

pub(crate) const LOST_MAJORITIES: Kind = Kind {
    name: "survivors_of_a_lost_majority_go_on_with_all_that_they_had",
    setting: Setting { more_nodes: 3, ..Setting::PLAIN },
    faults: Faults::LOST_MAJORITIES,
    millis: 30_000,
};

pub(crate) const REBALANCES: Kind = Kind {
    name: "nodes_come_and_go_under_the_eyes_of_clients",
    setting: Setting::PLAIN,
    faults: Faults::REBALANCES,
    millis: 20_000,
};

pub(crate) const VERSIONS: Kind = Kind {
    name: "nodes_are_replaced_by_newer_ones_under_the_eyes_of_clients",
    setting: Setting::PLAIN,
    faults: Faults::VERSIONS,
    millis: 20_000,
};

pub(crate) const MOVES: Kind = Kind {
    name: "what_is_planned_leaves_nobody_in_doubt",
    setting: Setting::PLAIN,
    faults: Faults::NONE,
    millis: 20_000,
};

pub(crate) const DISKS: Kind = Kind {
    name: "disks_that_rot_or_are_gone_cost_nothing_that_a_majority_has",
    setting: Setting::FETCHING,
    faults: Faults::DISKS,
    millis: 20_000,
};

pub(crate) const ROTTEN_LOGS: Kind = Kind {
    name: "logs_that_rot_or_were_never_on_the_disk_are_noticed_or_cost_nothing",
    setting: Setting { more_nodes: 3, ..Setting::PLAIN },
    faults: Faults::ROTTEN_LOGS,
    millis: 20_000,
};

pub(crate) const OLD_IMAGES: Kind = Kind {
    name: "an_old_image_of_a_disk_costs_what_its_node_serves_at_most",
    setting: Setting { more_nodes: 3, ..Setting::PLAIN },
    faults: Faults::OLD_IMAGES,
    millis: 20_000,
};

pub(crate) const ALL: Kind =
    Kind { name: "everything_at_once", setting: Setting::PLAIN, faults: Faults::ALL, millis: 20_000 };

pub(crate) const WIDE: Kind = Kind {
    name: "everything_at_once_with_all_that_there_can_be",
    setting: Setting::WIDE,
    faults: Faults::ALL_AND_MORE,
    millis: 20_000,
};

pub(crate) const VIEWS: Kind = Kind {
    name: "indexes_are_what_a_map_over_active_documents_gives",
    setting: Setting::VIEWS,
    faults: Faults::VIEWS,
    millis: 5_000,
};

pub(crate) const SET_BACK: Kind = Kind {
    name: "indexes_follow_copies_that_are_set_back",
    setting: Setting::SET_BACK,
    faults: Faults::SET_BACK,
    millis: 9_000,
};

pub(crate) const NARROW: Kind = Kind {
    name: "little_memory_and_full_disks_cost_patience_only",
    setting: Setting::NARROW,
    faults: Faults::FULL_DISKS,
    millis: 20_000,
};
