//! A whole node in a test's own process. The parent module says what `daemon` is: the crate's own tests use this module as well.

use std::{net::Ipv4Addr, path::Path};

use super::daemon::{DiskOptions, InitBucket, InitOptions, PortOptions, Program, ServeOptions};

/// A node on ports that the system chooses, with one worker, an administrator `Administrator` with the password `password`, and this bucket.
pub(crate) fn options(data_dir: &Path, bucket: InitBucket) -> ServeOptions {
    ServeOptions {
        data_dir: data_dir.to_owned(),
        listen: Ipv4Addr::LOCALHOST.into(),
        ports: PortOptions {
            mgmt: 0,
            mgmt_tls: 0,
            kv: 0,
            kv_tls: 0,
            capi: 0,
            capi_tls: 0,
            memcached: Some(0),
        },
        ports_file: None,
        workers: 1,
        connections_max: 1_000,
        memory_quota_mb: 1024,
        disk: DiskOptions::default(),
        tls: None,
        init: Some(InitOptions {
            username: "Administrator".into(),
            password: "password".into(),
            cluster_name: String::new(),
            bucket: Some(bucket),
        }),
        // These tests have no binary that could run functions.
        functions: Program { path: "/nowhere".into(), arguments: Vec::new() },
    }
}
