//! What must hold whatever happens. Each has a file of its own, sees what it needs as it happens, and panics when it is
//! broken.

pub(crate) mod certainty;
pub(crate) mod copies;
pub(crate) mod damage;
pub(crate) mod feeds;
pub(crate) mod histories;
pub(crate) mod indexes;
pub(crate) mod never_back;
pub(crate) mod one_active;
pub(crate) mod rebalances;
pub(crate) mod resolution;
pub(crate) mod states;

#[derive(Default)]
pub(crate) struct Invariants {
    pub(crate) certainty: certainty::Certainty,
    pub(crate) feeds: feeds::Feeds,
    pub(crate) histories: histories::Histories,
    pub(crate) never_back: never_back::NeverBack,
    pub(crate) one_active: one_active::OneActive,
    pub(crate) rebalances: rebalances::Rebalances,
    pub(crate) resolution: resolution::Resolution,
    pub(crate) states: states::States,
    pub(crate) damage: damage::Damage,
    /// Tombstones are dropped in the time that a run takes.
    pub(crate) tombstones_go: bool,
}
