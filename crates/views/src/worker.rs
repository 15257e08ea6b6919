//! Processes that run functions, and what keeps them running.
//!
//! Functions run in a process of their own, because a loop, a memory bomb or a mistake of the interpreter must cost a
//! document of one view and nothing else. [`serve`] is such a process: it reads requests and writes replies, as [`wire`]
//! says, and cannot open files or connections once [`confine`] was called. [`Supervisor`] decides on the other side what to
//! ask, when to end a process that hangs, and which document it was that ended one; [`Host`] carries that out.

mod confine;
mod host;
mod serve;
mod supervisor;
pub mod wire;

pub use confine::{Confinement, confine};
pub use host::Host;
pub use serve::serve;
pub use supervisor::{Action, Job, JobId, OwnedBody, OwnedDocument, Report, Settings, Supervisor};
