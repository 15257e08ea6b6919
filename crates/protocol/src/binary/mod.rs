//! The memcached binary protocol as Couchbase extended it (kv_engine `docs/BinaryProtocol.md`).
//!
//! The way of a request:
//! 1. [`decode_frame`] cuts a [`Frame`] out of the read buffer.
//! 2. [`Opcode::from_wire`] names it.
//! 3. [`validate()`] checks it against the declarative table in [`opcode`].
//! 4. [`FrameInfos::parse_request`] reads the framing extras; [`extras`] and [`observe`] read the rest.
//! 5. [`ResponseWriter`] appends the answer.
//!
//! What a producer sends on its streams is in [`dcp`].

pub mod dcp;
pub mod duration;
pub mod extras;
pub mod frame;
pub mod framing;
pub mod header;
pub mod key;
pub mod legacy;
pub mod observe;
pub mod opcode;
pub mod range_scan;
pub mod request;
pub mod response;
pub mod shape;
pub mod subdoc;
pub mod validate;
pub mod with_meta;

pub use duration::ServerDuration;
pub use frame::{Decoded, Fatal, Frame, decode_frame, decode_frame_within};
pub use framing::{Durability, FrameInfos, Impersonate, RequestInfo, ResponseInfo};
pub use header::{HEADER_BYTES, Header, Magic, Opaque};
pub use key::{document_key, encoded_document_key};
pub use opcode::{Opcode, ServerOpcode};
pub use request::Request;
pub use response::{Response, ResponseWriter, write_response, write_status};
pub use validate::{Violation, validate};
