//! What a node has found out about itself and others by looking again and again. The duties look; REST, statistics and alerts read.

pub(crate) mod alerts;
pub(crate) mod clocks;
pub(crate) mod fillings;
mod histograms;
pub(crate) mod loads;
pub(crate) mod looks;
pub(crate) mod objectives;
mod pacing;
pub(crate) mod probes;
pub(crate) mod rules;
pub(crate) mod sdks;
