//! DCP on the wire (kv_engine `docs/dcp`): what consumers ask, and what a producer sends them.
//!
//! - [`request`] reads the arguments of OPEN and STREAM_REQ.
//! - [`filter`] reads the JSON that a stream request may carry.
//! - [`message`] appends what a stream says, and reads it back for clients and tests.
//! - [`marker`] and [`system_event`] are the two messages with versions of their own.
//!
//! OPEN, CONTROL and the like have no layout beyond key, value and extras.
//!
//! Nothing here decides: which version a consumer may be sent, and what it is sent, is the producer's business.

pub mod filter;
mod flatbuffer;
pub mod marker;
pub mod message;
pub mod request;
pub mod system_event;

pub use filter::StreamFilter;
pub use marker::{MarkerFlags, MarkerVersion, SnapshotMarker};
pub use message::{DcpMessage, Document, PACKED, StreamEndReason, StreamHead};
pub use request::{OpenFlags, StreamFlags, StreamRequest};
pub use system_event::{SystemEvent, SystemEventFormat};
