//! Making certificates anew on every node.

use std::sync::Arc;

use admin::Regenerate;

use super::{
    Control,
    broadcast::{YES, absentees},
};
use crate::setup::certificates::NodeCertificates;

/// The question to regenerate a certificate. Two bytes say which.
const REGENERATE: &str = "regenerate-certificate";

/// Answers other nodes.
pub(crate) fn answer(certificates: &Arc<NodeCertificates>, control: &Arc<Control>) {
    let me = Arc::downgrade(control);
    certificates.ask_others_by(Box::new(move |what| {
        let me = me.upgrade();
        Box::pin(async move {
            let Some(control) = me else { return Vec::new() };
            let body = [u8::from(what.made), u8::from(what.brought)];
            absentees(&control, REGENERATE, &body).await
        })
    }));
    let own = Arc::clone(certificates);
    control.routes().add(REGENERATE, move |body| {
        let what = match body.as_slice() {
            [made, brought] => Some(Regenerate { made: *made != 0, brought: *brought != 0 }),
            _ => None,
        };
        let done = what.map(|what| own.regenerate_here(what));
        async move {
            match done {
                Some(Ok(())) => Ok(YES.to_vec()),
                Some(Err(error)) => {
                    tracing::warn!(%error, "the certificate is not made anew");
                    Ok(Vec::new())
                }
                None => Ok(Vec::new()),
            }
        }
    });
}
