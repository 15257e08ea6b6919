//! INCREMENT and DECREMENT.

use base::Status;
use cluster::auth::Privilege;
use engine::{Counter, Expiry};
use protocol::binary::{Opcode, extras::CounterExtras};

use super::store::{acknowledge, durability_of};
use crate::request::{
    call::Call,
    stage::{Acknowledgement, Stop},
};

/// INCREMENT, DECREMENT and their quiet forms.
pub(crate) fn counter(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let bucket = call.session.bucket()?;
    let (frame, info, key) = (call.request.frame, &call.request.info, call.request.key);
    call.session.require(Privilege::Read, key.key)?;
    call.session.require(Privilege::Upsert, key.key)?;
    let extras = CounterExtras::decode(frame.extras).ok_or(Stop::Status(Status::Invalid))?;
    let initial = extras.initial_if_created();
    let counter = Counter {
        delta: extras.delta,
        decrement: call.request.loud == Opcode::Decrement,
        initial,
        // A counter that exists keeps its expiry, whatever the request says.
        expiry: Expiry::Preserve(if initial.is_some() { extras.expiry } else { 0 }),
        cas: frame.header.cas,
        durability: durability_of(info),
    };
    let (number, mutated) = bucket.engine.counter(call.request.vb, key, &counter, call.context.now)?;
    acknowledge(call, mutated, Acknowledgement::Number(number))
}
