//! wip
#[derive(Debug, Default)]
pub(crate) struct TextState {}
