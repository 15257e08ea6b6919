//! Map/reduce views: what decides, without sockets, clocks or threads.
//!
//! JSON texts stay texts here. Keys and values are kept as `JSON.stringify` wrote them, because clients are sent
//! exactly these bytes. An order of keys is made from the texts ([`collation`]).

pub mod analysis;
pub mod canonical;
pub mod collation;
pub mod design;
mod frames;
pub mod index;
pub mod js;
pub mod json;
pub mod meta;
pub mod native;
pub mod query;
pub mod reduce;
pub mod refusal;
pub mod response;
pub mod rows;
pub mod worker;
