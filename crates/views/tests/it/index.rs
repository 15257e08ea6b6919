//! An index held to the model of queries, through updates, rollbacks, moves, crashes and damage.

mod damage;
mod histories;
mod parts;
mod world;
