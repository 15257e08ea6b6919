//! Queries as the contract says them, over a list of rows and nothing else. Beside them is what the crate's parts make
//! of the same rows, kept sorted by their bytes on one node or several.

use std::{cmp::Ordering, collections::BTreeMap};

use fastrand::Rng;
use settee_views::{
    collation::{compare, encode, row_key, split_row_key},
    json,
    query::{Grouping, Parameters, Query},
    reduce::{Group, Groups, Native, State, number_text},
    refusal::Refusal,
    rows::{MapRow, Writer},
};

use crate::texts;

/// A row as the model has it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) docid: String,
    pub(crate) ordinal: u16,
    pub(crate) value: String,
}

/// A query as the model has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    start: Option<String>,
    end: Option<String>,
    start_docid: Option<String>,
    end_docid: Option<String>,
    keys: Option<Vec<String>>,
    descending: bool,
    exclusive: bool,
    skip: usize,
    limit: Option<usize>,
    /// `None` reduces nothing, `Some(None)` groups by whole keys, zero makes one group.
    pub(crate) level: Option<Option<usize>>,
}

fn order(left: &str, right: &str) -> Ordering {
    compare(left, right).unwrap_or_else(|error| panic!("{left} and {right}: {error}"))
}

impl Ask {
    /// Whether a row is at or behind the start, in the direction of the query.
    fn starts(&self, row: &Row) -> bool {
        let Some(start) = &self.start else { return true };
        let (order, ids) = self.directed(row, start, self.start_docid.as_deref());
        order == Ordering::Greater || (order == Ordering::Equal && ids != Some(Ordering::Less))
    }

    /// Whether a row is before the end, or at it where that counts.
    fn ends(&self, row: &Row) -> bool {
        let Some(end) = &self.end else { return true };
        let (order, ids) = self.directed(row, end, self.end_docid.as_deref());
        let at_end = match ids {
            None => !self.exclusive,
            Some(Ordering::Less) => true,
            Some(Ordering::Equal) => !self.exclusive,
            Some(Ordering::Greater) => false,
        };
        order == Ordering::Less || (order == Ordering::Equal && at_end)
    }

    fn directed(&self, row: &Row, key: &str, docid: Option<&str>) -> (Ordering, Option<Ordering>) {
        let order = order(&row.key, key);
        let ids = docid.map(|docid| row.docid.as_bytes().cmp(docid.as_bytes()));
        if self.descending { (order.reverse(), ids.map(Ordering::reverse)) } else { (order, ids) }
    }

    /// The rows of each range: of the only one, or of each key that is asked for.
    fn rows(&self, all: &[Row]) -> Vec<Vec<Row>> {
        let mut sorted = all.to_vec();
        sorted.sort_by(|left, right| {
            order(&left.key, &right.key)
                .then_with(|| left.docid.as_bytes().cmp(right.docid.as_bytes()))
                .then_with(|| left.ordinal.cmp(&right.ordinal))
        });
        if self.descending {
            sorted.reverse();
        }
        match &self.keys {
            Some(keys) => {
                let of = |key: &String| {
                    sorted
                        .iter()
                        .filter(|row| order(&row.key, key) == Ordering::Equal)
                        .cloned()
                        .collect::<Vec<_>>()
                };
                keys.iter().map(of).collect()
            }
            None => vec![sorted.into_iter().filter(|row| self.starts(row) && self.ends(row)).collect()],
        }
    }

    fn window<T>(&self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.skip).take(self.limit.unwrap_or(usize::MAX)).collect()
    }

    /// The answer, or `None` where the query is refused.
    pub(crate) fn answer(
        &self,
        all: &[Row],
        reduced: &dyn Fn(&[String]) -> Option<String>,
    ) -> Option<String> {
        if let (Some(start), Some(end)) = (&self.start, &self.end) {
            let order = order(start, end);
            let wrong = if self.descending { Ordering::Less } else { Ordering::Greater };
            if order == wrong {
                return None;
            }
        }
        let found = self.rows(all);
        let mut lines = Vec::new();
        let mut head = String::from("{");
        match self.level {
            None => {
                head += &format!("\"total_rows\":{},", all.len());
                for row in self.window(found.concat()) {
                    lines.push(format!(
                        "{{\"id\":\"{}\",\"key\":{},\"value\":{}}}",
                        row.docid, row.key, row.value
                    ));
                }
            }
            Some(level) => {
                // Rows that cannot be reduced make no group. A key that is asked for twice has two.
                let counts = |row: &Row| reduced(std::slice::from_ref(&row.value)).is_some();
                let found = found.into_iter().map(|rows| rows.into_iter().filter(counts).collect());
                let groups = found.flat_map(|rows| self.groups(rows, level));
                for (key, values) in self.window(groups.collect()) {
                    let value = reduced(&values).expect("a group has rows");
                    lines.push(format!("{{\"key\":{key},\"value\":{value}}}"));
                }
            }
        }
        let body: String = lines.join(",\r\n") + if lines.is_empty() { "" } else { "\r\n" };
        Some(format!("{head}\"rows\":[\r\n{body}]\r\n}}\n"))
    }

    fn groups(&self, rows: Vec<Row>, level: Option<usize>) -> Vec<(String, Vec<String>)> {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for row in rows {
            let key = match level {
                None => row.key.clone(),
                Some(0) => "null".to_owned(),
                Some(level) => cut(&row.key, level),
            };
            match groups.last_mut() {
                Some((last, values)) if order(last, &key) == Ordering::Equal => values.push(row.value),
                _ => groups.push((key, vec![row.value])),
            }
        }
        groups
    }

    pub(crate) fn query_string(&self) -> String {
        let mut parts = Vec::new();
        let mut part = |name: &str, value: &str| {
            let value: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            parts.push(format!("{name}={value}"));
        };
        let named = [
            ("startkey", &self.start),
            ("end_key", &self.end),
            ("startkey_docid", &self.start_docid),
            ("endkey_docid", &self.end_docid),
        ];
        for (name, value) in named {
            if let Some(value) = value {
                part(name, value);
            }
        }
        if let Some(keys) = &self.keys {
            part("keys", &format!("[{}]", keys.join(",")));
        }
        if self.descending {
            part("descending", "true");
        }
        if self.exclusive {
            part("inclusive_end", "false");
        }
        part("skip", &self.skip.to_string());
        if let Some(limit) = self.limit {
            part("limit", &limit.to_string());
        }
        match self.level {
            None => part("reduce", "false"),
            Some(None) => part("group", "true"),
            Some(Some(level)) => part("group_level", &level.to_string()),
        }
        parts.join("&")
    }
}

/// A key cut behind its first elements.
fn cut(key: &str, level: usize) -> String {
    match json::elements(key) {
        Some(elements) if elements.len() > level => format!("[{}]", elements[..level].join(",")),
        _ => key.to_owned(),
    }
}

pub(crate) fn reduced(native: Native, values: &[String]) -> Option<String> {
    if native == Native::Count {
        return Some(values.len().to_string());
    }
    let numbers: Vec<f64> = values.iter().filter_map(|value| value.parse().ok()).collect();
    if numbers.is_empty() {
        return None;
    }
    let sum = number_text(numbers.iter().sum());
    if native == Native::Sum {
        return Some(sum);
    }
    let fold =
        |with: fn(f64, f64) -> f64| number_text(numbers.iter().copied().reduce(with).expect("a number"));
    let squares = number_text(numbers.iter().map(|number| number * number).sum());
    let (least, greatest) = (fold(f64::min), fold(f64::max));
    Some(format!(
        "{{\"sum\":{sum},\"count\":{},\"min\":{least},\"max\":{greatest},\"sumsqr\":{squares}}}",
        numbers.len()
    ))
}

/// Rows sorted by their bytes, with the texts of key and value.
type Node = BTreeMap<Vec<u8>, (String, String)>;

/// The rows of several nodes that a query asks for, in its order.
fn scan<'n>(nodes: &'n [Node], query: &Query) -> Vec<Vec<(&'n [u8], &'n str, &'n str)>> {
    let mut found = Vec::new();
    for range in &query.ranges {
        let mut inside: Vec<_> = nodes
            .iter()
            .flatten()
            .filter(|(row, _)| range.contains(row))
            .map(|(row, (key, value))| (row.as_slice(), key.as_str(), value.as_str()))
            .collect();
        inside.sort();
        if query.descending {
            inside.reverse();
        }
        found.push(inside);
    }
    found
}

fn to_usize(count: u64) -> usize {
    usize::try_from(count).expect("a count that fits")
}

fn write_groups(
    ranges: &[Vec<(&[u8], &str, &str)>],
    grouping: Grouping,
    native: Native,
    query: &Query,
    out: &mut Vec<u8>,
) {
    let mut ended: Vec<Group<State>> = Vec::new();
    for rows in ranges {
        let mut groups: Groups<State> = Groups::new(grouping);
        for (row, key, value) in rows {
            if State::new(native).add(value).is_err() {
                continue;
            }
            let row = split_row_key(row).expect("a row's bytes");
            let (group, state) = groups.row(row.key, key, || State::new(native));
            let _ = state.add(value);
            ended.extend(group);
        }
        ended.extend(groups.end());
    }
    let mut writer = Writer::begin(None, None, out);
    let (skip, limit) = (to_usize(query.skip), to_usize(query.limit));
    for group in ended.iter().skip(skip).take(limit) {
        let text = group.state.text().expect("a group has rows");
        writer.reduced_row(group.key.as_bytes(), text.as_bytes(), out);
    }
    writer.end(&[], out);
}

/// What the crate's parts answer.
fn answer(nodes: &[Node], text: &str, native: Native) -> Result<String, Refusal> {
    let query = Parameters::parse(text, None)?.query(true)?;
    let rows = scan(nodes, &query);
    let mut out = Vec::new();
    if let Some(grouping) = query.grouping {
        write_groups(&rows, grouping, native, &query, &mut out);
    } else {
        let total = nodes.iter().map(|node| node.len() as u64).sum();
        let mut writer = Writer::begin(Some(total), None, &mut out);
        let (skip, limit) = (to_usize(query.skip), to_usize(query.limit));
        for (row, key, value) in rows.concat().into_iter().skip(skip).take(limit) {
            let row = split_row_key(row).expect("a row's bytes");
            writer.map_row(&MapRow::new(&row, key.as_bytes(), value.as_bytes()), &mut out);
        }
        writer.end(&[], &mut out);
    }
    Ok(String::from_utf8(out).expect("an answer is text"))
}

pub(crate) fn random_key(random: &mut Rng, pool: &[String]) -> String {
    if random.u8(..6) == 0 { texts::value(random, 2) } else { pool[random.usize(..pool.len())].clone() }
}

fn random_rows(random: &mut Rng, pool: &[String]) -> Vec<Row> {
    let mut rows = Vec::new();
    for document in 0..random.usize(..12) {
        for ordinal in 0..random.u16(..5) {
            let value = if random.u8(..9) == 0 { "null".to_owned() } else { random.i32(-9..9).to_string() };
            let (key, docid) = (random_key(random, pool), format!("d{document}"));
            rows.push(Row { key, docid, ordinal, value });
        }
    }
    rows
}

pub(crate) fn random_ask(random: &mut Rng, pool: &[String]) -> Ask {
    let some = |random: &mut Rng| random.bool();
    let docid = |random: &mut Rng| random.bool().then(|| format!("d{}", random.u8(..12)));
    let level = match random.u8(..5) {
        0 | 1 => None,
        2 => Some(None),
        _ => Some(Some(random.usize(..4))),
    };
    let multiple = random.u8(..4) == 0 && level.is_none_or(|level| level.is_none());
    let keys = multiple.then(|| (0..random.usize(..4)).map(|_| random_key(random, pool)).collect());
    Ask {
        start: (!multiple && some(random)).then(|| random_key(random, pool)),
        end: (!multiple && some(random)).then(|| random_key(random, pool)),
        start_docid: docid(random),
        end_docid: docid(random),
        keys,
        descending: random.bool(),
        exclusive: random.u8(..3) == 0 && !multiple,
        skip: if random.bool() { 0 } else { random.usize(..4) },
        limit: random.bool().then(|| random.usize(..8)),
        level,
    }
}

#[test]
fn queries_answer_what_the_model_answers() {
    let seeds: u64 = std::env::var("VIEWS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3000);
    let first: u64 = std::env::var("VIEWS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (mut refused, mut empty) = (0, 0);
    for seed in first..first + seeds {
        let mut random = Rng::with_seed(seed);
        let pool: Vec<String> = (0..8).map(|_| texts::value(&mut random, 2)).collect();
        let rows = random_rows(&mut random, &pool);
        let mut nodes = vec![Node::new(); if seed % 2 == 0 { 1 } else { 3 }];
        let count = nodes.len();
        for row in &rows {
            let (mut key, mut bytes) = (Vec::new(), Vec::new());
            encode(&row.key, &mut key).unwrap();
            row_key(&key, &row.docid, row.ordinal, &mut bytes);
            nodes[row.docid.len() * usize::from(row.docid.as_bytes()[1]) % count]
                .insert(bytes, (row.key.clone(), row.value.clone()));
        }
        for _ in 0..6 {
            let ask = random_ask(&mut random, &pool);
            let native = [Native::Count, Native::Sum, Native::Stats][random.usize(..3)];
            let text = ask.query_string();
            let expected = ask.answer(&rows, &|values| reduced(native, values));
            let found = answer(&nodes, &text, native);
            match (&expected, &found) {
                (None, Err(_)) => refused += 1,
                _ => assert_eq!(
                    expected.as_deref(),
                    found.as_deref().ok(),
                    "seed {seed}: {ask:?} over {rows:#?}: {found:?}"
                ),
            }
            empty += u64::from(found.is_ok_and(|text| text.ends_with("[\r\n]\r\n}\n")));
        }
    }
    assert!(refused < seeds * 3 && empty < seeds * 5, "{refused} of {} refused, {empty} empty", seeds * 6);
}
