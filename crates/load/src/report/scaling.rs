//! A page of several runs of the published benchmark: durations and scores by the number of nodes.

use super::{
    html::{escape, page, section},
    plot::{Axis, Plot},
};
use crate::price::{Run, scores};
use std::fmt::Write;

/// A phase's name, and how long it took in a run.
type Phase = (&'static str, fn(&Run) -> Option<f64>);

const PHASES: [Phase; 3] =
    [("PUT", |run| Some(run.put)), ("GET", |run| Some(run.get)), ("QUERY", |run| run.query)];

/// The runs as a page with a chart of durations and one of scores.
#[must_use]
pub fn scaling(runs: &[Run]) -> String {
    let mut runs = runs.to_vec();
    runs.sort_by(|a, b| a.nodes.total_cmp(&b.nodes));
    let mut out = page("settee load scaling", "The published scaling run");
    section(
        &mut out,
        "Durations",
        "Every song written once, read once, and all that are tagged electronic queried.",
    );
    out.push_str(&durations(&runs));
    section(
        &mut out,
        "Score",
        "Each duration against the shortest of all runs, added up, by the price of all nodes. More is better.",
    );
    out.push_str(&score(&runs));
    section(&mut out, "Figures", "Durations in seconds.");
    table(&runs, &mut out);
    out.push_str("</html>\n");
    out
}

fn nodes(runs: &[Run]) -> Axis {
    let mut axis = Axis::linear("nodes", runs.iter().map(|run| run.nodes));
    axis.ticks = runs.iter().map(|run| (run.nodes, run.nodes.to_string())).collect();
    axis.ticks.dedup();
    axis
}

fn durations(runs: &[Run]) -> String {
    let all = runs.iter().flat_map(|run| PHASES.iter().filter_map(|(_, of)| of(run)));
    let mut plot = Plot::new(nodes(runs), Axis::linear("seconds", all));
    for (colour, (name, of)) in PHASES.into_iter().enumerate() {
        let points: Vec<_> = runs.iter().filter_map(|run| Some((run.nodes, of(run)?))).collect();
        if !points.is_empty() {
            plot.line(colour, name, points.into_iter());
        }
    }
    plot.svg()
}

fn score(runs: &[Run]) -> String {
    let scored = scores(runs);
    let mut plot = Plot::new(nodes(runs), Axis::linear("score", scored.iter().map(|score| score.score)));
    plot.line(3, "score", runs.iter().zip(&scored).map(|(run, score)| (run.nodes, score.score)));
    plot.svg()
}

fn table(runs: &[Run], out: &mut String) {
    out.push_str("<table><tr><th>run<th>nodes<th>price<th>PUT<th>GET<th>QUERY<th>score</tr>");
    for (run, score) in runs.iter().zip(scores(runs)) {
        let query = run.query.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.3}"));
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{:.3}<td>{:.3}<td>{query}<td>{:.6}</tr>",
            escape(&run.name),
            run.nodes,
            run.price,
            run.put,
            run.get,
            score.score
        );
    }
    out.push_str("</table>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_line_for_each_phase_and_a_row_for_each_run() {
        let run = |nodes: f64, query| Run {
            name: format!("<{nodes}>"),
            nodes,
            price: 1.0,
            get: 10.0 / nodes,
            put: 20.0,
            query,
        };
        let text = scaling(&[run(2.0, Some(4.0)), run(1.0, Some(5.0))]);
        assert_eq!(text.matches("<polyline").count(), 4, "three phases and the score");
        assert!(text.contains(">QUERY</text>") && text.contains(">nodes</text>"), "{text}");
        let rows: Vec<&str> = text.matches("<tr><td>&lt;").collect();
        assert_eq!(rows.len(), 2);
        assert!(text.find("&lt;1&gt;") < text.find("&lt;2&gt;"), "by nodes");
        let without = scaling(&[run(1.0, None), run(2.0, None)]);
        assert!(!without.contains(">QUERY</text>") && without.contains("<td>-<td>"), "{without}");
    }
}
