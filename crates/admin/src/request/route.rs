//! What a route is, and the right that it asks for.

use cluster::auth::Privilege as P;

/// The right that the sender of a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: clients ask before they can log in.
    Nothing,
    /// A login.
    Login,
    /// A right on the cluster.
    Cluster(P),
    /// Two rights on the cluster.
    Both(P, P),
    /// Every right: that of full administrators.
    Everything,
    /// A right in the whole of `{bucket}`.
    Bucket(P),
    /// A right somewhere in `{bucket}`. The answer shows no more than that.
    Within(P),
    /// A right in `{scope}` of `{bucket}`, or in the bucket if there is no such scope.
    Scope(P),
    /// A right over documents in `{collection}` of `{scope}`; in the default collection where the path names none.
    Documents(P),
    /// A right in a bucket, whichever, or that of seeing the cluster. The answer shows those buckets.
    AnyBucket(P),
    /// Being another node of the cluster that counts: it was neither removed nor failed over.
    Member,
    /// Being another node of the cluster, or one that was failed over.
    Listed,
    /// A node's login that is accepted: that of a node that is yet to hear of its removal, too.
    Node,
}

/// What becomes of a request that is no `GET` where its node cannot say what the cluster has agreed on. Its sender may have lost the right to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alone {
    /// It is refused.
    Refused,
    /// It is carried out: it changes nothing, or an operator needs it where no majority is left.
    CarriedOut,
    /// A failover is carried out if its sender says that it need not be safe.
    IfUnsafe,
}

/// What the sender of a failover is told that the cluster does not agree on.
pub(crate) const UNDECIDED_FAILOVER: &str = "Cannot safely perform a failover at the moment";

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// A method; `*` for any, `!GET` for any that may change something.
    pub(crate) method: &'static str,
    /// Segments; one in braces stands for any, `**` at the end for any number of them.
    pub(crate) path: &'static str,
    /// The right that it needs.
    pub(crate) needs: Needs,
    /// What it shows or does, in a sentence.
    #[cfg_attr(not(test), allow(dead_code, reason = "the page of the documentation is made of it"))]
    pub(crate) about: &'static str,
    /// Settee has it.
    #[cfg_attr(not(test), allow(dead_code, reason = "the page of the documentation is made of it"))]
    pub(crate) is_built: bool,
    /// What it shows, or is decided by, includes figures of all nodes: they are asked before it is answered.
    pub(crate) needs_figures: bool,
    pub(crate) alone: Alone,
}

impl Route {
    /// The same, with figures of all nodes.
    pub(crate) const fn figures(self) -> Self {
        Self { needs_figures: true, ..self }
    }

    /// The same, with what becomes of it where its node cannot say what the cluster has agreed on.
    pub(crate) const fn alone(self, alone: Alone) -> Self {
        Self { alone, ..self }
    }

    pub(crate) fn has_method(&self, method: &str) -> bool {
        match self.method {
            "*" => true,
            "!GET" => method != "GET",
            one => one == method,
        }
    }

    fn segments(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter(|segment| !segment.is_empty())
    }

    pub(crate) fn has_path(&self, path: &[String]) -> bool {
        let mut left = path.iter();
        for segment in self.segments() {
            if segment == "**" {
                return true;
            }
            match left.next() {
                Some(found) if segment.starts_with('{') || segment == found => {}
                _ => return false,
            }
        }
        left.next().is_none()
    }

    /// What stands in a path where the route says `name`, which is in braces.
    pub(crate) fn parameter<'p>(&self, name: &str, path: &'p [String]) -> Option<&'p str> {
        let at = self.segments().position(|segment| segment == name)?;
        let segment = path.get(at).map(String::as_str)?;
        let is_of_views = name == "{bucket}" && self.segments().next() == Some("couchBase");
        Some(if is_of_views { bucket_of_views(segment) } else { segment })
    }
}

/// The bucket that a segment names on the ports of views: `B`, `B+UUID`, `B/17` or `B/master;UUID`. The service takes the same one.
fn bucket_of_views(segment: &str) -> &str {
    segment.split(['+', '/', ';']).next().unwrap_or(segment)
}
