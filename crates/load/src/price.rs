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

/// What a run is scored by: its three parts, each at most 1, and the score that comes of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The shortest time of reading against the run's own.
    pub get: f64,
    /// The same of writing.
    pub put: f64,
    /// The same of querying; `None` where a run has not queried.
    pub query: Option<f64>,
    /// Their sum by number and price of nodes.
    pub score: f64,
}

impl Score {
    /// The score with its parts, as they come together.
    #[must_use]
    pub fn told(&self, run: &Run) -> String {
        let query = self.query.map_or_else(String::new, |query| format!(" + QUERY {query:.3}"));
        let (get, put, score) = (self.get, self.put, self.score);
        format!("(GET {get:.3} + PUT {put:.3}{query}) / ({} nodes x {}) = {score:.6}", run.nodes, run.price)
    }
}

/// The score of each run, in their order. Queries count only if every run has made them.
#[must_use]
pub fn scores(runs: &[Run]) -> Vec<Score> {
    let least = |of: fn(&Run) -> f64| runs.iter().map(of).fold(f64::INFINITY, f64::min);
    let (get, put) = (least(|run| run.get), least(|run| run.put));
    let queries: Option<Vec<f64>> = runs.iter().map(|run| run.query).collect();
    let query = queries.map(|queries| queries.into_iter().fold(f64::INFINITY, f64::min));
    let score = |run: &Run| {
        let queried = query.zip(run.query).map(|(least, own)| least / own);
        let (get, put) = (get / run.get, put / run.put);
        let score = (get + put + queried.unwrap_or(0.0)) / (run.nodes * run.price);
        Score { get, put, query: queried, score }
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
        let found = scores(&runs);
        assert_eq!(found[0], Score { get: 0.25, put: 0.5, query: Some(1.0), score: 0.875 });
        assert_eq!(found[1], Score { get: 1.0, put: 1.0, query: Some(1.0), score: 0.375 });
        assert_eq!(
            found[0].told(&runs[0]),
            "(GET 0.250 + PUT 0.500 + QUERY 1.000) / (1 nodes x 2) = 0.875000"
        );
        let without = read("name,nodes,price,get,put\none,1,1,10,10\n").expect("runs");
        assert_eq!(scores(&without)[0], Score { get: 1.0, put: 1.0, query: None, score: 2.0 });
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
