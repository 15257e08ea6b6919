//! The performance-to-price score of published scaling runs: Π = (Gmin/GN + Pmin/PN + Qmin/QN) / (N·Pr). G, P and Q are the
//! durations of reading, writing and querying everything, N is the number of nodes, and Pr the price of one. Gmin, Pmin
//! and Qmin are the shortest durations of all runs.

/// One run of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What it was.
    pub name: String,
    /// How many nodes.
    pub nodes: f64,
    /// What a node costs.
    pub price: f64,
    /// How long reading took, in any unit that all runs share.
    pub get: f64,
    /// How long writing took.
    pub put: f64,
    /// How long querying took; `None` if it was not done.
    pub query: Option<f64>,
}

/// Reads `name,nodes,price,get,put,query` lines with a header; the last column may be empty.
///
/// # Errors
/// A line that has other columns, or a duration, price or count that is not positive.
pub fn read(text: &str) -> Result<Vec<Run>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().ok_or("the file is empty")?;
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let place = |name: &str| {
        columns.iter().position(|column| *column == name).ok_or_else(|| format!("there is no column {name}"))
    };
    let (name, numbers) = (place("name")?, [place("nodes")?, place("price")?, place("get")?, place("put")?]);
    let query = place("query").ok();
    let mut runs = Vec::new();
    for (number, line) in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let wrong = |what: &str| format!("line {}: {what} is no positive number", number + 1);
        let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
        let positive = |at: usize| cell(at).parse().ok().filter(|n: &f64| *n > 0.0 && n.is_finite());
        let mut values = [0.0; 4];
        for (value, at) in values.iter_mut().zip(numbers) {
            *value = positive(at).ok_or_else(|| wrong(columns[at]))?;
        }
        let query = match query.filter(|&at| !cell(at).is_empty()) {
            Some(at) => Some(positive(at).ok_or_else(|| wrong("query"))?),
            None => None,
        };
        let [nodes, price, get, put] = values;
        runs.push(Run { name: cell(name).to_owned(), nodes, price, get, put, query });
    }
    Ok(runs)
}

/// The score of each run, in their order. Queries count only if every run has made them.
#[must_use]
pub fn scores(runs: &[Run]) -> Vec<f64> {
    let least = |of: fn(&Run) -> f64| runs.iter().map(of).fold(f64::INFINITY, f64::min);
    let (get, put) = (least(|run| run.get), least(|run| run.put));
    let queries: Option<Vec<f64>> = runs.iter().map(|run| run.query).collect();
    let query = queries.map(|queries| queries.into_iter().fold(f64::INFINITY, f64::min));
    let score = |run: &Run| {
        let queried = query.zip(run.query).map_or(0.0, |(least, own)| least / own);
        (get / run.get + put / run.put + queried) / (run.nodes * run.price)
    };
    runs.iter().map(score).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_the_formula() {
        let text = "name,nodes,price,get,put,query\none,1,2.0,100,200,50\nfour,4,2.0,25,100,50\n";
        let runs = read(text).expect("runs");
        // (25/100 + 100/200 + 50/50) / 2 and (1 + 1 + 1) / 8.
        assert_eq!(scores(&runs), [0.875, 0.375]);
        let without = read("name,nodes,price,get,put\none,1,1,10,10\n").expect("runs");
        assert_eq!(scores(&without), [2.0]);
    }

    #[test]
    fn what_cannot_be_scored_is_refused() {
        for text in
            ["", "name,nodes\n", "name,nodes,price,get,put\nx,1,1,0,1\n", "name,nodes,price,get,put\nx,1,1\n"]
        {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
