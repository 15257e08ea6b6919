//! What the node's HTTP surfaces share (REST on 8091, views on 8092): listening, TLS, limits, logins, bodies and answers.
//!
//! [`serve`] accepts connections of a listener, each within the places and times of its [`Limits`], and hands every request to the
//! listener's [`Surface`]. A surface has [`Front`] find out who sent it, and answers. The node around them is [`Gate`].
//!
//! Rules: nothing here knows a route; the literal texts of [`reply`] are matched by clients.

mod audit;
mod authenticate;
mod browser;
mod client_chain;
mod connection;
pub mod form;
mod front;
#[cfg(test)]
mod fuzz;
mod gate;
mod node_login;
pub mod passes;
pub mod permissions;
mod places;
pub mod reply;
mod serve;
mod sessions;
mod stall;

pub use audit::{AuditEvent, AuditKind};
pub use browser::secure;
pub use client_chain::{ClientChain, trusted_roots};
pub use connection::{Afterwards, Connection, ShownByClient};
pub use front::{Admitted, Asked, Front, Rights};
pub use gate::{BoxFuture, Gate, Verdict};
pub use node_login::{NodeLogin, node_authorization};
pub use places::Place;
pub use serve::{Behind, Limits, Operation, Surface, TlsNow, serve};
pub use stall::{Link, Watched};
