//! What went wrong in a function, in words for its author.

use rquickjs::{CaughtError, Coerced, Ctx, Error, Exception, Value};

use super::watch::Watch;

/// The name under which functions are compiled, by which their lines are found in a stack trace.
pub(super) const FILE: &str = "view";

const TEXT_BYTES_MAX: usize = 1024;

/// Why a function has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// The text, ending with line and column where they are known.
    pub text: String,
}

/// Kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The function threw something.
    Thrown,
    /// It took too long.
    Timeout,
    /// It took too much memory.
    Memory,
    /// The document is no JSON, though it says so.
    Document,
    /// The source is no function.
    NotAFunction,
    /// The process that ran it ended, or had to be ended.
    Ended,
    /// It was not run: no process that runs functions stays alive.
    NoProcess,
    /// It was given a part of the document, and what came of it depends on the whole.
    Part,
}

impl FailureKind {
    /// Whether the context of the function is in a state that nothing is known of.
    pub(super) fn spoils(self) -> bool {
        matches!(self, Self::Timeout | Self::Memory)
    }
}

impl Failure {
    /// A failure with a text of at most a kibibyte.
    #[must_use]
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        let mut text = text.into();
        let end = (0..=TEXT_BYTES_MAX).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        Self { kind, text }
    }

    /// What an error of the engine means.
    pub(super) fn of(ctx: &Ctx<'_>, watch: &Watch, error: Error) -> Self {
        let failure = match CaughtError::from_error(ctx, error) {
            CaughtError::Error(error) => Self::new(FailureKind::Thrown, error.to_string()),
            CaughtError::Exception(exception) => Self::of_exception(ctx, &exception),
            CaughtError::Value(value) => Self::new(FailureKind::Thrown, text_of(ctx, &value)),
        };
        // What was thrown may run as well when it is asked for its text.
        if watch.rang() { Self::new(FailureKind::Timeout, "timeout") } else { failure }
    }

    fn of_exception(ctx: &Ctx<'_>, exception: &Exception<'_>) -> Self {
        let name = exception
            .as_object()
            .get::<_, Coerced<String>>("name")
            .map_or_else(|_| "Error".to_owned(), |name| name.0);
        let message = exception.message().unwrap_or_default();
        let stack = exception.stack().unwrap_or_default();
        // A getter of the function's own may have thrown.
        drop(ctx.catch());
        let memory = name == "InternalError" && message == "out of memory";
        let kind = if memory { FailureKind::Memory } else { FailureKind::Thrown };
        let place = place(&stack).map(|(line, column)| format!(" (line {line}:{column})"));
        Self::new(kind, format!("{name}: {message}{}", place.unwrap_or_default()))
    }
}

fn text_of<'js>(ctx: &Ctx<'js>, value: &Value<'js>) -> String {
    let text = value.get::<Coerced<String>>().map(|text| text.0);
    drop(ctx.catch());
    text.unwrap_or_else(|_| "an exception without a text".to_owned())
}

/// Line and column of the innermost frame in a function's source. On the first line the engine counts our parenthesis.
fn place(stack: &str) -> Option<(u32, u32)> {
    let at = stack.find(&format!("{FILE}:"))?;
    let mut numbers = stack.get(at + FILE.len() + 1..)?.split(|character: char| !character.is_ascii_digit());
    let line: u32 = numbers.next()?.parse().ok()?;
    let column: u32 = numbers.next()?.parse().ok()?;
    Some((line, if line == 1 { column.saturating_sub(1) } else { column }))
}
