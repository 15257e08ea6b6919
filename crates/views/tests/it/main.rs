//! The crate's public parts together, held to tables and to models.

mod collation;
mod texts;
