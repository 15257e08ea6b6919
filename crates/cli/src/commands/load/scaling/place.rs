//! Where a scaling run takes place: on a cluster that was given, or on one that is started on this machine for it. Its bucket is made anew
//! where the user says so.

use std::time::{Duration, Instant};

use client::{Rest, rest::percent};
use serde_json::Value;

use super::{super::args::TargetArgs, ScalingArgs};
use crate::commands::{
    Failure,
    cluster::{Forming, LocalCluster, failed},
};

/// Login and bucket of clusters that are started for a run.
const USERNAME: &str = "Administrator";
const PASSWORD: &str = "password";
const BUCKET: &str = "default";
/// How long a bucket may take to go, and then to be served by every node.
const WITHIN: Duration = Duration::from_secs(120);
/// Between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Parameters of a bucket that it has again once it was made anew, as REST shows them and as it takes them.
const KEPT: [(&str, &str); 7] = [
    ("replicaNumber", "replicaNumber"),
    ("evictionPolicy", "evictionPolicy"),
    ("conflictResolutionType", "conflictResolutionType"),
    ("compressionMode", "compressionMode"),
    ("maxTTL", "maxTTL"),
    ("durabilityMinLevel", "durabilityMinLevel"),
    ("storageBackend", "storageBackend"),
];

/// Where one run takes place.
pub(super) struct Place {
    pub(super) target: TargetArgs,
    pub(super) name: String,
    pub(super) nodes: u32,
    /// A port of views.
    pub(super) views: Rest,
    rest: Rest,
    /// A cluster that ends with this.
    local: Option<LocalCluster>,
}

impl Place {
    /// The cluster that the user names.
    pub(super) fn given(args: &ScalingArgs) -> Result<Self, Failure> {
        let target = args.target.clone();
        let address = target.address();
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let user = target.user();
        let login = user.as_deref().map(|user| (user, target.password.as_deref().unwrap_or_default()));
        let rest = args.rest.clone().unwrap_or_else(|| format!("{host}:{}", client::rest::MGMT_PORT));
        let (views, rest) = (Rest::new(format!("{host}:{}", args.view_port), login), Rest::new(rest, login));
        let mut place = Self { name: args.name.clone(), nodes: 0, target, views, rest, local: None };
        let bucket = place.shown()?;
        place.nodes = bucket["nodes"].as_array().map_or(1, |nodes| nodes.len() as u32);
        if args.delete_bucket {
            place.make_anew(&bucket)?;
        } else if let Some(items) = bucket["basicStats"]["itemCount"].as_u64().filter(|items| *items > 0) {
            let name = place.bucket();
            println!(
                "bucket {name} has {items} documents already and is not deleted first (--delete-bucket)"
            );
        }
        Ok(place)
    }

    /// A cluster of so many nodes on this machine, which ends with the place.
    pub(super) fn local(args: &ScalingArgs, nodes: u16) -> Result<Self, Failure> {
        let forming = Forming {
            nodes,
            login: (USERNAME, PASSWORD),
            bucket: BUCKET,
            bucket_quota_mb: args.node_memory_mb,
            one_address: args.one_address,
        };
        let local = LocalCluster::start(&forming)?;
        let login = Some((USERNAME, PASSWORD));
        let target = TargetArgs {
            host: Some(local.kv()),
            port: None,
            user: Some(USERNAME.into()),
            password: Some(PASSWORD.into()),
            bucket: Some(BUCKET.into()),
            ..args.target.clone()
        };
        let (views, rest) = (Rest::new(local.views(), login), Rest::new(local.rest(), login));
        let name = format!("{}-{nodes}", args.name);
        Ok(Self { name, nodes: u32::from(nodes), target, views, rest, local: Some(local) })
    }

    pub(super) fn bucket(&self) -> &str {
        self.target.bucket.as_deref().unwrap_or(BUCKET)
    }

    /// Fails where the user wants the command to end: the nodes end with it.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match &self.local {
            Some(local) if local.is_to_stop() => Err(Failure("stopped".into())),
            _ => Ok(()),
        }
    }

    fn shown(&self) -> Result<Value, Failure> {
        let bucket = self.bucket();
        let path = format!("/pools/default/buckets/{}", percent(bucket));
        let doing = format!("bucket {bucket} is not shown by {} (--rest)", self.rest.address);
        self.rest.get_json(&path).map_err(|error| failed(doing, error))
    }

    /// Deletes the bucket, and makes it again with the parameters that it had.
    fn make_anew(&self, shown: &Value) -> Result<(), Failure> {
        let bucket = self.bucket();
        let path = format!("/pools/default/buckets/{}", percent(bucket));
        let form = form_of(bucket, shown)?;
        let form: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        println!("bucket {bucket} is deleted, and made anew");
        let patient = self.rest.within(WITHIN);
        patient.delete(&path).map_err(|error| failed(format!("bucket {bucket} was not deleted"), error))?;
        let made = patient.post("/pools/default/buckets", &form);
        made.map_err(|error| failed(format!("bucket {bucket} was deleted and not made anew"), error))?;
        let began = Instant::now();
        loop {
            let shown = self.shown()?;
            let nodes = shown["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
            if !nodes.is_empty() && nodes.iter().all(|node| node["status"] == "healthy") {
                return Ok(());
            }
            if began.elapsed() > WITHIN {
                let seconds = WITHIN.as_secs();
                return Err(Failure(format!("not every node serves bucket {bucket} after {seconds} s")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// The form that makes a bucket again, of what REST shows of it.
fn form_of(name: &str, shown: &Value) -> Result<Vec<(&'static str, String)>, Failure> {
    let quota = shown["quota"]["rawRAM"].as_u64().ok_or_else(|| {
        Failure(format!(
            "bucket {name} shows no memory quota, so it cannot be made anew: nothing was deleted"
        ))
    })?;
    let kind = match shown["bucketType"].as_str() {
        Some("ephemeral") => "ephemeral",
        _ => "couchbase",
    };
    let mut form = vec![
        ("name", name.to_owned()),
        ("bucketType", kind.to_owned()),
        ("ramQuotaMB", (quota >> 20).to_string()),
    ];
    for (shown_as, taken_as) in KEPT {
        match &shown[shown_as] {
            Value::String(text) if !text.is_empty() => form.push((taken_as, text.clone())),
            Value::Number(number) => form.push((taken_as, number.to_string())),
            _ => {}
        }
    }
    if let Some(replica_index) = shown["replicaIndex"].as_bool() {
        form.push(("replicaIndex", u8::from(replica_index).to_string()));
    }
    if shown["controllers"]["flush"].is_string() {
        form.push(("flushEnabled", "1".to_owned()));
    }
    Ok(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_made_again_with_what_it_had() {
        let shown = serde_json::json!({
            "bucketType": "membase", "quota": {"ram": 4 << 30, "rawRAM": 1_u64 << 30}, "replicaNumber": 2,
            "evictionPolicy": "fullEviction", "maxTTL": 0, "replicaIndex": true, "controllers": {"flush": "/x"},
        });
        let form = form_of("b", &shown).expect("a form");
        let of = |name: &str| form.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        assert_eq!(
            (of("name"), of("bucketType"), of("ramQuotaMB")),
            (Some("b"), Some("couchbase"), Some("1024"))
        );
        assert_eq!((of("replicaNumber"), of("evictionPolicy")), (Some("2"), Some("fullEviction")));
        assert_eq!(
            (of("replicaIndex"), of("flushEnabled"), of("storageBackend")),
            (Some("1"), Some("1"), None)
        );
        assert!(form_of("b", &serde_json::json!({})).is_err(), "nothing is deleted then");
    }
}
