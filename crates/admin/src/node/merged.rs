//! A cluster's samples, from those of its nodes.

use std::collections::BTreeMap;

use stats::{Across, Samples, Statistic};

/// Samples by every name that REST has for them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// Milliseconds since 1970, ascending.
    pub(crate) timestamps: Vec<u64>,
    pub(crate) values: BTreeMap<&'static str, Vec<f64>>,
}

/// When the node with the longest past took its samples.
pub(crate) fn moments<'a>(nodes: impl Iterator<Item = &'a Samples>) -> Vec<u64> {
    let longest = nodes.max_by_key(|samples| samples.timestamps.len());
    longest.map(|samples| samples.timestamps.clone()).unwrap_or_default()
}

/// What nodes say together, at the [`moments`] of all of them.
pub(crate) fn merge(statistics: &[&'static Statistic], nodes: &[Samples], step_millis: u64) -> Table {
    merge_at(moments(nodes.iter()), statistics, nodes, step_millis)
}

/// The same at these moments. A node's figures are taken at the nearest moment within two steps.
pub(crate) fn merge_at(
    timestamps: Vec<u64>,
    statistics: &[&'static Statistic],
    nodes: &[Samples],
    step_millis: u64,
) -> Table {
    let nodes: Vec<_> =
        nodes.iter().map(|samples| (samples, places(samples, &timestamps, step_millis))).collect();
    let mut table = Table { timestamps, ..Table::default() };
    for about in statistics {
        let Some(first) = about.rest.first() else { continue };
        if !matches!(about.across, Across::Of(_))
            && nodes.iter().any(|(samples, _)| samples.values.contains_key(*first))
        {
            let figures =
                (0..table.timestamps.len()).map(|index| together(about, first, &nodes, index)).collect();
            table.insert(about, figures);
        }
    }
    for about in statistics {
        if let Across::Of(formula) = about.across {
            let figures =
                (0..table.timestamps.len()).map(|index| formula(&|name| table.at(name, index))).collect();
            table.insert(about, figures);
        }
    }
    table
}

impl Table {
    fn insert(&mut self, about: &'static Statistic, figures: Vec<f64>) {
        for name in about.rest {
            self.values.insert(name, figures.clone());
        }
    }

    fn at(&self, name: &str, index: usize) -> f64 {
        self.values.get(name).and_then(|figures| figures.get(index)).copied().unwrap_or_default()
    }
}

/// For each moment, where a node's sample nearest to it is.
fn places(samples: &Samples, timestamps: &[u64], step_millis: u64) -> Vec<Option<usize>> {
    let own = &samples.timestamps;
    let nearest = |at: u64| {
        let after = own.partition_point(|own| *own < at);
        let candidates = [after.checked_sub(1), Some(after)].into_iter().flatten();
        let distance = |index: usize| own.get(index).map(|own| (own.abs_diff(at), index));
        candidates
            .filter_map(distance)
            .min()
            .filter(|(far, _)| *far <= 2 * step_millis)
            .map(|(_, index)| index)
    };
    timestamps.iter().map(|at| nearest(*at)).collect()
}

fn together(about: &Statistic, name: &str, nodes: &[(&Samples, Vec<Option<usize>>)], index: usize) -> f64 {
    let said = nodes.iter().filter_map(|(samples, places)| {
        let place = places.get(index).copied().flatten()?;
        samples.values.get(name)?.get(place).copied()
    });
    let (sum, max, count) = said
        .fold((0.0, 0.0_f64, 0_u32), |(sum, max, count), figure| (sum + figure, max.max(figure), count + 1));
    match about.across {
        Across::Sum | Across::Of(_) => sum,
        Across::Mean => sum / f64::from(count.max(1)),
        Across::Max => max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::{Kind, Unit};

    const fn statistic(rest: &'static [&'static str], across: Across) -> Statistic {
        Statistic {
            stat: &[],
            rest,
            metrics: &[],
            help: "Says something.",
            unit: Unit::Count,
            kind: Kind::Gauge,
            across,
        }
    }

    static HITS: Statistic = statistic(&["hits"], Across::Sum);
    static GETS: Statistic = statistic(&["gets", "reads"], Across::Sum);
    static CPU: Statistic = statistic(&["cpu"], Across::Mean);
    static STEP: Statistic = statistic(&["step"], Across::Max);
    static RATIO: Statistic =
        statistic(&["ratio"], Across::Of(|of| 100.0 * of("hits") / of("reads").max(1.0)));
    static ALL: [&Statistic; 5] = [&RATIO, &HITS, &GETS, &CPU, &STEP];

    fn samples(timestamps: &[u64], values: &[(&str, &[f64])]) -> Samples {
        let values = values.iter().map(|(name, figures)| ((*name).to_owned(), figures.to_vec())).collect();
        Samples { timestamps: timestamps.to_vec(), values }
    }

    #[test]
    fn figures_are_added_averaged_or_compared_and_ratios_follow_from_sums() {
        let one = samples(
            &[1000, 2000],
            &[("hits", &[1.0, 2.0]), ("gets", &[2.0, 8.0]), ("cpu", &[10.0, 30.0]), ("step", &[0.0, 3.0])],
        );
        // Its clock is a little late, and it has no first sample.
        let other =
            samples(&[2100], &[("hits", &[6.0]), ("gets", &[8.0]), ("cpu", &[50.0]), ("step", &[1.0])]);
        let table = merge(&ALL, &[one, other], 1000);
        assert_eq!(table.timestamps, [1000, 2000]);
        // The second node's only sample is within two steps of both.
        assert_eq!(table.values["hits"], [7.0, 8.0]);
        assert_eq!(table.values["reads"], [10.0, 16.0]);
        assert_eq!(table.values["cpu"], [30.0, 40.0]);
        assert_eq!(table.values["step"], [1.0, 3.0]);
        assert_eq!(table.values["ratio"], [70.0, 50.0]);
    }

    #[test]
    fn beside_the_moments_of_another_a_node_has_nothing_where_it_has_said_nothing() {
        let (old, new) = (samples(&[1000, 2000, 9000], &[]), samples(&[9100], &[("hits", &[5.0])]));
        let table = merge_at(moments([&old, &new].into_iter()), &ALL, &[new], 1000);
        assert_eq!(table.timestamps, [1000, 2000, 9000]);
        assert_eq!(table.values["hits"], [0.0, 0.0, 5.0]);
        // Also one with as many samples of its own, from another time.
        let apart = samples(&[4000, 5000, 9100], &[("hits", &[7.0, 8.0, 9.0])]);
        let table = merge_at(vec![1000, 2000, 9000], &ALL, &[apart], 1000);
        assert_eq!((table.timestamps, &table.values["hits"]), (vec![1000, 2000, 9000], &vec![0.0, 7.0, 9.0]));
    }

    #[test]
    fn a_node_that_is_far_behind_is_left_out_of_what_it_has_not_said() {
        let one = samples(&[1000, 2000, 3000, 4000], &[("hits", &[1.0; 4])]);
        let other = samples(&[1000], &[("hits", &[5.0])]);
        let table = merge(&ALL, &[one, other], 1000);
        assert_eq!(table.values["hits"], [6.0, 6.0, 6.0, 1.0]);
        assert_eq!(table.values.get("cpu"), None, "nobody has said it");
    }
}
