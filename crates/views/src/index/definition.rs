//! What an index is of: map functions in their order, the reductions of each, and the views that these serve.

use std::collections::BTreeMap;

use crate::{
    design::{DesignDocument, Reduction, Signature},
    js::Sources,
    reduce::Native,
};

/// How the rows of a map function are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reducing {
    /// Without JavaScript.
    Native(Native),
    /// By the function of this number among [`Definition::sources`].
    Function(usize),
}

impl Reducing {
    /// Whether it leaves out rows whose values are no numbers.
    #[must_use]
    pub fn reads_numbers(self) -> bool {
        matches!(self, Self::Native(Native::Sum | Native::Stats))
    }
}

/// Where the rows of a view are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewPlace {
    /// The number of its map function.
    pub map: usize,
    /// The number of its reduction among those of the map function.
    pub reduction: Option<usize>,
}

/// What an index is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    pub(super) signature: Signature,
    pub(super) maps: Vec<Vec<Reducing>>,
    sources: Sources,
    views: BTreeMap<String, ViewPlace>,
}

impl Definition {
    /// The index of this design document.
    #[must_use]
    pub fn of(document: &DesignDocument) -> Self {
        let mut sources = Sources::default();
        let (mut maps, mut views) = (Vec::new(), BTreeMap::new());
        for (number, map) in document.maps().iter().enumerate() {
            sources.maps.push(map.source.to_owned());
            let reductions: Vec<&Reduction> = map.reductions().collect();
            for view in &map.views {
                let reduction =
                    view.reduce.as_ref().and_then(|of| reductions.iter().position(|known| *known == of));
                views.insert(view.name.clone(), ViewPlace { map: number, reduction });
            }
            let reducing = reductions.iter().map(|reduction| match reduction {
                Reduction::Count => Reducing::Native(Native::Count),
                Reduction::Sum => Reducing::Native(Native::Sum),
                Reduction::Stats => Reducing::Native(Native::Stats),
                Reduction::Function(source) => {
                    sources.reduces.push(source.clone());
                    Reducing::Function(sources.reduces.len() - 1)
                }
            });
            maps.push(reducing.collect());
        }
        Self { signature: document.signature(), maps, sources, views }
    }

    /// The identity of the index.
    #[must_use]
    pub fn signature(&self) -> Signature {
        self.signature
    }

    /// The functions, to be run elsewhere: rows come in the order of `maps`, reductions are asked for by their number.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Of each map function, whether a reduction of its rows reads values as numbers.
    pub(super) fn maps_of_numbers(&self) -> Vec<bool> {
        let has_numbers = |reducing: &Vec<Reducing>| reducing.iter().any(|one| one.reads_numbers());
        self.maps.iter().map(has_numbers).collect()
    }

    /// How the rows of a view are reduced, if they are.
    #[must_use]
    pub fn reducing(&self, view: ViewPlace) -> Option<Reducing> {
        self.maps.get(view.map)?.get(view.reduction?).copied()
    }

    /// Where the rows of the view of this name are.
    #[must_use]
    pub fn view(&self, name: &str) -> Option<ViewPlace> {
        self.views.get(name).copied()
    }

    /// All views by name.
    pub fn views(&self) -> impl Iterator<Item = (&str, ViewPlace)> {
        self.views.iter().map(|(name, place)| (name.as_str(), *place))
    }
}
