//! `settee top`: nodes and buckets, refreshed until it is stopped.

use std::{
    io::{IsTerminal, Write as _, stdout},
    thread::sleep,
    time::Duration,
};

use clap::Args as ClapArgs;
use serde_json::Value;

mod hot;

use super::{
    Failure,
    cluster::{Access, Session},
    status::{BUCKETS, NODES, bucket_row, node_row},
};
use crate::table::table;

/// Watch nodes and buckets at work
#[derive(ClapArgs)]
#[command(after_help = "\
The busiest buckets come first. Alerts that fire stand below the tables. Control-C ends it.

EXAMPLES
  settee top -u admin
  settee top --node 10.0.0.2 --every 1 -u admin
  settee top --once --bucket app -u admin
  settee top --hot --bucket app -u admin      hot documents need the right to read them")]
pub(crate) struct Args {
    /// Print once and end
    #[arg(long)]
    once: bool,

    /// Seconds between two looks
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600), value_name = "SECONDS")]
    every: u64,

    /// Only nodes whose name has this in it
    #[arg(long, value_name = "TEXT")]
    node: Option<String>,

    /// Only buckets whose name has this in it
    #[arg(long, value_name = "TEXT")]
    bucket: Option<String>,

    /// Documents, addresses and connections with the most operations, in place of nodes and buckets
    #[arg(long)]
    hot: bool,

    #[command(flatten)]
    access: Access,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let session = args.access.open()?;
    loop {
        let page = page(args, &session)?;
        let mut out = stdout().lock();
        // A terminal is cleared, a file gets page after page.
        let clear = if stdout().is_terminal() && !args.once { "\x1b[2J\x1b[H" } else { "" };
        if write!(out, "{clear}{page}").and_then(|()| out.flush()).is_err() || args.once {
            // The reader has gone.
            return Ok(());
        }
        drop(out);
        sleep(Duration::from_secs(args.every));
    }
}

fn page(args: &Args, session: &Session) -> Result<String, Failure> {
    if args.hot {
        return hot::page(session, (args.node.as_deref(), args.bucket.as_deref()));
    }
    let pool = session.get("/pools/default")?;
    let buckets = session.get("/pools/default/buckets?skipMap=true")?;
    let alerts = session.get("/settee/alerts")?;
    Ok(shown(&pool, &buckets, &alerts, (args.node.as_deref(), args.bucket.as_deref())))
}

fn shown(
    pool: &Value,
    buckets: &Value,
    alerts: &Value,
    (node, bucket): (Option<&str>, Option<&str>),
) -> String {
    let has = |value: &Value, name: &str, part: Option<&str>| {
        part.is_none_or(|part| value[name].as_str().is_some_and(|text| text.contains(part)))
    };
    let list = |of: &Value| -> Vec<Value> { of.as_array().cloned().unwrap_or_default() };
    let nodes = list(&pool["nodes"]);
    let rows = nodes.iter().filter(|one| has(one, "hostname", node)).map(node_row).collect();
    let mut page = table(&NODES, rows);
    let mut buckets = list(buckets);
    let ops = |bucket: &Value| bucket["basicStats"]["opsPerSec"].as_f64().unwrap_or_default();
    buckets.sort_by(|one, other| ops(other).total_cmp(&ops(one)));
    let rows: Vec<_> = buckets.iter().filter(|one| has(one, "name", bucket)).map(bucket_row).collect();
    page += "\n";
    page += &table(&BUCKETS, rows);
    for alert in list(&alerts["firing"]) {
        page += &format!(
            "\n{}: {}\n",
            alert["level"].as_str().unwrap_or_default(),
            alert["text"].as_str().unwrap_or_default()
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_busiest_bucket_comes_first_and_others_can_be_left_out() {
        let pool = json!({ "nodes": [{ "hostname": "one:8091" }, { "hostname": "two:8091" }] });
        let bucket = |name: &str, ops: f64| json!({ "name": name, "basicStats": { "opsPerSec": ops } });
        let buckets = json!([bucket("idle", 0.0), bucket("busy", 900.0), bucket("other", 3.0)]);
        let alerts = json!({ "firing": [{ "level": "warning", "text": "Look." }] });
        let page = shown(&pool, &buckets, &alerts, (None, None));
        let at = |text: &str| page.find(text).unwrap_or(usize::MAX);
        assert!(at("busy") < at("other") && at("other") < at("idle"), "{page}");
        assert!(page.ends_with("\nwarning: Look.\n"), "{page}");
        let page = shown(&pool, &buckets, &alerts, (Some("two"), Some("busy")));
        assert!(!page.contains("one:8091") && !page.contains("idle") && page.contains("two:8091"), "{page}");
    }
}
