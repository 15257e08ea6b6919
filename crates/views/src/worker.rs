//! Processes that run functions, and what keeps them running.
//!
//! Functions run in a process of their own. So a loop, a memory bomb or a mistake of the interpreter costs a document
//! of one view and nothing else. The function [`serve`] is such a process: it reads requests and writes replies, as
//! [`wire`] says. It cannot open files or connections once [`confine`] was called. On the other side a [`Supervisor`]
//! decides what to ask, when to end a process that hangs, and which document ended one. A [`Host`] carries that out.

mod confine;
mod host;
mod serve;
mod supervisor;
pub mod wire;

pub use confine::{Confinement, confine};
pub use host::Host;
pub use serve::serve;
pub use supervisor::{Action, Job, JobId, OwnedBody, OwnedDocument, Report, Settings, Supervisor};
