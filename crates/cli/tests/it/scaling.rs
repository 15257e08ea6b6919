//! `settee load scaling`: from nothing, or from a bucket that is deleted, to the score and its chart.

use std::process::{Command, Output};

use client::{Client, Rest};

use crate::{
    login,
    node::{Node, PASSWORD, USERNAME, settee},
};

/// Few songs; the generator knows how many of them are electronic.
const SONGS: &str = "400";

fn scaling(more: &[&str]) -> Command {
    let mut command = settee();
    command.args(["load", "scaling", "--processes", "1", "-c", "8"]).args(more);
    command
}

fn done(output: &Output) -> String {
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{said}");
    told.into_owned()
}

/// How many songs are electronic, as the generator counts them.
fn electronic() -> String {
    let output = settee().args(["songs", "-n", SONGS]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tagged = |song: &&str| {
        let song: serde_json::Value = serde_json::from_str(song).unwrap();
        song["tags"].as_array().unwrap().iter().any(|tag| tag[0] == "electronic")
    };
    String::from_utf8(output.stdout).unwrap().lines().filter(tagged).count().to_string()
}

/// The places of texts in what was told, which come in this order.
fn assert_in_order(told: &str, texts: &[&str]) {
    let mut rest = told;
    for text in texts {
        let at = rest.find(text).unwrap_or_else(|| panic!("no {text:?} there: {told}"));
        rest = &rest[at + text.len()..];
    }
}

#[test]
fn clusters_of_several_sizes_are_started_and_scored_with_a_chart() {
    let dir = tempfile::tempdir().unwrap();
    let [chart, runs] = ["chart.html", "runs.csv"].map(|name| dir.path().join(name).display().to_string());
    let local = ["--local", "1,2", "--one-address", "--node-memory-mb", "256"];
    let files = ["--name", "n", "--chart", &chart, "--runs", &runs];
    let told = done(
        &scaling(&[&local[..], &files, &["-n", SONGS]].concat()).env("TMPDIR", dir.path()).output().unwrap(),
    );
    let query = format!("query: {} songs in ", electronic());
    let one = [
        "nodes on this machine",
        "view songs/electronic is published",
        "put: 400 songs",
        "get: 400 songs",
        &query,
    ];
    assert_in_order(&told, &[&one[..], &one, &["score of n-1: (GET ", "score of n-2: (GET "]].concat());
    for (name, nodes) in [("n-1", 1), ("n-2", 2)] {
        let line = told.lines().find(|line| line.starts_with(&format!("score of {name}:"))).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let of = |word: &str| -> f64 {
            let at = words.iter().position(|known| known.trim_start_matches('(') == word).unwrap();
            words[at + 1].trim_end_matches(')').parse().unwrap()
        };
        let (parts, score) = ([of("GET"), of("PUT"), of("QUERY")], of("="));
        assert!(parts.iter().all(|part| *part > 0.0 && *part <= 1.0), "{line}");
        assert!((parts.iter().sum::<f64>() / f64::from(nodes) - score).abs() < 0.01, "{line}");
    }
    let page = std::fs::read_to_string(&chart).unwrap();
    assert_eq!(page.matches("<polyline").count(), 4, "{page}");
    assert!(page.contains("<tr><td>n-1<td>1<td>") && page.contains("<tr><td>n-2<td>2<td>"), "{page}");
    let lines = std::fs::read_to_string(&runs).unwrap();
    let heads: Vec<String> =
        lines.lines().map(|line| line.split(',').take(3).collect::<Vec<_>>().join(",")).collect();
    assert_eq!(heads, ["name,nodes,price", "n-1,1,1", "n-2,2,1"], "{lines}");
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "no cluster is left behind: {left:?}");
}

#[test]
fn a_bucket_is_deleted_where_the_user_says_so_and_not_without() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = ["--init-username", USERNAME, "--init-bucket", "app", "--init-bucket-quota-mb", "100"];
    let node = Node::start(dir.path(), &bucket);
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    client.set(b"kept", b"{}").unwrap();
    let (kv, rest, views) = (node.kv(), node.rest(), node.port("capi").to_string());
    let given =
        ["--host", &kv, "--rest", &rest, "--view-port", &views, "-u", USERNAME, "-p", PASSWORD, "-b", "app"];
    let uuid = || {
        let rest = Rest::new(node.rest(), Some((USERNAME, PASSWORD)));
        rest.get_json("/pools/default/buckets/app").unwrap()["uuid"].clone()
    };
    let before = uuid();
    let few = || scaling(&[&given[..], &["-n", SONGS]].concat());
    let told = done(&few().output().unwrap());
    assert!(told.contains("has 1 documents already and is not deleted first"), "{told}");
    assert!(client.get(b"kept").unwrap().is_some() && uuid() == before);

    // More electronic songs than the generator knows of are told, and so would be fewer.
    let more = scaling(&given).args(["-n", "600"]).output().unwrap();
    assert!(more.status.success(), "{}", String::from_utf8_lossy(&more.stderr));
    let fewer = few().output().unwrap();
    let said = String::from_utf8_lossy(&fewer.stderr);
    let expected = format!("electronic songs, and the generator has made {}", electronic());
    assert!(!fewer.status.success() && said.contains(&expected), "{said}");

    let told = done(&few().arg("--delete-bucket").output().unwrap());
    let query = format!("query: {} songs in ", electronic());
    assert_in_order(
        &told,
        &["bucket app is deleted, and made anew", "is published", "put: ", "get: ", &query],
    );
    assert_ne!(uuid(), before);
    let mut client = Client::connect(&node.kv(), &login("app")).unwrap();
    assert!(client.get(b"kept").unwrap().is_none(), "it went with the bucket");
}
