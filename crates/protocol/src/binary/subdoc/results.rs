//! Values of multi-path responses.

use base::Status;

/// Appends the outcome of one lookup.
pub fn append_lookup_result(status: Status, value: &[u8], out: &mut Vec<u8>) {
    out.reserve(6 + value.len());
    out.extend_from_slice(&status.code().to_be_bytes());
    out.extend_from_slice(&(value.len() as u32).to_be_bytes());
    out.extend_from_slice(value);
}

/// Appends what a mutation at `index` returned.
pub fn append_mutation_result(index: u8, value: &[u8], out: &mut Vec<u8>) {
    out.push(index);
    append_lookup_result(Status::Success, value, out);
}

/// Appends which mutation failed, and how: all there is to say then.
pub fn append_mutation_failure(index: u8, status: Status, out: &mut Vec<u8>) {
    out.push(index);
    out.extend_from_slice(&status.code().to_be_bytes());
}

/// The outcome of one lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupResult<'a> {
    /// Whether it succeeded; `None` for numbers that have no name.
    pub status: Option<Status>,
    /// What was found.
    pub value: &'a [u8],
}

/// The value of a MULTI_LOOKUP response. Ends early where it is cut off.
#[derive(Clone, Copy, Debug)]
pub struct LookupResults<'a>(pub &'a [u8]);

impl<'a> Iterator for LookupResults<'a> {
    type Item = LookupResult<'a>;

    fn next(&mut self) -> Option<LookupResult<'a>> {
        let (status, rest) = self.0.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        self.0 = rest;
        Some(LookupResult { status: Status::from_wire(u16::from_be_bytes(*status)), value })
    }
}

/// The outcome of one mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MutationResult<'a> {
    /// Which one.
    pub index: u8,
    /// Whether it succeeded; `None` for numbers that have no name.
    pub status: Option<Status>,
    /// What it returned.
    pub value: &'a [u8],
}

/// The value of a MULTI_MUTATION response: what was returned, or the one failure. Ends early where it is cut off.
#[derive(Clone, Copy, Debug)]
pub struct MutationResults<'a>(pub &'a [u8]);

impl<'a> Iterator for MutationResults<'a> {
    type Item = MutationResult<'a>;

    fn next(&mut self) -> Option<MutationResult<'a>> {
        let (&index, rest) = self.0.split_first()?;
        let (status, behind) = rest.split_first_chunk::<2>()?;
        let status = Status::from_wire(u16::from_be_bytes(*status));
        if status != Some(Status::Success) {
            self.0 = behind;
            return Some(MutationResult { index, status, value: &[] });
        }
        let mut results = LookupResults(rest);
        let value = results.next()?.value;
        self.0 = results.0;
        Some(MutationResult { index, status, value })
    }
}
