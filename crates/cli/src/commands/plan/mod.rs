//! `settee plan`: how many nodes a workload needs, by the published rule and by Settee's own figures.

use plan::sizing::{Rule, Sizing, Workload};
use serde_json::json;

mod live;

use super::{Failure, cluster::Access};

const EXAMPLES: &str = "\
EXAMPLES
  settee plan --documents 100000000 --key-bytes 38 --value-bytes 2560 --replicas 1 --working-set 10 --node-quota-mb 13312
  settee plan --documents 5000000 --value-bytes 900 --json
  settee plan --from 10.0.0.1 -u admin        # a cluster that is there: what runs out, when, and what if
  settee plan --from 10.0.0.1 -u admin --lose-nodes 2 --quota-percent 50 --writes-times 3

WHAT IT SHOWS
  published   the sizing rule of Couchbase's documentation; --metadata-bytes, --headroom and --high-watermark are its constants
  settee      the same sum with what Settee was measured to take (docs/benchmarks/one-node.md); the three options do not change it

  --from      forecasts by what nodes have sampled over two weeks: when half of the paces of growth reach a limit, and when one in ten
              does; how far such forecasts were off; how many nodes each bucket needs by what it holds, also if things change

  enough      what is in memory stays there, with room to spare
  tight       values leave memory and are read from disk, or there are fewer nodes than copies; the data can be held
  too small   what has to stay in memory (AT THE LEAST) has no room: a change of the cluster to this is refused unless it is forced

  Of every document that is not in the working set, key and metadata stay in memory. A bucket with full eviction needs less.
  Disk is what files may grow to before compaction keeps them there.";

/// Says how much memory and disk documents need, and how many nodes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Documents, copies not counted.
    #[arg(long, value_name = "COUNT", default_value_t = 0, required_unless_present = "from")]
    documents: u64,

    /// Mean length of a key.
    #[arg(long, default_value_t = 40, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=250))]
    key_bytes: u64,

    /// Mean length of a document.
    #[arg(long, value_name = "BYTES", default_value_t = 0, required_unless_present = "from",
          value_parser = clap::value_parser!(u64).range(0..=20 << 20))]
    value_bytes: u64,

    /// Copies beside the active one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=3))]
    replicas: u32,

    /// Share of the documents that clients use at a time, in percent.
    #[arg(long, default_value_t = 20.0, value_name = "PERCENT", value_parser = percent)]
    working_set: f64,

    /// Memory quota of one node, in MiB.
    #[arg(long, default_value_t = 13 * 1024, value_name = "MIB", value_parser = clap::value_parser!(u64).range(100..=1 << 30))]
    node_quota_mb: u64,

    /// The published rule: memory of a document beyond key and value.
    #[arg(long, default_value_t = Rule::PUBLISHED.metadata_bytes, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    metadata_bytes: u64,

    /// The published rule: memory for everything else, in percent of what documents take.
    #[arg(long, default_value_t = 30.0, value_name = "PERCENT", value_parser = percent)]
    headroom: f64,

    /// The published rule: share of the quota above which documents leave memory, in percent.
    #[arg(long, default_value_t = 85.0, value_name = "PERCENT", value_parser = share_of_quota)]
    high_watermark: f64,

    /// REST address of a node of a cluster that is there, which is asked in place of the figures above.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["documents", "value_bytes"])]
    from: Option<String>,

    #[command(flatten)]
    changes: live::Changes,

    /// With --from: an administrator.
    #[arg(long, short, default_value = "Administrator", value_name = "NAME", env = "SETTEE_USERNAME")]
    username: String,

    /// With --from: the password; the environment keeps it out of the process list.
    #[arg(long, short, env = "SETTEE_PASSWORD", hide_env_values = true, default_value = "")]
    password: String,

    /// Print JSON, with every figure in bytes.
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.trim_end_matches('%').parse().map_err(|_| format!("`{text}` is no number"))?;
    if (0.0..=100.0).contains(&value) { Ok(value) } else { Err("0 to 100 percent".into()) }
}

fn share_of_quota(text: &str) -> Result<f64, String> {
    percent(text).and_then(|value| if value >= 1.0 { Ok(value) } else { Err("1 to 100 percent".into()) })
}

impl Args {
    /// The documents, and how they are used.
    fn workload(&self) -> Workload {
        Workload {
            documents: self.documents,
            key_bytes: self.key_bytes,
            value_bytes: self.value_bytes,
            replicas: self.replicas,
            working_set: self.working_set / 100.0,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(host) = &args.from {
        let session = Access::to(host.clone(), &args.username, &args.password).open()?;
        return live::run(&session, &args.changes, args.json);
    }
    let workload = args.workload();
    let published = Rule {
        metadata_bytes: args.metadata_bytes,
        headroom: args.headroom / 100.0,
        high_watermark: args.high_watermark / 100.0,
        ..Rule::PUBLISHED
    };
    let rules = [("published", published), ("settee", Rule::SETTEE)];
    let sized = rules.map(|(name, rule)| (name, Sizing::of(&workload, &rule)));
    let quota = args.node_quota_mb << 20;
    if args.json {
        let each = sized.iter().map(|(name, sizing)| ((*name).to_owned(), as_json(sizing, &workload, quota)));
        println!("{}", serde_json::Value::Object(each.collect()));
    } else {
        print!("{}", table(&sized, &workload, quota));
    }
    Ok(())
}

fn as_json(sizing: &Sizing, workload: &Workload, quota: u64) -> serde_json::Value {
    json!({
        "metadata": sizing.metadata,
        "values": sizing.values,
        "workingSet": sizing.working_set,
        "memory": sizing.memory,
        "disk": sizing.disk,
        "nodesExactly": sizing.nodes_exactly(quota),
        "nodes": sizing.nodes(workload, quota),
    })
}

/// One figure of a sizing.
type Figure = fn(&Sizing) -> f64;

fn table(sized: &[(&str, Sizing)], workload: &Workload, quota: u64) -> String {
    let lines: [(&str, Figure); 5] = [
        ("keys and metadata", |sizing| sizing.metadata),
        ("values", |sizing| sizing.values),
        ("working set", |sizing| sizing.working_set),
        ("memory quota", |sizing| sizing.memory),
        ("disk", |sizing| sizing.disk),
    ];
    let mut text = format!("{:20}", "");
    sized.iter().for_each(|(name, _)| text += &format!("{name:>14}"));
    for (name, figure) in lines {
        text += &format!("\n{name:20}");
        sized
            .iter()
            .for_each(|(_, sizing)| text += &format!("{:>10.1} GiB", figure(sizing) / (1_u64 << 30) as f64));
    }
    text += &format!("\n{:20}", "nodes");
    for (_, sizing) in sized {
        let nodes = format!("{:.2} -> {}", sizing.nodes_exactly(quota), sizing.nodes(workload, quota));
        text += &format!("{nodes:>14}");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Command::try_parse_from(std::iter::once("plan").chain(line.split_whitespace()))
            .map(|parsed| parsed.args)
    }

    #[test]
    fn the_first_example_prints_the_published_figures() {
        let line = EXAMPLES.lines().find_map(|line| line.trim().strip_prefix("settee plan ")).unwrap();
        let args = parse(line).unwrap();
        let workload = args.workload();
        let rule = Rule { headroom: args.headroom / 100.0, ..Rule::PUBLISHED };
        let printed =
            table(&[("published", Sizing::of(&workload, &rule))], &workload, args.node_quota_mb << 20);
        for figure in ["17.5 GiB", "476.8 GiB", "47.7 GiB", "99.7 GiB", "7.67 -> 8"] {
            assert!(printed.contains(figure), "{figure}: {printed}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--documents 1 --value-bytes 1 --working-set 101",
            "--documents 1 --value-bytes 1 --high-watermark 0",
            "--documents 1 --value-bytes 1 --headroom nan",
            "--documents -1 --value-bytes 1",
            "--documents 1 --value-bytes 1 --node-quota-mb 0",
            "--documents 1",
            "--documents 1 --from h",
            "--documents 1 --value-bytes 1 --lose-nodes 2",
            "--from h --lose-nodes 0",
            "--from h --more-replicas 4",
            "--from h --quota-percent 0",
            "--from h --writes-times nan",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("--from h").is_ok());
        assert!(
            parse("--from h --lose-nodes 2 --more-replicas 2 --quota-percent 50% --writes-times 2").is_ok()
        );
    }
}
