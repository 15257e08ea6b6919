//! Making copies what the cluster wants them to be: on each node the reconciler and its reports, on the leader the orchestration.

pub(crate) mod orchestration;
pub(crate) mod reconciler;
pub(crate) mod reporting;
