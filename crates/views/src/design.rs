//! Design documents: what they define, and whether they may be stored.
//!
//! The text is kept as it came, since a client is given back what it stored, members included that nothing here knows.
//! Of members that come twice the last one counts, as for `JSON.parse`. Functions are checked by a [`Compiler`], because
//! only the JavaScript engine can.

mod signature;

pub use signature::{IndexedMap, Signature};

use crate::{
    json::{self, Kind},
    refusal::Refusal,
};

/// Most distinct map functions in a design document, and most reductions of one map function.
pub const FUNCTIONS_MAX: usize = 255;

/// Says whether the source of a function compiles.
pub trait Compiler {
    /// Checks one function.
    ///
    /// # Errors
    /// The engine's text, with line and column, where the source is no function.
    fn check(&mut self, source: &str) -> Result<(), Invalid>;
}

/// Why a source is no function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// It does not compile: the engine's text ending with line and column.
    Syntax(String),
    /// It is a value of another type.
    NotAFunction,
}

/// A design document that may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignDocument {
    /// The text as it came.
    pub text: String,
    /// The views in the order of the text.
    pub views: Vec<View>,
    /// Tombstones with extended attributes are mapped too.
    pub maps_deleted: bool,
    /// How many changes start an update in the background, where the document says so; zero switches it off.
    pub update_min_changes: Option<u64>,
    /// The same for the index of replicas.
    pub replica_update_min_changes: Option<u64>,
}

/// A view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub name: String,
    /// The source of its map function.
    pub map: String,
    /// Its reduction.
    pub reduce: Option<Reduction>,
    /// The text of its member `options`.
    pub options: Option<String>,
}

/// How rows are reduced.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reduction {
    /// `_count`
    Count,
    /// `_sum`
    Sum,
    /// `_stats`
    Stats,
    /// The source of a function.
    Function(String),
}

impl Reduction {
    /// The text that a design document names it by.
    #[must_use]
    pub fn source(&self) -> &str {
        match self {
            Self::Count => "_count",
            Self::Sum => "_sum",
            Self::Stats => "_stats",
            Self::Function(source) => source,
        }
    }
}

/// Whether a design document of this name, without `_design/`, is under development: its views need not be whole.
#[must_use]
pub fn is_development(name: &str) -> bool {
    name.starts_with("dev_")
}

impl DesignDocument {
    /// Reads and checks a design document.
    ///
    /// # Errors
    /// It may not be stored; the refusal has Couchbase's text.
    pub fn parse(body: &[u8], compiler: &mut dyn Compiler) -> Result<Self, Refusal> {
        let document = Self::parse_unchecked(body)?;
        for view in &document.views {
            check_functions(view, compiler)?;
        }
        Ok(document)
    }

    /// Reads a design document that was checked when it was stored.
    ///
    /// # Errors
    /// It is none.
    pub fn parse_unchecked(body: &[u8]) -> Result<Self, Refusal> {
        let text = parse_text(body)?;
        let members =
            object(text).ok_or_else(|| Refusal::design("The design document is not a json object."))?;
        let views = match last(&members, "views") {
            None => Vec::new(),
            Some(views) => {
                let views = object(views)
                    .ok_or_else(|| Refusal::design("The field `views' is not a json object."))?;
                views.iter().map(|(name, value)| parse_view(name, value)).collect::<Result<_, _>>()?
            }
        };
        let options = last(&members, "options").and_then(object).unwrap_or_default();
        let changes = |name| last(&options, name).and_then(|value| value.parse().ok());
        let document = Self {
            text: text.to_owned(),
            views: without_earlier_names(views),
            maps_deleted: last(&members, "index_xattr_on_deleted_docs") == Some("true"),
            update_min_changes: changes("updateMinChanges"),
            replica_update_min_changes: changes("replicaUpdateMinChanges"),
        };
        document.check_size()?;
        Ok(document)
    }

    /// The view of this name.
    #[must_use]
    pub fn view(&self, name: &str) -> Option<&View> {
        self.views.iter().find(|view| view.name == name)
    }

    fn check_size(&self) -> Result<(), Refusal> {
        let maps = self.maps();
        if maps.len() > FUNCTIONS_MAX || maps.iter().any(|map| map.reductions().count() > FUNCTIONS_MAX) {
            return Err(Refusal::design(format!(
                "More than {FUNCTIONS_MAX} map functions, or reductions of one."
            )));
        }
        Ok(())
    }
}

/// The text of a body, where that is JSON.
pub(crate) fn parse_text(body: &[u8]) -> Result<&str, Refusal> {
    let invalid = |what: &dyn std::fmt::Display| Refusal::bad_request(format!("invalid UTF-8 JSON: {what}"));
    let text = std::str::from_utf8(body).map_err(|error| invalid(&error))?;
    json::check(text).map_err(|error| invalid(&error))?;
    Ok(text)
}

type Members<'a> = Vec<(String, &'a str)>;

fn object(text: &str) -> Option<Members<'_>> {
    json::members(text)
}

fn last<'a>(members: &Members<'a>, name: &str) -> Option<&'a str> {
    members.iter().rev().find(|(member, _)| member == name).map(|(_, value)| *value)
}

fn without_earlier_names(views: Vec<View>) -> Vec<View> {
    let mut kept: Vec<View> = Vec::with_capacity(views.len());
    let mut places = std::collections::HashMap::new();
    for view in views {
        let place = *places.entry(view.name.clone()).or_insert(kept.len());
        match kept.get_mut(place) {
            Some(earlier) => *earlier = view,
            None => kept.push(view),
        }
    }
    kept
}

fn parse_view(name: &str, value: &str) -> Result<View, Refusal> {
    if name.is_empty() {
        return Err(Refusal::design("View name cannot be an empty string"));
    }
    let blank = [' ', '\t', '\n', '\r'];
    if name.starts_with(blank) || name.ends_with(blank) {
        return Err(Refusal::design(format!(
            "View name `{name}` cannot have leading or trailing whitespace"
        )));
    }
    let members = object(value)
        .ok_or_else(|| Refusal::design(format!("Value for view `{name}' is not a json object.")))?;
    let map = last(&members, "map")
        .ok_or_else(|| Refusal::design(format!("The `map' field for the view `{name}' is missing.")))?;
    let map = string(map).ok_or_else(|| {
        Refusal::design(format!("The `map' field of the view `{name}' is not a json string."))
    })?;
    let reduce = match last(&members, "reduce") {
        None => None,
        Some(reduce) => Some(parse_reduction(name, reduce)?),
    };
    let options = last(&members, "options").map(str::to_owned);
    Ok(View { name: name.to_owned(), map, reduce, options })
}

/// The value of a JSON string. What is a string with half of a surrogate pair is no source, so that it is refused as well.
fn string(text: &str) -> Option<String> {
    (json::kind(text) == Ok(Kind::String)).then(|| json::as_string(text))?
}

fn parse_reduction(view: &str, text: &str) -> Result<Reduction, Refusal> {
    let source = string(text).ok_or_else(|| {
        Refusal::design(format!("The `reduce' field of the view `{view}' is not a json string."))
    })?;
    match source.as_str() {
        "_count" => Ok(Reduction::Count),
        "_sum" => Ok(Reduction::Sum),
        "_stats" => Ok(Reduction::Stats),
        other if other.starts_with('_') => {
            Err(Refusal::design(format!("Invalid built-in reduce function for view `{view}': {other}")))
        }
        _ => Ok(Reduction::Function(source)),
    }
}

fn check_functions(view: &View, compiler: &mut dyn Compiler) -> Result<(), Refusal> {
    check_function("map", &view.name, &view.map, compiler)?;
    match &view.reduce {
        Some(Reduction::Function(source)) => check_function("reduce", &view.name, source, compiler),
        _ => Ok(()),
    }
}

fn check_function(which: &str, view: &str, source: &str, compiler: &mut dyn Compiler) -> Result<(), Refusal> {
    let wrong = match compiler.check(source) {
        Ok(()) => return Ok(()),
        Err(Invalid::Syntax(text)) => text,
        Err(Invalid::NotAFunction) => format!("Invalid function: ({source})"),
    };
    Err(Refusal::design(format!("Syntax error in the {which} function of the view `{view}': {wrong}")))
}

#[cfg(test)]
mod tests;
