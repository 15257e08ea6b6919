//! wip
use crate::call::{Call, Stop};
#[derive(Debug)]
pub(crate) struct Exchange {}
pub(crate) fn list_mechanisms(_call: &mut Call<'_, '_>) -> Result<(), Stop> {
    Err(Stop::Status(base::Status::NotSupported))
}
pub(crate) fn auth(_call: &mut Call<'_, '_>) -> Result<(), Stop> {
    Err(Stop::Status(base::Status::NotSupported))
}
pub(crate) fn step(_call: &mut Call<'_, '_>) -> Result<(), Stop> {
    Err(Stop::Status(base::Status::NotSupported))
}
