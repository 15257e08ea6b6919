//! Operations on parts of documents: which version they see, what it consists of, and the publication of a new one. How
//! a part is found and changed is [`crate::json::subdoc`]'s.
//!
//! Extended attributes are looked at and changed before the body, whatever follows. A mutation is worked out on a
//! reference to the version, outside the vBucket's lock. It is published if that version is still the newest. If not,
//! it is worked out again, unless the client insisted on a CAS.

mod binary;
mod draft;
mod lookup;
mod macros;
mod mutate;
pub(crate) mod request;
mod version;
mod virtuals;
