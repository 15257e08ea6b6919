//! Questions whose answers come part by part: `POST /_settee/services/<name>`.
//!
//! Each answer has a connection of its own for as long as it lasts, so that a slow one holds no other up. A connection whose answer came
//! to its end is kept for the next question. One whose answer did not is closed, by which the other node notices.

use std::{io, sync::Arc, time::Duration};

use base::NodeId;
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    Response,
    body::{Bytes, Incoming},
};
use service::{AskError, Parts};

use super::{Peer, Peers, question, within};
use crate::talk::http::Connection;

/// Questions to one node whose answers have not ended.
pub(crate) const OPEN_ANSWERS: usize = 128;
/// Connections kept for questions to one node.
const KEPT: usize = 16;
/// Longest text of a refusal.
const REFUSAL_BYTES_MAX: usize = 4096;

impl Peers {
    /// Asks a service of another node, and passes the answer on. `patience` is for each part of it.
    pub(crate) async fn ask_service(
        &self,
        to: NodeId,
        service: &str,
        asked: Bytes,
        patience: Duration,
        parts: Parts,
    ) -> Result<(), AskError> {
        let peer = self.peer(to).map_err(|error| AskError::Unreachable(error.to_string()))?;
        let busy = |_| AskError::Refused(format!("too many questions to node {to} are open"));
        let _place = peer.open_answers.try_acquire().map_err(busy)?;
        let ended = peer.pass_on(&format!("/_settee/services/{service}"), asked, patience, parts).await;
        if !matches!(ended, Ok(()) | Err(AskError::Refused(_))) {
            // What befell this connection may have befallen those that were kept.
            peer.kept.lock().clear();
        }
        ended
    }
}

#[cfg(test)]
impl Peers {
    /// How many connections are kept for questions to a node.
    pub(crate) fn kept(&self, node: NodeId) -> usize {
        self.peer(node).map_or(0, |peer| peer.kept.lock().len())
    }
}

impl Peer {
    async fn pass_on(
        self: &Arc<Self>,
        path: &str,
        asked: Bytes,
        patience: Duration,
        parts: Parts,
    ) -> Result<(), AskError> {
        let (connection, answer) = self.begin(path, asked, patience).await?;
        let (status, mut body) = (answer.status(), answer.into_body());
        if status != hyper::StatusCode::OK {
            self.has_refused(status.as_u16());
            let text = within(patience, async {
                Limited::new(body, REFUSAL_BYTES_MAX).collect().await.map_err(io::Error::other)
            });
            let text = text.await.map(|text| text.to_bytes()).unwrap_or_default();
            return Err(AskError::Refused(refusal(status.as_u16(), &text)));
        }
        loop {
            let next = async { body.frame().await.transpose().map_err(io::Error::other) };
            let Some(frame) = within(patience, next).await.map_err(broken_off)? else { break };
            if let Ok(part) = frame.into_data() {
                parts.send(part).await.map_err(|gone| AskError::BrokenOff(gone.to_string()))?;
            }
        }
        let mut kept = self.kept.lock();
        if kept.len() < KEPT && connection.is_open() {
            kept.push(connection);
        }
        Ok(())
    }

    /// The connection of an answer, and its beginning.
    async fn begin(
        &self,
        path: &str,
        asked: Bytes,
        patience: Duration,
    ) -> Result<(Connection, Response<Incoming>), AskError> {
        let kept = self.kept.lock().pop().filter(Connection::is_open);
        if let Some(mut connection) = kept {
            match within(patience, connection.begin(question(path, asked.clone()))).await {
                Ok(answer) => return Ok((connection, answer)),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(AskError::TimedOut),
                // The other node may have closed it while it was kept.
                Err(_) => self.kept.lock().clear(),
            }
        }
        let open = within(patience, self.open()).await;
        let mut connection = open.map_err(|error| AskError::Unreachable(error.to_string()))?;
        let answer = within(patience, connection.begin(question(path, asked))).await.map_err(broken_off)?;
        Ok((connection, answer))
    }
}

fn broken_off(error: io::Error) -> AskError {
    match error.kind() {
        io::ErrorKind::TimedOut => AskError::TimedOut,
        _ => AskError::BrokenOff(error.to_string()),
    }
}

fn refusal(status: u16, text: &[u8]) -> String {
    match String::from_utf8_lossy(text).trim() {
        "" => format!("the other node answered {status}"),
        text => text.to_owned(),
    }
}
