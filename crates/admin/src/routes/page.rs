//! The page `docs/rest-routes.md`, made from the table of routes. A test compares it with the file in the repository.

use std::{collections::BTreeSet, fmt::Write as _};

use cluster::auth::Privilege;
use http::permissions;

use super::table::ROUTES;
use crate::request::{Needs, Route};

const HEAD: &str = "\
# REST routes

Every route of the management ports, with the right that its sender needs. [REST compatibility](compatibility-rest.md) says what each of
them does as Couchbase does it, and what not. A request takes the first row that fits it.

This page is made from the table in `crates/admin/src/routes/table.rs`. A test compares both; the command below writes the page anew after
a change of the table:

```sh
SETTEE_WRITE_DOCS=1 cargo test -p settee-admin routes::page
```

A method `*` stands for every one, and `!GET` for every one but `GET`. Rights have the names that
`POST /pools/default/checkPermissions` takes. A row that is not built answers a sender with the right that it is not supported.

| Method | Path | Right | Says or does |
|---|---|---|---|
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for Route { method, path, needs, about, is_built, .. } in ROUTES {
        let built = if *is_built { "" } else { " Not built." };
        let _ = writeln!(page, "| `{method}` | `/{path}` | {} | {about}{built} |", words(*needs));
    }
    page
}

fn words(needs: Needs) -> String {
    let cluster = |privilege| format!("`{}`", permissions::name(privilege, None));
    let bucket = |privilege: Privilege| format!("`{}`", permissions::name(privilege, Some("B")));
    match needs {
        Needs::Nothing => "none".to_owned(),
        Needs::Login => "a login".to_owned(),
        Needs::Cluster(privilege) => cluster(privilege),
        Needs::Both(one, other) => format!("{} and {}", cluster(one), cluster(other)),
        Needs::Everything => "full administrator".to_owned(),
        Needs::Bucket(privilege) => bucket(privilege),
        Needs::Within(privilege) => format!("{} in some collection", bucket(privilege)),
        Needs::Scope(privilege) => format!("{} in the scope", bucket(privilege)),
        Needs::Documents(privilege) => format!("{} in the collection", bucket(privilege)),
        Needs::AnyBucket(privilege) => {
            format!("{} in some bucket, or {}", bucket(privilege), cluster(Privilege::ClusterRead))
        }
        Needs::Member => "a node that counts".to_owned(),
        Needs::Listed => "a node of the cluster".to_owned(),
        Needs::Node => "a node".to_owned(),
    }
}

#[test]
fn the_page_of_the_documentation_is_what_the_table_says() {
    tidy::page_is("docs/rest-routes.md", &page());
}

#[test]
fn no_route_is_there_twice_and_each_says_what_it_is_for() {
    let mut seen = BTreeSet::new();
    for route in ROUTES {
        assert!(seen.insert((route.method, route.path)), "{} /{} is there twice", route.method, route.path);
        assert!(
            route.about.ends_with('.') && route.about.len() > 5,
            "/{}: {:?} is no sentence",
            route.path,
            route.about
        );
    }
}
