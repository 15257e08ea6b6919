//! The crate's public parts together, held to tables and to models.

mod analysed;
mod collation;
mod js;
mod model;
mod texts;
