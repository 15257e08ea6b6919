//! What requests share: the node around the API, and what it remembers.

use std::{io, sync::Arc};

use axum::http::StatusCode;
use http::{
    Front,
    passes::Passes,
    reply::{self, Refusal},
};
use serde_json::json;

use super::{answers::Answers, figures::Figures, telemetry::Telemetry};
use crate::node::{control::NodeControl, events::Events};

/// The REST API of one node; shared by its plain and TLS listeners.
pub struct Api {
    pub(crate) control: Arc<dyn NodeControl>,
    pub(crate) front: Arc<Front>,
    /// One-time logins of clusters that this node asked to add it.
    pub(crate) passes: Arc<Passes>,
    /// What every node says about itself.
    pub(crate) figures: Figures,
    /// What else other nodes have answered a moment ago.
    pub(crate) answers: Answers,
    /// What has happened to the cluster.
    pub(crate) events: Events,
    /// Held by a request that changes a setting by what that is.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Clients that are asked how long operations take.
    pub(crate) telemetry: Arc<Telemetry>,
}

impl Api {
    /// The API over `control`.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub fn new(control: Arc<dyn NodeControl>) -> io::Result<Arc<Self>> {
        let passes = Arc::new(Passes::default());
        let counted = Arc::clone(&control);
        let telemetry = Telemetry::new(move |count| counted.sdks_connected(count));
        Ok(Arc::new(Self {
            control: Arc::clone(&control),
            front: Arc::new(Front::new(control, Arc::clone(&passes))?),
            passes,
            figures: Figures::default(),
            answers: Answers::default(),
            events: Events::default(),
            changing: tokio::sync::Mutex::default(),
            telemetry,
        }))
    }

    /// What judges its requests, for surfaces beside it.
    #[must_use]
    pub fn front(&self) -> Arc<Front> {
        Arc::clone(&self.front)
    }

    /// Unpredictable bytes, for salts and uuids.
    pub(crate) fn random<const N: usize>() -> Result<[u8; N], Refusal> {
        let mut bytes = [0; N];
        match getrandom::fill(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => {
                let body = json!([format!("no randomness: {error}")]);
                Err(reply::with_status(StatusCode::INTERNAL_SERVER_ERROR, &body).into())
            }
        }
    }

    /// 32 hexadecimal digits that name something for its life.
    pub(crate) fn new_uuid() -> Result<String, Refusal> {
        use std::fmt::Write as _;
        let bytes: [u8; 16] = Self::random()?;
        Ok(bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }))
    }
}
