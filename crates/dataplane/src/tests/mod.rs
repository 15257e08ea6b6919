//! Tests of the data plane over real in-memory buckets: the state machine fed by hand, and whole loops over
//! loopback sockets.

mod account;
mod binary;
mod dcp;
mod forward;
mod garbage;
mod gone_buckets;
mod harness;
mod large_documents;
mod late_answers;
mod links;
mod loads;
mod logins;
mod made_up_peer;
mod pacing;
mod phases;
mod rights;
mod roles;
mod sockets;
mod text;
mod tls;
mod waiting;
