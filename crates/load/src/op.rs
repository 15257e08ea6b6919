//! Operations as a user counts them, how one ended, and weighted mixes of them.
//!
//! One operation may take several requests (CAS reads first); it is counted once, from its first request to its last
//! reply.

use std::fmt;
use std::str::FromStr;

macro_rules! operations {
    ($($name:ident $text:literal $doc:literal,)*) => {
        /// What is done to a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op {
            $(#[doc = $doc] $name,)*
        }

        impl Op {
            /// All operations, in the order of reports.
            pub const ALL: &'static [Op] = &[$(Op::$name,)*];

            /// The name in mixes and reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Op::$name => $text,)*
                }
            }

            /// What it does, for the manual.
            #[must_use]
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Op::$name => $doc,)*
                }
            }
        }
    };
}

operations! {
    Get "get" "Read a document.",
    Set "set" "Write a document.",
    Add "add" "Write a document unless it exists.",
    Replace "replace" "Write a document if it exists.",
    Cas "cas" "Read a document and write it if nobody else did meanwhile.",
    Append "append" "Add bytes at the end.",
    Prepend "prepend" "Add bytes at the beginning.",
    Delete "delete" "Delete a document.",
    Incr "incr" "Add one to a counter, made when there is none.",
    Decr "decr" "Subtract one from a counter, made when there is none.",
    Touch "touch" "Give a document a new expiry.",
    MultiGet "mget" "Read several documents at once.",
    SubGet "subget" "Read one field of a JSON document.",
    SubSet "subset" "Write one field of a JSON document.",
    Rmw "rmw" "Read a document, then write it (YCSB's read-modify-write).",
    Insert "insert" "Write the next document that does not exist yet.",
    Query "query" "Ask for rows of a view.",
}

impl Op {
    /// Whether its latencies belong to reading rather than writing, where a report has only these two.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self, Op::Get | Op::MultiGet | Op::SubGet | Op::Query)
    }

    /// Whether it works on counters: their records have keys of their own.
    #[must_use]
    pub const fn is_counter(self) -> bool {
        matches!(self, Op::Incr | Op::Decr)
    }
}

/// How an operation ended. The three are never in one histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It did what it should.
    Success,
    /// The server did as asked and the answer was no: not found, exists already, changed meanwhile.
    Miss,
    /// Refused, or the connection broke.
    Failure,
}

/// Operations with weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    parts: Vec<(Op, f64)>,
    /// Upper end of each part in 32-bit fractions of the whole.
    ends: Vec<u32>,
}

impl Mix {
    /// One operation only.
    #[must_use]
    pub fn only(op: Op) -> Mix {
        Mix { parts: vec![(op, 1.0)], ends: vec![u32::MAX] }
    }

    /// Operations with relative weights; those without weight are left out.
    ///
    /// # Errors
    /// A weight is negative or not finite, or all are zero.
    pub fn new(parts: &[(Op, f64)]) -> Result<Mix, String> {
        if let Some((op, weight)) = parts.iter().find(|(_, weight)| !weight.is_finite() || *weight < 0.0) {
            return Err(format!("the weight of {} is {weight}", op.name()));
        }
        let parts: Vec<_> = parts.iter().copied().filter(|(_, weight)| *weight > 0.0).collect();
        let total: f64 = parts.iter().map(|(_, weight)| weight).sum();
        if parts.is_empty() {
            return Err("no operation has a weight".to_owned());
        }
        let mut sum = 0.0;
        let mut ends: Vec<u32> = parts
            .iter()
            .map(|(_, weight)| {
                sum += weight / total;
                (sum * f64::from(u32::MAX)) as u32
            })
            .collect();
        if let Some(last) = ends.last_mut() {
            *last = u32::MAX;
        }
        Ok(Mix { parts, ends })
    }

    /// Draws an operation.
    #[inline]
    pub fn draw(&self, rng: &mut fastrand::Rng) -> Op {
        if self.parts.len() == 1 {
            return self.parts[0].0;
        }
        let point = rng.u32(..);
        let at = self.ends.iter().position(|&end| point <= end).unwrap_or(0);
        self.parts[at].0
    }

    /// The operations that can be drawn.
    pub fn ops(&self) -> impl Iterator<Item = Op> {
        self.parts.iter().map(|&(op, _)| op)
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let mut parts = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, weight) = part.split_once('=').unwrap_or((part, "1"));
            let op = Op::ALL.iter().copied().find(|op| op.name() == name.trim());
            let op = op.ok_or_else(|| {
                let names: Vec<_> = Op::ALL.iter().map(|op| op.name()).collect();
                format!("no operation is called {:?}; there are {}", name.trim(), names.join(", "))
            })?;
            let weight = weight.trim().parse().map_err(|_| format!("{weight:?} is no weight"))?;
            parts.push((op, weight));
        }
        Mix::new(&parts)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (op, weight)) in self.parts.iter().enumerate() {
            write!(f, "{}{}={weight}", if i > 0 { "," } else { "" }, op.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_shares() {
        let mix: Mix = "get=8, set=1,delete=1, add=0".parse().expect("a mix");
        assert_eq!(mix.to_string(), "get=8,set=1,delete=1");
        let mut rng = fastrand::Rng::with_seed(1);
        let mut counts = [0u32; Op::ALL.len()];
        for _ in 0..100_000 {
            counts[mix.draw(&mut rng) as usize] += 1;
        }
        assert!((79_000..81_000).contains(&counts[Op::Get as usize]), "{counts:?}");
        assert!((9_400..10_600).contains(&counts[Op::Set as usize]), "{counts:?}");
        assert_eq!(counts[Op::Add as usize], 0);
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for text in ["", "get=0", "get=-1", "fetch=1", "get=x", "get=NaN"] {
            assert!(text.parse::<Mix>().is_err(), "{text}");
        }
    }
}
