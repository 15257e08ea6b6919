//! By how much two clocks differ at least, from one question and its answer.

/// Two nodes whose clocks differ by more are told of, in milliseconds.
pub const SKEW_MAX_MILLIS: u64 = 5_000;

/// By how many milliseconds the other clock is ahead of this one for certain; negative where it is behind. This clock said `asked` when
/// the question left and `answered` when the answer came. The other one said `theirs` at some moment between.
#[must_use]
pub fn ahead(asked: u64, answered: u64, theirs: u64) -> i64 {
    let signed = |millis: u64| i64::try_from(millis).unwrap_or(i64::MAX);
    if theirs > answered {
        signed(theirs - answered)
    } else if theirs < asked {
        -signed(asked - theirs)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_moment_between_explains_is_a_difference() {
        assert_eq!(ahead(1_000, 1_400, 1_200), 0);
        assert_eq!(ahead(1_000, 1_400, 1_000), 0);
        assert_eq!(ahead(1_000, 9_000, 8_000), 0, "a slow answer is no difference");
        assert_eq!(ahead(1_000, 1_400, 7_400), 6_000);
        assert_eq!(ahead(11_000, 11_400, 4_000), -7_000);
        assert_eq!(ahead(0, 0, u64::MAX), i64::MAX);
    }
}
